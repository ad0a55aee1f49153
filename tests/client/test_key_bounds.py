"""How many jobs of a key may wait: what a task declares, numbers of single keys, and who knows of them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, QueueFull, TenantFull
from tarry.client import bounds
from tarry.client.bounds import declare_bounds
from tarry.client.limits import key_numbers
from tarry.client.limits.key_numbers import set_key_bound, task_bounds
from tarry.client.tasks.task import Task
from tarry.model.bound import KEY_BOUNDS, KEY_ROOM, Bound, TaskBounds
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query, Store


@pytest.fixture(autouse=True)
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "READ_EVERY", -1.0)


@pytest.fixture
def store() -> Iterator[Store]:
    store = MemoryStore()
    yield store
    store.close()


def bill_of(store: Any, max_waiting: int | None = None) -> "tuple[App, Task[Any, int]]":
    """An app with a task that has keys, as one deployment has it."""
    app = App(store, closures=True)

    @app.task(name="bill", limit_by=lambda account: account, max_waiting=max_waiting)
    def bill(account: str, n: int) -> int:
        return n

    return app, bill


def stored(bill: "Task[Any, int]", account: str, count: int) -> int:
    """How many of so many enqueues are not refused."""
    done = 0
    for n in range(count):
        try:
            bill.enqueue(account, n)
            done += 1
        except TenantFull:
            pass
    return done


def test_what_a_task_says_holds_for_producers_without_its_code(store: Store) -> None:
    app, _ = bill_of(store, 2)
    _, elsewhere = bill_of(store)
    assert stored(elsewhere, "ann", 5) == 5
    app.declare_limits(store)
    assert (stored(elsewhere, "ann", 5), stored(elsewhere, "bob", 5)) == (0, 2)
    later, _ = bill_of(store)
    elsewhere.tenant("cid").set(max_waiting=1)
    later.declare_limits(store)
    assert task_bounds(store, "bill") == TaskBounds(None, {"cid": 1})
    assert (stored(elsewhere, "bob", 5), stored(elsewhere, "cid", 5)) == (5, 1)
    elsewhere.tenant("cid").reset()
    assert store.kv_list(KEY_BOUNDS) == {}


def test_numbers_that_are_set_replace_those_before(store: Store) -> None:
    app, bill = bill_of(store)
    whale = bill.tenant("whale")
    whale.pause()
    whale.set(limit=3, max_waiting=9)
    facts = whale.facts()
    assert (facts.limit, facts.max_waiting, facts.is_paused) == (3, 9, True)
    whale.set(max_waiting=0)
    assert (whale.facts().limit, whale.facts().max_waiting) == (None, 0)
    whale.set(rate="5/s")
    assert (whale.facts().rate, whale.facts().max_waiting) == ("5 in 1 s", None)
    whale.resume()
    whale.reset()
    assert (whale.facts().has_own, store.kv_list(KEY_BOUNDS), app.client.store.limits()) == (False, {}, {})


def test_a_full_key_makes_no_job_of_others_go(store: Store) -> None:
    """A queue drops its oldest for new jobs: not for one that its key refuses."""
    app, bill = bill_of(store, 2)
    declare_bounds(store, {"default": Bound(3, "drop_oldest")})
    assert (stored(bill, "ann", 1), stored(bill, "bob", 9)) == (1, 2)
    assert stored(bill, "cid", 1) == 1
    lanes = sorted(str(job.lane) for job in store.find(Query(limit=99)))
    assert lanes == ["bob", "bob", "cid"], "the oldest went for cid"
    assert app.client.store.kv_list(KEY_ROOM).keys()


def test_jobs_that_are_put_off_are_refused_while_the_key_is_full(store: Store) -> None:
    _, bill = bill_of(store, 1)
    bill.enqueue("ann", 1)
    with pytest.raises(TenantFull):
        bill.using(delay="1h").enqueue("ann", 2)


def test_an_enqueue_in_a_transaction_is_refused_too(tmp_path: Path) -> None:
    app, bill = bill_of(f"sqlite:///{tmp_path}/jobs.db?shared=yes", 1)
    assert app.client.store.counts() == []
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("BEGIN")
    within = bill.using(connection=connection)
    within.enqueue("ann", 1)
    with pytest.raises(TenantFull):
        within.enqueue("ann", 2)
    within.enqueue("bob", 1)
    connection.execute("COMMIT")
    connection.close()
    assert sorted(str(job.lane) for job in app.client.store.find(Query(limit=99))) == ["ann", "bob"]
    app.close()


@pytest.mark.parametrize("most", [-1, 2**31 + 1, True, 1.5, "3"])
def test_a_number_that_is_none_is_refused(store: Store, most: Any) -> None:
    _, bill = bill_of(store)
    with pytest.raises(ValueError, match=r"max_waiting=.*how many jobs of a key may wait"):
        bill.tenant("ann").set(max_waiting=most)
    with pytest.raises(ValueError, match="bill: max_waiting="):
        bill_of(store, most)
    assert store.kv_list(KEY_BOUNDS) == {}


def test_a_task_without_keys_cannot_have_one(store: Store) -> None:
    app = App(store, closures=True)
    with pytest.raises(ValueError, match=r"max_waiting= stands beside limit_by= or order_by=.*\[queues.NAME\]"):
        app.task(name="plain", max_waiting=3)(print)
    app.task(name="line", order_by=lambda account: account, max_waiting=3)(lambda account: None)


def test_so_many_keys_have_a_number_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_numbers, "MOST_KEYS", 2)
    set_key_bound(store, "bill", "ann", 1)
    set_key_bound(store, "bill", "bob", 1)
    with pytest.raises(ValueError, match="bill: 2 keys have a max_waiting of their own, and no more may"):
        set_key_bound(store, "bill", "cid", 1)
    set_key_bound(store, "bill", "bob", 5)
    set_key_bound(store, "bill", "ann", None)
    set_key_bound(store, "bill", "cid", 1)
    assert task_bounds(store, "bill").keys == {"bob": 5, "cid": 1}


@pytest.mark.parametrize("cell", [b"", b"{", b'{"each": -1}', b'{"keys": {"ann": "many"}}', b"[" * 10_000])
def test_a_spoiled_cell_stops_nobody(store: Store, cell: bytes) -> None:
    _, bill = bill_of(store, 2)
    assert store.kv_cas(KEY_BOUNDS + "bill", cell, None)
    assert stored(bill, "ann", 5) == 2
    bill.tenant("ann").set(max_waiting=3)
    assert stored(bill, "ann", 5) == 1


def test_a_task_without_a_number_has_the_plain_insert(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bill = bill_of(store)
    monkeypatch.setattr(store, "insert_bounded", lambda *_: pytest.fail("there is no bound"))
    assert stored(bill, "ann", 5) == 5
    assert store.kv_list(KEY_ROOM) == {}


def test_a_full_tenant_is_a_full_queue_for_whoever_handles_that() -> None:
    error: QueueFull = TenantFull("mail", 1_000, 6.4, task="bill", tenant="ann")
    assert str(error) == (
        "each:bill=ann is full: 1,000 of its jobs are ready in queue mail, and its max_waiting is 1,000; try"
        " again in 6 s, or give it more: tarry limits set each:bill=ann"
    )


def test_over_several_stores_each_key_keeps_to_its_number(tmp_path: Path) -> None:
    """A key is on one store; only the jobs of the key "" are on any, and the stores share its number out."""
    app, bill = bill_of([f"sqlite:///{tmp_path}/{n}.db" for n in range(2)], 4)
    for account in ("ann", "bob", "cid", ""):
        assert stored(bill, account, 40) == 4
    app.close()
