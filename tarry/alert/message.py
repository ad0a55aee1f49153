"""What somebody is told, of one thing or of several."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from tarry.alert.alarms import Notice
from tarry.alert.condition import plain
from tarry.model.duration import SECOND, spoken

MOST_SUBJECT = 150
MOST_TOLD = 50
"""Things in one message; of more, how many there are."""


class Message(Struct, frozen=True):
    """For mails and channels `subject` and `text`, for webhooks `json`."""

    id: str
    """The same when it is sent again."""
    subject: str
    text: str
    json: bytes


def message(notices: Sequence[Notice], host: str, now: int) -> Message:
    """Of one that began and ended meanwhile, only the end. host: who tells. now: microseconds since the epoch."""
    newest = list({notice.key: notice for notice in notices}.values())
    began, over = _of(newest, False), _of(newest, True)
    told, more = (began + over)[:MOST_TOLD], len(newest) - MOST_TOLD
    subject = plain(f"tarry on {host}: {_subject(began, over)}", MOST_SUBJECT)
    parts = [*(_text(notice) for notice in told), *([f"and {more} more: see the log of tarry"] if more > 0 else [])]
    text = "\n\n".join([*parts, f"Told by tarry on {host}, {spelled(now)}."]) + "\n"
    facts = {"type": "tarry.alert", "host": host, "text": text, "alerts": [_facts(notice) for notice in told]}
    return Message(_id(newest), subject, text, msgspec.json.encode(facts))


def spelled(moment: int) -> str:
    """Microseconds since the epoch as RFC 3339 has them, to the second, in UTC."""
    return datetime.fromtimestamp(moment // SECOND, UTC).isoformat(" ")


def _of(notices: Sequence[Notice], over: bool) -> list[Notice]:
    return [notice for notice in notices if bool(notice.until) is over]


def _subject(began: Sequence[Notice], over: Sequence[Notice]) -> str:
    if len(began) + len(over) == 1:
        return f"over: {over[0].what}" if over else began[0].what
    if not over or not began:
        return f"{len(began) or len(over)} things are {'wrong' if began else 'over'}: {(*began, *over)[0].what}"
    return f"{len(began)} wrong, {len(over)} over: {(*began, *over)[0].what}"


def _text(notice: Notice) -> str:
    if notice.until:
        lasted = spoken(max(0, notice.until - notice.since))
        return f"OVER: {notice.what}\n  from {spelled(notice.since)} to {spelled(notice.until)}, {lasted}"
    details = "".join(f"\n  {line}" for line in notice.details)
    return f"{notice.what}\n  since {spelled(notice.since)}{details}\n  what to do: {notice.todo}"


def _facts(notice: Notice) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": notice.key, "state": "over" if notice.until else "begun", "what": notice.what}
    facts["since"] = spelled(notice.since)
    if notice.until:
        return facts | {"until": spelled(notice.until)}
    return facts | {"details": notice.details, "todo": notice.todo}


def _id(notices: Sequence[Notice]) -> str:
    said = msgspec.json.encode([(notice.key, notice.at, notice.until) for notice in notices])
    return f"alert_{blake2b(said, digest_size=12).hexdigest()}"
