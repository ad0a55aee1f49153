"""Cancelling a job of an HTTP task, and finding out whether it was sent.

A job that waits is not sent any more. For a running job only its worker knows. The worker hears of the cancel at once,
sends nothing that has not been sent by then, and reports in the job's record whether it was sent.
"""

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tarry.errors import JobNotFound
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.checks.unreadable import read_note
from tarry.model.job import Job, State
from tarry.push.delivery.delivery_record import records_of
from tarry.store.rules import ids

if TYPE_CHECKING:
    from tarry.client.client import Client

# A worker that hears of the cancel only with its lease takes one second.
REPORT_TIMEOUT = 5.0
"""Seconds to wait for the worker's report."""
_POLL_INTERVAL = 0.02

NEVER = "it was never sent"
MAYBE = "it had been sent already: maybe delivered"
BEFORE = "it is not sent again; an attempt before was: maybe delivered"
UNKNOWN = "its worker has not said whether it had been sent: maybe delivered"


class CancelResult(Struct, frozen=True):
    """The result of a cancel."""

    cancelled: bool
    """False: the job had ended already, and is unchanged."""
    sent: bool | None
    """False: it was never sent and never will be. True: an attempt was sent at least in part, so the endpoint may have
    processed it. None: the worker did not report in time."""
    said: str
    """The same in one line, for people."""


def cancel(client: "Client", id: bytes, reason: str = "", timeout: float = REPORT_TIMEOUT) -> CancelResult:
    """Cancels a job of an HTTP task. If it runs, waits up to `timeout` seconds for its worker's report.

    JobNotFound; StoreError.
    """
    job = client.cancel_job(id, reason)
    if job is None:
        return _already_ended(client.get(id).record())
    if job.state is not State.RUNNING:
        return CancelResult(True, was_sent_before(job), describe_sent(was_sent_before(job), False))
    sent = _wait_for_report(client, job, timeout)
    return CancelResult(True, sent, UNKNOWN if sent is None else describe_sent(sent, True))


def was_sent_before(job: Job) -> bool:
    """Whether an earlier attempt was sent: one on record, or one that ended with a crash of its worker."""
    # A crashed worker left no record, so its attempt may have been sent.
    return job.crashes > 0 or any(record.sent for record in records_of(job))


def describe_sent(sent: bool, running: bool) -> str:
    """One line for people. running: the job ran when it was cancelled."""
    return NEVER if not sent else MAYBE if running else BEFORE


def report_sent(job: Job, sent: bool) -> Change:
    """The change by which a worker reports whether a cancelled job was sent."""
    note = read_note(job.note)
    sent_ever = sent or was_sent_before(job)
    note["message"] = "; ".join(filter(None, [note.get("message"), describe_sent(sent_ever, sent)]))
    return lifecycle.annotate(job, msgspec.json.encode(note | {"sent": sent_ever}))


def reported_sent(job: Job) -> bool | None:
    """Whether the job was sent, as its worker reported; None: there is no report yet."""
    sent = read_note(job.note).get("sent")
    return sent if isinstance(sent, bool) else None


def _wait_for_report(client: "Client", job: Job, within: float) -> bool | None:
    until = time.monotonic() + within
    while time.monotonic() < until:
        there = client.fetch([job.id])[0]
        if there is None or (there.state, there.epoch) != (State.CANCELLED, job.epoch):
            # Deleted or retried meanwhile: no report comes any more.
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
    # The report stands at the end of the message, after the reason of the cancel.
    message = str(read_note(job.note).get("message", ""))
    return False if message.endswith(NEVER) else True if message.endswith((MAYBE, BEFORE)) else None


def parse_id(job: str | bytes) -> bytes:
    """The id in bytes; JobNotFound if the text is no id."""
    try:
        return ids.parse(job) if isinstance(job, str) else job
    except ValueError as error:
        raise JobNotFound(str(error)) from None
