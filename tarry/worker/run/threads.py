"""Runs sync tasks: plain threads that take jobs from one queue. One of them may be the main thread, which some code
needs."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from types import FrameType

from tarry import forks
from tarry.model.killing import TIMEOUT
from tarry.model.outcome import Returned
from tarry.tasks import own_loop
from tarry.tasks.interrupts import CalledBack, Interrupted
from tarry.tasks.running import Running
from tarry.tasks.shield import Shield
from tarry.worker.run import attempt, attempt_report
from tarry.worker.run.context import ContextAt
from tarry.worker.run.runner import OutcomeQueue, Runner

# A process that gets this signal by mistake ignores it.
INTERRUPT = signal.SIGURG
# A store's calls take 5 s at most.
INSIDE = 6.0
"""Seconds that tarry's own code may take to end once its thread is interrupted."""

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


class ThreadRunner(Runner):
    """`slots` threads. With `use_main_thread`, the caller of `serve` is the first of them."""

    def __init__(self, slots: int, outcomes: OutcomeQueue, context_at: ContextAt, use_main_thread: bool = True) -> None:
        super().__init__(slots, outcomes, context_at)
        # A SimpleQueue passes on a job in half a microsecond. The futures of an executor take forty times as long.
        self._line: SimpleQueue[Running | None] = SimpleQueue()
        self._slots = [Slot(self, cell) for cell in range(slots)]
        self._main = use_main_thread
        for slot in self._slots[1 if use_main_thread else 0 :]:
            threading.Thread(target=slot.serve, args=(self._line,), name=f"tarry-slot-{slot.cell}", daemon=True).start()

    def serve(self) -> None:
        """Makes the calling thread the first slot until `stop`."""
        if self._main and self._slots:
            self._slots[0].serve(self._line)

    def put(self, batch: Sequence[Running]) -> None:
        for running in batch:
            self._line.put(running)

    def withdraw(self) -> list[Running]:
        back: list[Running] = []
        with contextlib.suppress(Empty):
            while True:
                running = self._line.get_nowait()
                if running is None:
                    # The end of a thread, by `stop`: it is put back, else that thread would wait for ever.
                    self._line.put(None)
                    return back
                back.append(running)
        return back

    def waiting(self) -> int:
        return self._line.qsize()

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        slot = running.handle
        if isinstance(slot, Slot):
            slot.interrupt(running, why)

    def stop(self) -> None:
        for _ in self._slots:
            self._line.put(None)


class Slot:
    """One thread: it runs one job at a time, and can be interrupted."""

    def __init__(self, runner: ThreadRunner, cell: int) -> None:
        self.cell = cell
        self._runner = runner
        self._context = runner.context_at(cell)
        self._thread = 0
        self._current: Running | None = None
        """The job that may be interrupted."""
        self._lock = threading.Lock()
        self._by_signal = False
        self._shield = Shield(self._throw, self._extend_limit)

    def serve(self, line: "SimpleQueue[Running | None]") -> None:
        """Runs what comes from the queue until it is None."""
        self._shield.attach()
        with self._interruptible():
            self._serve(line)

    def _serve(self, line: "SimpleQueue[Running | None]") -> None:
        self._thread = threading.get_ident()
        context, runner, shield, disarm = self._context, self._runner, self._shield, self._disarm
        outcomes, reporter, cell, run = runner.outcomes, context.reporter, self.cell, attempt.run_sync
        reporter.thread(cell, self._thread)
        depth = forks.depth
        while (running := line.get()) is not None:
            job = running.job
            running.started = time.monotonic()
            running.handle = self
            kill_at = 0.0 if running.timeout is None else context.kill_at(running)
            reporter.on(cell, job.id, job.epoch, running.task.label, kill_at)
            shield.begin()
            self._current = running
            try:
                outcome = run(running, context, disarm)
            except Interrupted as late:
                # The interrupt hit just before the task began.
                disarm(running)
                outcome = attempt_report.outcome_of_error(running, late)
            if forks.depth != depth:
                # A child that the job has forked came back from it: it is no worker, and must not touch our board.
                os._exit(0 if type(outcome) is Returned else 1)
            context.exit_if_cut_off(running)
            reporter.off(cell)
            outcomes.add(running, outcome, line.qsize() <= runner.refill_at)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Raises `why` in the thread if it still runs that job, at its next bytecode. In the main thread that also ends
        a call that waits. Inside tarry's own code it is raised on the way out. If the job does not end soon after, the
        master kills the process."""
        with self._lock:
            if self._current is running and running.interrupt is None:
                running.interrupt = why
                if why is CalledBack:  # the limit of a timeout is shown from the start
                    limit = time.monotonic() + self._context.kill_after
                    if not 0 < self._context.kill_at(running) <= limit:
                        self._context.reporter.limit(self.cell, limit, running.kill_reason)
                if self._shield.interrupt(why):
                    self._limit(INSIDE)
                # The thread may sleep inside its own event loop, where no bytecode runs.
                own_loop.wake(self._thread)

    def _throw(self, why: type[BaseException]) -> bool:
        if self._by_signal:
            # The handler runs in the main thread, and also ends a system call that waits.
            signal.pthread_kill(self._thread, INTERRUPT)
            return False
        _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(why))
        return True

    def _extend_limit(self) -> None:
        # Called when an interrupt that was held back is raised: only now does the task's usual time to end begin.
        self._limit(0.0)

    def _limit(self, seconds: float) -> None:
        reason = self._current.kill_reason if self._current else TIMEOUT
        self._context.reporter.limit(self.cell, time.monotonic() + seconds + self._context.kill_after, reason)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Inside, the main thread is interrupted by a signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(INTERRUPT, self._on_signal)
        self._by_signal = True
        try:
            yield
        finally:
            self._by_signal = False
            signal.signal(INTERRUPT, signal.SIG_DFL if before is None else before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._shield.on_signal()

    def _disarm(self, running: Running) -> None:
        """From here on nothing interrupts the job; an interrupt that was raised and has not arrived is taken back."""
        with self._lock:
            self._current = None
            # A signal's handler looks at `_shield`, which `begin` resets; a raised exception must be taken back itself.
            if running.interrupt is not None and not self._by_signal:
                _take_back(self._thread)
            self._shield.begin()


class _TakenBack(BaseException):
    """Replaces the interrupt."""


def _take_back(thread: int) -> None:
    """Makes sure that no interrupt arrives in the calling thread any more."""
    # CPython (at least 3.11) sets a flag when an exception is raised in a thread and clears it when one arrives. If the
    # exception were only removed, the flag would slow down every call, and a debugger or a coverage tool would hang. So
    # it is replaced with another one, which is caught here.
    try:
        _set_exception(ctypes.c_ulong(thread), ctypes.py_object(_TakenBack))
        for _ in range(100):
            pass
    except _TakenBack:
        pass
