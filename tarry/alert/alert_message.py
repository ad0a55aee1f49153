"""Builds the message for one notice or for several."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from tarry.alert.alarms import Notice
from tarry.alert.condition import clean_line
from tarry.model.duration import SECOND, format_duration

MOST_SUBJECT = 150
MOST_NOTICES = 50
"""The most notices in a message; it only gives the number of the others."""


class Message(Struct, frozen=True):
    """Mails and channels use `subject` and `text`, webhooks use `json`."""

    id: str
    """Stays the same when the message is sent again."""
    subject: str
    text: str
    json: bytes


def build_message(notices: Sequence[Notice], host: str, now: int, console: str = "") -> Message:
    """Builds one message; if a condition has both begun and ended, only its end is in it.

    host: the name of the host that reports. now: microseconds since the epoch. console: the URL of the console, for the
    link of each notice; empty: no links.
    """
    newest = list({notice.key: notice for notice in notices}.values())
    began, over = _select(newest, False), _select(newest, True)
    # What is wrong comes first: if there are too many notices, those of an end are left out.
    shown, more = (began + over)[:MOST_NOTICES], len(newest) - MOST_NOTICES
    # One line, so that no part of it becomes another header of a mail.
    subject = clean_line(f"tarry on {host}: {_subject(began, over)}", MOST_SUBJECT)
    parts = [
        *(_text(notice, console) for notice in shown),
        *([f"and {more} more: see the log of tarry"] if more > 0 else []),
    ]
    text = "\n\n".join([*parts, f"Told by tarry on {host}, {format_time(now)}."]) + "\n"
    facts = {"type": "tarry.alert", "host": host, "text": text, "alerts": [_facts(notice, console) for notice in shown]}
    return Message(_id(newest), subject, text, msgspec.json.encode(facts))


def format_time(moment: int) -> str:
    """Microseconds since the epoch in the form of RFC 3339: to the second, in UTC."""
    return datetime.fromtimestamp(moment // SECOND, UTC).isoformat(" ")


def _select(notices: Sequence[Notice], over: bool) -> list[Notice]:
    return [notice for notice in notices if bool(notice.until) is over]


def _subject(began: Sequence[Notice], over: Sequence[Notice]) -> str:
    if len(began) + len(over) == 1:
        return f"over: {over[0].what}" if over else began[0].what
    if not over or not began:
        return f"{len(began) or len(over)} things are {'wrong' if began else 'over'}: {(*began, *over)[0].what}"
    return f"{len(began)} wrong, {len(over)} over: {(*began, *over)[0].what}"


def _text(notice: Notice, console: str) -> str:
    if notice.until:
        lasted = format_duration(max(0, notice.until - notice.since))
        return f"OVER: {notice.what}\n  from {format_time(notice.since)} to {format_time(notice.until)}, {lasted}"
    details = "".join(f"\n  {line}" for line in notice.details)
    link = f"\n  {url}" if (url := _link(notice, console)) else ""
    return f"{notice.what}\n  since {format_time(notice.since)}{details}\n  what to do: {notice.todo}{link}"


def _link(notice: Notice, console: str) -> str:
    """The page that shows it; empty: there is none, or nobody said where the console is."""
    return f"{console.rstrip('/')}{notice.where}" if console and notice.where else ""


def _facts(notice: Notice, console: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": notice.key, "state": "over" if notice.until else "begun", "what": notice.what}
    facts["since"] = format_time(notice.since)
    if notice.until:
        return facts | {"until": format_time(notice.until)}
    facts |= {"details": notice.details, "todo": notice.todo}
    return facts | {"url": url} if (url := _link(notice, console)) else facts


def _id(notices: Sequence[Notice]) -> str:
    # From what is in the message, so that it stays the same when the message is sent again.
    content = msgspec.json.encode([(notice.key, notice.at, notice.until) for notice in notices])
    return f"alert_{blake2b(content, digest_size=12).hexdigest()}"
