"""From what a task did to an Outcome. The only place that reads a task's exceptions and return values."""

import traceback
from contextvars import ContextVar
from typing import Any

import msgspec

from tarry.errors import ArgumentError, JobFailed
from tarry.model import outcome
from tarry.model.outcome import Cancelled, Outcome, Raised, Released, Returned, Snoozed, TimedOut
from tarry.model.retry import qualified
from tarry.model.verdict import Cancel, Fail, RetryAfter, Snooze, Verdict
from tarry.tasks.interrupts import Interrupted, TimeLimit
from tarry.tasks.running import Running

MAX_TRACEBACK = 8192
witnessed: "ContextVar[list[BaseException] | None]" = ContextVar("tarry_witnessed", default=None)
"""Where tests want to see what tasks raise."""
_NOTHING = Returned(b"null")


def of_value(running: Running, value: Any, most: int) -> Outcome:
    """The task returned this. A result that cannot be kept ends the job as dead: its work was done, and doing it
    again would end the same way."""
    if value is None:
        return _NOTHING
    if isinstance(value, Verdict):
        return of_verdict(value)
    try:
        encoded = running.task.codec.encode_result(value)
    except Exception as error:
        why = f"{running.job.task} returned {type(value).__name__}, which cannot be kept as JSON: {message(error)}"
        return Raised(outcome.note("ResultError", why), final=True)
    if len(encoded) > most:
        why = f"{running.job.task} returned a result of {len(encoded)} bytes; max_body is {most}"
        return Raised(outcome.note("ResultError", why), final=True)
    return Returned(encoded)


def of_error(running: Running, error: BaseException) -> Outcome:
    """The task raised this."""
    if (witness := witnessed.get()) is not None:
        witness.append(error)
    if isinstance(error, Verdict):
        return of_verdict(error)
    if isinstance(error, Interrupted) or running.interrupt is not None:
        return _of_interrupt(running, error)
    kinds = tuple(qualified(kind) for kind in type(error).__mro__ if kind not in (object, BaseException))
    return Raised(outcome.note(kinds[0], message(error), shown(error)), kinds)


def of_misfit(error: ArgumentError) -> Outcome:
    """The body does not fit the task's signature, and never will."""
    return Raised(outcome.note("ArgumentError", message(error)), ("ArgumentError",), final=True)


def failure(running: Running, ended: Outcome, value: Any, error: BaseException | None) -> BaseException | None:
    """What to tell of an attempt that failed; None if it did not fail."""
    if not isinstance(ended, Raised | TimedOut):
        return None
    return failure_of(running, value, error) or JobFailed(msgspec.json.decode(ended.note)["message"])


def failure_of(running: Running, value: Any, error: BaseException | None) -> BaseException | None:
    """The same before the outcome is known: a value may still prove to be one that cannot be kept."""
    ended = value if error is None else error
    if isinstance(ended, Verdict):
        return None if isinstance(ended, Snooze | Cancel) else ended
    if error is None or not (isinstance(error, Interrupted) or running.interrupt is not None):
        return error
    if running.interrupt is not TimeLimit:
        return None
    late = TimeLimit(_late(running))
    late.__cause__ = error
    return late


def of_verdict(verdict: Verdict) -> Outcome:
    """The task's own word on its outcome."""
    match verdict:
        case Snooze():
            return Snoozed(verdict.delay)
        case Cancel():
            return Cancelled(verdict.reason)
        case RetryAfter():
            return Raised(outcome.note("RetryAfter", message(verdict)), ("RetryAfter",), after=verdict.delay)
        case Fail():
            return Raised(outcome.note("Fail", message(verdict)), ("Fail",), final=True)
    return Raised(outcome.note("Fail", f"{type(verdict).__name__} is no verdict that tarry knows"), final=True)


def _of_interrupt(running: Running, error: BaseException) -> Outcome:
    if running.interrupt is TimeLimit:
        return TimedOut(outcome.note("TimeLimit", _late(running), shown(error)))
    # Called back: the store has decided already, and this outcome will be found stale.
    return Released()


def _late(running: Running) -> str:
    return f"stopped after its {limit(running)}"


def limit(running: Running) -> str:
    """`timeout of 30 s`."""
    timeout = running.timeout
    return "time" if timeout is None else f"timeout of {timeout:g} s"


def message(error: BaseException) -> str:
    """What the error says; an error of a task may fail even at that, and must not take the worker with it."""
    try:
        return _encodable(str(error))
    except Exception as worse:
        return f"<its str() raised {type(worse).__name__}>"


def _encodable(text: str) -> str:
    """Half a surrogate pair, as in a badly decoded file name, has no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown(error: BaseException) -> str:
    """The traceback as text, its middle left out where it is long."""
    try:
        text = _encodable("".join(traceback.format_exception(error)))
    except Exception as worse:
        return f"<its traceback cannot be shown: {type(worse).__name__}>"
    if len(text) <= MAX_TRACEBACK:
        return text
    return text[: MAX_TRACEBACK // 2] + "\n  ... left out ...\n" + text[-MAX_TRACEBACK // 2 :]
