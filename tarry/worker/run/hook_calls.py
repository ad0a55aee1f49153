"""Calls hooks when an attempt of a job has ended. They look on; nothing that they do changes the job."""

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from tarry.model.change import Change
from tarry.model.job import State
from tarry.tasks import own_loop
from tarry.tasks.hooks import Hook, name_of
from tarry.tasks.lazily import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import CurrentJob

log = logging.getLogger("tarry.worker")

WITHIN = 60.0
"""Seconds that the hooks of an attempt may take: whoever needs longer enqueues a job."""


def is_dead(change: Change) -> bool:
    """After a failed attempt: there will be no other."""
    return change.to in (State.DEAD, None)


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
