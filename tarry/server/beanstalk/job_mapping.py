"""How a job of the beanstalkd protocol is a job of tarry: its fields, its states, and what its commands make of it.

A tube is a queue; a priority p is 1024 - p, so an urgent job (p < 1024) is in the high band. TTR is the job's timeout.
A buried job is dead. What the protocol counts for a job travels in its note.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import NotHeld
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import MAX_PRIORITY, Job, State
from tarry.model.lifecycle import NotPossible, Rules
from tarry.model.overrides import TIMEOUT, timeout_of
from tarry.server.beanstalk.command_parser import Command
from tarry.server.claim_requests import Rule

TASK = "beanstalk"
"""The name of the task of jobs that were put through this door."""
URGENT = 1024
"""A job with a smaller priority is urgent."""
DEFAULT_TTR = 120.0
"""Seconds for a job of another program that has no timeout."""
BANDS_OF_STATES = {State.READY: "ready", State.RUNNING: "reserved", State.SCHEDULED: "delayed", State.DEAD: "buried"}

_U32 = 2**32 - 1


class History(Struct, frozen=True, gc=False):
    """What the protocol tells of a job beside its state."""

    delay: int | None = None
    """Seconds, of the last release; None: as it was put."""
    releases: int = 0
    timeouts: int = 0
    buries: int = 0
    kicks: int = 0
    priority: int | None = None
    """tarry's priority of the job before `reserve-job` moved it to the front."""


class _BeanstalkNote(Struct, frozen=True):
    beanstalk: History = History()


_decoder = json_decoder(_BeanstalkNote)


def history_of(job: Job) -> History:
    """From the job's note; an empty one if its note is another's."""
    try:
        return _decoder.decode(job.note).beanstalk if job.note else _BeanstalkNote().beanstalk
    except UNREADABLE:
        return _BeanstalkNote().beanstalk


def with_history(job: Job, kind: str, history: History) -> Job:
    """The job with a note that says `kind`, and this history."""
    # The first three as in each note of tarry, for those who show it.
    note = {"type": kind, "message": "through the beanstalk door", "traceback": "", TASK: history}
    return replace(job, note=msgspec.json.encode(note))


def new_job(id: bytes, tube: str, put: Command, now: int, unsure: int) -> Job:
    """The job of a `put`. now: the store's time in microseconds; unsure: by how much that may be too early."""
    # Without a delay no function is called: most puts have none.
    due = now + put.seconds * SECOND + unsure if put.seconds else now
    state = lifecycle.initial_state(due, now) if put.seconds else State.READY
    headers = b'{"%b":"%d"}' % (_TIMEOUT, put.ttr * SECOND)
    return Job(id, TASK, put.body, tube, URGENT - put.priority, due, state, state_since=now, headers=headers)


def state_of(job: Job, now: int) -> str | None:
    """The protocol's word for the job's state; None if for its clients there is no such job."""
    if job.state is State.SCHEDULED and job.due <= now:
        return "ready"
    return BANDS_OF_STATES.get(job.state)


def priority_of(job: Job) -> int:
    """The protocol's priority."""
    before = history_of(job).priority
    return min(max(URGENT - (job.priority if before is None else before), 0), _U32)


def ttr_of(job: Job, task_timeout: float | None) -> int:
    """Seconds, at least 1. task_timeout: of the job's task, if this app knows it."""
    timeout = timeout_of(job.headers, task_timeout)
    return max(1, round(DEFAULT_TTR if timeout is None else timeout))


def delay_of(job: Job) -> int:
    """Seconds of the last `put` or `release`."""
    delay = history_of(job).delay
    return max(0, round((job.due - job.created) / SECOND)) if delay is None else delay


# What commands make of a job: each is a rule, which decides by the job as it is in the store.


def finish(rules: Rules) -> Rule:
    """Deletes a reserved job: it is done."""
    return lambda job, now: lifecycle.discard(job, rules, now)


def delete(job: Job, now: int) -> Change:
    """Deletes a job that nobody has reserved, for good."""
    if state_of(job, now) in (None, "reserved"):
        raise NotPossible("it is reserved, or has ended")
    return lifecycle.forget(job)


def release(priority: int, delay: int) -> Rule:
    """Gives a reserved job back. delay: seconds."""

    def rule(job: Job, now: int) -> Change:
        history = history_of(job)
        history = replace(history, delay=delay, releases=history.releases + 1, priority=None)
        noted = with_history(job, "Released", history)
        return lifecycle.give_back(noted, now, delay=delay * SECOND, priority=URGENT - priority)

    return rule


def time_out(job: Job, now: int) -> Change:
    """The job's time to run is over."""
    history = history_of(job)
    noted = with_history(job, "TimedOut", replace(history, timeouts=history.timeouts + 1, priority=None))
    return lifecycle.give_back(noted, now, priority=history.priority)


def give_back(job: Job, now: int) -> Change:
    """The connection that had reserved it is gone."""
    history = history_of(job)
    if history.priority is None:
        return lifecycle.give_back(job, now)
    noted = with_history(job, "Released", replace(history, priority=None))
    return lifecycle.give_back(noted, now, priority=history.priority)


def bury(priority: int, rules: Rules) -> Rule:
    """Puts a reserved job aside."""

    def rule(job: Job, now: int) -> Change:
        history = history_of(job)
        noted = with_history(job, "Buried", replace(history, buries=history.buries + 1, priority=None))
        return replace(lifecycle.bury(job, rules, now, priority=URGENT - priority), note=noted.note)

    return rule


def kick(job: Job, now: int) -> Change:
    """Makes a buried or delayed job ready."""
    if state_of(job, now) not in ("buried", "delayed"):
        raise NotPossible("it is neither buried nor delayed")
    history = history_of(job)
    # The delay as well: it is told by the time when the job was due, which changes now.
    history = replace(history, delay=delay_of(job), kicks=history.kicks + 1)
    return lifecycle.run_now(with_history(job, "Kicked", history), now)


def move_to_front(job: Job, now: int) -> Change:
    """Makes a job that is not reserved the next one of its tube, for `reserve-job`."""
    if state_of(job, now) in (None, "reserved"):
        raise NotPossible("it is reserved, or has ended")
    history = history_of(job)
    before = job.priority if history.priority is None else history.priority
    noted = with_history(job, "Chosen", replace(history, delay=delay_of(job), priority=before))
    return replace(lifecycle.run_now(noted, now), priority=MAX_PRIORITY)


def by_holder(job: Job, rule: Rule) -> Rule:
    """The rule, for this attempt only. NotHeld if the job was taken away meanwhile."""

    def checked(seen: Job, now: int) -> Change:
        if (seen.epoch, seen.owner) != (job.epoch, job.owner):
            raise NotHeld("another attempt of it runs, or ran")
        return rule(seen, now)

    return checked


_TIMEOUT = TIMEOUT.encode()
