"""The records of attempts.

The record of the attempt that delivered is the job's result. The records before it are in the job's output, each a JSON
object on a line: the newest in full, older ones without headers and with less of the answer.
"""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.texts import cut
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import Job
from tarry.push.delivery.delivery_verdict import MAYBE, Again, Delivered, DeliveryVerdict, Disabled, Final
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import Headers, HttpResponse
from tarry.tasks import progress
from tarry.tasks.arguments.masking import HIDDEN, mask_json

MOST_KEPT = 20
"""Attempts, the newest ones."""
MOST_HEAD, MOST_ANSWER, MOST_OLD = 4096, 8192, 200
"""Bytes of headers and of the answer in the newest record, and characters of the answer in older ones."""
_SHOWN = re.compile(
    r"content-(type|length|encoding|language)|transfer-encoding|connection|date|server|via|age|allow|vary|expires"
    r"|cache-control|etag|last-modified|retry-after|(x-)?ratelimit(-[a-z]+)*|(x-)?(request|correlation|trace)(-?id)?"
    r"|traceparent|x-amzn-requestid|cf-ray"
)
"""Headers of an answer whose values are kept."""
MOST_REASON = 500
"""Characters of the reason."""
MOST_TEXT = 32 * 1024
"""Bytes of all records of a job."""

AttemptOutcome = Literal["delivered", "again", "final", "disabled"]
"""What the rule of a task says of an attempt."""
_WORDS: dict[type[DeliveryVerdict], AttemptOutcome] = {
    Delivered: "delivered",
    Again: "again",
    Final: "final",
    Disabled: "disabled",
}


# A program that takes the job may end it with a record of its own: each can be shown. Below 0: a clock was set back.
_RecordSeconds = Annotated[float, Meta(ge=-(2**37), le=2**37)]


class AttemptRecord(Struct, omit_defaults=True):
    """One attempt."""

    attempt: int
    at: str
    """When it began, by the worker's clock."""
    outcome: AttemptOutcome
    reason: str
    """One line, with the reason that the rule gave."""
    first: int = 0
    """When the first attempt was due, since the last manual retry: microseconds since the epoch."""
    status: int = 0
    """0: no answer came."""
    address: str = ""
    connect: _RecordSeconds = 0.0
    elapsed: _RecordSeconds = 0.0
    """Seconds, in all."""
    version: str = ""
    url: str = ""
    """The URL that answered, if redirects led elsewhere."""
    maybe: bool = False
    """It may have been delivered although no answer says so."""
    headers: Headers = ()
    answer: str = ""
    """The start of it."""
    cut: bool = False
    """There was more of the answer than is kept."""

    @property
    def sent(self) -> bool:
        """Whether some of the request has been sent."""
        return self.status > 0 or self.maybe


def make_record(
    attempt: int, began: float, first: int, came: HttpResponse | Failure, verdict: DeliveryVerdict
) -> AttemptRecord:
    """The record of an attempt. began: seconds since the epoch."""
    record = AttemptRecord(
        attempt,
        format_time(began),
        _WORDS[type(verdict)],
        cut(verdict.reason, MOST_REASON),
        first,
        came.status,
        came.address,
        round(came.connect, 6),
        round(came.elapsed, 6),
        maybe=isinstance(verdict, Again | Final) and verdict.maybe,
    )
    if isinstance(came, Failure):
        return record
    # By its size in JSON, where one character may take several bytes.
    text = came.excerpt()
    masked = mask_json(text)
    record.answer = _shrink_text(masked, MOST_ANSWER)
    record.cut = came.cut or len(text.encode()) < len(came.body) or len(record.answer) < len(masked)
    record.version, record.url = came.version, came.url
    record.headers = _first_headers(_mask_headers(came.headers), MOST_HEAD)
    return record


def interrupted_record(attempt: int, began: float, first: int) -> AttemptRecord:
    """The record of an attempt that was sent and then interrupted here, as when a worker stops."""
    came = Failure(FailureKind.CLOSED, "broken off here before an answer came", True, time.time() - began)
    return make_record(attempt, began, first, came, Again(f"{came.reason}; {MAYBE}", maybe=True))


def encode_record(record: AttemptRecord, most: int) -> bytes:
    """The JSON of a record. If it has more than `most` bytes: without headers and with less of the answer, or only with
    the status."""
    encoded = msgspec.json.encode(record)
    if len(encoded) <= most:
        return encoded
    answer = _shrink_text(record.answer, max(0, most - 1024))
    encoded = msgspec.json.encode(replace(record, headers=(), answer=answer, cut=True))
    return encoded if len(encoded) <= most else msgspec.json.encode({"status": record.status})


def format_records(before: Sequence[AttemptRecord], last: AttemptRecord) -> str:
    """All records as lines, the last one in full."""
    older = [replace(one, headers=(), answer=one.answer[:MOST_OLD]) for one in before][-(MOST_KEPT - 1) :]
    lines = [msgspec.json.encode(one).decode() for one in (*older, last)]
    while len(lines) > 1 and sum(map(len, lines)) > MOST_TEXT // 2:
        del lines[0]
    return "\n".join(lines)


def records_of(job: Job) -> list[AttemptRecord]:
    """The records of attempts that did not deliver, the oldest first."""
    output = progress.decode_output(job.progress)
    return [] if output is None else parse_records(output.text)


def parse_records(lines: str) -> list[AttemptRecord]:
    """The records in these lines. Other lines are skipped."""
    return [record for line in lines.splitlines() for record in _parse_line(line)]


def format_time(moment: float) -> str:
    """Seconds since the epoch as RFC 3339 has it, to the millisecond."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def first_due(job: Job, before: Sequence[AttemptRecord], enqueued: int) -> int:
    """The time from which the schedule counts: when the first attempt was due, microseconds since the epoch.

    A manual retry starts a new count. enqueued: the first due time from the job's headers; 0: not known.
    """
    if not job.failures:
        return job.due
    # A manual retry resets the failures: records with higher numbers are from before it.
    known = before[-1].first if before and before[-1].attempt <= job.failures else 0
    return known or enqueued or job.due


def _parse_line(line: str) -> list[AttemptRecord]:
    try:
        return [decode_json(line, AttemptRecord)]
    except UNREADABLE:
        return []


def _mask_headers(headers: Headers) -> Headers:
    """The headers, of which only those that help to find a fault have their values."""
    # Others may have cookies, keys, or links that let in whoever has them.
    return tuple((name, value if _SHOWN.fullmatch(name.lower()) else HIDDEN) for name, value in headers)


def _first_headers(headers: Headers, most: int) -> Headers:
    """The first headers, as many as fit into `most` bytes of JSON."""
    # Nearly always all of them do.
    if len(msgspec.json.encode(headers)) <= most:
        return headers
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        most -= len(msgspec.json.encode((name, value)))
        if most < 0:
            break
        kept.append((name, value))
    return tuple(kept)


def _shrink_text(answer: str, most: int) -> str:
    """The start of the answer that fits into `most` bytes of JSON."""
    while (size := len(msgspec.json.encode(answer))) > most + 2:
        # At least one character less each time, so that the loop ends.
        answer = answer[: min(len(answer) * most // size, len(answer) - 1)]
    return answer
