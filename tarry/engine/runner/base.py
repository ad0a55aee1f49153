"""What the pump asks of a runner."""

from collections import deque
from collections.abc import Callable, Sequence

from tarry.engine.gauge import Gauge
from tarry.engine.running import Interrupted, Running
from tarry.model.outcome import Outcome

STUCK_GRACE = 5.0
"""Seconds between the timeout's exception and the moment the master may hold the job, and its process, to be stuck."""


class Outcomes:
    """Where runners put what happened. The pump empties it; it is woken only when there is a reason to hurry."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ended: deque[tuple[Running, Outcome]] = deque()
        self.awaited = False
        """The pump sleeps, and wants to be woken."""
        self._wake = wake

    def add(self, running: Running, outcome: Outcome, hurry: bool) -> None:
        """hurry: the runner is about to have nothing to do."""
        self.ended.append((running, outcome))
        if hurry and self.awaited:
            self.awaited = False
            self._wake()


class Runner:
    """Takes jobs, runs `slots` of them at once, lets the others wait in line, and reports each outcome once."""

    def __init__(self, slots: int, outcomes: Outcomes, gauge: Gauge, most_result: int) -> None:
        self.slots = slots
        self.outcomes = outcomes
        self.gauge = gauge
        self.most_result = most_result
        self.low = 0
        """With no more than so many in line it is time to bring new ones."""

    def put(self, batch: Sequence[Running]) -> None:
        """Runs these in this order, as slots become free."""
        raise NotImplementedError

    def withdraw(self) -> list[Running]:
        """Takes back those in line that have not begun."""
        raise NotImplementedError

    def waiting(self) -> int:
        """How many are in line."""
        raise NotImplementedError

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Breaks in on a running task, at most once."""
        raise NotImplementedError

    def stop(self) -> None:
        """No more will be put; ends its threads when those that run have ended."""
        raise NotImplementedError


def kill_at(running: Running) -> float:
    """time.monotonic() from which the job counts as stuck; 0.0, never."""
    timeout = running.task.timeout
    return 0.0 if timeout is None else running.started + timeout + STUCK_GRACE
