"""Calls hooks when an attempt of a job has ended. Nothing that they do changes the job."""

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from tarry.model.change import Change
from tarry.model.job import State
from tarry.tasks import own_loop
from tarry.tasks.hooks import Hook, display_name
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import CurrentJob
from tarry.tracebacks import exc_info

log = logging.getLogger("tarry.worker")

WITHIN = 60.0
"""Seconds that the hooks of an attempt may take. A hook that needs longer should enqueue a job."""


def is_dead(change: Change) -> bool:
    """Whether there is no other attempt after a failed one."""
    # None: a dead job that is not kept is deleted.
    return change.to in (State.DEAD, None)


def call_hooks(hooks: Sequence[Hook], job: CurrentJob, payload: Any) -> None:
    """Calls sync and async hooks in this thread; async ones run on the thread's own loop. Errors are logged."""
    for hook in hooks:
        try:
            answer = hook(job, payload)
            if answer is not None and inspect.isawaitable(answer):
                own_loop.thread_loop().run(_within(answer))
        except BaseException as error:
            # Also SystemExit and the like: a hook must not end the worker's thread.
            _log_error(hook, job, error)


async def acall_hooks(hooks: Sequence[Hook], job: CurrentJob, payload: Any) -> None:
    """The same on the running event loop."""
    for hook in hooks:
        try:
            answer = hook(job, payload)
            if answer is not None and inspect.isawaitable(answer):
                await _within(answer)
        except BaseException as error:
            _log_error(hook, job, error)


async def _within(answer: Awaitable[Any]) -> None:
    async with asyncio.timeout(WITHIN):
        await answer


def _log_error(hook: Hook, job: CurrentJob, error: BaseException) -> None:
    facts = about(job.running.job)
    log.error("hook %s for %s %s raised", display_name(hook), job.task, job.id, exc_info=exc_info(error), extra=facts)
