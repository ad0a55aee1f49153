"""What the pump asks of a runner."""

from collections import deque
from collections.abc import Callable, Sequence

from tarry.model.outcome import Outcome
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import Running
from tarry.worker.run.terms import TermsAt


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

    def __init__(self, slots: int, outcomes: Outcomes, terms: TermsAt) -> None:
        self.slots = slots
        self.outcomes = outcomes
        self.terms = terms
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

    def insist(self, now: float) -> Sequence[tuple[Running, Outcome]]:
        """Does what follows where a task that was broken in on has not ended in time. Answers those that are over for
        us, whatever is left of them, with their outcomes. now: time.monotonic()."""
        return ()

    def insists_at(self) -> float | None:
        """When to call `insist`."""
        return None

    def stop(self) -> None:
        """No more will be put; ends its threads when those that run have ended."""
        raise NotImplementedError
