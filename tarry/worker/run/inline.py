"""A worker without threads: whoever wants its jobs run turns its pump and runs them, one after the other."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tarry.client.clock import Clock
from tarry.model.outcome import Outcome
from tarry.store.base import Store
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import Running
from tarry.worker.gauge import NoGauge
from tarry.worker.pump import Pump, RulesFor
from tarry.worker.room import Room
from tarry.worker.run.base import Outcomes, Runner
from tarry.worker.run.terms import Terms
from tarry.worker.shares import BandShares

LOOKED_IN_VAIN = 1000
"""A claim makes a thousand jobs ready at most, of whatever queue: so often it may take another to come to ours."""


class Inline(Runner):
    """Takes one job at a time, and runs nothing by itself."""

    def __init__(self, outcomes: Outcomes, most_result: int, pump: Pump) -> None:
        super().__init__(1, outcomes, partial(Terms, most_result, pump.ends, NoGauge()))
        self._line: deque[Running] = deque()

    def put(self, batch: Sequence[Running]) -> None:
        self._line.extend(batch)

    def next(self) -> Running | None:
        """The one to run now, if there is any."""
        return self._line.popleft() if self._line else None

    def withdraw(self) -> list[Running]:
        back = list(self._line)
        self._line.clear()
        return back

    def waiting(self) -> int:
        return len(self._line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Nothing runs while the pump is turned."""

    def stop(self) -> None:
        """It has nothing to end."""


class OneByOne(Room):
    """No job is held ahead, so that each finds the store as the one before left it."""

    def left(self) -> int:
        return 0 if any(self._count.values()) else 1

    def stalled(self, now: float) -> list[bool]:
        """There is no other worker that it would be better off with."""
        return []


class InlineWorker:
    """`for running in worker.steps():` run it, then say `worker.ended(running, outcome)`. Nothing waits in it: what
    is due later stays, and a call for many jobs goes out with those that are there."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        *,
        name: str,
        clock: Clock,
        rules: RulesFor,
        queues: Mapping[str, int] | None,
        shares: BandShares,
        most_result: int,
    ) -> None:
        self.name = name
        self._pump = Pump(store, tasks, owner=name, clock=clock, queues=queues, shares=shares, rules=rules)
        self._runner = Inline(self._pump.outcomes, most_result, self._pump)
        self._pump.attach(self._runner, self._runner, OneByOne)
        self.terms = self._runner.terms(0)

    def steps(self) -> Iterator[Running]:
        """What is to be run next, until nothing is left."""
        in_vain = 0
        while in_vain < LOOKED_IN_VAIN:
            pause = self._pump.turn()
            running = self._runner.next()
            if running is not None:
                yield running
            elif pause > 0 and not self._pump.call_together():
                in_vain = in_vain + 1 if self._pump.overdue else LOOKED_IN_VAIN

    def ended(self, running: Running, outcome: Outcome) -> None:
        """How it went."""
        self._runner.outcomes.add(running, outcome, hurry=False)

    def settle(self) -> None:
        """Has what ended kept, and takes nothing more."""
        self._pump.stop()
        self._pump.turn()

    def close(self) -> None:
        """Nothing rings for it any more; what it holds, it holds for ever, as a dead worker does."""
        self._pump.bell.close()
