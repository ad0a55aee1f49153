"""What the master asks a worker about its attempts: where its threads are and its coroutines wait, and to end one of
them."""

import contextlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from tarry.model.killing import ENDED
from tarry.tasks.interrupts import TimeLimit
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import Batch, Running
from tarry.worker.pump import Pump
from tarry.worker.run import stacks
from tarry.worker.run.runner import Runner

MOST_STACKS = 20
"""Coroutines that are told of."""
MAX_STACK = 4000
"""Characters of one stack."""
MAX_THREADS = 100_000
"""Characters of the stacks of all threads."""
_TITLE = "Stack of the coroutine"


class AttemptRequests:
    """Called in any thread. loop: runs the async tasks of the pump."""

    def __init__(self, pump: Pump, loop: Runner) -> None:
        self._pump, self._loop = pump, loop

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Does what the message asks for. Returns the answer; None: there is none."""
        if "stack" in message:
            coroutines = dict(islice(self._stacks(), MOST_STACKS))
            return {"stack": message["stack"], "jobs": coroutines, "threads": stacks.format_threads()[:MAX_THREADS]}
        with contextlib.suppress(KeyError, TypeError, ValueError):
            self._end(bytes.fromhex(message["end"]), int(message["epoch"]))
        return None

    def _stacks(self) -> Iterator[tuple[str, str]]:
        """The stacks of coroutines, by job."""
        for running in self._calls():
            task = running.handle
            if isinstance(task, asyncio.Task):
                stack = stacks.format_task_stack(task, running.coroutine, _TITLE)
                yield running.job.id.hex(), stack[-MAX_STACK:]

    def _calls(self) -> Iterator[Running]:
        for held in list(self._pump.held.values()):
            call = held.handle if isinstance(held.handle, Batch) else held
            if call.task.is_async and call.started:
                yield call

    def _end(self, id: bytes, epoch: int) -> None:
        # Threads are ended by their master: the interpreter may be in the hands of the task.
        for call in self._calls():
            if (call.job.id, call.job.epoch) == (id, epoch) and call.interrupt is None:
                call.kill_reason = ENDED
                self._loop.interrupt(call, TimeLimit)
                self._pump.wakeup.wake()
                return
