"""A pump that is turned by hand: runners that do only what the test says, a store whose calls are counted."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tarry.client.clock import FakeClock
from tarry.client.tasks.task import AsyncTask, SyncTask, Task
from tarry.errors import StoreError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Returned
from tarry.model.retry import Retry
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import Exchange, Query, Want
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import Running
from tarry.worker.pump import Pump
from tarry.worker.run.context import AttemptContext
from tarry.worker.run.runner import OutcomeQueue, Runner

OWNER = "test:1:1:1"


def sync_body() -> None: ...


async def async_body() -> None: ...


def _no_client() -> Any:
    raise AssertionError("nothing is enqueued here")


TASKS: dict[str, Task[Any, Any]] = {
    "sync": SyncTask(sync_body, _no_client, name="sync"),
    "loop": AsyncTask(async_body, _no_client, name="loop"),
    "timed": SyncTask(sync_body, _no_client, name="timed", timeout=0.5),
}


class ManualRunner(Runner):
    """Begins and ends jobs when told."""

    def __init__(self, slots: int, outcomes: OutcomeQueue, time: "Monotonic") -> None:
        super().__init__(slots, outcomes, lambda cell: AttemptContext(1000, cell=cell))
        self.time = time
        self.line: list[Running] = []
        self.on: list[Running] = []
        self.interrupted: list[tuple[Running, type[Interrupted]]] = []

    def put(self, batch: Sequence[Running]) -> None:
        self.line += batch
        self.begin()

    def begin(self) -> None:
        while self.line and len(self.on) < self.slots:
            running = self.line.pop(0)
            running.started = self.time.monotonic()
            self.on.append(running)

    def end(self, running: Running, outcome: Any = None) -> None:
        self.on.remove(running)
        self.outcomes.add(running, outcome or Returned(b"1"), hurry=not self.line)
        self.begin()

    def end_all(self) -> None:
        for running in list(self.on):
            self.end(running)

    def withdraw(self) -> list[Running]:
        back, self.line = self.line, []
        return back

    def waiting(self) -> int:
        return len(self.line)

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        self.interrupted.append((running, why))

    def stop(self) -> None: ...


class CountingStore(MemoryStore):
    """Counts its calls; fails when told, before or after doing what was asked."""

    def __init__(self, time: Callable[[], int]) -> None:
        super().__init__(time)
        self.calls: Counter[str] = Counter()
        self.batches: list[tuple[int, int]] = []
        self.error: StoreError | None = None
        self.after = False
        self.on_extend: Callable[[], None] = lambda: None

    def _begin(self, verb: str) -> None:
        self.calls[verb] += 1
        if self.error and not self.after:
            raise self.error

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        self._begin("exchange")
        answer = super().exchange(changes, wants, limit, owner, lease, now)
        self.batches.append((len(changes), len(answer.jobs)))
        if self.error:
            raise self.error
        return answer

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        self._begin("extend")
        self.on_extend()
        return super().extend(owner, held, lease, now)

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        self._begin("reclaim")
        return super().reclaim(now, of, limit)

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        self._begin("save_progress")
        return super().save_progress(owner, marks)

    def queues(self) -> dict[str, bool]:
        self._begin("queues")
        return super().queues()


class Monotonic:
    """The module `time`, as far as the pump needs it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class ManualPump:
    """A pump with everything around it."""

    def __init__(self, time: Monotonic, threads: int = 1, coroutines: int = 0, **settings: Any) -> None:
        self.clock = FakeClock()
        self.time = time
        self.store = CountingStore(self.clock.now)
        self.rules = Rules(retry=Retry(3, base=60))
        self.pump = Pump(
            self.store, TASKS, owner=OWNER, clock=self.clock, rules=lambda task, queue: self.rules, **settings
        )
        self.sync = ManualRunner(threads, self.pump.outcomes, time)
        self.loop = ManualRunner(coroutines, self.pump.outcomes, time)
        self.pump.attach(self.sync, self.loop)

    def pass_time(self, seconds: float) -> None:
        self.time.now += seconds
        self.clock.advance(seconds)

    def insert(self, count: int = 1, task: str = "sync", queue: str = "default", **fields: Any) -> list[Job]:
        now = self.clock.now()
        due = fields.pop("due", now)
        jobs = [
            Job(ids.uuid7(), task, b"[]", queue, due=due, state=lifecycle.initial_state(due, now), **fields)
            for _ in range(count)
        ]
        self.store.insert(jobs)
        return jobs

    def turns(self, most: int = 50) -> float:
        """Turns until it would sleep, and how long for."""
        for _ in range(most):
            seconds = self.pump.step()
            if seconds > 0:
                return seconds
        raise AssertionError(f"it never comes to rest: {self.store.calls}")

    def states(self, jobs: Sequence[Job]) -> list[State]:
        return [job.state for job in self.store.get([job.id for job in jobs]) if job]

    def record(self, job: Job) -> Job:
        (found,) = self.store.get([job.id])
        assert found is not None
        return found

    def tally(self) -> Counter[State]:
        return Counter(job.state for job in self.store.find(Query(limit=10_000)))


MakePump = Callable[..., ManualPump]
