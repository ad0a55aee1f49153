"""Middleware: functions that wrap each enqueue, or each run."""

# The chains are built when a middleware is registered, so that a call need not look at each middleware again.

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from types import CoroutineType
from typing import Any

from tarry.tasks import own_loop

Handler = Callable[[Any], Any]
"""Takes the job, and does the rest of the chain."""
Middleware = Callable[[Any, Any], Any]
"""Takes the job, and the handler after it."""


def build_chains(middleware: Sequence[Middleware], end: Handler) -> dict[bool, Handler]:
    """The chain from the first middleware, the outermost, to the end. False: for a sync call; True: for an async one,
    in which each handler returns an awaitable."""
    sync_chain = async_chain = end
    # From the inside out: the first one is the outermost.
    for fn in reversed(middleware):
        # A sync call has no loop, so an `async def` gets one. In an async chain a `def` must return an awaitable.
        sync_chain = _on_own_loop(fn, sync_chain) if _is_async(fn) else _plain(fn, sync_chain)
        async_chain = _plain(fn, async_chain) if _is_async(fn) else _awaitable(fn, async_chain)
    return {False: sync_chain, True: async_chain}


def run_task(job: Any) -> Any:
    """The end of the chain of a run: calls the task of a `CurrentJob`."""
    args, kwargs = job.load()
    return job.running.task.fn(*args, **kwargs)


def send_job(job: Any) -> Any:
    """The end of the chain of an enqueue: stores a `NewJob`."""
    return job.send()


def _plain(fn: Middleware, after: Handler) -> Handler:
    def handle(job: Any) -> Any:
        return fn(job, after)

    return handle


def _awaitable(fn: Middleware, after: Handler) -> Handler:
    """For a `def` in an async chain. It may return what `call_next` returned, an awaitable, or a value of its own."""

    async def handle(job: Any) -> Any:
        answer = fn(job, after)
        # The type first: it is the usual case, and `isawaitable` is slower.
        return await answer if type(answer) is CoroutineType or inspect.isawaitable(answer) else answer

    return handle


def _on_own_loop(fn: Middleware, after: Handler) -> Handler:
    """For an `async def` in a sync chain: it runs on the thread's own loop."""

    def handle(job: Any) -> Any:
        loop = own_loop.thread_loop()
        # The rest of the chain runs outside the loop, so that the task may start a loop itself.
        return loop.run(fn(job, lambda job: loop.call_outside(partial(after, job))))

    return handle


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    # An object with an async `__call__` is middleware too.
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
