"""The cells that keep the order of a key: deleted when nobody needs them, on every store."""

import asyncio
from typing import Any

import pytest

from tarry.client.handle import Handle
from tarry.push.delivery import order
from tarry.push.delivery.order import CELL, KeyOrder, OrderSweep
from tarry.store.rules.base import Store
from tests.push.fixture import DeliveryFixture

IN_ORDER = {"url": "/", "order": "{customer}"}


def list_first(fixture: DeliveryFixture, *handles: Handle[Any]) -> None:
    """As a worker does before a retry of the first job of each key."""
    keys = KeyOrder(fixture.store(), fixture.store().time)
    for handle in handles:
        asyncio.run(keys.keep_first(fixture.job(handle)))


def put(fixture: DeliveryFixture, customer: int) -> Handle[Any]:
    return fixture.app.enqueue("hook", {"customer": customer})


def keeper_sweep(store: Store) -> OrderSweep:
    return OrderSweep(store, store.time)


def cells(store: Store) -> int:
    return len(store.kv_list(CELL))


def test_a_key_whose_jobs_have_all_ended_is_forgotten(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook=IN_ORDER)
    store = any_delivery.store()
    cancelled, waiting, behind = put(any_delivery, 1), put(any_delivery, 2), put(any_delivery, 1)
    list_first(any_delivery, cancelled, waiting, behind)
    assert cells(store) == 2
    cancelled.cancel()
    sweep = keeper_sweep(store)
    sweep.sweep_orders()
    assert cells(store) == 2, "a job of the key waits"
    behind.cancel()
    sweep.sweep_orders()
    assert list(store.kv_list(CELL)) == [order._cell(any_delivery.job(waiting))]


def test_all_cells_get_their_turn(any_delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "SWEPT_AT_ONCE", 3)
    any_delivery.configure(hook=IN_ORDER)
    store = any_delivery.store()
    waiting = [put(any_delivery, customer) for customer in range(4)]
    ended = [put(any_delivery, customer) for customer in range(10, 14)]
    list_first(any_delivery, *waiting, *ended)
    for handle in ended:
        handle.cancel()
    sweep = keeper_sweep(store)
    for _ in range(3):
        sweep.sweep_orders()
    assert cells(store) == len(waiting)
    for handle in waiting:
        handle.cancel()
    for _ in range(3):
        sweep.sweep_orders()
    assert cells(store) == 0


def test_of_several_keepers_one_does_it(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook=IN_ORDER)
    store = any_delivery.store()
    job = put(any_delivery, 1)
    list_first(any_delivery, job)
    job.cancel()
    other = keeper_sweep(store)
    other.sweep_orders()
    assert cells(store) == 0
    again = put(any_delivery, 1)
    list_first(any_delivery, again)
    again.cancel()
    keeper_sweep(store).sweep_orders()
    assert cells(store) == 1, "another has taken it over"


def test_a_keeper_does_it(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook=IN_ORDER)
    store = any_delivery.store()
    job = put(any_delivery, 1)
    list_first(any_delivery, job)
    job.cancel()
    keeper = any_delivery.app.keeper(store)
    keeper.tick()
    keeper.close()
    assert cells(store) == 0
