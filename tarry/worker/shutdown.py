"""Ends a worker within a limited time, even if the store is away and the thread that uses it hangs."""

import logging
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from tarry.model.job import Job
from tarry.model.quantity import quantity
from tarry.store.rules import ids
from tarry.store.rules.sleeper import drain
from tarry.store.shared.backoff import TurnGuard

log = logging.getLogger("tarry.worker")

NAMED = 5
"""The most jobs that are named in the log at the end."""
LEAVES_TO_OTHERS = 0.25
"""Seconds that the worker's own thread has to handle news."""
LOOK_EVERY = 0.1
LOG_AFTER = 1.0
"""Seconds until the log says that the worker waits for the store."""


class StoppingWorker(Protocol):
    """What `ShutdownLimit` needs of a worker. All methods are thread-safe."""

    def read_news(self) -> None:
        """Handles signals and the loss of the parent."""

    def is_stopping(self) -> bool:
        """It was told to end."""

    def end_by(self) -> float:
        """time.monotonic() by which it has to end, even if jobs run; inf: when they have ended."""

    def is_executing(self) -> bool:
        """A job still runs."""

    def is_urgent(self) -> bool:
        """A person or process waits for its end. If it is only replaced, none does, so it need not lose outcomes."""

    def log_waiting(self) -> None:
        """Logs that it waits for the store."""

    def give_up(self) -> None:
        """Ends the process, and logs which jobs could not be settled."""


class ShutdownLimit:
    """A thread that ends the process of a worker that was told to end, `within` seconds after its last job.

    outside: descriptors that become readable when there is news.
    """

    def __init__(self, worker: StoppingWorker, outside: Sequence[int], within: float) -> None:
        self._worker, self._outside, self._within = worker, outside, within
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        # A full socket must not block a signal handler; the thread has enough to read then.
        self._writer.setblocking(False)
        self._closed = False
        threading.Thread(target=self._watch, name="tarry-end", daemon=True).start()

    def notify(self) -> None:
        """Makes the thread read the news. May be called in a signal handler."""
        with suppress(OSError):
            self._writer.send(b"\0")

    def close(self) -> None:
        """Ends the thread: the worker has ended, and the process goes on."""
        self._closed = True
        self.notify()

    def _watch(self) -> None:
        guard = TurnGuard(log, "watching for the end of the worker")
        while not self._worker.is_stopping() and not self._closed:
            with guard:
                self._await_news()
                # The worker's own thread should handle news; this one does it only if that one hangs.
                time.sleep(LEAVES_TO_OTHERS)
                if not self._closed:
                    self._worker.read_news()
        self._limit(guard)
        self._reader.close()
        self._writer.close()

    def _limit(self, guard: TurnGuard) -> None:
        idle_since, is_logged = time.monotonic(), False
        while not self._closed:
            with guard:
                now = time.monotonic()
                # The limit counts from the end of the last job.
                if self._worker.is_executing() or not self._worker.is_urgent():
                    idle_since = now
                if now - idle_since >= LOG_AFTER and not is_logged:
                    is_logged = True
                    self._worker.log_waiting()
                if now - idle_since >= self._within or now >= self._worker.end_by():
                    self._worker.give_up()
                time.sleep(LOOK_EVERY)

    def _await_news(self) -> None:
        sleeper = select.poll()
        # `poll`, not `select`: that fails for descriptors from 1024 on.
        for fd in (self._reader.fileno(), *self._outside):
            sleeper.register(fd, select.POLLIN)
        sleeper.poll()
        drain(self._reader)


def describe_unsettled(jobs: Sequence[Job]) -> str:
    """What the log says at the end of jobs whose outcome is not stored."""
    if not jobs:
        return "nothing is left to settle"
    named = ", ".join(f"{job.task} {ids.text(job.id)}" for job in jobs[:NAMED])
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"what became of {quantity(len(jobs))} is not stored; to be run again: {named}{more}"
