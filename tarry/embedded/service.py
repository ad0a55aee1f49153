"""Workers in a process that is no master's: in the foreground, in the background, or until nothing is left."""

import contextlib
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

from tarry.config import Pool
from tarry.embedded.mixin import Queues
from tarry.errors import ConfigError, StoreError
from tarry.keeper.chores import Keeper
from tarry.model.quantity import quantity
from tarry.tasks.lazily import asyncio
from tarry.worker.worker import Settings, Worker

log = logging.getLogger("tarry.worker")

RELEASE_WITHIN = 1.0
"""Seconds that jobs have to let go once they are called back."""
ENDS_WITHIN = 10.0
"""Seconds until threads that ought to end are left to themselves."""
MAX_EMPTY_CLAIMS = 1000
"""A claim makes a thousand jobs ready at most, of whatever queue: so often it may take another to come to ours."""


def worker_settings(
    pool: Pool,
    max_body: int,
    queues: Queues | None = None,
    threads: int | None = None,
    coroutines: int | None = None,
) -> Settings:
    """A pool's configuration as a worker wants it, with what is given instead; ConfigError if nothing could run."""
    thread_slots = pool.threads if threads is None else threads
    coroutine_slots = pool.async_ if coroutines is None else coroutines
    if min(thread_slots, coroutine_slots) < 0 or not thread_slots + coroutine_slots:
        raise ConfigError(
            f"threads={thread_slots}, coroutines={coroutine_slots}: 0 or more of each, and 1 or more of one of them"
        )
    served = queue_weights(pool.queues if queues is None else queues)
    return Settings(
        served, thread_slots, coroutine_slots, pool.shares, pool.lease, max_body, pool.kill_after, pool.keep_output
    )


def queue_weights(queues: Queues) -> Mapping[str, int]:
    """By name; ConfigError for what is none."""
    if isinstance(queues, str):
        queues = [queues]
    queue_weights = queues if isinstance(queues, Mapping) else dict.fromkeys(queues, 1)
    if not queue_weights or not all(
        isinstance(name, str) and name and weight > 0 for name, weight in queue_weights.items()
    ):
        raise ConfigError(f'queues={queues!r}: a name, several, or weights such as {{"mail": 3}}; "*" is all')
    return queue_weights


