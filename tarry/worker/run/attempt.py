"""Runs one attempt, from the arguments to the outcome. There are two drivers, for sync and async tasks.

The steps, in this order: decode the arguments, run the task within its middleware, `disarm`, find the outcome, call the
hooks. Until `disarm` is called the attempt may be interrupted. `steps` has what differs between attempts.
"""

import decimal
import sys
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tarry.client.flows.node import FanOut
from tarry.client.tasks.fan_out import add_nodes
from tarry.errors import ArgumentError
from tarry.model.killing import HOOKS
from tarry.model.outcome import Outcome
from tarry.tasks import django_connections
from tarry.tasks.django_connections import DJANGO
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import Batch, Running, current
from tarry.worker.run import hook_calls, inputs
from tarry.worker.run.attempt_report import outcome_of_argument_error, outcome_of_error, with_status
from tarry.worker.run.context import AttemptContext, run_shown
from tarry.worker.run.steps import BATCH, ONE, RUNNER, WRAPPED, End, StepCall, Steps

Disarm = Callable[[Running], None]
"""Called once the task's own code is over: from then on nothing interrupts the attempt."""


def _find_decimals() -> ContextVar[Any]:
    fresh = Context()
    fresh.run(decimal.getcontext)
    return next(iter(fresh))


_decimals = _find_decimals()
"""Has the context of decimals, once a thread has used one."""


def own_context() -> Context:
    """A copy of this thread's context. What a job sets in it, such as the language of Django or the precision of
    decimals, does not reach the next one."""
    own = copy_context()
    if _decimals in own:
        own.run(_copy_decimals)
    return own


def _copy_decimals() -> None:
    # The context of decimals is changed in place, so a copy of the variables still shares it.
    decimal.setcontext(decimal.getcontext().copy())


def ignore_disarm(running: Running) -> None:
    """Used where nothing interrupts attempts."""


def run_sync(running: Running, context: AttemptContext, disarm: Disarm = ignore_disarm) -> Outcome:
    """Runs a `def` in the calling thread, in a copy of its context."""
    drive = _drive_beside_django if DJANGO in sys.modules else _drive_sync
    plain = ONE if running.task.run_wrapper is None else WRAPPED
    steps = BATCH if isinstance(running, Batch) else plain
    return own_context().run(drive, running, steps, context, disarm)


def run_async(
    running: Running, context: AttemptContext, disarm: Disarm = ignore_disarm
) -> Coroutine[Any, Any, Outcome]:
    """Runs an `async def` in the calling asyncio task and its context; to interrupt it, cancel that task."""
    task = running.task
    plain = ONE if task.runner is None else RUNNER
    steps = BATCH if isinstance(running, Batch) else plain if task.run_wrapper is None else WRAPPED
    attempt = _drive_async(running, steps, context, disarm)
    return django_connections.run_attempt(attempt) if DJANGO in sys.modules else attempt


def _prepare(steps: Steps, running: Running) -> StepCall | None:
    try:
        return steps.prepare(running)
    except (ArgumentError, Interrupted):
        raise
    except Exception as error:
        # What is stored of the job is not what it should be: it must not end the thread, or the loop.
        raise ArgumentError(f"{running.job.task}: this job cannot be read: {type(error).__name__}") from error


def _drive_beside_django(running: Running, steps: Steps, context: AttemptContext, disarm: Disarm) -> Outcome:
    django_connections.close_old()
    try:
        return _drive_sync(running, steps, context, disarm)
    finally:
        django_connections.close_old()


def _drive_sync(running: Running, steps: Steps, context: AttemptContext, disarm: Disarm) -> Outcome:
    call: StepCall | None = None
    value: Any = None
    error: BaseException | None = None
    outcome: Outcome | None = None
    try:
        if call := _prepare(steps, running):
            fn, args, kwargs = call
            token = current.set(running)
            try:
                value = fn(*args, **kwargs)
                if type(value) is FanOut:
                    value = add_nodes(running.job, value)
            except BaseException as raised:
                # Only noted: its outcome is worked out after `disarm`, where no interrupt can break in.
                error = raised
            finally:
                current.reset(token)
        disarm(running)
    except ArgumentError as misfit:
        disarm(running)
        error, outcome = misfit, outcome_of_argument_error(misfit)
    except Interrupted as late:
        # The interrupt hit after the task's code was over, but before `disarm` was.
        disarm(running)
        value, error = None, late
    if outcome is None:
        if error is None:
            outcome = steps.outcome(running, value, context.max_result)
        else:
            outcome = outcome_of_error(running, error)
    outcome = context.keep_large(running, outcome)
    around = running.task.run_wrapper
    if around is not None and around.has_end_hooks:
        for hooks, job, payload in steps.hook_calls(running, around, End(call, value, error, outcome), context):
            # The task's own limit is over: without a new one, a hook that hangs would be blamed on the task's timeout.
            context.show(job.running, time.monotonic() + hook_calls.WITHIN, HOOKS)
            hook_calls.call_hooks(hooks, job, payload)
    error = None  # its traceback refers to this frame: the cycle would keep alive all that the task had in variables
    return outcome


async def _drive_async(running: Running, steps: Steps, context: AttemptContext, disarm: Disarm) -> Outcome:
    call: StepCall | None = None
    value: Any = None
    error: BaseException | None = None
    outcome: Outcome | None = None
    try:
        if steps is BATCH or running.inputs is not None:
            await inputs.fetch(running)
        call = _prepare(steps, running)
    except ArgumentError as misfit:
        error, outcome = misfit, outcome_of_argument_error(misfit)
    if call is not None:
        fn, args, kwargs = call
        # Never reset: the asyncio task has a context of its own.
        current.set(running)
        try:
            value = await run_shown(fn(*args, **kwargs), running, context, context.kill_at(running))
            if type(value) is FanOut:
                value = await asyncio.to_thread(add_nodes, running.job, value)
        except BaseException as raised:
            error = raised
    disarm(running)
    error = running.exit_error or error
    if outcome is None:
        if error is None:
            outcome = steps.outcome(running, value, context.max_result)
        else:
            outcome = outcome_of_error(running, error)
        outcome = with_status(outcome, running)
    outcome = await context.keep_large_awaited(running, outcome)
    around = running.task.run_wrapper
    if around is not None and around.has_end_hooks:
        for hooks, job, payload in steps.hook_calls(running, around, End(call, value, error, outcome), context):
            calling = hook_calls.acall_hooks(hooks, job, payload)
            await run_shown(calling, job.running, context, time.monotonic() + hook_calls.WITHIN)
    error = None  # as above
    return outcome
