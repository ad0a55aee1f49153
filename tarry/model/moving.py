"""A job on its way from one store to another. What it is does not change, only where it is kept.

While it moves it is parked: scheduled for a time that never comes, with a note that says what it was. So it can be
claimed in neither store, and a process that finds it parked, even after a crash, knows how to go on.
"""

import base64

import msgspec
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.checks.decoders import msgpack_decoder
from tarry.model.duration import SECOND
from tarry.model.job import Job, State

NEVER = 253_402_300_799 * SECOND
"""The last second of the year 9999."""
_MARK = b'{"moving":"'


def park(job: Job) -> Change:
    """Parks a job, so that it can no longer be claimed. Not for a job that runs, nor for a node of a flow: a flow stays
    whole in one store."""
    # Without body and attempts: they stay in the job, and would double its size.
    was = base64.b64encode(msgspec.msgpack.encode(replace(job, body=b"", attempts=b"")))
    return _change(job, State.SCHEDULED, NEVER, job, note=_MARK + was + b'"}')


def is_parked(job: Job) -> bool:
    """Whether the job is parked."""
    # The time alone is not enough: a user may schedule a job for it.
    return job.state is State.SCHEDULED and job.due == NEVER and is_parking_note(job.note)


def is_parking_note(note: bytes) -> bool:
    """Whether a note says what a parked job was."""
    return note.startswith(_MARK)


def restore(job: Job) -> Change:
    """Makes a parked job what it was before."""
    was = before_parking(job)
    return _change(job, was.state, was.due, was, note=was.note)


def before_parking(job: Job) -> Job:
    """What a parked job was, but for its body and attempts; the job itself, if it is not parked."""
    if not is_parked(job):
        return job
    return msgpack_decoder(Job).decode(base64.b64decode(job.note[len(_MARK) : -2]))


def forget(job: Job) -> Change:
    """Deletes a parked job from its old store, if nobody has given it another time."""
    return Change(job.id, job.state, job.epoch, None, seen_times=_times(job))


def discard_copy(job: Job) -> Change:
    """Deletes a copy, whatever has become of it: the job stays where it was."""
    return Change(job.id, job.state, job.epoch, None)


def _times(job: Job) -> tuple[int, int]:
    # Whoever only gives it another time changes neither its state nor its epoch.
    return job.due, job.expires


def _change(job: Job, to: State, due: int, like: Job, *, note: bytes) -> Change:
    return Change(
        job.id,
        job.state,
        job.epoch,
        to,
        like.state_since,
        due,
        like.failures,
        like.crashes,
        like.keep_until,
        note,
        key_held_until=like.key_held_until if like.key is not None else None,
        seen_times=_times(job),
    )
