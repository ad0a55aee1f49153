"""Sync tasks: plain threads on one line. One of them may be the main thread, which some code insists on.

A SimpleQueue hands a job over in half a microsecond; an executor's futures cost forty times that.
"""

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from types import FrameType

from tarry.model.killing import TIMEOUT
from tarry.model.outcome import Outcome
from tarry.tasks import own_loop
from tarry.tasks.interrupts import CalledBack, Interrupted
from tarry.tasks.running import Running
from tarry.tasks.shield import Shield
from tarry.worker.run import attempt, report
from tarry.worker.run.base import Outcomes, Runner
from tarry.worker.run.terms import TermsAt

BREAK_IN = signal.SIGURG
"""Nothing happens to who gets it by mistake."""
INSIDE = 6.0
"""Seconds that tarry's own code may take to end once its thread is interrupted: a store's calls take 5 at most."""

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Threads(Runner):
    """`slots` threads; with `main`, the caller of `serve` is the first of them."""

    def __init__(self, slots: int, outcomes: Outcomes, terms: TermsAt, main: bool = True) -> None:
        super().__init__(slots, outcomes, terms)
        self._line: SimpleQueue[Running | None] = SimpleQueue()
        self._slots = [Slot(self, cell) for cell in range(slots)]
        self._main = main
        for slot in self._slots[1 if main else 0 :]:
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
    """One thread's place: it works on one job at a time, and can be broken in on."""

    def __init__(self, runner: Threads, cell: int) -> None:
        self.cell = cell
        self._runner = runner
        self._terms = runner.terms(cell)
        self._thread = 0
        self._current: Running | None = None
        self._lock = threading.Lock()
        self._by_signal = False
        self._shield = Shield(self._throw, self._late)

    def serve(self, line: "SimpleQueue[Running | None]") -> None:
        """Runs what comes along the line until None does."""
        self._shield.attach()
        with self._listening():
            self._serve(line)

    def _serve(self, line: "SimpleQueue[Running | None]") -> None:
        self._thread = threading.get_ident()
        outcomes, gauge, runner = self._runner.outcomes, self._terms.gauge, self._runner
        kill_at, end_if_cut_off = self._terms.kill_at, self._terms.end_if_cut_off
        gauge.thread(self.cell, self._thread)
        while (running := line.get()) is not None:
            job = running.job
            running.started = time.monotonic()
            running.handle = self
            gauge.on(self.cell, job.id, job.epoch, running.task.label, kill_at(running))
            ended = self._attempt(running)
            end_if_cut_off(running)
            gauge.off(self.cell)
            outcomes.add(running, ended, line.qsize() <= runner.low)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Raises `why` in the thread if it is still at that job: at its next bytecode, and in the main thread also in a
        call that waits; but not inside tarry's own code, where it is raised on the way out. The master ends the process
        if that does not end the job soon."""
        with self._lock:
            if self._current is running and running.interrupt is None:
                running.interrupt = why
                if why is CalledBack:  # of its timeout, its cell tells from the start
                    limit = time.monotonic() + self._terms.kill_after
                    if not 0 < self._terms.kill_at(running) <= limit:
                        self._terms.gauge.limit(self.cell, limit, running.kill_reason)
                if self._shield.interrupt(why):
                    self._limit(INSIDE)
                own_loop.wake(self._thread)

    def _throw(self, why: type[BaseException]) -> bool:
        if self._by_signal:
            signal.pthread_kill(self._thread, BREAK_IN)
            return False
        _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(why))
        return True

    def _late(self) -> None:
        """What was held back is raised now: from here on the task has the usual time to end."""
        self._limit(0.0)

    def _limit(self, seconds: float) -> None:
        reason = self._current.kill_reason if self._current else TIMEOUT
        self._terms.gauge.limit(self.cell, time.monotonic() + seconds + self._terms.kill_after, reason)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Within, the main thread can be broken in on by signal, for whose handler a waiting call is left."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(BREAK_IN, self._on_signal)
        self._by_signal = True
        try:
            yield
        finally:
            self._by_signal = False
            signal.signal(BREAK_IN, signal.SIG_DFL if before is None else before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._shield.arrived()

    def _attempt(self, running: Running) -> Outcome:
        self._shield.begin()
        self._current = running
        try:
            return attempt.sync(running, self._terms, self._leave)
        except Interrupted as late:
            # It hit between the end of the task and the moment we stopped listening for it.
            self._leave(running)
            return report.of_error(running, late)

    def _leave(self, running: Running) -> None:
        """From here on nobody breaks in; what was thrown and has not arrived is taken back."""
        with self._lock:
            self._current = None
            if running.interrupt is not None and not self._by_signal:
                _take_back(self._thread)
            self._shield.begin()


class _TakenBack(BaseException):
    """Comes in place of what was thrown."""


def _take_back(thread: int) -> None:
    """What was thrown into the calling thread, and may not have arrived, does not arrive any more.

    CPython (3.11 at least) keeps a flag up from a throw until something arrives in any thread; with none to come it
    would slow down every call, and a debugger or a coverage tool would hang. So one more is thrown, and caught.
    """
    try:
        _set_exception(ctypes.c_ulong(thread), ctypes.py_object(_TakenBack))
        for _ in range(100):
            pass
    except _TakenBack:
        pass
