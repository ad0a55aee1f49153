"""Jobs that are called again and again and come no further: how they are known, and how long they pause."""

from tarry.model import attempts
from tarry.model.duration import SECOND
from tarry.model.flow.slept import kept_slept
from tarry.model.job import Job

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
