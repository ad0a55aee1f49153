"""Which shards a worker asks for jobs."""

from collections import Counter
from typing import Any

import pytest

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Exchange, Want
from tarry.store.shards import exchange
from tarry.store.shards.exchange import ASKED_AGAIN, BUSY_AFTER, ENOUGH, OwnerAsks, ShardExchange, ShardExchangeRequest
from tarry.store.shards.sharded import ShardedStore

NOW = 1_000_000 * SECOND
WANTS = [Want("default", band, 1) for band in BANDS]


class Time:
    """The module `time`, as far as it is asked."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Counted(MemoryStore):
    """Counts calls, and which of them ask for jobs."""

    def __init__(self, calls: Counter[str], name: str) -> None:
        super().__init__(lambda: NOW)
        self.url, self._calls, self._name = f"memory://{name}", calls, name

    def exchange(self, changes: Any, wants: Any, limit: int, owner: str, lease: int, now: int) -> Exchange:
        self._calls[self._name] += 1
        return super().exchange(changes, wants, limit, owner, lease, now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(exchange, "time", clock)
    return clock


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def store(time: Time, calls: Counter[str]) -> ShardedStore:
    return ShardedStore([Counted(calls, name) for name in "abcd"])


def put(store: ShardedStore, number: int, count: int = 1, **fields: Any) -> None:
    """Jobs on the shard of that number, as another process puts them."""
    drawn: list[bytes] = []
    while len(drawn) < count:
        drawn += [id for id in [ids.uuid7()] if store.shard(id) == number]
    known = {"due": NOW, "state_since": NOW} | fields
    store.shards[number].store.insert([Job(id, "mail", b"[]", **known) for id in drawn])


@pytest.fixture
def busy(store: ShardedStore, calls: Counter[str]) -> None:
    """The worker has been busy with jobs of all stores."""
    for number in range(4):
        put(store, number, BUSY_AFTER)
    for _ in range(BUSY_AFTER):
        assert len(turn(store, 4)) == 4
    calls.clear()


def turn(store: ShardedStore, limit: int = 1, done: list[Job] | None = None, now: int = NOW) -> list[Job]:
    changes = [lifecycle.after(job, Returned(b""), lifecycle.DEFAULT, now) for job in done or ()]
    return store.exchange(changes, WANTS, limit, "ann", SECOND, now).jobs


def test_one_that_was_idle_asks_all(store: ShardedStore, calls: Counter[str]) -> None:
    for number in range(4):
        put(store, number, 10)
    assert Counter(store.shard(job.id) for job in turn(store, 8)) == dict.fromkeys(range(4), 2)
    assert calls == dict.fromkeys("abcd", 1)


def test_one_that_got_all_that_it_wanted_asks_few_next(store: ShardedStore, calls: Counter[str]) -> None:
    for number in range(4):
        put(store, number, 10)
    assert len(turn(store, 8)) == 8
    calls.clear()
    assert len(turn(store, 8)) == 8
    assert sum(calls.values()) == 1
    assert len(turn(store, 30)) == 24, "what one lacks the others give"
    calls.clear()
    assert turn(store, 8) == []
    assert calls == dict.fromkeys("abcd", 1)


@pytest.mark.usefixtures("busy")
def test_one_that_wants_few_asks_one_store(store: ShardedStore, calls: Counter[str]) -> None:
    for number in range(4):
        put(store, number, 10)
    for _ in range(8):
        assert len(turn(store)) == 1
    assert calls == dict.fromkeys("abcd", 2)


@pytest.mark.usefixtures("busy")
def test_one_that_wants_many_asks_as_many_stores_as_that_is_worth(store: ShardedStore, calls: Counter[str]) -> None:
    for number in range(4):
        put(store, number, 2 * ENOUGH)
    assert len(turn(store, 2 * ENOUGH)) == 2 * ENOUGH
    assert sorted(calls.values()) == [1, 1]


@pytest.mark.usefixtures("busy")
def test_what_one_store_lacks_the_others_give(store: ShardedStore) -> None:
    put(store, 2, 3)
    put(store, 3, 4)
    assert len(turn(store, 10)) == 7


def test_stores_without_jobs_are_asked_seldom_by_a_busy_worker(
    store: ShardedStore, calls: Counter[str], time: Time
) -> None:
    put(store, 0, 100)
    for _ in range(4 * BUSY_AFTER):
        assert len(turn(store, 101)) <= 100
        put(store, 0, 1)
    calls.clear()
    for _ in range(50):
        assert turn(store, 2)
        put(store, 0, 1)
    assert calls == {"a": 50}
    put(store, 3)
    time.now += 2 * ASKED_AGAIN
    assert len(turn(store, 2)) == 2
    assert calls["d"] == 1


def test_who_has_begun_to_listen_asks_all(store: ShardedStore, calls: Counter[str]) -> None:
    for _ in range(4 * BUSY_AFTER):
        put(store, 0, 1)
        assert turn(store, 2)
    put(store, 1)
    assert turn(store, 2) == []
    wakeup = store.wakeup()
    wakeup.listen("work:x")
    assert len(turn(store, 2)) == 1
    wakeup.close()


def test_a_store_whose_job_is_due_is_asked(store: ShardedStore, time: Time) -> None:
    put(store, 1, due=NOW + 5, state="scheduled")
    for _ in range(4 * BUSY_AFTER):
        put(store, 0, 1)
        assert turn(store, 2)
    answer = store.exchange((), WANTS, 2, "ann", SECOND, NOW + 4)
    assert (answer.jobs, answer.next_due) == ([], NOW + 5), "of a store that was not asked, too"
    assert len(turn(store, 2, now=NOW + 5)) == 1


@pytest.mark.usefixtures("busy")
def test_what_has_ended_is_settled_where_it_is_and_nothing_else_is_asked(
    store: ShardedStore, calls: Counter[str]
) -> None:
    for number in range(4):
        put(store, number, 100)
    first, second, _, _ = (turn(store) for _ in range(4))
    calls.clear()
    third = turn(store, 1, [*first, *second])
    assert len(third) == 1
    assert sum(calls.values()) == 2, "one of the two also gives a job"
    calls.clear()
    turn(store, 0, third)
    assert list(calls.values()) == [1]


def test_with_work_everywhere_no_store_is_left_out_for_long(store: ShardedStore, time: Time) -> None:
    for number in range(4):
        put(store, number, 500)
    held: list[Job] = []
    came: Counter[int] = Counter()
    for _ in range(200):
        held = turn(store, 5, held)
        came.update(store.shard(job.id) for job in held)
        time.now += ASKED_AGAIN / 4
    assert min(came.values()) >= 150


def test_a_store_that_is_added_amid_an_exchange(store: ShardedStore) -> None:
    asks = OwnerAsks()
    asks.hear(0, 3)
    request = ShardExchangeRequest([], WANTS, 4, "ann", SECOND, NOW)
    put(store, 3, 4)
    assert len(ShardExchange(store.shards, store._located, request, asks).run(0).jobs) == 4
    # A thread that has seen less takes nothing away.
    asks.hear(1, 3)
    assert asks.choose(range(4), (), NOW) == [0, 1, 2, 3]
