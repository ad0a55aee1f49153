"""Nan and infinity, which JSON has not: each way by which a task gives a value refuses them, as arguments do."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tarry import App, Client, step
from tarry.errors import ArgumentError
from tarry.store.memory.store import MemoryStore

WHY = "JSON has no nan and no infinity"


@dataclasses.dataclass
class Measure:
    value: float | None


class Row(msgspec.Struct):
    values: list[Any]


VALUES: list[Any] = [
    math.nan,
    -math.inf,
    [None, {"deep": (1.0, math.inf)}],
    {"a": None, "b": math.nan},
    Measure(math.nan),
    Row([1, Row([math.inf])]),
]
FINE: list[Any] = [None, [None, 1.5], {"a": None}, Measure(None), Row([None, 1e308])]


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True, retry=None)
    yield app
    app.close()


def plain(app: App, value: Any) -> Any:
    return app.task(name="plain")(lambda: value).enqueue()


def in_loop(app: App, value: Any) -> Any:
    @app.task(name="loop")
    async def loop() -> Any:
        return value

    return loop.enqueue()


def of_step(app: App, value: Any) -> Any:
    @app.task(name="steps")
    def steps() -> None:
        step(lambda: value)

    return steps.enqueue()


def of_batch(app: App, value: Any) -> Any:
    task: Any = app.task(name="batch", batch=2, wait=0)(lambda items: [value] * len(items))
    return task.enqueue(1)


def of_map(app: App, value: Any) -> Any:
    @app.task(name="item")
    def item(number: int) -> Any:
        return value

    with app.flow("map") as f:
        f.map(item, [1, 2], shards=1)
    return next(iter(f.handle.nodes()))


WAYS: dict[str, Callable[[App, Any], Any]] = {
    "result": plain,
    "result of a coroutine": in_loop,
    "step": of_step,
    "batch": of_batch,
    "map": of_map,
}


def drained(app: App, way: str, value: Any) -> Any:
    """The handle of a job that gives this value, once it has run."""
    handle = WAYS[way](app, value)
    app.drain()
    return handle


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_job_that_gives_them_is_dead_and_says_so(app: App, way: str, value: Any) -> None:
    handle = drained(app, way, value)
    assert handle.state == "dead"
    assert WHY in json.loads(handle.record().note)["message"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", FINE, ids=repr)
def test_null_and_large_numbers_are_none_of_them(app: App, way: str, value: Any) -> None:
    assert drained(app, way, value).state == "done"


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_client_of_a_server_refuses_them_before_it_sends(value: Any) -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(ArgumentError, match=WHY):
        client.enqueue("any", value)
    with pytest.raises(ArgumentError, match=WHY):
        client.enqueue("any", value=value)
    client.close()
