"""What happens if a callback or an asyncio task that a job has left on the loop calls `sys.exit`, or stops the loop.

asyncio ends `run_forever` then, though nothing is wrong with the loop: it runs on, and the job fails.
"""

import gc
import itertools
import logging
from collections.abc import Callable, Iterator
from contextvars import Context
from types import TracebackType

from tarry.store.rules import ids
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.log_facts import about
from tarry.tasks.running import Running, current

log = logging.getLogger("tarry.worker")

EXITS = (SystemExit, KeyboardInterrupt)
"""What asyncio lets pass out of `run_forever`."""


def run_until(
    has_stopped: Callable[[], bool], loop: "asyncio.AbstractEventLoop", last: Callable[[], Running | None]
) -> None:
    """Runs the loop until `has_stopped`, whatever jobs do to it. last: the job whose step it ran last."""
    while not has_stopped():
        try:
            loop.run_forever()
        except EXITS as error:
            if (running := _find_job(error) or last()) is not None:
                fail(running, error)


def fail(running: Running, error: BaseException) -> None:
    """Ends the job with this error, unless it has ended. Call it in the thread of its loop, which must not run."""
    task = running.handle
    if isinstance(task, asyncio.Task) and not task.done() and running.exit_error is None:
        name, job = type(error).__name__, running.job
        log.warning(
            "%s %s raised %s beside its own coroutine: it fails", job.task, ids.text(job.id), name, extra=about(job)
        )
        running.exit_error = error
        task.cancel(name)


def _find_job(error: BaseException) -> Running | None:
    """The job in whose context the error was raised; None: nobody knows, as of a callback on uvloop."""
    contexts = itertools.chain(_contexts_of_callbacks(error.__traceback__), _contexts_of_tasks(error))
    return next((context[current] for context in contexts if context.get(current) is not None), None)


def _contexts_of_callbacks(at: TracebackType | None) -> Iterator[Context]:
    # asyncio calls everything by `Handle._run`; uvloop has no such frame.
    while at is not None:
        handle = at.tb_frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            yield handle._context  # type: ignore[attr-defined]
        at = at.tb_next


def _contexts_of_tasks(error: BaseException) -> Iterator[Context]:
    # The task that raised it keeps it, and its context, which Python 3.11 shows in no other way.
    for each in gc.get_objects():
        if issubclass(type(each), asyncio.Task) and getattr(each, "_exception", None) is error:
            yield from (part for part in gc.get_referents(each) if isinstance(part, Context))
