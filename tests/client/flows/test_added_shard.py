"""Flows that do not live where their ids say, since a shard was added while they ran."""

from collections.abc import Iterator
from typing import Any

import pytest

from tarry import App, Flow, fan_out
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.ids import parse
from tarry.store.shards.sharded import ShardedStore

apps: list[App] = []
undone: list[int] = []


def plain(x: int) -> int:
    if x < 0:
        raise ValueError("it is negative")
    return x


def split(count: int) -> Any:
    return fan_out(apps[-1].tasks["plain"].call(number) for number in range(count))


def total(numbers: list[int]) -> int:
    return sum(numbers)


def undo(x: int) -> None:
    undone.append(x)


def app_on(*names: str) -> App:
    app = App(ShardedStore([stores[name] for name in names]), closures=True, retry=None)
    for fn in (plain, split, total, undo):
        app.task(name=fn.__name__)(fn)
    apps.append(app)
    return app


stores: dict[str, MemoryStore] = {}


@pytest.fixture(autouse=True)
def _stores() -> Iterator[None]:
    undone.clear()
    for name in "abc":
        stores[name] = MemoryStore()
        stores[name].url = f"memory://{name}"
    yield
    apps.clear()


def moved(make: Any) -> tuple[App, Flow[Any]]:
    """A flow that was made on two shards and belongs on the third, and an app on all of them."""
    before, after = app_on("a", "b"), app_on("a", "b", "c")
    store = after.client.store
    assert isinstance(store, ShardedStore)
    made = (make(before) for _ in range(1000))
    flow = next(flow for flow in made if store._hashing.place_of_job(parse(flow.id)) == 2)
    for other in before.flows.list(state="running", limit=1000):
        if other != flow:
            other.cancel()
    return after, after.flows.get(flow.id)


def test_a_node_adds_others() -> None:
    after, flow = moved(lambda app: app.chain(app.tasks["split"].call(5), app.tasks["total"].call()))
    after.drain()
    assert flow.result(timeout=0) == 10
    assert stores["c"].counts() == [], "it lives whole on one shard"


def test_what_is_done_is_undone() -> None:
    def make(app: App) -> Flow[Any]:
        with app.flow("order", on_failure="compensate") as f:
            paid = f.add(app.tasks["plain"].call(7), undo=app.tasks["undo"].call())
            f.add(app.tasks["plain"].call(-1), after=[paid])
        return f.handle

    after, flow = moved(make)
    after.drain()
    assert (str(flow.state), undone) == ("dead", [7])
    assert stores["c"].counts() == []


def test_it_is_cancelled_and_tried_again() -> None:
    after, flow = moved(lambda app: app.chain(app.tasks["plain"].call(-1), app.tasks["plain"].call()))
    after.drain()
    assert (str(flow.state), flow.retry()) == ("dead", True)
    assert flow.cancel()
    assert str(flow.state) == "cancelled"
