"""The exceptions that tasks written for Celery raise and catch."""

from typing import Any

from tarry.compat.celery.differences import CeleryNotSupported
from tarry.errors import ResultTimeout, TarryError
from tarry.model.verdict import Cancel, RetryAfter, Verdict
from tarry.tasks.interrupts import TimeLimit

# With tarry it is no Exception: `except Exception` in a task does not catch it.
SoftTimeLimitExceeded = TimeLimit
TimeLimitExceeded = TimeLimit
TimeoutError = ResultTimeout


class RetryAsked(RetryAfter):
    """Raised by `self.retry`: the attempt failed, and another one follows. `celery.exceptions.Retry`.

    exc: what the task gave as the reason; None: nothing.
    """

    def __init__(self, exc: BaseException | None = None, delay: float = 0.0) -> None:
        super().__init__(delay)
        self.exc = exc
        reason = f"{type(exc).__name__}: {exc}" if exc is not None else "asked to be retried"
        # What people see as the job's error until the next attempt.
        self.args = (f"{reason}; again in {delay:g} s",)


class MaxRetriesExceededError(TarryError):
    """`self.retry` without `exc=`, after the last retry."""


class Ignore(Cancel):
    """The task does not want its end to be stored. Here the job ends as cancelled, since each job has an end."""


class Reject(Verdict):
    """The job is refused: requeue=True puts it back at once, else it ends as cancelled."""

    def __init__(self, reason: object = "", requeue: bool = False) -> None:
        self.reason, self.requeue = str(reason), requeue
        super().__init__(self.reason)


Retry = RetryAsked


def __getattr__(name: str) -> Any:
    """AttributeError, or CeleryNotSupported for what Celery has here."""
    if name == "ChordError":
        raise CeleryNotSupported("ChordError: get() of a chord raises what the call of its header raised: catch that")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
