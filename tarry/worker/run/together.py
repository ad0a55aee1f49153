"""One attempt at many jobs: a call of a batch task, and what becomes of each of its jobs.

No middleware is around such a call and no variables are carried into it, since it is not one job's; hooks are each
job's own, and are called for each.
"""

import time
from collections.abc import Callable
from typing import Any

from tarry.errors import ArgumentError
from tarry.model import outcome
from tarry.model.killing import HOOKS
from tarry.model.outcome import Outcome, Raised, Released, Returned
from tarry.model.verdict import Verdict
from tarry.tasks.running import Batch, CurrentJob, Running, current
from tarry.worker.run import hook_calls, report, wrapped
from tarry.worker.run.terms import Terms, shown

Leave = Callable[[Running], None]


def sync(batch: Batch, terms: Terms, leave: Leave) -> Outcome:
    """Runs a `def`. What became of single jobs is in `batch.ends` then; the answer is what became of all others."""
    items = _items(batch)
    value, error = None, None
    token = current.set(batch)
    try:
        value = batch.task.fn(items) if items else None
    except BaseException as raised:
        error = raised
    finally:
        leave(batch)
        current.reset(token)
    ended = _outcome(batch, value, error, terms)
    if batch.task.wrapped is not None:
        for job, chosen, told in _due(batch, ended, value, error, terms):
            terms.show(job.running, time.monotonic() + hook_calls.WITHIN, HOOKS)
            hook_calls.call(chosen, job, told)
    return ended


async def on_loop(batch: Batch, terms: Terms, leave: Leave) -> Outcome:
    """Runs an `async def`."""
    items = _items(batch)
    value, error = None, None
    current.set(batch)
    try:
        value = await shown(batch.task.fn(items), batch, terms, terms.kill_at(batch)) if items else None
    except BaseException as raised:
        error = raised
    leave(batch)
    ended = _outcome(batch, value, error, terms)
    if batch.task.wrapped is not None:
        for job, chosen, told in _due(batch, ended, value, error, terms):
            await shown(hook_calls.acall(chosen, job, told), job.running, terms, time.monotonic() + hook_calls.WITHIN)
    return ended


def _items(batch: Batch) -> list[Any]:
    """The list for the call: of those that are still wanted, and whose arguments fit."""
    items: list[Any] = []
    decode = batch.task.codec.decode
    for member in batch.members:
        if member.interrupt is not None:
            batch.ends[member] = Released()
            continue
        try:
            args, kwargs = decode(member.job.body)
        except ArgumentError as error:
            batch.ends[member] = report.of_misfit(error)
            continue
        member.started = batch.started
        batch.on.append(member)
        items.append(args[0] if args else next(iter(kwargs.values())))
    return items


def _outcome(batch: Batch, value: Any, error: BaseException | None, terms: Terms) -> Outcome:
    """A value that is neither None nor one for each is nobody's, so all of them end as dead: the work was done."""
    if error is not None:
        return report.of_error(batch, error)
    if value is None or isinstance(value, Verdict):
        return report.of_value(batch, value, terms.most_result)
    if not isinstance(value, list | tuple) or len(value) != len(batch.on):
        got = f"{len(value)} results" if isinstance(value, list | tuple) else type(value).__name__
        why = f"{batch.task.name} returned {got} for {len(batch.on)} jobs; None or a list with one for each is needed"
        return Raised(outcome.note("ResultError", why), final=True)
    for member, own in zip(batch.on, value, strict=True):
        failed = isinstance(own, BaseException)
        batch.ends[member] = report.of_error(member, own) if failed else report.of_value(member, own, terms.most_result)
    return Released()


def _due(
    batch: Batch, ended: Outcome, value: Any, error: BaseException | None, terms: Terms
) -> list[tuple[CurrentJob, Any, Any]]:
    """The hooks to call for each job of the call, and what they are told."""
    around = batch.task.wrapped
    assert around is not None
    each = value if isinstance(value, list | tuple) and len(value) == len(batch.on) else [value] * len(batch.on)
    found: list[tuple[CurrentJob, Any, Any]] = []
    for member, own in zip(batch.on, each, strict=True):
        job, outcome = CurrentJob(member), batch.ends.get(member, ended)
        raised = own if isinstance(own, BaseException) else error
        kept = own if isinstance(outcome, Returned) else None
        found += [(job, chosen, told) for chosen, told in wrapped.due(around, job, outcome, kept, raised, terms)]
    return found
