"""What the pump needs of a runner."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from tarry.model.outcome import Outcome
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import Running
from tarry.worker.run.context import ContextAt


class OutcomeQueue:
    """Passes ended attempts from the runners to the pump."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ended: deque[tuple[Running, Outcome]] = deque()
        self.awaited = False
        """The pump sleeps and wants to be woken."""
        self._is_expected = False
        self._enough = 0
        """So many ended attempts end `gather`; 0: nobody gathers."""
        self._came: SimpleQueue[None] = SimpleQueue()
        self._wake = wake

    def add(self, running: Running, outcome: Outcome, hurry: bool) -> None:
        """Adds an ended attempt. hurry: wakes the pump, since the runner will soon have nothing to do."""
        # First, so that the pump finds it when it wakes.
        self.ended.append((running, outcome))
        if self._enough:
            if len(self.ended) >= self._enough:
                self._enough = 0
                self._came.put(None)
        elif hurry and self._is_expected:
            self._is_expected = False
            self._came.put(None)
        elif hurry and self.awaited:
            self.awaited = False
            self._wake()

    def gather(self, count: int, seconds: float) -> None:
        """Waits until so many attempts that were not taken have ended, for so long at most."""
        self._enough = max(count, 1)
        with contextlib.suppress(Empty):
            if len(self.ended) < count:
                self._came.get(timeout=seconds)
        self._enough = 0
        # The last one may have come too late to be waited for.
        with contextlib.suppress(Empty):
            self._came.get_nowait()

    def wake(self) -> None:
        """Wakes the pump, whether it sleeps or expects something."""
        if self._is_expected:
            self._is_expected = False
            self._came.put(None)
        else:
            self._wake()

    def expect(self, seconds: float, is_there: Callable[[], bool] = lambda: False) -> bool:
        """Waits for an attempt that ends soon, or for `wake`: so long at most. Returns whether one came. is_there:
        whether what wakes has come already."""
        # By a lock and not by the wake-up's socket: each call of the system would cost more than most of these waits.
        self._is_expected = True
        came = bool(self.ended) or is_there()
        if not came:
            with contextlib.suppress(Empty):
                self._came.get(timeout=seconds)
                came = True
        self._is_expected = False
        return came


class Runner:
    """Runs up to `slots` attempts at once, while others wait; puts each outcome into `outcomes` once."""

    def __init__(self, slots: int, outcomes: OutcomeQueue, context_at: ContextAt) -> None:
        self.slots = slots
        self.outcomes = outcomes
        self.context_at = context_at
        self.refill_at = 0
        """When no more than this many wait, the pump should bring more."""

    def put(self, batch: Sequence[Running]) -> None:
        """Runs these attempts, in this order, as slots become free."""
        raise NotImplementedError

    def withdraw(self) -> list[Running]:
        """Removes and returns the attempts that have not begun."""
        raise NotImplementedError

    def waiting(self) -> int:
        """How many attempts have not begun."""
        raise NotImplementedError

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Interrupts a running task, at most once."""
        raise NotImplementedError

    def escalate(self, now: float) -> Sequence[tuple[Running, Outcome]]:
        """Takes the next step against tasks that were interrupted and have not ended in time. Returns the attempts that
        count as ended, even if they still run, with their outcomes. now: time.monotonic()."""
        return ()

    def next_escalation(self) -> float | None:
        """time.monotonic() at which to call `escalate`."""
        return None

    def stop(self) -> None:
        """Ends the threads once the running attempts have ended."""
        raise NotImplementedError
