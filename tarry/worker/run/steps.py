"""The steps of an attempt that differ: for one job, for one with middleware or hooks around it, for many in one call.

`attempt` runs the steps in their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.errors import ArgumentError
from tarry.model.outcome import Outcome, Raised, Released, Returned, outcome_note
from tarry.model.verdict import Verdict
from tarry.tasks.hooks import Hook
from tarry.tasks.running import PLAIN, Batch, CurrentJob, Running, current
from tarry.tasks.task_hooks import RunWrapper
from tarry.worker.run import attempt_report
from tarry.worker.run.context import AttemptContext

StepCall = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
"""A function and its arguments."""
HookCall = tuple[Sequence[Hook], CurrentJob, Any]
"""Hooks, and what they are called with: the job, and its value or its error."""
_NO_KWARGS: Mapping[str, Any] = {}


class End(Struct, frozen=True):
    """How an attempt ended. call: None if there was none."""

    call: StepCall | None
    value: Any
    error: BaseException | None
    outcome: Outcome


class Steps(Struct, frozen=True):
    """prepare: decodes the arguments; None: there is nothing to call; ArgumentError if they do not fit the task.
    outcome: from the returned value and the size limit of a result. hook_calls: the hooks to call afterwards.
    """

    prepare: Callable[[Any], StepCall | None]
    outcome: Callable[[Any, Any, int], Outcome]
    hook_calls: Callable[[Any, RunWrapper, End, AttemptContext], list[HookCall]]


def _prepare_one(running: Running) -> StepCall:
    task, body = running.task, running.job.body
    # Looked at here, too, since a call takes longer: nearly all jobs are in no flow, and small.
    args, kwargs = task.codec.decode(body if body[:1] in PLAIN else running.arguments)
    return task.fn, args, kwargs


def _prepare_runner(running: Running) -> StepCall:
    runner = running.task.runner
    assert runner is not None
    args, _ = running.task.codec.decode(running.arguments)
    return runner.run, (running, args[0]), _NO_KWARGS


def _encoded_outcome(running: Running, value: bytes, max_result: int) -> Outcome:
    return Returned(value)


def _prepare_wrapped(running: Running) -> StepCall:
    around = running.task.run_wrapper
    assert around is not None
    current.set(running)  # already here: the hooks see it, too
    job = CurrentJob(running)
    job.load()
    return (_carry_and_call, (job, around), _NO_KWARGS) if around.carried else (around.call, (job,), _NO_KWARGS)


def _hook_calls(running: Running, around: RunWrapper, end: End, context: AttemptContext) -> list[HookCall]:
    # Hooks get the object that the middleware got, since they share its `scratch`.
    job = end.call[1][0] if end.call else CurrentJob(running)
    return list(_choose_hooks(around, job, end, context))


def _prepare_batch(batch: Batch) -> StepCall | None:
    """Leaves out jobs that are no longer wanted or whose arguments do not fit, and sets their outcomes."""
    items: list[Any] = []
    decode = batch.task.codec.decode
    for member in batch.members:
        if member.interrupt is not None:
            batch.outcomes[member] = Released()
            continue
        try:
            args, kwargs = decode(member.arguments)
        except ArgumentError as error:
            batch.outcomes[member] = attempt_report.outcome_of_argument_error(error)
            continue
        member.started = batch.started
        batch.called.append(member)
        items.append(args[0] if args else next(iter(kwargs.values())))
    return (batch.task.fn, (items,), _NO_KWARGS) if items else None


def _batch_outcome(batch: Batch, value: Any, max_result: int) -> Outcome:
    """Sets the outcomes of single jobs in `batch.outcomes`, and returns the outcome of all others."""
    if value is None or isinstance(value, Verdict):
        return attempt_report.outcome_of_value(batch, value, max_result)
    if not isinstance(value, list | tuple) or len(value) != len(batch.called):
        # Nobody can say whose results these are. The work was done, so the jobs are dead and not tried again.
        got = f"{len(value)} results" if isinstance(value, list | tuple) else type(value).__name__
        why = (
            f"{batch.task.name} returned {got} for {len(batch.called)} jobs; None or a list with one for each is needed"
        )
        return Raised(outcome_note("ResultError", why), final=True)
    for member, own in zip(batch.called, value, strict=True):
        if isinstance(own, BaseException):
            batch.outcomes[member] = attempt_report.outcome_of_error(member, own)
        else:
            batch.outcomes[member] = attempt_report.outcome_of_value(member, own, max_result)
    return Released()


def _batch_hook_calls(batch: Batch, around: RunWrapper, end: End, context: AttemptContext) -> list[HookCall]:
    value = end.value
    each = value if isinstance(value, list | tuple) and len(value) == len(batch.called) else [value] * len(batch.called)
    calls: list[HookCall] = []
    for member, own in zip(batch.called, each, strict=True):
        outcome = batch.outcomes.get(member, end.outcome)
        error = own if isinstance(own, BaseException) else end.error
        result = own if isinstance(outcome, Returned) else None
        calls += _choose_hooks(around, CurrentJob(member), End(None, result, error, outcome), context)
    return calls


def _choose_hooks(around: RunWrapper, job: CurrentJob, end: End, context: AttemptContext) -> Iterator[HookCall]:
    """The hooks to call for one job."""
    if isinstance(end.outcome, Returned):
        if around.success:
            yield around.success, job, end.value
        return
    if not (around.failure or around.dead):
        return
    failure = attempt_report.hook_error(job.running, end.outcome, end.value, end.error)
    if failure is None:
        return
    if around.failure:
        yield around.failure, job, failure
    if around.dead and context.is_final(job.running.job, end.outcome):
        yield around.dead, job, failure


def _carry_and_call(job: CurrentJob, around: RunWrapper) -> Any:
    carry(job, around)
    return around.call(job)


def carry(job: CurrentJob, around: RunWrapper) -> None:
    """Sets the variables that the job carries, in the calling context."""
    for variable in around.carried:
        variable.restore(job.headers)


ONE = Steps(_prepare_one, attempt_report.outcome_of_value, _hook_calls)
RUNNER = Steps(_prepare_runner, _encoded_outcome, _hook_calls)
"""The task has a runner, which encodes the result itself."""
WRAPPED = Steps(_prepare_wrapped, attempt_report.outcome_of_value, _hook_calls)
# Without middleware and carried variables, since the call is not that of one job.
BATCH = Steps(_prepare_batch, _batch_outcome, _batch_hook_calls)
"""Hooks are called for each job."""
