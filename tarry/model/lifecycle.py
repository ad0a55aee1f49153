"""The whole life of a job. No other file decides what a job becomes next.

Each function here takes a job as it was seen and returns the Change that is to be made of it; a store makes the
change true only if the job is still so. Two moves are the stores' own, because they must be one with the claim:
a scheduled job whose time has come becomes ready, and a ready one that is claimed becomes running, its epoch one more;
with that, it no longer holds a key that it was to hold only while it waits.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.outcome import (
    Cancelled,
    Expired,
    Lost,
    Outcome,
    Raised,
    Released,
    Returned,
    Snoozed,
    Suspected,
    TimedOut,
    Unknown,
    Unsuccessful,
    note,
)
from tarry.model.overrides import retry_of
from tarry.model.retry import NEVER, Retry

MAX_LOSSES = 3
"""Workers that die while a job is on before the job is held to be the cause: poison."""

_SECOND_LOSS_DELAY = 5 * SECOND
_ASIDE = 1 * SECOND
_UNKNOWN_DELAY, _UNKNOWN_DELAY_MAX = 1 * SECOND, 60 * SECOND


class Rules(Struct, frozen=True):
    """What a task and its queue say about the life of their jobs. Durations in microseconds."""

    retry: Retry = NEVER
    keep_done: int = HOUR
    """How long a done or cancelled job is kept for people and `result()`; 0: forgotten at once."""
    keep_dead: int = 30 * DAY
    """How long a dead job is kept for people to look at and retry; 0: forgotten at once."""


DEFAULT = Rules()

# Looked up once: an enum's members are found the slow way, and these two are on the way of every job.
RUNNING, DONE = State.RUNNING, State.DONE


def placed(due: int, now: int) -> State:
    """Where a job begins, and comes back to, that is to run at `due`."""
    return State.SCHEDULED if due > now else State.READY


def is_late(due: int, since: int) -> bool:
    """Whether a ready job came to be so after it was due: it was scheduled, was given back, or is tried again. One that
    was ready from the start is on time."""
    return since > due


def after(job: Job, outcome: Outcome, rules: Rules, now: int, unsure: int = 0) -> Change:
    """What a running job becomes when its attempt ended so; NotPossible for a job that does not run.

    unsure: microseconds by which it may be later than `now` already. A delay is made longer by that much, so that it is
    never too short.
    """
    if job.state is not RUNNING:
        raise NotPossible(f"it is {job.state}, not {RUNNING}")
    # By far the most jobs end so: they need not go through the cases.
    if isinstance(outcome, Returned):
        return _finished(job, DONE, rules, now, outcome.value)
    change = _after_all_but_success(job, outcome, rules, now)
    if unsure and change.to is State.SCHEDULED and change.due is not None:
        return replace(change, due=change.due + unsure)
    return change


def _after_all_but_success(job: Job, outcome: Unsuccessful, rules: Rules, now: int) -> Change:
    match outcome:
        case Raised(text, kinds, final, delay):
            return _failed(job, kinds, final, delay, text, rules, now)
        case TimedOut(text, kinds):
            return _failed(job, kinds, False, None, text, rules, now)
        case Lost(on):
            return _lost(job, rules, now) if on else _again(job, now, min(job.due, now), job.note)
        case Released():
            # It was due when it was claimed: if that is later than now, the clock was set back since.
            return _again(job, now, min(job.due, now), job.note)
        case Snoozed(delay):
            return _again(job, now, now + delay, job.note)
        case Cancelled(reason):
            return _finished(job, State.CANCELLED, rules, now, note("Cancelled", reason))
        case Expired():
            return _finished(job, State.CANCELLED, rules, now, note("Expired", "it could not start in time"))
        case Unknown():
            return _unknown(job, now)
        case Suspected():
            return _again(job, now, now + _ASIDE, job.note)


def suspect(job: Job) -> bool:
    """One more death while it is on makes it poison. No worker has two such jobs on at once: those that were on side
    by side twice come back side by side, and the innocent ones would die with the guilty one."""
    return job.losses >= MAX_LOSSES - 1


def kicked(job: Job, now: int) -> Change:
    """Somebody wants it run now: a waiting job at once, a finished one anew, with all its attempts.

    A job that is ready already keeps its place in line.
    """
    _refuse(job, State.RUNNING, "it is running")
    fresh = job.state.finished
    failures, losses = (0, 0) if fresh else (job.failures, job.losses)
    due = now if fresh else min(job.due, now)
    # Whoever asks for it now wants it although its time was over.
    expires = 0 if fresh or 0 < job.expires <= now else None
    return _change(
        job,
        State.READY,
        now,
        due=due,
        failures=failures,
        losses=losses,
        note=job.note,
        expires=expires,
        holds=HELD if fresh and job.key is not None else None,
    )


def cancelled(job: Job, rules: Rules, now: int, reason: str = "") -> Change:
    """Somebody no longer wants it. A running one ends for the store at once; its worker learns of it and stops."""
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        _refuse(job, state, f"it is {state} already")
    return _finished(job, State.CANCELLED, rules, now, note("Cancelled", reason))


def told(job: Job, text: bytes) -> Change:
    """A cancelled one as it is, but for what its worker has to say of it."""
    if job.state is not State.CANCELLED:
        raise NotPossible(f"it is {job.state}, not {State.CANCELLED}")
    return Change(job.id, job.state, job.epoch, job.state, job.since, None, job.failures, job.losses, job.until, text)


def moved(
    job: Job, now: int, *, due: int | None = None, queue: str | None = None, priority: int | None = None
) -> Change:
    """Another time, queue or priority for a job that waits."""
    _refuse_unless_waiting(job)
    when = job.due if due is None else due
    return _change(job, placed(when, now), now, due=when, note=job.note, queue=queue, priority=priority)


def replaced(job: Job, by: Job, now: int) -> Change:
    """The same job with another call: what a later enqueue with its key says counts. Only while it waits."""
    _refuse_unless_waiting(job)
    return _change(
        job,
        placed(by.due, now),
        now,
        due=by.due,
        note=job.note,
        queue=by.queue,
        priority=by.priority,
        expires=by.expires,
        body=by.body,
    )


def postponed(job: Job, by: Job, now: int) -> Change:
    """Due when a later enqueue with its key says, if that is later; the call stays as it was."""
    _refuse_unless_waiting(job)
    due = max(job.due, by.due)
    expires = by.expires if job.expires and by.expires > job.expires else None
    return _change(job, placed(due, now), now, due=due, note=job.note, expires=expires)


def forgotten(job: Job) -> Change:
    """Its record goes, for good. A running job has to be cancelled first."""
    _refuse(job, State.RUNNING, "it is running: cancel it first")
    return Change(job.id, job.state, job.epoch, None)


class NotPossible(ValueError):
    """The job is in a state from which that way does not lead."""


def _refuse(job: Job, state: State, why: str) -> None:
    if job.state is state:
        raise NotPossible(why)


def _refuse_unless_waiting(job: Job) -> None:
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
        _refuse(job, state, f"it is {state}, not waiting")


def _change(
    job: Job,
    to: State,
    now: int,
    *,
    due: int,
    note: bytes,
    failures: int | None = None,
    losses: int | None = None,
    **other: Any,
) -> Change:
    """Failures and losses stay as they are unless given; `other` are the fields of Change that change."""
    failures = job.failures if failures is None else failures
    losses = job.losses if losses is None else losses
    return Change(job.id, job.state, job.epoch, to, now, due, failures, losses, 0, note, owner=job.owner, **other)


def _again(job: Job, now: int, due: int, text: bytes) -> Change:
    return _change(job, placed(due, now), now, due=due, note=text)


def _finished(
    job: Job,
    to: State,
    rules: Rules,
    now: int,
    text: bytes,
    failures: int | None = None,
    losses: int | None = None,
) -> Change:
    keep = rules.keep_dead if to is State.DEAD else rules.keep_done
    holds = None
    if job.key is not None:
        # The record is what keeps the key, so it stays for at least as long.
        keep = max(keep, job.unique)
        holds = now + job.unique if job.unique > 0 else 0
    failures = job.failures if failures is None else failures
    losses = job.losses if losses is None else losses
    target = to if keep else None
    return Change(
        job.id, job.state, job.epoch, target, now, None, failures, losses, now + keep, text, None, None, None, holds,
        None, job.owner,
    )  # fmt: skip


def _failed(
    job: Job, kinds: tuple[str, ...], final: bool, asked: int | None, text: bytes, rules: Rules, now: int
) -> Change:
    failures = job.failures + 1
    delay = (
        None if final else retry_of(job.headers, rules.retry).delay(failures, kinds, job.id, now - job.created, asked)
    )
    if delay is None:
        return _finished(job, State.DEAD, rules, now, text, failures)
    due = now + delay
    return _change(job, placed(due, now), now, due=due, failures=failures, note=text)


def _lost(job: Job, rules: Rules, now: int) -> Change:
    """The job was on when its worker died: perhaps by chance, perhaps the cause. Not retry rules but deaths decide."""
    failures, losses = job.failures + 1, job.losses + 1
    if losses >= MAX_LOSSES:
        text = note("Poison", f"{losses} workers died while this job was on; it is not tried again by itself")
        return _finished(job, State.DEAD, rules, now, text, failures, losses)
    text = note("WorkerDied", f"worker {job.owner} died while this job was on")
    due = now if losses == 1 else now + _SECOND_LOSS_DELAY
    return _change(job, placed(due, now), now, due=due, failures=failures, losses=losses, note=text)


def _unknown(job: Job, now: int) -> Change:
    """A rolling deployment is normal, so it waits: first briefly, then longer, up to a minute."""
    delay = min(_UNKNOWN_DELAY << min(max(job.epoch - 1, 0), 20), _UNKNOWN_DELAY_MAX)
    text = note("UnknownTask", f"no worker that claimed it knows the task {job.task}")
    return _change(job, State.SCHEDULED, now, due=now + delay, note=text)
