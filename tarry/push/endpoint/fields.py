"""Readers of the settings of an HTTP task: from the value in TOML or JSON to the value in the endpoint.

A reader raises ValueError with what is wrong and what to write, or SettingSyntaxError if it knows the character. No
message repeats a value that may be secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tarry.config.kinds import PLACE
from tarry.errors import ConfigError
from tarry.model.duration import SECOND, microseconds
from tarry.model.job import MAX_PRIORITY
from tarry.model.limit import parse_limit
from tarry.push.endpoint.recipient import Recipient
from tarry.push.endpoint.secret import Secret
from tarry.push.endpoint.success import SuccessCodes
from tarry.push.endpoint.template import Template, UrlTemplate
from tarry.push.rule.cel import RetryCondition

METHODS = ("POST", "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_TEXT = 200
"""Characters of the name of a queue or task, and of `order`."""
MOST_NOTE = 2_000
"""Characters of what is written for people."""
MOST_REDIRECTS, MOST_ALERTS, MOST_SECRETS = 10, 20, 10

_OURS = ("webhook-", "tarry-", "idempotency-key")

FieldReader = Callable[[Any, bool], Any]
"""Arguments: the value, and whether to check it with the extra `push`."""


def _url(written: Any, checked: bool) -> UrlTemplate:
    found = UrlTemplate.parse(written)
    if checked:
        from tarry.push.http.target import parse_target  # noqa: PLC0415 - brings the HTTP client

        parse_target(found.sample)
    return found


def _method(written: Any, checked: bool) -> str:
    method = written.upper() if isinstance(written, str) else ""
    if method not in METHODS:
        raise ValueError(f"no method; write one of {', '.join(METHODS)}")
    return method


def _headers(written: Any, checked: bool) -> tuple[tuple[str, Secret], ...]:
    if not isinstance(written, dict):
        raise ValueError('no table of headers; write headers = { authorization = "env:TOKEN" }')
    for name, value in written.items():
        if not isinstance(value, str):
            raise ValueError(f'the value of {name[:80]} is no text; put it in quotes, or write "env:NAME"')
        if name.lower().startswith(_OURS):
            raise ValueError(f"{name[:80]} is set by tarry itself; leave it out")
    # Case makes no difference in the name of a header.
    if len({name.lower() for name in written}) < len(written):
        raise ValueError("one name stands there twice; write it once")
    found = tuple((name.lower(), secret(value)) for name, value in written.items())
    if checked:
        from tarry.push.http import target  # noqa: PLC0415 - brings the HTTP client

        # Values in other places may be missing here: only workers need them.
        target.check_headers((name, value.value() if value.literal else "") for name, value in found)
    return found


def secret(written: Any) -> Secret:
    """A secret, or the place of one; ValueError."""
    if not isinstance(written, str):
        raise ValueError('no text; write "whsec_...", "env:NAME" or "file:/path"')
    if written.startswith(("env:", "file:")) and not PLACE.fullmatch(written):
        raise ValueError('no place; write "env:NAME", or "file:/path" with all of the path')
    return Secret(written)


def secrets(written: Any, checked: bool) -> tuple[Secret, ...]:
    """A secret or a list of them; ValueError. checked: also that literal secrets can sign."""
    found = tuple(secret(one) for one in (written if isinstance(written, list) else [written]))
    if len(found) > MOST_SECRETS:
        raise ValueError(f"{len(found)} secrets; at most {MOST_SECRETS}")
    if checked:
        from tarry.push.http.sign import Signer  # noqa: PLC0415 - needed only to sign

        try:
            for one in found:
                Signer([one.value()] if one.literal else [])
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return found


def _delay(written: Any, checked: bool) -> int:
    return microseconds(written)


def _seconds(written: Any, checked: bool) -> float:
    if not (found := microseconds(written)):
        raise ValueError('it is 0; write a duration such as "10s"')
    return found / SECOND


def _text(written: Any, checked: bool) -> str:
    if not isinstance(written, str) or not re.fullmatch(rf"[^\x00-\x1f\x7f]{{1,{MOST_TEXT}}}", written):
        raise ValueError(f"no name; write a text of 1 to {MOST_TEXT} characters")
    return written


def _whole(least: int, most: int) -> FieldReader:
    def read(written: Any, checked: bool) -> int:
        # Not isinstance: true would be a number.
        if type(written) is not int or not least <= written <= most:
            raise ValueError(f"{_brief(written)} is no whole number from {least} to {most}; write one")
        return written

    return read


def _rule(written: Any, checked: bool) -> RetryCondition:
    # To compile a rule takes the extra `push`, which a producer may not have.
    if not checked and isinstance(written, str):
        return RetryCondition(written)
    return RetryCondition.parse(written)


def _success(written: Any, checked: bool) -> SuccessCodes:
    return SuccessCodes.parse(written)


def _rate(written: Any, checked: bool) -> str:
    parse_limit(None, written)
    return str(written)


def _alert(written: Any, checked: bool) -> tuple[str, ...]:
    found = written if isinstance(written, list) else [written]
    if len(found) > MOST_ALERTS:
        raise ValueError(f"{len(found)} of them; at most {MOST_ALERTS}")
    for number, one in enumerate(found, 1):
        try:
            Recipient.parse(one)
        except ValueError as error:
            raise ValueError(f"number {number} is {error}") from None
    return tuple(found)


def _order(written: Any, checked: bool) -> Template:
    if not isinstance(written, str) or len(written) > MOST_TEXT:
        raise ValueError(f'no text of at most {MOST_TEXT} characters; write a placeholder, as in "{{customer.id}}"')
    if (found := Template.parse(written)).is_fixed:
        raise ValueError('it is the same for all jobs; write a placeholder, as in "{customer.id}", or concurrency = 1')
    return found


def _on_dead(written: Any, checked: bool) -> str:
    if written not in ("skip", "hold"):
        raise ValueError(f'{_brief(written)} is neither "skip" nor "hold"')
    return str(written)


def _note(written: Any, checked: bool) -> str:
    if not isinstance(written, str) or len(written) > MOST_NOTE:
        raise ValueError(f"no text of at most {MOST_NOTE:,} characters")
    return written


def _parse_flag(written: Any, checked: bool) -> bool:
    if not isinstance(written, bool):
        raise ValueError(f"{_brief(written)} is neither true nor false; write one of them, without quotes")
    return written


def _brief(written: Any) -> str:
    text = repr(written)
    return text if len(text) <= 40 else text[:37] + "..."


READERS: Mapping[str, FieldReader] = {
    "url": _url,
    "method": _method,
    "headers": _headers,
    "secret": secrets,
    "secrets": secrets,
    "delay": _delay,
    "timeout": _seconds,
    "connect_timeout": _seconds,
    "queue": _text,
    "priority": _whole(-MAX_PRIORITY, MAX_PRIORITY),
    "retry_when": _rule,
    "success": _success,
    "concurrency": _whole(1, 2**31 - 1),
    "rate": _rate,
    "alert": _alert,
    "redirects": _whole(0, MOST_REDIRECTS),
    "order": _order,
    "on_dead": _on_dead,
    "owner": _note,
    "description": _note,
    "enabled": _parse_flag,
    "encrypt": _parse_flag,
}
SCHEDULE = ("schedule", "max_attempts", "until")
"""Settings that form the schedule together."""
FIELDS = (*READERS, *SCHEDULE)
