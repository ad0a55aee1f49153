"""Runs a worker without a master: in the foreground, in the background, or until no job is left."""

import contextlib
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any

from tarry import forks
from tarry.config.config import Pool
from tarry.errors import ConfigError, StoreError
from tarry.keeper.chores import Keeper
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.store.shared.backoff import TurnGuard
from tarry.tasks.lazy_asyncio import asyncio
from tarry.worker.claim_plan import Queues
from tarry.worker.worker import Worker, WorkerSettings

log = logging.getLogger("tarry.worker")

RELEASE_WITHIN = 1.0
"""Seconds that jobs have to end after they are interrupted."""
MIN_FENCED = 4.0
"""Seconds beside `kill_after` that half a lease needs with a fence: else a slow answer of the store would interrupt."""
ENDS_WITHIN = 10.0
"""Seconds to wait for threads that should end."""
# One claim makes at most a thousand jobs ready, of any queue: it may take many until it is the turn of ours.
MAX_EMPTY_CLAIMS = 1000
"""How many claims without a job show that none is left, while jobs are overdue."""


def worker_settings(
    pool: Pool,
    max_body: int,
    queues: Queues | None = None,
    threads: int | None = None,
    coroutines: int | None = None,
) -> WorkerSettings:
    """The settings of a worker, from a pool with overrides; ConfigError if it could run nothing, or has no uvloop."""
    thread_slots = pool.threads if threads is None else threads
    coroutine_slots = pool.async_ if coroutines is None else coroutines
    if min(thread_slots, coroutine_slots) < 0 or not thread_slots + coroutine_slots:
        raise ConfigError(
            f"threads={thread_slots}, coroutines={coroutine_slots}: 0 or more of each, and 1 or more of one of them"
        )
    if pool.uvloop and find_spec("uvloop") is None:
        raise ConfigError(f"[pools.{pool.name}] uvloop is not installed: pip install 'tarry[uvloop]'")
    if pool.fence == "stop" and pool.lease < (need := round(2 * (pool.kill_after + MIN_FENCED) * SECOND)):
        raise ConfigError(f'[pools.{pool.name}] fence = "stop" needs a lease of {need / SECOND:g} s or more')
    served = queue_weights(pool.queues if queues is None else queues)
    return WorkerSettings(
        served,
        thread_slots,
        coroutine_slots,
        pool.shares,
        pool.lease,
        max_body,
        pool.kill_after,
        pool.keep_output,
        uvloop=pool.uvloop,
        fence=pool.fence == "stop",
    )


def queue_weights(queues: Queues) -> Mapping[str, int]:
    """The weights of queues by name; ConfigError if they are not valid."""
    if isinstance(queues, str):
        queues = [queues]
    queue_weights = queues if isinstance(queues, Mapping) else dict.fromkeys(queues, 1)
    if not queue_weights or not all(
        isinstance(name, str) and name and weight > 0 for name, weight in queue_weights.items()
    ):
        raise ConfigError(f'queues={queues!r}: a name, several, or weights such as {{"mail": 3}}; "*" is all')
    return queue_weights


