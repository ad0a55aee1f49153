"""How long a job has slept, or waited for a signal, in durable steps. It is kept with the steps, in the progress."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from tarry.model.checks.unreadable import UNREADABLE
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


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_SleepProgress)


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
