"""Names the job that holds up its event loop, as by a call that blocks."""

import logging
from collections.abc import Callable

from tarry.store.rules import ids
from tarry.tasks.log_facts import about
from tarry.tasks.running import Running
from tarry.worker.run import stacks
from tarry.worker.run.context import AttemptContext

log = logging.getLogger("tarry.worker")

HELD_FOR = 1.0
"""Seconds that one step may take before its job is named."""


class LoopWatch:
    """Used by the pump's thread. context: of the loop's jobs. soon: calls a function in the loop."""

    def __init__(self, context: AttemptContext, soon: Callable[..., object]) -> None:
        self._context, self._soon = context, soon
        self._is_asked = False
        """Whether the loop has been asked for a sign of life, and has not given it."""
        self._holder: Running | None = None
        self._since = 0.0

    def check(self, now: float, thread: int | None) -> None:
        """Logs a warning, once for each attempt, if one step has held the loop for `HELD_FOR`. Call it once a second.

        now: time.monotonic(). thread: the loop's.
        """
        holder = self._context.current
        if holder is None or holder is not self._holder or not self._is_asked:
            self._ask(holder, now)
        elif now - self._since >= HELD_FOR and not holder.held_loop and thread is not None:
            holder.held_loop = True
            _warn(holder, now - self._since, thread)

    def _ask(self, holder: Running | None, now: float) -> None:
        self._holder, self._since = holder, now
        # One question at a time: a loop that is blocked for long would have to answer thousands at its end.
        if holder is not None and not self._is_asked:
            self._is_asked = True
            self._soon(self._answer)

    def _answer(self) -> None:
        self._is_asked = False


def _warn(holder: Running, seconds: float, thread: int) -> None:
    code = getattr(holder.coroutine, "cr_code", None)
    where = stacks.innermost_line(thread, code.co_filename if code is not None else "")
    log.warning(
        "%s %s has held up the event loop for %.1f s, and all jobs on it; it is at %s: await instead of blocking, or"
        " write the task as a def",
        holder.job.task,
        ids.text(holder.job.id),
        seconds,
        where,
        extra=about(holder.job),
    )
