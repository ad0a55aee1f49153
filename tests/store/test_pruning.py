"""Forgetting finished jobs step by step: the same as at once, and no step is longer for what is kept beside it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.bound import KEY_ROOM
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, PLENTY, made
from tarry.store.memory.store import MemoryStore
from tarry.store.opening import open_store
from tarry.store.redis import pruning as redis_pruning
from tarry.store.rules.base import NORMAL, Query, Store, Want
from tarry.store.rules.lanes import lane_level
from tarry.store.sql import pruning
from tarry.store.sql.pruning import Finished, LanePlace, PrunedPlace, Pruning
from tests.servers.redis import RedisServer

QUEUES = ("default", "slow", "bulk")


class Counted:
    """Finished jobs in a list, and how many are looked at in one step."""

    def __init__(self, jobs: Sequence[Finished]) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.place)
        self.steps: list[int] = []
        self.levels = [lane_level("mail", f"{n:04}") for n in range(1500)]
        self.rooms = [f"{KEY_ROOM}{n:05}" for n in range(25_000)]
        self.rooms_looked_at: list[tuple[int, int]] = []

    def bound(self) -> int:
        return PLENTY

    def after(self, place: PrunedPlace, now: int, count: int) -> Sequence[Finished]:
        found = [job for job in self.jobs if job.place > place][:count]
        self.steps.append(len(found))
        return found

    def weights(self, place: PrunedPlace, count: int) -> tuple[Mapping[str, int], PrunedPlace | None]:
        found = self.after(place, 0, count)
        sums = Counter[str]()
        for job in found:
            sums[job.queue] += job.size
        return sums, found[-1].place if len(found) == count else None

    def forget(self, jobs: Sequence[Finished]) -> int:
        self.steps.append(len(jobs))
        assert len(jobs) <= pruning.FORGOTTEN_AT_ONCE
        self.jobs = [job for job in self.jobs if job not in jobs]
        return len(jobs)

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        found = [level for level in self.levels if level > name][:count]
        self.levels = [level for level in self.levels if level not in found[::2]]
        return found[-1] if len(found) == count else None

    def drop_lanes(self, place: LanePlace, count: int) -> tuple[LanePlace | None, int]:
        return None, 0

    def drop_rooms(self, name: str, now: int, count: int) -> str | None:
        start = bisect_right(self.rooms, name)
        found = self.rooms[start : start + count]
        self.rooms[start : start + count] = found[1::2]
        self.rooms_looked_at.append((now, len(found)))
        return found[-1] if len(found) == count else None


def finished(count: int, random: Random, held: float = 0.0) -> list[Finished]:
    return [
        Finished(
            NOW + n, random.randbytes(16), random.choice(QUEUES), random.randrange(20, 40), random.random() >= held
        )
        for n in range(count)
    ]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few jobs are many."""
    monkeypatch.setattr(pruning, "FORGOTTEN_AT_ONCE", 5)
    monkeypatch.setattr(pruning, "LOOKED_AT_ONCE", 10)
    monkeypatch.setattr(pruning, "SUMMED", 100)


@pytest.mark.usefixtures("short")
def test_a_call_looks_at_a_bounded_number() -> None:
    """However many there are: what is left comes with the next calls, and in the end no queue keeps too much."""
    jobs = Counted(finished(1000, Random(1)))
    way = Pruning(jobs)
    for call in range(400):
        before, jobs.steps = len(jobs.jobs), []
        way.prune(NOW, 2000, 20, {"slow": 500})
        assert max(jobs.steps) <= 10
        assert sum(jobs.steps) <= 2 * 100 + 4 * 20, call
        assert before - len(jobs.jobs) <= 20
    kept = {queue: [job for job in jobs.jobs if job.queue == queue] for queue in QUEUES}
    for queue, most in (("default", 2000), ("bulk", 2000), ("slow", 500)):
        assert most - 40 < sum(job.size for job in kept[queue]) <= most


@pytest.mark.usefixtures("short")
def test_those_whose_time_has_come_go_however_much_there_is_to_look_at() -> None:
    """Although all the others hold keys, and so nothing makes the queues lighter."""
    jobs = Counted(finished(1000, Random(2), held=1.0))
    way = Pruning(jobs)
    assert [way.prune(NOW + n, 0, 50, {}) for n in range(5)] == [1] * 5
    assert way.prune(NOW + 99, 0, 50, {}) == 50
    assert way.prune(NOW + 99, 0, 50, {}) == 45


