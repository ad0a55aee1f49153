"""Limits as a programmer says them: they hold over all workers, and hold up nobody else."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.config.config import load
from tarry.keeper.limits import declare, effective_limits, reset, set_by_hand
from tarry.model.limit import Level, Limit
from tarry.store.memory.store import MemoryStore
from tarry.tasks.task_limits import make_lane_function
from tests.worker.bench import LIMIT, Bench, until, wait_for


class ConcurrencyCounter:
    """How many are in at once, by name, and the most there ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = Counter[str]()
        self.most = Counter[str]()
        self.done = Counter[str]()

    def pass_through(self, name: str, seconds: float = 0.005) -> None:
        with self._lock:
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
        time.sleep(seconds)  # the task's work
        with self._lock:
            self.now[name] -= 1
            self.done[name] += 1


def limited(bench: Bench) -> Bench:
    bench.app.declare_limits(bench.app.client.store)
    return bench


def test_a_task_runs_no_oftener_at_once_than_its_limit_over_all_workers(any_bench: Bench) -> None:
    counter = ConcurrencyCounter()

    @any_bench.app.task(limit=3)
    def work() -> None:
        counter.pass_through("work")

    work.enqueue_many([()] * 60)
    for _ in range(2):
        limited(any_bench).work(threads=4)
    until(lambda: counter.done["work"] == 60)
    assert counter.most["work"] <= 3


def test_each_key_has_its_limit_and_its_turn(any_bench: Bench) -> None:
    counter = ConcurrencyCounter()
    order: list[str] = []

    @any_bench.app.task(limit=1, limit_by=lambda account: account)
    def bill(account: str, amount: int) -> None:
        order.append(account)
        counter.pass_through(account, 0.002)

    bill.enqueue_many([("whale", number) for number in range(200)])
    for name in ("ann", "bob"):
        bill.enqueue(name, 1)
    limited(any_bench).work(threads=4)
    until(lambda: len(order) >= 20)
    assert {"ann", "bob"} <= set(order[:10]), "the many of one do not keep the others waiting"
    until(lambda: sum(counter.done.values()) == 202)
    assert set(counter.most.values()) == {1}


def test_a_limited_task_stands_in_nobodys_way(bench: Bench) -> None:
    hold = threading.Event()

    @bench.app.task(limit=1)
    def slow() -> None:
        wait_for(hold)

    @bench.app.task
    def quick(number: int) -> int:
        return number

    slow.enqueue_many([()] * 20)
    limited(bench).work(threads=2)
    until(lambda: bench.app.client.store.limits()[f"task:{slow.name}"][1].running == 1)
    assert [quick.enqueue(number).result(LIMIT) for number in range(5)] == list(range(5))
    hold.set()


def test_a_rate_holds(bench: Bench) -> None:
    started: list[float] = []

    @bench.app.task(rate="20/s")
    def call() -> None:
        started.append(time.monotonic())

    call.enqueue_many([()] * 30)
    limited(bench).work()
    until(lambda: len(started) == 30)
    assert started[-1] - started[0] > 1.0, "30 at 20 a second"
    # Claimed within the rate; how evenly the machine then lets them run is not ours to say.
    assert max(sum(at <= other < at + 0.5 for other in started) for at in started) <= 20


async def _none() -> None:
    return None


def test_async_tasks_are_limited_alike(bench: Bench) -> None:
    counter = ConcurrencyCounter()

    @bench.app.task(limit=2)
    async def work() -> None:
        counter.pass_through("work", 0.0)
        await _none()

    work.enqueue_many([()] * 20)
    limited(bench).work()
    until(lambda: counter.done["work"] == 20)


