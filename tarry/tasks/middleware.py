"""Middleware: functions that wrap each enqueue, or each run. Chained once, when they are registered."""

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from types import CoroutineType
from typing import Any

from tarry.tasks import own_loop

Link = Callable[[Any], Any]
"""Of the job: the rest of the way, from here on."""
Middleware = Callable[[Any, Any], Any]
"""Of the job, and of the link after it."""


def chains(middleware: Sequence[Middleware], end: Link) -> dict[bool, Link]:
    """From the outermost, which is the first, to the end: for what is sync, and for what is async, where each link
    gives an awaitable."""
    sync = wait = end
    for fn in reversed(middleware):
        sync = _driven(fn, sync) if _is_async(fn) else _direct(fn, sync)
        wait = _direct(fn, wait) if _is_async(fn) else _awaited(fn, wait)
    return {False: sync, True: wait}


def run(job: Any) -> Any:
    """The end of the way to run a `CurrentJob`: the task itself."""
    args, kwargs = job.load()
    return job.running.task.fn(*args, **kwargs)


def put(job: Any) -> Any:
    """The end of the way to enqueue a `NewJob`: the store."""
    return job.put()


def _direct(fn: Middleware, after: Link) -> Link:
    def link(job: Any) -> Any:
        return fn(job, after)

    return link


def _awaited(fn: Middleware, after: Link) -> Link:
    """A `def` where all is async: it may give what `call_next` gave it, or a value of its own."""

    async def link(job: Any) -> Any:
        answer = fn(job, after)
        return await answer if type(answer) is CoroutineType or inspect.isawaitable(answer) else answer

    return link


def _driven(fn: Middleware, after: Link) -> Link:
    """An `async def` where nothing else is async: run on the thread's own loop, which is at rest during the rest of
    the way, so that the task may start a loop itself."""

    def link(job: Any) -> Any:
        own = own_loop.here()
        return own.run(fn(job, lambda job: own.outside(partial(after, job))))

    return link


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
