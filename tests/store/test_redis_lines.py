"""Lines of many pages: thousands of jobs that come, go and move in any order, beside the reference."""

from random import Random

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Outcome, Released, Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW
from tarry.store.memory.store import MemoryStore
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import BANDS, Query, Store, Want

EVERYTHING = Query(limit=10**6)
WANTS = [Want(queue, band, 100) for queue in ("default", "slow") for band in BANDS]


class Both:
    """Calls both, and compares what they answer."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.reference, self.random = store, MemoryStore(), Random(seed)
        self.now = NOW

    def insert(self, count: int) -> None:
        jobs = [self.job() for _ in range(count)]
        assert self.store.insert(jobs) == self.reference.insert(jobs)

    def job(self) -> Job:
        random = self.random
        due = self.now + random.choice([-random.randrange(SECOND), 0, random.randrange(9 * SECOND)])
        priority, queue = random.choice([0, 0, 0, 0, -5, 3, 2**40]), random.choice(["default", "slow"])
        lane = random.choice([None, None, None, None, "", "a", "b", "c"])
        job = Job(random.randbytes(16), "mail", b"{}", queue, priority, due, state_since=self.now, lane=lane)
        return replace(job, state=lifecycle.initial_state(due, self.now))

    def claim(self, limit: int) -> None:
        jobs = self.reference.claim(WANTS, limit, "ann", LEASE, self.now)
        assert self.store.claim(WANTS, limit, "ann", LEASE, self.now) == jobs

    def change(self, count: int) -> None:
        jobs = self.reference.find(EVERYTHING)
        changes = []
        for job in self.random.sample(jobs, min(count, len(jobs))):
            if job.state is State.RUNNING:
                outcome: Outcome = Returned(b"1") if self.random.random() < 0.5 else Released()
                changes.append(lifecycle.after(job, outcome, DEFAULT, self.now + self.random.randrange(SECOND)))
            elif job.state.finished:
                changes.append(self.random.choice([lifecycle.run_now(job, self.now), lifecycle.forget(job)]))
            else:
                due = self.now + self.random.randrange(-SECOND, SECOND)
                changes.append(lifecycle.move(job, self.now, due=due, priority=self.random.choice([0, 1, -1])))
        assert self.store.apply(changes, self.now) == self.reference.apply(changes, self.now)

    def prune(self, most: int) -> None:
        assert self.store.prune(self.now, most, 200) == self.reference.prune(self.now, most, 200)

    def compare(self) -> None:
        assert self.store.find(EVERYTHING) == self.reference.find(EVERYTHING)
        assert self.store.next_due() == self.reference.next_due()
        key = lambda tally: (tally.queue, tally.task, tally.state)  # noqa: E731
        assert sorted(self.store.counts(), key=key) == self.reference.counts()


@pytest.fixture
def store(redis_store: RedisStore) -> RedisStore:
    return redis_store


@pytest.mark.parametrize("seed", range(4))
def test_thousands_in_any_order(store: Store, seed: int) -> None:
    both = Both(store, seed)
    for _ in range(25):
        both.insert(both.random.choice([1, 7, 60, 500]))
        both.claim(both.random.choice([1, 50, 300]))
        both.change(both.random.choice([1, 80, 300]))
        both.prune(both.random.choice([0, 200, 10**9]))
        both.now += both.random.choice([0, SECOND, 3 * SECOND])
        both.compare()
