"""A job of an HTTP task that is no longer wanted, and the question whether it was sent.

Who waits is never sent. Of one that is under way only its worker knows, which hears of the cancel at once, lets nothing
go out that has not gone out by then, and says in the job's record which of the two it was.
"""

import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tarry.errors import JobNotFound
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.push.delivery.record import records_of
from tarry.store import ids

if TYPE_CHECKING:
    from tarry.client.client import Client

REPORT_TIMEOUT = 5.0
"""Seconds that its worker has to say whether it was sent; one that hears of the cancel only by its lease takes one."""
_POLL_INTERVAL = 0.02

NEVER = "it was never sent"
MAYBE = "it had been sent already: maybe delivered"
BEFORE = "it is not sent again; an attempt before was: maybe delivered"
UNKNOWN = "its worker has not said whether it had been sent: maybe delivered"


class CancelResult(Struct, frozen=True):
    """What came of a cancel."""

    cancelled: bool
    """False: it had ended already, and stays as it was."""
    sent: bool | None
    """False: it has never been sent, and never will be. True: some of it has gone out, in this attempt or in one
    before, so it may have been acted on. None: its worker did not say in time."""
    said: str
    """The same in a line, for people."""


def cancel(client: "Client", id: bytes, reason: str = "", timeout: float = REPORT_TIMEOUT) -> CancelResult:
    """Cancels a job of an HTTP task, and waits up to so many seconds for its worker's word where it is under way.
    JobNotFound; StoreError."""
    job = client.cancelled(id, reason)
    if job is None:
        return _already_ended(client.get(id).record())
    if job.state is not State.RUNNING:
        return CancelResult(True, was_sent_before(job), describe_sent(was_sent_before(job), False))
    sent = _wait_for_report(client, job, timeout)
    return CancelResult(True, sent, UNKNOWN if sent is None else describe_sent(sent, True))


def was_sent_before(job: Job) -> bool:
    """By an attempt that has ended: as far as it is on record, or died with its worker."""
    return job.losses > 0 or any(record.sent for record in records_of(job))


def describe_sent(sent: bool, running: bool) -> str:
    """In words."""
    return NEVER if not sent else MAYBE if running else BEFORE


def report_sent(job: Job, sent: bool) -> Change:
    """What a worker says of a job that was cancelled under its hands."""
    note: dict[str, Any] = msgspec.json.decode(job.note)
    sent_ever = sent or was_sent_before(job)
    note["message"] = "; ".join(filter(None, [note.get("message"), describe_sent(sent_ever, sent)]))
    return lifecycle.told(job, msgspec.json.encode(note | {"sent": sent_ever}))


def reported_sent(job: Job) -> bool | None:
    """Whether it was sent, by its worker's word; None: it has not had it yet."""
    sent = msgspec.json.decode(job.note).get("sent")
    return sent if isinstance(sent, bool) else None


def _wait_for_report(client: "Client", job: Job, within: float) -> bool | None:
    until = time.monotonic() + within
    while time.monotonic() < until:
        there = client.look([job.id])[0]
        if there is None or (there.state, there.epoch) != (State.CANCELLED, job.epoch):
            return None
        if (sent := reported_sent(there)) is not None:
            return sent
        time.sleep(_POLL_INTERVAL)
    return None


def _already_ended(job: Job) -> CancelResult:
    if not job.state.finished:
        return CancelResult(False, None, f"it changes all the time, and is {job.state}; try again")
    sent = _was_sent(job)
    how = "never sent" if sent is False else "delivered" if job.state is State.DONE else "maybe delivered"
    return CancelResult(False, sent, f"it is {job.state} already: {how}")


def _was_sent(job: Job) -> bool | None:
    if job.state is not State.CANCELLED:
        return job.state is State.DONE or was_sent_before(job)
    message = msgspec.json.decode(job.note).get("message", "")
    return False if message.endswith(NEVER) else True if message.endswith((MAYBE, BEFORE)) else None


def parse_id(job: str | bytes) -> bytes:
    """The id; JobNotFound if it is none."""
    try:
        return ids.parsed(job) if isinstance(job, str) else job
    except ValueError as error:
        raise JobNotFound(str(error)) from None
