"""How long a job has slept, or waited for a signal, in durable steps. It is kept with the steps, in the progress.

Jobs that are called again and again and come no further: how they are known, and how long they pause.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from tarry.model import attempts
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import Job, StoredCount, StoredTime

_NO_VALUE = Raw(b"null")


class Slept(Struct, frozen=True, array_like=True):
    """Times are microseconds."""

    before: StoredTime = 0
    """In all sleeps but that which follows."""
    since: StoredTime = 0
    """When the last sleep began, as far as it is not part of `before`; 0: it is, or there is none."""
    until: StoredCount = 0
    """When that ends at the latest."""
    idle: StoredCount = 0
    """How often in a row the job was called soon after it had begun to sleep, and came no further: see `idle.py`."""

    def total(self, woken: int) -> int:
        """How long it has slept, if it was called again at this time."""
        return self.before + max(0, min(woken, self.until) - self.since) if self.since else self.before


class _SleepProgress(Struct, array_like=True):
    """`Job.progress`; `tasks/progress.py` writes it."""

    fraction: Raw = _NO_VALUE
    message: Raw = _NO_VALUE
    attempt: Raw = _NO_VALUE
    left_out: Raw = _NO_VALUE
    text: Raw = _NO_VALUE
    steps: Raw = _NO_VALUE
    slept: Slept = Slept()


_decoder: msgspec.json.Decoder[Any] = json_decoder(_SleepProgress)


def kept_slept(progress: bytes) -> Slept:
    """What the progress of a job says; nothing if it cannot be read."""
    try:
        slept: Slept = _decoder.decode(progress).slept if progress else Slept()
    except UNREADABLE:
        return Slept()
    return slept


def age(job: Job, now: int) -> int:
    """How long ago a running job was made, without the time that it slept; microseconds."""
    return now - job.created - kept_slept(job.progress).total(job.state_since)


# Some are normal: a signal may be for another job, and workers are replaced.
FREE_CALLS = 10
"""After so many calls in a row that led to nothing, a job pauses before the next one."""
LONGEST_PAUSE = 1 * SECOND
# Longer than the pause, or a job that pauses would count as one that does not come soon.
SOON = 2 * SECOND
"""Microseconds: what took longer, an attempt or the time between two of them, is no sign of a job that spins."""
_FIRST_PAUSE = SECOND // 64


def pause_after(calls: int) -> int:
    """Microseconds before the next call of a job, after so many in a row that led to nothing."""
    over = calls - FREE_CALLS
    return 0 if over < 0 else min(_FIRST_PAUSE << min(over, 10), LONGEST_PAUSE)


def after_pause(due: int, now: int, calls: int) -> int:
    """When a job comes again that is to come at `due`: later, if it was called so often for nothing."""
    pause = pause_after(calls)
    return max(due, now + pause) if pause else due


def idle_calls(job: Job) -> int:
    """How often in a row a job was called soon after the call before, and came no further."""
    return max(kept_slept(job.progress).idle, attempts.fruitless(job, SOON))
