"""Producers and workers on several stores, some of which go away and come back."""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tarry import App, State, current_job
from tarry.client import waiting
from tarry.client.handle import Handle
from tarry.errors import ResultTimeout, StoreUnavailable
from tarry.keeper import expired_leases
from tarry.keeper.chores import Keeper
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Query, Store, Want
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tarry.worker import pump as pumping
from tests.store.switched import Switched, memories, quick, slow
from tests.worker.bench import LIMIT, Bench, until

Opened = Callable[[int], Store]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


class Scene:
    """An app on three shards, each behind a switch; producers and workers each with a view of their own."""

    def __init__(self, stores: list[Store]) -> None:
        self.parts = [Switched(store) for store in stores]
        self.app = App(ShardedStore(self.parts), closures=True)
        self.bench = Bench(self.app, lambda: ShardedStore(self.parts))

    def on(self, number: int) -> str:
        """A key whose home is that shard."""
        store = self.app.client.store
        assert isinstance(store, ShardedStore)
        return next(f"k{n}" for n in range(1000) if store.home("run", f"k{n}") == number)

    def close(self) -> None:
        for part in self.parts:
            part.up()
        self.bench.close()


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    memory = request.param == "memory"
    stores: list[Store] = [
        MemoryStore(name=str(n)) if memory else SqliteStore(tmp_path / f"{n}.db", durable=False) for n in range(3)
    ]
    scene = Scene(stores)
    yield scene
    scene.close()
    for store in stores:
        store.close()


def test_a_shard_that_is_away_delays_only_its_own(scene: Scene) -> None:
    @scene.app.task(name="run")
    def run(number: int) -> int:
        return number

    waits = run.using(key=scene.on(1)).enqueue(-1)
    scene.parts[1].down()
    jobs: list[Handle[int]] = []
    refused = 0
    while len(jobs) < 60:
        try:
            jobs.append(run.enqueue(len(jobs)))
        except StoreUnavailable:
            refused += 1
    assert refused <= 1, "only who finds out, since that job may be stored"
    scene.bench.work()
    assert [job.result(LIMIT) for job in jobs] == list(range(60))
    with pytest.raises(StoreUnavailable):
        run.using(key=scene.on(1)).enqueue(1)
    with pytest.raises(ResultTimeout, match="the store cannot be asked: "):
        waits.result(0.05)
    scene.parts[1].up()
    assert waits.result(LIMIT) == -1


def test_outcomes_for_a_shard_that_is_away_are_held_and_the_others_settled(scene: Scene) -> None:
    gate, begun = scene.bench.gate(), threading.Semaphore(0)
    runs: Counter[int] = Counter()

    @scene.app.task(name="run")
    def run(number: int) -> int:
        runs[number] += 1
        begun.release()
        gate.wait(LIMIT)
        return number

    jobs = [run.using(key=scene.on(number)).enqueue(number) for number in range(3)]
    worker = scene.bench.work(threads=3)
    for _ in range(3):
        assert begun.acquire(timeout=LIMIT)
    scene.parts[1].down()
    gate.set()
    assert [jobs[number].result(LIMIT) for number in (0, 2)] == [0, 2]
    until(lambda: worker.pump.held_count == 1)
    more = [run.using(key=f"{scene.on(0)}").enqueue(9)]
    assert more[0].result(LIMIT) == 9
    until(lambda: worker.pump.held_count == 1)
    scene.parts[1].up()
    assert jobs[1].result(LIMIT) == 1
    until(lambda: worker.pump.held_count == 0)
    assert runs == {0: 1, 1: 1, 2: 1, 9: 1}
    assert {job.record().epoch for job in jobs} == {1}


