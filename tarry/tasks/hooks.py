"""Hooks: what is called when an attempt of a job has ended. They look on; nothing that they do changes the job."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from tarry.model.change import Change
from tarry.model.job import State
from tarry.tasks import own_loop
from tarry.tasks.lazily import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import CurrentJob

log = logging.getLogger("tarry.worker")

Hook = Callable[[CurrentJob, Any], Any]
"""Of the job, and of its value or its error; what it returns is awaited if it can be."""
Kind = Literal["success", "failure", "dead"]

WITHIN = 60.0
"""Seconds that the hooks of an attempt may take: whoever needs longer enqueues a job."""


class Hooks:
    """Those of one task, or of an app, in the order in which they were registered."""

    __slots__ = ("dead", "failure", "success")

    def __init__(self) -> None:
        self.success: list[Hook] = []
        self.failure: list[Hook] = []
        self.dead: list[Hook] = []

    def add(self, kind: Kind, hook: Hook) -> None:
        """One more; TypeError if it cannot be called with a job and a value."""
        told = "value" if kind == "success" else "error"
        check(hook, f"on_{kind}", f"(job, {told})")
        getattr(self, kind).append(hook)


def is_dead(change: Change) -> bool:
    """After a failed attempt: there will be no other."""
    return change.to in (State.DEAD, None)


def check(fn: Callable[..., Any], what: str, takes: str) -> None:
    """TypeError unless the function takes two arguments, and answers at once."""
    if not callable(fn):
        raise TypeError(f"{what} takes a function, not {fn!r}")
    name = name_of(fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{what}: {name} yields; it must be a plain `def` or `async def`")
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        raise TypeError(f"{what}: {name} is called with two arguments, {takes}, and does not take them") from None
    except ValueError:
        return  # a builtin that does not tell its signature


def name_of(fn: Callable[..., Any]) -> str:
    """As a message calls it."""
    return getattr(fn, "__qualname__", None) or repr(fn)


def call(hooks: Sequence[Hook], job: CurrentJob, told: Any) -> None:
    """Calls each; async ones are run to their end on the thread's own loop. An error is logged."""
    for hook in hooks:
        try:
            answer = hook(job, told)
            if answer is not None and inspect.isawaitable(answer):
                own_loop.here().run(_within(answer))
        except BaseException as error:
            _tell(hook, job, error)


async def acall(hooks: Sequence[Hook], job: CurrentJob, told: Any) -> None:
    """The same on an event loop: plain ones are called on it, async ones awaited."""
    for hook in hooks:
        try:
            answer = hook(job, told)
            if answer is not None and inspect.isawaitable(answer):
                await _within(answer)
        except BaseException as error:
            _tell(hook, job, error)


async def _within(answer: Awaitable[Any]) -> None:
    async with asyncio.timeout(WITHIN):
        await answer


def _tell(hook: Hook, job: CurrentJob, error: BaseException) -> None:
    facts = about(job.running.job)
    log.error("hook %s for %s %s raised", name_of(hook), job.task, job.id, exc_info=error, extra=facts)
