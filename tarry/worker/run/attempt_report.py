"""Turns a task's return value or error into an Outcome. No other module reads these."""

import inspect
import logging
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.client.flows.node import AddedNodes
from tarry.errors import ArgumentError, JobFailed, StepError
from tarry.model import outcome
from tarry.model.checks.texts import MOST_TRACEBACK, MOST_TYPE, cut, text_of
from tarry.model.checks.unreadable import SEALED, SEALED_PROGRESS, explain, is_altered, key_of, token_of
from tarry.model.flow.wiring import MARK, split
from tarry.model.job import Job
from tarry.model.killing import ENDED
from tarry.model.outcome import Cancelled, Outcome, Raised, Released, Returned, Snoozed, TimedOut, Unknown, Unread
from tarry.model.quantity import over_max_body
from tarry.model.retry import qualified_name
from tarry.model.slept import kept_slept
from tarry.model.verdict import Cancel, Fail, RetryAfter, Snooze, Verdict
from tarry.store.rules import ids
from tarry.tasks.arguments.argument_errors import ArgumentsAway, ArgumentsLater, ArgumentsSealed
from tarry.tasks.interrupts import Interrupted, TimeLimit
from tarry.tasks.running import Running
from tarry.tasks.step_log import StepLog, find_suspension
from tarry.tracebacks import format_app_traceback

log = logging.getLogger("tarry.worker")

error_sink: "ContextVar[list[BaseException] | None]" = ContextVar("tarry_witnessed", default=None)
"""A list in which tests collect what tasks raise."""
_NOTHING = Returned(b"null")


def outcome_of_value(running: Running, value: Any, most: int) -> Outcome:
    """The outcome if the task returned this value. most: bytes of the result."""
    # A result that cannot be kept makes the job dead: the work was done, and another attempt would end the same way.
    if (running.step_log or running.job.progress) and (problem := _check_steps(running)) is not None:
        return problem
    if value is None:
        return _NOTHING
    if isinstance(value, Verdict):
        return outcome_of_verdict(value)
    if type(value) is AddedNodes:
        return Returned(value.result)
    try:
        encoded = running.task.codec.encode_result(value)
    except Exception as error:
        why = (
            f"{running.job.task} returned {type(value).__name__}, which cannot be kept as JSON: {_reason(value, error)}"
        )
        return Raised(outcome.outcome_note("ResultError", why), final=True)
    if len(encoded) > most:
        why = over_max_body(f"{running.job.task} returned a result of", len(encoded), most)
        return Raised(outcome.outcome_note("ResultError", why), final=True)
    return Returned(encoded)


def _reason(value: Any, error: Exception) -> str:
    if not inspect.iscoroutine(value):
        return text_of(error)
    # So that Python does not warn of one that was never awaited.
    value.close()
    return f"await {value.__qualname__}, or, if a decorator's def calls that, make its wrapper an async def"


def outcome_of_error(running: Running, error: BaseException) -> Outcome:
    """The outcome if the task raised this error."""
    if (suspension := find_suspension(error)) is not None:
        return suspension.outcome
    _end_sleep(running)
    if (witness := error_sink.get()) is not None:
        witness.append(error)
    if isinstance(error, Verdict):
        return outcome_of_verdict(error)
    if isinstance(error, Interrupted) or running.interrupt is not None:
        return _of_interrupt(running, error)
    # All base classes, since a retry rule may name any of them.
    kinds = tuple(qualified_name(kind) for kind in type(error).__mro__ if kind not in (object, BaseException))
    note = outcome.outcome_note(kinds[0], text_of(error), format_traceback(error))
    return Raised(note, kinds, final=isinstance(error, StepError))


def _end_sleep(running: Running) -> None:
    """Stores that the job sleeps no more, if it failed before it came to a step: else what follows would count as
    slept, too."""
    if running.step_log is None and running.progress_buffer is not None and kept_slept(running.job.progress).since:
        running.step_log = StepLog(running.job.task, running.job.progress, running.job.state_since)
        running.progress_buffer.add(running)


def _check_steps(running: Running) -> Outcome | None:
    """The outcome of a task that returned although it was to sleep; None: it was not. Logs steps that it left out."""
    steps = running.step_log or StepLog(running.job.task, running.job.progress)
    if steps.suspension is not None:
        at = steps.suspension.caught_at()
        how = f"at {at}" if at else "perhaps by `return_exceptions=True` or `asyncio.wait`"
        why = f"{running.job.task} caught what `sleep` or `wait_for` raises, {how}, and returned: raise it again"
        return Raised(outcome.outcome_note("StepError", why), final=True)
    if left := steps.left_over():
        id = ids.text(running.job.id)
        log.warning("%s %s ended without steps that it had done before: %s", running.job.task, id, left)
    return None


