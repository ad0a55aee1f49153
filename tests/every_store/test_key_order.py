"""The jobs of a key of an ordered task: one at a time, in the order of their enqueue, whatever becomes of them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.json import decode

from tarry import App, Fail, Retry, Snooze, State
from tarry.client.handle import Handle
from tarry.errors import StoreUnavailable
from tarry.keeper.waiting_facts import read_facts
from tarry.keeper.waiting_reasons import EndpointState, waiting_reasons
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.model.outcome import HeldBack, Released
from tarry.store.queries.key_order import KeyTurns
from tarry.store.rules.base import BANDS, Query, Want
from tests.cli.project import until

WANTS = [Want("default", band, 1) for band in BANDS]
LEASE = 60 * SECOND
Body = Callable[[int], object]


class Ordered:
    """An ordered task that notes its calls."""

    def __init__(self, app: App, kind: str = "sync", **settings: Any) -> None:
        self.app, self.calls = app, list[tuple[str, int]]()
        self.act: Body = lambda n: None

        def run(key: str, n: int) -> None:
            self.calls.append((key, n))
            self.act(n)

        async def arun(key: str, n: int) -> None:
            await asyncio.sleep(0)
            run(key, n)

        settings = {"retry": Retry(5, base=0.1, jitter=0), **settings}
        body: Any = run if kind == "sync" else arun
        self.task: Any = app.task(name="ordered", order_by=lambda key: key, **settings)(body)

    def put(self, *numbers: int, key: str = "a") -> list[Handle[None]]:
        jobs: list[Handle[None]] = self.task.enqueue_many([(key, n) for n in numbers])
        return jobs

    def claim(self, owner: str = "other", limit: int = 100) -> list[Job]:
        """As a worker that claims and goes no further."""
        self.app.declare_limits(self.app.client.store)
        store = self.app.client.store
        return store.claim(WANTS, limit, owner, LEASE, store.time())

    def finish(self, handles: Sequence[Handle[Any]]) -> None:
        until(lambda: self.app.drain() >= 0 and all(handle.state.finished for handle in handles))

    def of(self, key: str = "a") -> list[int]:
        return [n for name, n in self.calls if name == key]


class FailsAtFirst:
    """Raises at the first calls with these numbers."""

    def __init__(self, *numbers: int, raising: Callable[[], BaseException] = OSError) -> None:
        self._left, self._raising = list(numbers), raising

    def __call__(self, n: int) -> None:
        if n in self._left:
            self._left.remove(n)
            raise self._raising()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_one_that_is_tried_again_holds_its_key_back_and_no_other(app: App, kind: str) -> None:
    ordered = Ordered(app, kind, retry=Retry(10_000, base=0.05, cap=0.05))
    failing = {0}
    ordered.act = lambda n: 1 // (n not in failing)
    jobs = ordered.put(*range(6))
    until(lambda: app.drain() >= 0 and len(ordered.of()) > 2)
    ordered.finish(ordered.put(10, 11, key="b"))
    assert (ordered.of("b"), set(ordered.of())) == ([10, 11], {0})
    failing.clear()
    failing.add(3)
    until(lambda: app.drain() >= 0 and ordered.of().count(3) > 2)
    failing.clear()
    ordered.finish([*jobs, *ordered.put(6, 7)])
    assert ordered.of() == sorted(ordered.of())
    assert set(ordered.of()) == set(range(8))


def test_one_that_puts_itself_off_holds_its_key_back(app: App) -> None:
    ordered = Ordered(app)
    ordered.act = FailsAtFirst(0, raising=lambda: Snooze(0.2))
    ordered.finish(ordered.put(0, 1, 2))
    assert ordered.of() == [0, 0, 1, 2]


def test_a_claim_of_many_gets_one_of_a_key(app: App) -> None:
    ordered = Ordered(app)
    ordered.put(0, 1, 2)
    ordered.put(3, key="b")
    assert sorted(decode(job.body)[1] for job in ordered.claim()) == [0, 3]
    assert ordered.claim("another") == []


def why(app: App, handle: Handle[Any]) -> str:
    store = app.client.store
    (job,) = store.get([bytes.fromhex(handle.id.replace("-", ""))])
    assert job is not None
    return waiting_reasons(read_facts(store, job, store.time(), True, EndpointState()))[0].text


def ids_of(job: Job) -> str:
    return job.id.hex()


def test_a_number_that_was_set_by_hand_breaks_no_order(app: App) -> None:
    ordered = Ordered(app)
    jobs = ordered.put(*range(5))
    store = app.client.store
    app.declare_limits(store)
    store.limit("each:ordered", Limit(5))
    first, *later = sorted(store.claim(WANTS, 100, "other", LEASE, store.time()), key=lambda job: job.id)
    assert (first.id.hex(), len(later)) == (jobs[0].id.replace("-", ""), 4)
    held = KeyTurns(store).held_back([first, *later], store.time())
    assert {id: one.behind for id, one in held.items()} == {job.id: first.id for job in later}


@pytest.mark.parametrize("starts", [True, False])
def test_one_whose_worker_died_comes_first(app: App, starts: bool) -> None:
    ordered = Ordered(app)
    jobs = ordered.put(*range(6))
    (claimed,) = ordered.claim()
    keeper = app.keeper(app.client.store)
    keeper.rescue("other", [ids_of(claimed)] if starts else [])
    keeper.close()
    ordered.finish(jobs)
    assert ordered.of() == list(range(6))
    assert jobs[0].record().failures == starts


def test_one_that_a_worker_gives_back_comes_first(app: App) -> None:
    ordered = Ordered(app)
    jobs = ordered.put(*range(6))
    store = app.client.store
    for _ in range(3):
        (claimed,) = ordered.claim()
        now = store.time()
        store.apply([lifecycle.after(claimed, Released(), lifecycle.DEFAULT, now)], now)
    ordered.finish(jobs)
    assert ordered.of() == list(range(6))


def test_a_frozen_worker_holds_its_key_until_its_lease_is_over(app: App) -> None:
    ordered = Ordered(app)
    jobs = ordered.put(*range(3))
    store = app.client.store
    (frozen,) = ordered.claim()
    app.drain()
    assert ordered.of() == []
    now = store.time()
    (lost,) = store.reclaim(now + 2 * LEASE)
    assert lost == frozen
    keeper = app.keeper(store)
    keeper.rescue("other", [])
    keeper.close()
    ordered.finish(jobs)
    # What it reports now comes too late.
    assert store.apply([lifecycle.after(frozen, Released(), lifecycle.DEFAULT, now)], now) == [False]
    assert ordered.of() == [0, 1, 2]


def test_a_dead_one_holds_nobody_unless_it_is_told_to(app: App) -> None:
    ordered = Ordered(app)
    ordered.act = FailsAtFirst(0, raising=lambda: Fail("no"))
    jobs = ordered.put(0, 1)
    ordered.finish(jobs)
    assert (ordered.of(), jobs[0].state) == ([0, 1], State.DEAD)


@pytest.mark.parametrize("act", ["retry", "delete"])
def test_a_dead_one_may_hold_its_key_until_somebody_acts(app: App, act: str) -> None:
    ordered = Ordered(app, on_dead="hold")
    ordered.act = FailsAtFirst(0, raising=lambda: Fail("no"))
    jobs, others = ordered.put(0, 1, 2), ordered.put(10, 11, key="b")
    ordered.finish([jobs[0], *others])
    app.drain()
    assert (ordered.of(), ordered.of("b")) == ([0], [10, 11])
    assert (
        why(app, jobs[2]) == f"Job {jobs[0].id} of its key is dead and holds the others back: retry it, or delete it."
    )
    assert jobs[0].retry() if act == "retry" else app.client.forget(bytes.fromhex(jobs[0].id.replace("-", "")))
    ordered.finish(jobs[act == "delete" :])
    assert ordered.of() == ([0, 0, 1, 2] if act == "retry" else [0, 1, 2])


def test_the_next_one_comes_soon_where_the_one_before_is_cancelled(app: App) -> None:
    ordered = Ordered(app, retry=Retry(5, base="1h", cap="1h"))
    ordered.act = FailsAtFirst(0)
    jobs = ordered.put(0, 1, 2)
    until(lambda: app.drain() >= 0 and jobs[2].record().epoch)
    assert ordered.of() == [0]
    assert why(app, jobs[2]) == f"Job {jobs[0].id} of its key was enqueued before it and comes first. It is scheduled."
    jobs[0].cancel()
    ordered.finish(jobs)
    assert ordered.of() == [0, 1, 2]


def test_priority_decides_between_keys_and_not_within_one(app: App) -> None:
    ordered = Ordered(app)
    first = ordered.put(0)
    high = ordered.task.using(priority=5).enqueue("a", 1)
    other = ordered.task.using(priority=5).enqueue("b", 2)
    ordered.finish([*first, high, other])
    assert ordered.of() == [0, 1]
    assert ordered.calls.index(("b", 2)) < 2


def test_one_that_waits_for_its_time_takes_its_place_then(app: App) -> None:
    ordered = Ordered(app)
    later = ordered.task.using(delay="1h").enqueue("a", 0)
    ordered.finish(ordered.put(1, 2))
    jobs = ordered.put(3)
    assert later.retry()
    ordered.finish([later, *jobs])
    assert ordered.of() == [1, 2, 0, 3]


def test_many_that_wait_for_their_time_stand_in_nobody_s_way(app: App) -> None:
    ordered = Ordered(app)
    ordered.task.using(delay="1h").enqueue_many([("a", n) for n in range(30)])
    ordered.act = FailsAtFirst(100)
    ordered.finish(ordered.put(100, 101, 102))
    assert ordered.of() == [100, 100, 101, 102]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("a spoiled row")])
def test_where_the_order_is_not_known_nothing_starts(
    app: App, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ordered = Ordered(app)
    ordered.put(0, 1)
    (claimed,) = ordered.claim()
    store = app.client.store
    now = store.time()

    def fail(query: Query) -> list[Job]:
        raise error

    monkeypatch.setattr(store, "find", fail)
    assert KeyTurns(store).held_back([claimed], now) == {claimed.id: HeldBack(now + SECOND)}