class LocalWorker(Worker):
    """A worker whose process is not there for it alone: it ends also where its jobs would not.

    INT: finish what runs, then end. TERM: the same, within `grace` seconds; what still runs then is broken in on and
    goes back uncounted. The same signal a second time: now. leaves: should a job not even heed that, the process ends.
    until_idle: ends as soon as nothing is left to do, or takes nothing more after so many seconds.
    """

    def __init__(
        self,
        *args: Any,
        grace: float = 0.0,
        exits_process: bool = False,
        until_idle: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._end_within = grace if exits_process else None
        self.ended = threading.Event()
        """Set when it has given back what is not done, though a thread of it may still be at a job."""
        self.signals_received: deque[int] = deque()
        """The signals that it heard."""
        self._pending_signals: deque[int] = deque()
        self._grace, self._exits_process = grace, exits_process
        self._is_draining = until_idle is not None
        self._stop_at = math.inf if until_idle is None else time.monotonic() + until_idle
        self._limit = math.inf
        self._was_interrupted = self._gave_up = False
        self._empty_claims = 0

    def stop(self, limit: float = math.inf) -> None:
        """Finish what runs, then end; what runs for `limit` seconds more goes back. From any thread."""
        self._limit = min(self._limit, time.monotonic() + limit)
        super().stop()

    def receive_signal(self, number: int) -> None:
        """A signal, from its handler."""
        self._pending_signals.append(number)
        self.pump.bell.poke()
        if self._end_limit is not None:
            self._end_limit.poke()

    def end_by(self) -> float:
        """By time.monotonic(): a moment after the limit, at which the thread that speaks with the store breaks in."""
        return self._limit + 2 * RELEASE_WITHIN

    def _guarded(self) -> None:
        try:
            super()._guarded()
        finally:
            self.ended.set()

    def _over(self, seconds: float) -> bool:
        self._enforce_limits(time.monotonic())
        return (
            self._gave_up or super()._over(seconds) or (self._is_draining and seconds > 0 and self._has_nothing_left())
        )

    def _has_nothing_left(self) -> bool:
        if self.pump.call_together() or not self.pump.idle:
            return False
        self._empty_claims = self._empty_claims + 1 if self.pump.overdue else MAX_EMPTY_CLAIMS
        return self._empty_claims >= MAX_EMPTY_CLAIMS

    def _nap(self, seconds: float) -> float:
        if self._is_draining and self.pump.idle:
            return 0.0
        return max(0.0, min(seconds, self._limit - time.monotonic(), self._stop_at - time.monotonic()))

    def _heed(self) -> None:
        while self._pending_signals:
            self._told(self._pending_signals.popleft())
        super()._heed()

    def _told(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._report()
        elif number in (signal.SIGINT, signal.SIGTERM):
            is_repeated = number in self.signals_received
            self.signals_received.append(number)
            limit = 0.0 if is_repeated else self._grace if number == signal.SIGTERM else math.inf
            within = "" if limit == math.inf else f" within {limit:g} s"
            log.info("%s: takes nothing new, and finishes what it runs%s", signal.Signals(number).name, within)
            self.stop(limit)

    def _enforce_limits(self, now: float) -> None:
        """The limits of time: first nothing more is taken, then what runs is broken in on, then it is left alone."""
        if now >= self._stop_at:
            self._stop_at = math.inf
            self.pump.stop()
        if now < self._limit or not self.pump.holds:
            return
        if not self._was_interrupted:
            log.warning("breaks in on what still runs (%s): it goes back uncounted", quantity(self.pump.holds))
            self._was_interrupted, self._limit = True, now + RELEASE_WITHIN
            self.pump.call_back()
        else:
            self._give_up()

    def _give_up(self) -> None:
        log.warning("gives back what does not end (%s): it may be run twice now", quantity(self.pump.holds))
        self._gave_up = True
        self.pump.give_back()
        if self._exits_process:
            self._leave()


class EmbeddedService:
    """A worker and, in a thread beside it, a keeper: a master's work for one process. close: called at the end."""

    def __init__(self, worker: LocalWorker, keeper: Keeper, close: Callable[[], None] | None) -> None:
        self.worker = worker
        self._keeper = keeper
        self._close = close
        self._ended = threading.Event()
        self._keeper_thread = threading.Thread(target=self._run_keeper, name="tarry-keeper", daemon=True)

    def run(self) -> None:
        """Works, with the calling thread as one of the slots, until stopped."""
        self._keeper_thread.start()
        try:
            self.worker.run()
        finally:
            self.end()

    def end(self) -> None:
        """Gives back all but a thread that may still be at a job. Twice is fine."""
        self._ended.set()
        self._keeper_thread.join(RELEASE_WITHIN if self.worker.pump.trouble else ENDS_WITHIN)
        close, self._close = self._close, None
        if close is not None:
            close()
        self.worker.let_go()

    def drain(self) -> int:
        """Works until nothing is left, or stopped; the keeper does its round first. How many attempts there were."""
        try:
            self._keeper.tick()
            self._keeper.close()
            self.worker.run()
        finally:
            if self._close is not None:
                self._close()
        return self.worker.pump.attempts

    def _run_keeper(self) -> None:
        while not self._ended.wait(self._keeper.tick()):
            pass
        with contextlib.suppress(StoreError):
            self._keeper.close()


class Background:
    """`with app.running():` or `async with app.running():`, for as long as the block lasts.

    limit: seconds that what still runs at its end has, before it is broken in on and goes back.
    """

    def __init__(self, open_service: Callable[[], EmbeddedService], limit: float) -> None:
        self._open_service = open_service
        self._limit = limit
        self._service: EmbeddedService | None = None
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None

    def __enter__(self) -> None:
        if self._service is not None:
            raise RuntimeError("this block was entered already: call app.running() for each")
        self._service = self._open_service()
        self._thread = threading.Thread(target=self._run, args=(self._service,), name="tarry-worker", daemon=True)
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._service is not None
        assert self._thread is not None
        worker = self._service.worker
        worker.stop(self._limit)
        worker.ended.wait()
        # A job that heeds nothing may hold it; as it is a daemon, it does not hold the process.
        self._thread.join(RELEASE_WITHIN)
        self._service.end()
        if self._crash is not None and error is None:
            raise self._crash

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _run(self, service: EmbeddedService) -> None:
        try:
            service.run()
        except BaseException as error:
            self._crash = error


@contextlib.contextmanager
def handle_signals(worker: LocalWorker, *numbers: int) -> Iterator[None]:
    """While inside, the worker is told of these signals, and they do nothing else. Only the main thread hears any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, frame: FrameType | None) -> None:
        worker.receive_signal(number)

    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
