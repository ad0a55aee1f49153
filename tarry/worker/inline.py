"""A worker without threads: its caller runs the jobs, one after the other."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tarry.client.clock import Clock
from tarry.model.outcome import Outcome
from tarry.store.rules.base import Store
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import Running
from tarry.worker.capacity import Capacity
from tarry.worker.claim_plan import BandShares
from tarry.worker.exchanger import RulesFor
from tarry.worker.pump import Pump
from tarry.worker.run.context import AttemptContext
from tarry.worker.run.runner import OutcomeQueue, Runner
from tarry.worker.run.status_reporter import NullReporter

# One claim makes at most a thousand jobs ready, of any queue: it may take many until it is the turn of ours.
MAX_EMPTY_CLAIMS = 1000


class InlineRunner(Runner):
    """Takes jobs for the caller, and runs nothing by itself."""

    def __init__(self, outcomes: OutcomeQueue, most_result: int, pump: Pump) -> None:
        super().__init__(1, outcomes, partial(AttemptContext, most_result, pump.is_final, NullReporter()))
        self._line: deque[Running] = deque()

    def put(self, batch: Sequence[Running]) -> None:
        self._line.extend(batch)

    def next(self) -> Running | None:
        """The attempt to run now, if there is one."""
        return self._line.popleft() if self._line else None

    def withdraw(self) -> list[Running]:
        back = list(self._line)
        self._line.clear()
        return back

    def waiting(self) -> int:
        return len(self._line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        """Does nothing: no job runs during a step of the pump."""

    def stop(self) -> None:
        """Does nothing: there are no threads."""


class OneAtATime(Capacity):
    """Claims one job at a time."""

    def free(self) -> int:
        # So each job finds the store as the one before left it.
        return 0 if any(self._count.values()) else 1

    def stalled_kinds(self, now: float) -> list[bool]:
        """None: there are no other workers."""
        return []


class InlineWorker:
    """Use: `for running in worker.steps():` run it, then call `worker.record_end(running, outcome)`. It does not
    wait: jobs that are due later stay, and a batch task is called for the jobs that there are."""

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
        max_result: int,
    ) -> None:
        self.name = name
        self._pump = Pump(store, tasks, owner=name, clock=clock, queues=queues, shares=shares, rules=rules)
        self._pump.steps.at_once = True
        self._runner = InlineRunner(self._pump.outcomes, max_result, self._pump)
        self._pump.attach(self._runner, self._runner, OneAtATime)
        self.context = self._runner.context_at(0)

    def steps(self) -> Iterator[Running]:
        """The attempts to run, until there are none."""
        empty_claims = 0
        has_run = False
        while empty_claims < MAX_EMPTY_CLAIMS:
            pause = self._pump.step()
            running = self._runner.next()
            if running is not None:
                has_run = True
                yield running
            elif has_run:
                # The step that settled it did not look for queues that got their first job by it; the next one does.
                has_run = False
            elif pause > 0 and not self._pump.flush_batches():
                empty_claims = empty_claims + 1 if self._pump.has_overdue_jobs else MAX_EMPTY_CLAIMS

    def record_end(self, running: Running, outcome: Outcome) -> None:
        """Records the outcome of an attempt."""
        self._runner.outcomes.add(running, outcome, hurry=False)

    def settle(self) -> None:
        """Settles what has ended, and claims nothing more."""
        self._pump.stop()
        self._pump.step()

    def close(self) -> None:
        """Ends it. Jobs that it holds stay claimed, as those of a worker that died."""
        self._pump.wakeup.close()
