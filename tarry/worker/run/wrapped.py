"""An attempt of a task that something is around: middleware, hooks, carried variables."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from tarry.errors import ArgumentError
from tarry.model.killing import HOOKS
from tarry.model.outcome import Outcome, Returned
from tarry.tasks.around import Wrapping
from tarry.tasks.hooks import Hook
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import CurrentJob, Running, current
from tarry.worker.run import hook_calls, report
from tarry.worker.run.terms import Terms, shown

Leave = Callable[[Running], None]
Ending = tuple[Any, BaseException | None, Outcome | None]
"""The task's value, or its error; and the outcome, where that is known already."""


def sync(running: Running, around: Wrapping, terms: Terms, leave: Leave) -> Outcome:
    """Runs a `def`; in a context of its own, since it sets variables for good."""
    current.set(running)
    job = CurrentJob(running)
    try:
        value, error, outcome = _tried(job, around, leave)
    except Interrupted as late:
        # It hit between the end of the task and the moment we stopped listening for it.
        leave(running)
        value, error, outcome = None, late, None
    if outcome is None:
        outcome = _outcome(running, value, error, terms)
    if around.hooked:
        for chosen, told in due(around, job, outcome, value, error, terms):
            terms.show(running, time.monotonic() + hook_calls.WITHIN, HOOKS)
            hook_calls.call(chosen, job, told)
    return outcome


async def on_loop(running: Running, around: Wrapping, terms: Terms, leave: Leave) -> Outcome:
    """Runs an `async def`."""
    current.set(running)
    job = CurrentJob(running)
    value, error, outcome = await _awaited(job, around, terms)
    leave(running)
    if outcome is None:
        outcome = _outcome(running, value, error, terms)
    if around.hooked:
        for chosen, told in due(around, job, outcome, value, error, terms):
            await shown(hook_calls.acall(chosen, job, told), running, terms, time.monotonic() + hook_calls.WITHIN)
    return outcome


def carry(job: CurrentJob, around: Wrapping) -> None:
    """Sets, in the calling context and for good, the variables that travelled with the job."""
    for one in around.carried:
        one.set(job.headers)


def due(
    around: Wrapping, job: CurrentJob, outcome: Outcome, value: Any, error: BaseException | None, terms: Terms
) -> list[tuple[Sequence[Hook], Any]]:
    """The hooks to call now that an attempt ended so, and what they are told."""
    if isinstance(outcome, Returned):
        return [(around.success, value)] if around.success else []
    if not (around.failure or around.dead):
        return []
    failure = report.failure(job.running, outcome, value, error)
    if failure is None:
        return []
    found = [(around.failure, failure)] if around.failure else []
    if around.dead and terms.ends(job.running.job, outcome):
        found.append((around.dead, failure))
    return found


def _tried(job: CurrentJob, around: Wrapping, leave: Leave) -> Ending:
    try:
        job.load()
    except ArgumentError as misfit:
        leave(job.running)
        return None, misfit, report.of_misfit(misfit)
    try:
        if around.carried:
            carry(job, around)
        value = around.call(job)
        leave(job.running)
        return value, None, None
    except BaseException as error:
        leave(job.running)
        return None, error, None


async def _awaited(job: CurrentJob, around: Wrapping, terms: Terms) -> Ending:
    try:
        job.load()
    except ArgumentError as misfit:
        return None, misfit, report.of_misfit(misfit)
    try:
        carry(job, around)
        return await shown(around.call(job), job.running, terms, terms.kill_at(job.running)), None, None
    except BaseException as error:
        return None, error, None


def _outcome(running: Running, value: Any, error: BaseException | None, terms: Terms) -> Outcome:
    if error is None:
        return report.of_value(running, value, terms.most_result)
    return report.of_error(running, error)
