"""What programs that have taken jobs ask about them, as values; the thread of `ClaimLoop` answers them."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tarry.errors import JobNotFound, NotHeld
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.outcome import Outcome
from tarry.store.rules import ids, owner
from tarry.worker.exchanger import RulesFor

Rule = Callable[[Job, int], Change]
"""A rule of the lifecycle for the job as it is now, at this time; NotPossible, NotHeld."""
Check = Callable[[Job], None]
"""Raises the error with which the request is to be refused for the job as it is now."""
ReplyCallback = Callable[[Any], None]


class ChangeRequest(Struct, eq=False):
    """Makes the change that the rule says. reply: gets (the job as it was, the change), or an error."""

    id: bytes
    rule: Rule
    reply: ReplyCallback
    outcome: Outcome | None = None
    """How an attempt ended: for the log and the hooks; None: it has not."""
    epoch: int = 0
    """The attempt, if a program outside says that it has ended; 0: another request."""
    tries: int = 0


class ExtendRequest(Struct, eq=False):
    """Prolongs the lease of a job that was taken. lease: microseconds. reply: gets None, or an error."""

    id: bytes
    epoch: int
    lease: int
    check: Check
    reply: ReplyCallback


class ProgressRequest(Struct, eq=False):
    """Stores the progress of a job that was taken. reply: gets None, or an error."""

    id: bytes
    epoch: int
    progress: bytes
    check: Check
    reply: ReplyCallback


AttemptRequest = ExtendRequest | ProgressRequest
TakenJobRequest = ChangeRequest | AttemptRequest


def unknown_job(id: bytes) -> JobNotFound:
    """The answer where there is no such job, or none that the caller may take."""
    return JobNotFound(f"no job {ids.text(id)}: it was never put, or is deleted")


def require_held(job: Job, epoch: int) -> None:
    """NotHeld unless a program outside runs this very attempt."""
    # An attempt of a Python worker is none of theirs, even if they know its number.
    if job.state is State.RUNNING and job.epoch == epoch and owner.is_outside(job.owner):
        return
    now = "another attempt of it runs" if job.state is State.RUNNING else f"it is {job.state}"
    raise NotHeld(f"attempt {epoch} of job {ids.text(job.id)} is over: {now}; drop what was done for it")


def give_back(job: Job) -> ChangeRequest:
    """Gives back a job that was taken, if nothing else has become of it."""

    def rule(seen: Job, now: int) -> Change:
        _require_same(seen, job)
        return lifecycle.give_back(seen, now)

    return ChangeRequest(job.id, rule, _ignore)


def end_unstarted(job: Job, outcome: Outcome, rules: RulesFor) -> ChangeRequest:
    """Ends the attempt at a job that was claimed and is given to nobody."""

    def rule(seen: Job, now: int) -> Change:
        _require_same(seen, job)
        return lifecycle.after(seen, outcome, rules(seen.task, seen.queue), now)

    return ChangeRequest(job.id, rule, _ignore, outcome)


def _require_same(seen: Job, job: Job) -> None:
    if (seen.epoch, seen.owner) != (job.epoch, job.owner):
        raise lifecycle.NotPossible("another attempt of it runs, or ran")


def _ignore(_: object) -> None:
    pass