def test_a_queue_is_limited_by_configuration(tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").write_text('[queues.mail]\nlimit = 7\nrate = "100/s"\n')
    app = App(f"sqlite:///{tmp_path}/q.db", closures=True)
    app.configure(load(directory=tmp_path, environ={}))
    with_store = app.client.store
    app.declare_limits(with_store)
    assert with_store.limits() == {"queue:mail": (Limit(7, 100, 1_000_000), Level())}
    app.close()


def test_the_keys_share_what_the_task_may() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(limit=1, limit_by=lambda account: account, limit_all=10, rate_all="5/m")
    def bill(account: str) -> None: ...

    assert bill.limits == {
        f"each:{bill.name}": Limit(1),
        f"task:{bill.name}": Limit(10, 5, 60_000_000),
    }


def test_turns_without_any_limit() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(limit_by=lambda account: account)
    def bill(account: str) -> None: ...

    assert bill.limits == {}
    assert bill.enqueue("ann").record().lane == "ann"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"limit": -1}, "limit=-1"),
        ({"rate": "often"}, "rate 'often'"),
        ({"limit_all": 3}, "limit_all= and rate_all= stand beside limit_by="),
        ({"limit_by": "account"}, "limit_by='account': a function"),
        ({"limit_by": lambda tenant: tenant}, "limit_by asks for tenant"),
    ],
)
def test_what_cannot_be_is_told_at_once(settings: dict[str, Any], told: str) -> None:
    def bill(account: str) -> None: ...

    with pytest.raises((ValueError, TypeError), match=told):
        App(MemoryStore(), closures=True).task(**settings)(bill)


def bill(account: int, /, amount: int = 3, *more: int, note: str = "") -> None: ...


@pytest.mark.parametrize(
    ("by", "lane"),
    [
        (lambda account: account, "7"),
        (lambda amount: amount, "3"),
        (lambda account, *args, **kwargs: account, "7"),
        (lambda account, note: f"{account} {note}", "7 x"),
        (lambda account: "k" * 300, None),
    ],
)
def test_a_key_is_made_of_the_arguments(by: Any, lane: str | None) -> None:
    made = make_lane_function("bill", bill, by, is_limited=False, is_ordered=False)
    assert made is not None
    key = made((7,), {"note": "x"})
    assert key == lane or (lane is None and len(key) == 100 and key == made((8,), {}))


def test_a_key_that_is_none_is_told_at_enqueue() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(limit_by=lambda account: [account])
    def bill(account: str) -> None: ...

    with pytest.raises(TypeError, match=r"limit_by gave \['ann'\]: the key must be text or a whole number"):
        bill.enqueue("ann")


def test_a_job_enqueued_by_name_waits_in_the_same_lane() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(limit_by=lambda account: account)
    def bill(account: str) -> None: ...

    assert app.client.make_job(bill.name, b'["ann"]').lane == "ann"


def test_what_is_set_by_hand_comes_first_until_it_is_reset() -> None:
    store, declared = MemoryStore(), {"task:a": Limit(3)}
    declare(store, declared, ["a", "b"])
    set_by_hand(store, "task:a", Limit(1))
    declare(store, declared, ["a", "b"])
    assert [(one.name, one.limit, one.by_hand) for one in effective_limits(store)] == [("task:a", Limit(1), True)]
    reset(store, "task:a", declared)
    assert [(one.limit, one.by_hand) for one in effective_limits(store)] == [(Limit(3), False)]


def test_a_limit_lifted_by_hand_stays_lifted() -> None:
    store, declared = MemoryStore(), {"task:a": Limit(3)}
    set_by_hand(store, "task:a", None)
    declare(store, declared, ["a"])
    assert store.limits() == {}


def test_a_limit_that_left_the_code_is_lifted_and_others_are_not() -> None:
    store = MemoryStore()
    declare(store, {"task:a": Limit(3), "queue:mail": Limit(2)}, ["a"])
    declare(store, {"task:b": Limit(3)}, ["b"])
    declare(store, {}, ["a"])
    assert sorted(store.limits()) == ["queue:mail", "task:b"]


@pytest.mark.parametrize("name", ["mail", "queue:", "tasks:a", ""])
def test_a_name_of_no_limit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no limit"):
        set_by_hand(MemoryStore(), name, Limit(1))
