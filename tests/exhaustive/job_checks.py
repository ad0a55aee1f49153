"""What must hold of each state and step of the model of jobs."""

from collections.abc import Sequence

from msgspec.structs import replace

from tarry.model.attempts import attempts_of
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, UNCOUNTED, Change
from tarry.model.job import HELD, WAITING, Job, State
from tarry.model.lifecycle import MAX_CRASHES, holds_key
from tests.exhaustive.explorer import first_fault
from tests.exhaustive.job_acts import COUNTS_FAILURE, MOST_FAILURES, NO_RECORD
from tests.exhaustive.job_state import Message, World
from tests.exhaustive.store_state import NEVER, NOW

_COUNTED_AS = {State.DONE: (DONE,), State.DEAD: (DEAD,), State.CANCELLED: (CANCELLED, EXPIRED)}


def _is_alone(state: World) -> bool:
    running = [worker.held.job.id for worker in state.workers if worker.held and worker.held.alone]
    return len(running) == len(set(running))


def _keys_are_single(jobs: Sequence[Job]) -> bool:
    keys = [(job.task, job.key) for job in jobs if holds_key(job, NOW)]
    return len(keys) == len(set(keys))


def _keeps_key_well(job: Job) -> bool:
    if job.key is None or job.key_ttl == WAITING:
        return not (job.state.finished and holds_key(job, NOW))
    if not job.state.finished:
        return job.key_held_until == HELD
    return not holds_key(job, NOW) if job.key_ttl == 0 else job.key_held_until < HELD


def _is_bounded(job: Job) -> bool:
    # A crash counts as a failure, but the retry rule does not end a job at one.
    is_over = job.failures - job.crashes >= MOST_FAILURES or job.crashes >= MAX_CRASHES
    return not is_over or job.state.finished


def fault_of_state(state: World) -> str:
    """What is wrong with a state."""
    return first_fault(
        (
            ("two attempts of one job under valid leases", lambda: _is_alone(state)),
            ("a key is held twice", lambda: _keys_are_single(state.jobs)),
            ("a finished job holds its key for longer than it should", lambda: all(map(_keeps_key_well, state.jobs))),
            ("failures above the bound, and not dead", lambda: all(map(_is_bounded, state.jobs))),
        )
    )


def fault_of_change(old: Job, new: Job | None, act: str, seen: Job, is_claimed: bool) -> str:
    """What is wrong with what a call of the store made of a job. act: the change that was made to it, empty if none
    was; seen: the job from which it was computed."""
    if new is None:
        if act != "delete":
            return f"a job is gone without being deleted ({act})"
        return "a job was deleted while it ran" if old.state is State.RUNNING else ""
    if is_claimed and not act and (old.due > NOW or old.state not in (State.READY, State.SCHEDULED)):
        return "claimed before it was due, or while it ran"
    return first_fault(
        (
            ("the epoch fell", lambda: new.epoch >= old.epoch),
            ("a claim did not raise the epoch, or another call did", lambda: (new.epoch > old.epoch) == is_claimed),
            ("a stale change was made", lambda: not act or (old.state, old.epoch) == (seen.state, seen.epoch)),
            ("a change of another's attempt was made", lambda: not act or old.owner == seen.owner),
            (
                "a finished job went on by itself",
                lambda: act == "run now" or not old.state.finished or _rests(old, new),
            ),
            ("a job changed that nobody changed", lambda: bool(act) or is_claimed or _is_alike(old, new)),
        )
    )


def _rests(old: Job, new: Job) -> bool:
    # Another job may take its key once the time of that is over.
    return replace(new, key_held_until=old.key_held_until) == old


def _is_alike(old: Job, new: Job) -> bool:
    """Whether it is the same but for a key that it held for a time, or for a promotion."""
    waits = (State.READY, State.SCHEDULED)
    return old.state is new.state or (old.state in waits and new.state in waits)


def fault_of_decision(message: Message, change: Change) -> str:
    """What is wrong with a change that was decided."""
    if change.to is None:
        return ""
    return first_fault(
        (
            ("an attempt is counted wrongly", lambda: _is_counted(message, change)),
            ("a job that has started expired", lambda: message.act != "expired" or not message.job.failures),
            ("the retry rule allows more attempts than it says", lambda: _keeps_retry_rule(message, change)),
            ("it comes back at a time that never comes", lambda: message.act == "park" or change.due != NEVER),
            ("an end is counted wrongly in the history", lambda: _is_in_history(message.job, change)),
            ("the record of attempts is wrong", lambda: _is_recorded(message, change)),
        )
    )


def _is_counted(message: Message, change: Change) -> bool:
    job, act = message.job, message.act
    if act == "run now" and job.state.finished:
        return (change.failures, change.crashes) == (0, 0)
    more = act in COUNTS_FAILURE, act == "died"
    return (change.failures, change.crashes) == (job.failures + more[0], job.crashes + more[1])


def _keeps_retry_rule(message: Message, change: Change) -> bool:
    is_again = message.act in ("raised", "timed out") and change.to is State.SCHEDULED
    return not is_again or change.failures < MOST_FAILURES


def _is_in_history(job: Job, change: Change) -> bool:
    assert change.to is not None
    if change.to.finished and not job.state.finished:
        return change.counts in _COUNTED_AS[change.to]
    return change.counts in (UNCOUNTED, FAILED) and not (change.to.finished and job.state.finished)


def _is_recorded(message: Message, change: Change) -> bool:
    """Whether the change adds just this attempt to the record."""
    job = message.job
    if job.state is not State.RUNNING or message.act in NO_RECORD:
        return not change.attempts
    kept = attempts_of(replace(job, state=State.READY, attempts=change.attempts or b"")).attempts
    return [(one.epoch, one.owner, one.number) for one in kept] == [(job.epoch, job.owner, job.attempt)]
