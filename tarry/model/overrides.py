"""What one job alone has, kept in its headers: a timeout and a retry rule that differ from its task's, until when other
calls may put it off, which attempts it follows, in which order it comes, and what it costs."""

# In the headers: so they need no column in any store, and a job without them costs its worker nothing.

from collections.abc import Collection, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import LONGEST, SECOND, Duration, microseconds
from tarry.model.job import LABEL_PREFIX, ORDER_LABEL
from tarry.model.limit import MAX_COST
from tarry.model.retry import Retry, RetryRule, retry_rule

TIMEOUT, RETRY, LATEST, FOLLOWS = "tarry-timeout", "tarry-retry", "tarry-latest", "tarry-follows"
"""Names of headers: microseconds; a rule as JSON; until when other calls may put off the job, microseconds since the
epoch; the places of the attempts which have to end first (`store/rules/kept_places.py`), one a line."""
ON_DEAD, HOLD = "tarry-on-dead", "hold"
"""Name and value of the header of a job that waits behind the dead jobs of its key."""

COST = "tarry-cost"
"""The name of a header: how many starts a rate counts. A job without it costs one."""
MOST_DIGITS = 10
"""Of a cost."""
COST_MARK = b'"tarry-cost":'
"""What the headers of each job with a cost have in them. `lua/costs.lua` has it, too."""

_decoder = json_decoder(dict[str, str])


def as_headers(timeout: Duration | None, retry: RetryRule) -> dict[str, str]:
    """The headers for this timeout and retry rule; TypeError, ValueError."""
    found = {}
    if timeout is not None:
        found[TIMEOUT] = str(_some(timeout))
    if (rule := retry_rule(retry)) is not None:
        found[RETRY] = msgspec.json.encode(_plain(rule)).decode()
    return found


def timeout_of(headers: bytes, otherwise: float | None) -> float | None:
    """Seconds that an attempt of the job may take; `otherwise` if its headers do not say."""
    text = _read(headers, TIMEOUT)
    try:
        return otherwise if text is None else _some(timedelta(microseconds=int(text))) / SECOND
    except UNREADABLE:
        # As in `retry_of`: a job must not fail because of a header that another client wrote.
        return otherwise


def retry_of(headers: bytes, otherwise: Retry) -> Retry:
    """The rule by which the job is tried again; `otherwise` if its headers do not say."""
    text = _read(headers, RETRY)
    if text is None:
        return otherwise
    try:
        return _rule(msgspec.json.decode(text))
    except (*UNREADABLE, TypeError, AttributeError, KeyError):
        # Written by a newer release or another client. The task's rule is the nearest to what was meant.
        return otherwise


def latest_of(headers: bytes) -> int | None:
    """Until when other calls of its key may put off the job; None if its headers do not say."""
    text = _read(headers, LATEST)
    try:
        return None if text is None else min(max(int(text), 0), LONGEST)
    except ValueError:
        return None


def cost_of(headers: bytes) -> int:
    """How many starts of the job a rate counts."""
    # Claims ask this of each job under a rate.
    if COST_MARK not in headers:
        return 1
    text = _read(headers, COST)
    # Others may have written it: what is no cost counts as if none was given.
    cost = int(text) if text and text.isdecimal() and len(text) <= MOST_DIGITS else 1
    return cost if 1 <= cost <= MAX_COST else 1


def followed_places(headers: bytes) -> list[str]:
    """The places of the attempts that have to end before the job starts."""
    return [name for name in (_read(headers, FOLLOWS) or "").split("\n") if name]


def order_headers(task: str, lane: str, *, holds: bool) -> dict[str, str]:
    """The headers of a job of an ordered task. lane: that of its key. holds: dead jobs of the key hold it back."""
    # Hashed: names of tasks and keys may be longer than an index takes.
    value = blake2b(f"{task}\0{lane}".encode(), digest_size=16).hexdigest()
    return {LABEL_PREFIX + ORDER_LABEL: value, **({ON_DEAD: HOLD} if holds else {})}


def holds_when_dead(headers: bytes) -> bool:
    """Whether the job waits behind the dead jobs of its key."""
    return _read(headers, ON_DEAD) == HOLD


def with_followed(headers: bytes, places: Collection[str]) -> bytes:
    """The headers of a job that must not start while an attempt keeps one of these places."""
    if not places:
        return headers
    read = _decoder.decode(headers) if headers else {}
    return msgspec.json.encode(read | {FOLLOWS: "\n".join(places)})


def _some(timeout: Duration) -> int:
    micros = microseconds(timeout, "timeout")
    if not micros:
        raise ValueError(f"timeout={timeout!r}: a duration longer than 0")
    return micros


def _read(headers: bytes, name: str) -> str | None:
    # A search for bytes is much faster than decoding, and few jobs have overrides.
    if name.encode() not in headers:
        return None
    try:
        return _decoder.decode(headers).get(name)
    # Bad headers are reported where the task's own headers are decoded.
    except UNREADABLE:
        return None


def _plain(rule: Retry) -> dict[str, Any]:
    """The arguments that create the rule, durations in microseconds."""
    return {
        "limit": rule.limit,
        "backoff": rule.backoff if isinstance(rule.backoff, str) else list(map(microseconds, rule.backoff)),
        "base": rule.base,
        "cap": rule.cap,
        "jitter": rule.jitter,
        "only": sorted(rule.only),
        "never": sorted(rule.never),
        "per": {kind: _plain(other) for kind, other in rule.per.items()},
        "within": rule.within,
    }


def _rule(plain: Mapping[str, Any]) -> Retry:
    within, backoff = plain["within"], plain["backoff"]
    return Retry(
        **{name: plain[name] for name in ("limit", "jitter", "only", "never")},
        # As timedeltas, since a Retry reads plain numbers as seconds.
        base=timedelta(microseconds=plain["base"]),
        cap=timedelta(microseconds=plain["cap"]),
        backoff=backoff if isinstance(backoff, str) else [timedelta(microseconds=delay) for delay in backoff],
        per={kind: _rule(other) for kind, other in plain["per"].items()},
        within=None if within is None else timedelta(microseconds=within),
    )