def test_levels_that_are_used_stand_in_nobodys_way() -> None:
    jobs = Counted([])
    way = Pruning(jobs)
    for _ in range(40):
        way.prune(NOW, PLENTY, 10, {})
    assert len(jobs.levels) <= 2


def test_rooms_are_looked_at_once_a_minute_in_calls_of_a_bounded_size() -> None:
    jobs = Counted([])
    way = Pruning(jobs)
    for _ in range(5):
        way.prune(NOW, PLENTY, 10, {})
    assert sum(count for _, count in jobs.rooms_looked_at) == 25_000
    way.prune(NOW + MINUTE - 1, PLENTY, 10, {})
    assert {at for at, _ in jobs.rooms_looked_at} == {NOW}
    for _ in range(20):
        way.prune(NOW + MINUTE, PLENTY, 10, {})
    assert len(jobs.rooms) == 6_250


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["list", "redis"])
def test_in_steps_is_the_same_as_at_once(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """By time and by bytes, over queues of which each may keep something else, with keys that are still held."""
    random, reference = Random(seed), MemoryStore()
    jobs = ended(reference, random)
    if kind == "list":
        monkeypatch.setattr(pruning, "FORGOTTEN_AT_ONCE", 7)
        monkeypatch.setattr(pruning, "LOOKED_AT_ONCE", 11)
        lies = Counted(
            [Finished(job.keep_until, job.id, job.queue, job.size, job.key_held_until <= NOW) for job in jobs]
        )
        prune = Pruning(lies).prune
    else:
        monkeypatch.setattr(redis_pruning, "EXAMINED_AT_ONCE", 11)
        store = request.getfixturevalue("redis_store")
        again = ended(store, Random(seed), [job.id for job in sorted(jobs, key=lambda job: job.state_since)])
        assert again == jobs
        prune = store.prune
    for now, most, limit in ((NOW, PLENTY, 50), (NOW + HOUR + 30, PLENTY, 1000), (NOW, 2500, 20), (NOW, 2500, 1000)):
        said = {"slow": most // 2}
        assert prune(now, most, limit, said) == reference.prune(now, most, limit, said)
        left = [job.place for job in lies.jobs] if kind == "list" else [(j.keep_until, j.id) for j in all_of(store)]
        assert left == [(job.keep_until, job.id) for job in all_of(reference)]


@pytest.fixture
def redis_store(redis_server: RedisServer) -> Iterator[Store]:
    redis_server.empty()
    store = open_store(redis_server.url)
    yield store
    store.close()


def ended(store: Store, random: Random, ids: Sequence[bytes] = ()) -> list[Job]:
    """Finished jobs in several queues, one a microsecond; some keep their key for two hours."""
    for n in range(300):
        key: dict[str, Any] = {"key": f"k{n}", "key_ttl": 2 * HOUR} if random.random() < 0.3 else {}
        (job,) = made(store, queue=random.choice(QUEUES), body=b"x" * random.randrange(50), **key)
        store.insert([replace(job, id=ids[n]) if ids else job])
        (job,) = store.claim([Want(queue, NORMAL, 1) for queue in QUEUES], 1, "ann", LEASE, NOW)
        assert store.apply([lifecycle.after(job, Returned(b"1"), DEFAULT, NOW + n)], NOW) == [True]
    return all_of(store)


def all_of(store: Store) -> list[Job]:
    return sorted(store.find(Query(limit=10**6)), key=lambda job: (job.keep_until, job.id))


def test_redis_goes_on_behind_those_that_hold_keys(redis_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call looks at others, until it has come round."""
    monkeypatch.setattr(redis_pruning, "EXAMINED_AT_ONCE", 10)
    monkeypatch.setattr(redis_pruning, "MAX_EXAMINED", 50)
    jobs = ended(redis_store, Random(4))
    free = sum(not job.key_held_until for job in jobs)
    calls = [redis_store.prune(NOW, 0) for _ in range(8)]
    assert sum(calls) == free
    assert all(count <= 50 for count in calls)
    assert calls[-1] == 0
