"""What people and programs see of the durable steps of a job."""

from typing import Any

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.moving import NEVER
from tarry.tasks.durable.durable_waits import Wait
from tarry.tasks.progress import kept_steps
from tarry.tasks.step_log import KeptStep

_WAIT = "wait_for "
"""What the name of a wait begins with; the name of the signal follows."""


class JobStepRecord(Struct, frozen=True):
    """A step of a job that is done or has begun. until: seconds since the epoch."""

    number: int
    """Its position, from 1."""
    name: str
    """Of the step; of a wait, the name of the signal."""
    kind: str
    """`step`, `sleep` or `wait`."""
    done: bool
    value: Any = None
    """What it returned; of a wait, the value of the signal."""
    key: str | None = None
    """Of the signal."""
    until: float | None = None
    """When the sleep ends, or the time of the wait is over; null: never."""


def step_records(job: Job) -> list[JobStepRecord]:
    """The steps of a job, in order; none if they cannot be read."""
    try:
        kept = decode_json(kept_steps(job.progress) or b"[]", list[KeptStep | None])
        return [_record(job, number, one) for number, one in enumerate(kept, 1) if one is not None]
    except UNREADABLE:
        # Written by another version: what else is known of the job is shown all the same.
        return []


def _record(job: Job, number: int, step: KeptStep) -> JobStepRecord:
    if step.name == "sleep" and (due := _due_of(step)) is not None:
        is_over = job.state is not State.SCHEDULED or job.due != due
        return JobStepRecord(number, step.name, "sleep", is_over, until=due / SECOND)
    if step.name.startswith(_WAIT) and (wait := _wait_of(step)) is not None:
        until = None if wait.until >= NEVER else wait.until / SECOND
        value, name = msgspec.json.decode(wait.value), step.name.removeprefix(_WAIT)
        return JobStepRecord(number, name, "wait", not step.waits, value, wait.key, until)
    return JobStepRecord(number, step.name, "step", not step.waits, msgspec.json.decode(step.value))


# A step of a person's own may have such a name, too: its value tells.


def _due_of(step: KeptStep) -> int | None:
    try:
        return decode_json(step.value, int)
    except UNREADABLE:
        return None


def _wait_of(step: KeptStep) -> Wait | None:
    try:
        return decode_json(step.value, Wait)
    except UNREADABLE:
        return None