class LocalWorker(Worker):
    """A worker in a process that does other work, too: it ends even if its jobs do not.

    INT: finish the running jobs, then end. TERM: the same within `grace` seconds; jobs that still run then are
    interrupted and requeued, and no attempt is counted. The same again: interrupt at once. exits_process: end the
    process if a job ignores even that. until_idle: end as soon as there is nothing to do; claim nothing after that
    many seconds.
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
        """Set once unfinished jobs are given back; a thread may still be running one."""
        self.signals_received: deque[int] = deque()
        """The signals that it has handled."""
        self._pending_signals: deque[int] = deque()
        self._grace, self._exits_process = grace, exits_process
        self._is_draining = until_idle is not None
        self._stop_at = math.inf if until_idle is None else time.monotonic() + until_idle
        self._limit = math.inf
        self._was_interrupted = self._gave_up = False
        self._empty_claims = self._seen_attempts = 0
        self.before_end: Callable[[], bool] = bool  # whether there may be more to claim now

    def stop(self, limit: float = math.inf) -> None:
        """Finishes the running jobs, then ends; after `limit` seconds jobs are given back. Thread-safe."""
        self._limit = min(self._limit, time.monotonic() + limit)
        super().stop()

    def receive_signal(self, number: int) -> None:
        """Queues a signal; called from the signal handler."""
        # Only noted: a handler runs between any two bytecodes, where a lock may be held.
        self._pending_signals.append(number)
        self.pump.wakeup.wake()
        if self._shutdown_limit is not None:
            self._shutdown_limit.notify()

    def end_by(self) -> float:
        """When the thread that talks to the store is interrupted, by time.monotonic(): shortly after the limit."""
        # Interrupted jobs have one of these seconds to end, and the store has the other one to take them back.
        return self._limit + 2 * RELEASE_WITHIN

    def _run_pump(self) -> None:
        try:
            super()._run_pump()
        finally:
            # Also after a crash: `Background` waits for it.
            self.ended.set()

    def is_finished(self, seconds: float) -> bool:
        self._enforce_limits(time.monotonic())
        return (
            self._gave_up
            or super().is_finished(seconds)
            or (self._is_draining and seconds > 0 and self._has_nothing_left())
        )

    def _has_nothing_left(self) -> bool:
        if self.pump.flush_batches() or not self.pump.is_idle:
            return False
        if self._seen_attempts != self.pump.attempts:
            # The step that settled them did not look for queues that got their first job by them; the next one does.
            self._seen_attempts = self.pump.attempts
            return False
        self._empty_claims = self._empty_claims + 1 if self.pump.has_overdue_jobs else MAX_EMPTY_CLAIMS
        return self._empty_claims >= MAX_EMPTY_CLAIMS and not self.before_end()

    def sleep_seconds(self, seconds: float) -> float:
        if self._is_draining and self.pump.is_idle:
            # Another claim at once, until enough of them were empty: what is due later stays, so there is nothing to
            # wait for.
            return 0.0
        return max(0.0, min(seconds, self._limit - time.monotonic(), self._stop_at - time.monotonic()))

    def _read_news(self) -> None:
        while self._pending_signals:
            self._handle_signal(self._pending_signals.popleft())
        super()._read_news()

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._log_status()
        elif number in (signal.SIGINT, signal.SIGTERM):
            is_repeated = number in self.signals_received
            self.signals_received.append(number)
            limit = 0.0 if is_repeated else self._grace if number == signal.SIGTERM else math.inf
            within = "" if limit == math.inf else f" within {limit:g} s"
            log.info("%s: takes nothing new, and finishes what it runs%s", signal.Signals(number).name, within)
            self.stop(limit)

    def _enforce_limits(self, now: float) -> None:
        """Enforces the time limits: first claims nothing more, then interrupts the running jobs, then gives up."""
        if now >= self._stop_at:
            # Once is enough; and with the old value `sleep_seconds` would return 0 from now on.
            self._stop_at = math.inf
            self.pump.stop()
        if now < self._limit or not self.pump.held_count:
            return
        if not self._was_interrupted:
            log.warning("interrupting %s; requeued, and no attempt is counted", quantity(self.pump.held_count))
            self._was_interrupted, self._limit = True, now + RELEASE_WITHIN
            self.pump.interrupt_all()
        else:
            self._give_up()

    def _give_up(self) -> None:
        log.warning("gives back what does not end (%s): it may be run twice now", quantity(self.pump.held_count))
        self._gave_up = True
        self.pump.release_all()
        if self._exits_process:
            self._exit_process()


class EmbeddedService:
    """A worker, and a keeper in a second thread: what a master does, in one process. close: called at the end."""

    def __init__(self, worker: LocalWorker, keeper: Keeper, close: Callable[[], None] | None) -> None:
        self.worker, self._keeper, self._close = worker, keeper, close
        self._ended = threading.Event()
        self._keeper_thread = threading.Thread(target=self._run_keeper, name="tarry-keeper", daemon=True)

    def run(self) -> None:
        """Runs until stopped; the calling thread is one of the slots."""
        self._keeper_thread.start()
        try:
            self.worker.run()
        finally:
            self.end()

    def end(self) -> None:
        """Ends the keeper and releases everything except a thread that still runs a job. May be called twice."""
        self._ended.set()
        # While the store is away, the keeper may hang in a call to it.
        self._keeper_thread.join(RELEASE_WITHIN if self.worker.pump.trouble else ENDS_WITHIN)
        # Taken first, so that the second call closes nothing again.
        close, self._close = self._close, None
        if close is not None:
            close()
        self.worker.disarm()

    def drain(self) -> int:
        """Runs until nothing is left, or stopped; the keeper ticks once before. Returns the number of attempts."""
        try:
            # Schedules and jobs of dead workers first: they may bring jobs to run.
            self._keeper.tick()
            self._keeper.close()
            self.worker.before_end = self._keeper.move_shares_once
            self.worker.run()
        finally:
            if self._close is not None:
                self._close()
        return self.worker.pump.attempts

    def _run_keeper(self) -> None:
        guard, pause = TurnGuard(log, "the keeper", self._ended.wait), 0.0
        while not self._ended.wait(pause):
            with guard:
                pause = self._keeper.tick()
        with contextlib.suppress(StoreError):
            self._keeper.close()


class Background:
    """`with app.running():` or `async with app.running():`: runs jobs while the block lasts.

    limit: seconds that running jobs have after the block; then they are interrupted and requeued.
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
        # A job that ignores the interrupt may block this thread; it is a daemon, so it does not block the process.
        self._thread.join(RELEASE_WITHIN)
        self._service.end()
        # An error of the block itself comes first.
        if self._crash is not None and error is None:
            raise self._crash

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A cancelled block must still end its worker, else jobs would go on without it.
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _run(self, service: EmbeddedService) -> None:
        try:
            service.run()
        except BaseException as error:
            self._crash = error


@contextlib.contextmanager
def handle_signals(worker: LocalWorker, *numbers: int) -> Iterator[None]:
    """Inside the block these signals go to the worker only. Does nothing outside of the main thread."""
    # Python only lets the main thread set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, frame: FrameType | None) -> None:
        worker.receive_signal(number)

    def reset_in_child() -> None:
        for number in numbers:
            if signal.getsignal(number) is forward:
                forks.reset_handler(number)

    previous = {number: signal.signal(number, forward) for number in numbers}
    forks.add(reset_in_child)
    try:
        yield
    finally:
        forks.remove(reset_in_child)
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