def test_a_worker_that_waits_for_a_shard_does_not_spin(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = scene.bench.gate(), threading.Event()

    @scene.app.task(name="run")
    def run() -> None:
        begun.set()
        gate.wait(LIMIT)

    run.using(key=scene.on(1)).enqueue()
    worker = scene.bench.work()
    assert begun.wait(LIMIT)
    monkeypatch.undo()
    scene.parts[1].down()
    gate.set()
    until(lambda: worker.pump._exchanger._part_backoff.tries)
    turns, over = scene.parts[0].calls, time.monotonic() + 1
    until(lambda: time.monotonic() > over)
    assert scene.parts[0].calls - turns < 60
    scene.parts[1].up()
    until(lambda: worker.pump.held_count == 0)


def test_jobs_whose_claim_was_not_heard_go_back_once_the_shard_is_there(scene: Scene) -> None:
    runs: Counter[int] = Counter()

    @scene.app.task(name="run")
    def run(number: int) -> int:
        runs[number] += 1
        return number

    jobs = [run.using(key=scene.on(number)).enqueue(number) for number in range(3)]
    scene.parts[1].down(after=True, only="exchange")
    scene.parts[2].down()
    scene.bench.work()
    assert jobs[0].result(LIMIT) == 0
    until(scene.parts[1].inner.owners)
    scene.parts[1].up()
    assert jobs[1].result(LIMIT) == 1, "although another is still away"
    scene.parts[2].up()
    assert jobs[2].result(LIMIT) == 2
    assert runs == {0: 1, 1: 1, 2: 1}
    assert jobs[1].record().failures == 0


def test_trouble_with_a_part_is_told_once_in_a_while(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    @scene.app.task(name="run")
    def run(number: int) -> int:
        return number

    scene.parts[1].down()
    worker = scene.bench.work()
    until(lambda: worker.pump._exchanger._part_backoff.tries > 3)
    told = [record for record in caplog.records if record.name == "tarry.worker" and record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "is away: " in told[0].getMessage()
    assert told[0].getMessage().endswith("; holding 0 jobs for it, trying again")


def test_the_dead_are_rescued_where_they_can_be_and_the_rest_later() -> None:
    store, parts = memories("ab")
    now = store.time()
    for number in range(2):
        id = next(id for id in iter(lambda: store.new_id("run"), None) if store.shard(id) == number)
        store.insert([Job(id, "run", b"[]", due=now, state_since=now)])
    assert len(store.claim([Want("default", NORMAL, 9)], 9, "gone", 10**9, now)) == 2
    parts[1].down()
    keeper = Keeper(store)
    assert keeper.handle_message({"gone": "gone"}) is None
    assert [job.state for job in parts[0].inner.find(Query())] == [State.READY]
    parts[1].up()
    until(lambda: keeper.handle_message({"gone": "gone"}))
    assert [job.state for job in parts[1].inner.find(Query())] == [State.READY]


def test_after_the_store_was_away_all_have_a_moment_to_prolong_their_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_leases, "LEASE_GRACE", 3600)
    store = Switched(MemoryStore())
    now = store.time()
    store.insert([Job(store.new_id("run"), "run", b"[]", due=now, state_since=now)])
    store.claim([Want("default", NORMAL, 1)], 1, "ann", 1, now)
    keeper = Keeper(store)
    store.down()
    keeper.tick()
    store.up()
    keeper.rescue_overdue()
    assert store.owners() == ["ann"]
    keeper._expired_leases._patient_until = 0
    keeper.rescue_overdue()
    assert store.owners() == []


def test_limits_are_declared_again_for_one_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store, parts = memories("ab")
    app = App(store, closures=True)

    @app.task(limit=3)
    def run() -> None: ...

    slow(monkeypatch)
    parts[1].down()
    with pytest.raises(StoreUnavailable):
        store.next_due()
    app.declare_limits(store)
    keeper = app.keeper(store)
    keeper.redeclare_limits()
    assert [len(part.inner.limits()) for part in parts] == [1, 0]
    parts[1].up()
    store.shards[1]._mark_back()
    keeper.redeclare_limits()
    assert [len(part.inner.limits()) for part in parts] == [1, 1]
    keeper.close()
    store.close()


def test_schedules_go_on_but_those_whose_place_is_away() -> None:
    store, parts = memories("ab")
    app = App(store, closures=True)
    for number in range(8):
        app.task(name=f"t{number}", cron="@every 1s")(_nothing)
    keeper = app.keeper(store)
    keeper.tick()
    parts[1].down()
    with pytest.raises(StoreUnavailable):
        store.next_due()
    seen: set[str] = set()

    def went_on() -> bool:
        keeper.tick()
        seen.update(job.task for job in parts[0].inner.find(Query(limit=1000)))
        return len(seen) >= 2

    until(went_on)
    keeper.close()
    store.close()


def _nothing() -> None: ...


def test_waiting_asks_ever_more_rarely_and_says_so_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @scene.app.task(name="run")
    def run(number: int) -> int:
        return number

    monkeypatch.setattr(waiting, "POLL_INTERVAL", 0.01)
    job = run.enqueue(1)
    for part in scene.parts:
        part.down()
    with pytest.raises(ResultTimeout, match="the store cannot be asked"):
        job.result(0.3)
    told = [record for record in caplog.records if record.name == "tarry.client"]
    assert len(told) <= 2


@pytest.mark.parametrize("seed", range(6))
def test_whatever_goes_away_nothing_is_lost_or_run_twice(
    scene: Scene, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards go up and down while jobs are put and run: every job that was acknowledged ends, and runs once for each
    time that it was claimed and not given back unstarted."""
    chance = random.Random(seed)
    runs: Counter[tuple[int, int]] = Counter()
    monkeypatch.setattr(pumping, "LOOK_ANYWAY", 0.02)
    monkeypatch.setattr(waiting, "POLL_INTERVAL", 0.02)

    @scene.app.task(name="run")
    def run(number: int) -> int:
        runs[number, current_job().attempt] += 1
        return number

    over = threading.Event()

    def storm() -> None:
        while not over.wait(chance.uniform(0.005, 0.03)):
            part = chance.choice(scene.parts)
            part.up() if part.error else part.down(after=chance.random() < 0.5)

    acknowledged = []
    workers = [scene.bench.work(threads=2) for _ in range(2)]
    weather = threading.Thread(target=storm)
    weather.start()
    try:
        for number in count():
            try:
                chosen = run.using(key=f"k{number}") if number % 7 == 0 else run
                acknowledged.append(chosen.enqueue(number))
            except StoreUnavailable:
                over.wait(0.002)
            if len(acknowledged) == 200:
                break
    finally:
        over.set()
        weather.join()
    for part in scene.parts:
        part.up()
    for job in acknowledged:
        job.result(LIMIT)
    until(lambda: not any(worker.pump.held_count for worker in workers))
    assert set(runs.values()) == {1}
    for job in acknowledged:
        assert job.state is State.DONE
        assert job.record().failures == 0
