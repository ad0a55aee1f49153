"""The lines of the three logs: JSON objects, each beginning with `time`, `job` and `task`."""

import base64
import time
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tarry.client.enqueue_listener import JobEvent
from tarry.model.checks.decoders import json_decoder
from tarry.model.duration import SECOND
from tarry.model.job import HELD, UNFINISHED, Job
from tarry.model.lifecycle import initial_state
from tarry.push.delivery.delivery_record import AttemptRecord
from tarry.store.rules import ids

LogMoment = str | int
"""RFC 3339, in UTC and to the microsecond; microseconds since the epoch if that cannot express it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN, _CLOSED = (b"{", b"["), (b"}", b"]")
_raw = json_decoder(Raw)
_encode = msgspec.json.Encoder().encode


class RequestLine(Struct, omit_defaults=True, gc=False):
    """A line of request.log: all that is needed to restore an accepted job."""

    time: str
    job: str
    task: str
    event: JobEvent
    queue: str = ""
    due: LogMoment = 0
    body: Raw | UnsetType = UNSET
    """As it was enqueued, byte for byte."""
    body_base64: str = ""
    """In place of `body` if that is no JSON on one line."""
    priority: int = 0
    expires: LogMoment = 0
    key: str | None = None
    unique: int = UNFINISHED
    lane: str | None = None
    headers: Raw | UnsetType = UNSET


class AttemptLine(Struct, omit_defaults=True, gc=False):
    """The start of a line of notify.log; the AttemptRecord follows."""

    time: str
    job: str
    task: str
    ended: bool = False
    """Delivered, or no other attempt follows."""


class ErrorLine(Struct, omit_defaults=True):
    """A line of error.log."""

    time: str
    job: str = ""
    task: str = ""
    queue: str = ""
    attempt: int = 0
    level: str = ""
    message: str = ""
    traceback: str = ""


def format_time(moment: int) -> str:
    """Formats microseconds since the epoch. All results have one length."""
    # With one length they sort as text.
    return f"{_second(moment // SECOND)}.{moment % SECOND:06}Z"


def now() -> str:
    """The time by this host's clock."""
    return format_time(time.time_ns() // 1000)


def format_request(job: Job, event: JobEvent = "accepted") -> bytes:
    """The line of an accepted or changed job."""
    plain = _fits_in_line(job.body)
    return _line(
        RequestLine(
            now(),
            ids.text(job.id),
            job.task,
            event,
            job.queue,
            _moment(job.due),
            Raw(job.body) if plain else UNSET,
            "" if plain else base64.b64encode(job.body).decode(),
            job.priority,
            _moment(job.expires),
            job.key,
            job.key_ttl,
            job.lane,
            Raw(job.headers) if job.headers else UNSET,
        )
    )


def format_action(job: Job, event: JobEvent) -> bytes:
    """The line of a job that was cancelled, deleted, retried or moved."""
    return _line(RequestLine(now(), ids.text(job.id), job.task, event))


def format_attempt(job: Job, record: AttemptRecord, ended: bool) -> bytes:
    """The line of an attempt."""
    head = _encode(AttemptLine(now(), ids.text(job.id), job.task, ended))
    return b"%b,%b\n" % (head[:-1], _encode(record)[1:])


_requests = json_decoder(RequestLine)


def parse_request(line: bytes) -> RequestLine:
    """Parses a line of request.log; ValueError if it is invalid or lacks a part of the job."""
    request = _requests.decode(line)
    if request.event in ("accepted", "changed"):
        # Only a check: a job that cannot be restored makes the line invalid.
        make_job(request, 0)
    return request


def make_job(line: RequestLine, at: int) -> Job:
    """The job of an accepted line, as if it was enqueued at that time; ValueError if the line is incomplete."""
    if line.body is UNSET and not line.body_base64:
        raise ValueError("it has no body")
    return Job(
        ids.parse(line.job),
        line.task,
        base64.b64decode(line.body_base64, validate=True) if isinstance(line.body, UnsetType) else bytes(line.body),
        line.queue,
        line.priority,
        due := parse_moment(line.due),
        initial_state(due, at),
        state_since=at,
        expires=parse_moment(line.expires),
        key=line.key,
        key_ttl=line.unique,
        key_held_until=0 if line.key is None else HELD,
        lane=line.lane,
        headers=b"" if isinstance(line.headers, UnsetType) else bytes(line.headers),
    )


def parse_moment(moment: LogMoment) -> int:
    """Microseconds since the epoch; ValueError if it is no time."""
    if isinstance(moment, int):
        return moment
    past = datetime.fromisoformat(moment) - _EPOCH
    # Whole numbers, since a float of seconds loses microseconds.
    return (past.days * 86400 + past.seconds) * SECOND + past.microseconds


def _moment(moment: int) -> LogMoment:
    try:
        return format_time(moment) if moment else 0
    except (ValueError, OverflowError, OSError):
        # Beyond the years that a date can have.
        return moment


@lru_cache(64)
def _second(second: int) -> str:
    # Cached: it would take a third of the time of a line.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _fits_in_line(body: bytes) -> bool:
    """Whether the body can be written in a line as it is."""
    # A line break would end the line of the log.
    if b"\n" in body or body[:1] not in _OPEN or body[-1:] not in _CLOSED:
        return False
    try:
        _raw.decode(body)
    except ValueError:
        return False
    return True


def _line(facts: Struct) -> bytes:
    return _encode(facts) + b"\n"
