"""One attempt: from the job's body to an Outcome. Who calls it says where it runs, and may break in on it."""

import sys
from collections.abc import Callable
from contextvars import copy_context

from tarry.errors import ArgumentError
from tarry.model.outcome import Outcome
from tarry.tasks import django_connections
from tarry.tasks.django_connections import DJANGO
from tarry.tasks.running import Batch, Running, current
from tarry.worker.run import report, together, wrapped
from tarry.worker.run.terms import Terms, shown


def nobody(running: Running) -> None:
    """Nobody breaks in, so nobody has to be told to stop."""


def sync(running: Running, terms: Terms, leave: Callable[[Running], None] = nobody) -> Outcome:
    """Runs a `def` here and now. leave: called once the task's own code is over; from then on nobody breaks in."""
    if DJANGO not in sys.modules:
        return _sync(running, terms, leave)
    django_connections.close_old()
    try:
        return _sync(running, terms, leave)
    finally:
        django_connections.close_old()


def _sync(running: Running, terms: Terms, leave: Callable[[Running], None]) -> Outcome:
    task = running.task
    if isinstance(running, Batch):
        return together.sync(running, terms, leave)
    if task.wrapped is not None:
        return copy_context().run(wrapped.sync, running, task.wrapped, terms, leave)
    try:
        args, kwargs = task.codec.decode(running.job.body)
    except ArgumentError as error:
        leave(running)
        return report.of_misfit(error)
    token = current.set(running)
    try:
        value = task.fn(*args, **kwargs)
    except BaseException as error:
        leave(running)
        return report.of_error(running, error)
    finally:
        current.reset(token)
    leave(running)
    return report.of_value(running, value, terms.most_result)


async def on_loop(running: Running, terms: Terms, leave: Callable[[Running], None] = nobody) -> Outcome:
    """Runs an `async def` in the calling asyncio task, which may be cancelled to break in until `leave` is called; its
    context is the job's."""
    attempt = _on_loop(running, terms, leave)
    return await (django_connections.run(attempt) if DJANGO in sys.modules else attempt)


async def _on_loop(running: Running, terms: Terms, leave: Callable[[Running], None]) -> Outcome:
    task = running.task
    if isinstance(running, Batch):
        return await together.on_loop(running, terms, leave)
    if task.wrapped is not None:
        return await wrapped.on_loop(running, task.wrapped, terms, leave)
    try:
        args, kwargs = task.codec.decode(running.job.body)
    except ArgumentError as error:
        leave(running)
        return report.of_misfit(error)
    current.set(running)
    try:
        value = await shown(task.fn(*args, **kwargs), running, terms, terms.kill_at(running))
    except BaseException as error:
        leave(running)
        return report.of_error(running, error)
    leave(running)
    return report.of_value(running, value, terms.most_result)
