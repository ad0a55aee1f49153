"""A job on its way from one store to another. What it is does not change, only where it is kept.

While it moves it is parked: scheduled for a time that never comes, its note saying what it was. So in neither place can
it be claimed, and whoever finds it like that, even after a crash, knows how to go on.
"""

import base64

import msgspec
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job, State

NEVER = 253_402_300_799 * SECOND
"""The last second of the year 9999."""
_MARK = b'{"moving":"'


def parked(job: Job) -> Change:
    """It can no longer be claimed. Not for a job that runs."""
    was = base64.b64encode(msgspec.msgpack.encode(replace(job, body=b"")))
    return _change(job, State.SCHEDULED, NEVER, job, note=_MARK + was + b'"}')


def is_parked(job: Job) -> bool:
    """Whether it was left like that."""
    return job.state is State.SCHEDULED and job.due == NEVER and job.note.startswith(_MARK)


def restored(job: Job) -> Change:
    """A parked job becomes again what it was."""
    was = msgspec.msgpack.decode(base64.b64decode(job.note[len(_MARK) : -2]), type=Job)
    return _change(job, was.state, was.due, was, note=was.note)


def gone(job: Job) -> Change:
    """A parked job leaves its old place for good."""
    return Change(job.id, job.state, job.epoch, None)


def _change(job: Job, to: State, due: int, like: Job, *, note: bytes) -> Change:
    return Change(
        job.id,
        job.state,
        job.epoch,
        to,
        like.since,
        due,
        like.failures,
        like.losses,
        like.until,
        note,
        holds=like.holds if like.key is not None else None,
    )