def with_status(ended: Outcome, running: Running) -> Outcome:
    """The outcome with the HTTP status that answered the attempt, for the history. One that is not counted stays as it
    is."""
    if running.status and isinstance(ended, Returned | Raised):
        return replace(ended, status=running.status)
    return ended


def outcome_of_argument_error(error: ArgumentError) -> Outcome:
    """The outcome if the arguments do not fit the task's signature: no other attempt can help. Those of a node of a
    flow may also not be there just now."""
    if isinstance(error, ArgumentsLater):
        return Snoozed(error.delay)
    if isinstance(error, ArgumentsAway):
        return Unread(str(error))
    if isinstance(error, ArgumentsSealed) and (sealed := outcome_of_sealed(error.job)):
        return sealed
    return Raised(outcome.outcome_note("ArgumentError", text_of(error)), ("ArgumentError",), final=True)


def outcome_of_sealed(job: Job) -> Outcome | None:
    """The outcome of a job whose arguments or steps this process cannot open; None: it can."""
    body, progress = job.body, job.progress
    if body[:1] == MARK:
        body = split(job.id, body)[1]
    if body.startswith(SEALED):
        token = token_of(body)
    elif progress.startswith(SEALED_PROGRESS):
        token = token_of(progress)
    else:
        return None
    if not is_altered(token):
        return Unknown(key_of(token))
    # This worker has the key: no other can open it either.
    why = f"what is stored of this job cannot be used: it is {explain(token)}"
    return Raised(outcome.outcome_note(outcome.RECORD_ERROR, why), (outcome.RECORD_ERROR,), final=True)


def hook_error(running: Running, ended: Outcome, value: Any, error: BaseException | None) -> BaseException | None:
    """The error that failure hooks get; None if the attempt did not fail."""
    if not isinstance(ended, Raised | TimedOut):
        return None
    return failure_error(running, value, error) or JobFailed(msgspec.json.decode(ended.note)["message"])


def failure_error(running: Running, value: Any, error: BaseException | None) -> BaseException | None:
    """The same before the outcome is known: the value may still prove to be one that cannot be kept."""
    ended = value if error is None else error
    if error is not None and find_suspension(error) is not None:
        return None
    if isinstance(ended, Verdict):
        return None if isinstance(ended, Snooze | Cancel) else ended
    if error is None or not (isinstance(error, Interrupted) or running.interrupt is not None):
        return error
    if running.interrupt is not TimeLimit:
        return None
    late = TimeLimit(_late(running))
    # So reports show where the task was when its time was over.
    late.__cause__ = error
    return late


def outcome_of_verdict(verdict: Verdict) -> Outcome:
    """The outcome that the task itself asks for."""
    match verdict:
        case Snooze():
            return Snoozed(verdict.delay)
        case Cancel():
            return Cancelled(text_of(verdict.reason))
        case RetryAfter():
            return Raised(outcome.outcome_note("RetryAfter", text_of(verdict)), ("RetryAfter",), after=verdict.delay)
        case Fail():
            return Raised(outcome.outcome_note("Fail", text_of(verdict)), ("Fail",), final=True)
    return Raised(outcome.outcome_note("Fail", f"{type(verdict).__name__} is no verdict that tarry knows"), final=True)


def _of_interrupt(running: Running, error: BaseException) -> Outcome:
    if running.interrupt is TimeLimit:
        return TimedOut(outcome.outcome_note("TimeLimit", _late(running), format_traceback(error)))
    # The job is not ours any more: the store will refuse this outcome.
    return Released(has_started=True)


def _late(running: Running) -> str:
    return f"stopped after its {format_limit(running)}"


def format_limit(running: Running) -> str:
    """`timeout of 30 s`."""
    if running.kill_reason == ENDED:
        return "time: an operator ended it"
    timeout = running.timeout
    return "time" if timeout is None else f"timeout of {timeout:g} s"


def format_traceback(error: BaseException) -> str:
    """The traceback as text; if it is long, without its middle."""
    try:
        return cut(format_app_traceback(error), MOST_TRACEBACK)
    except BaseException as worse:
        return f"<its traceback cannot be shown: {cut(type(worse).__name__, MOST_TYPE)}>"
