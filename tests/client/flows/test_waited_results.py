"""`current_job().results()`: what a job comes after, page by page, without the bound of arguments."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from tarry import App, FlowFailed, current_job, fan_out
from tarry.model.flow.wiring import AFTER, NodeLinks, Ref, Take, unwrap
from tarry.store.memory.store import MemoryStore

fails: set[int] = set()


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    fails.clear()
    monkeypatch.setattr("tarry.worker.run.waited_results.PAGE", 3)
    # No result fits as an argument any more.
    monkeypatch.setattr("tarry.worker.run.inputs.MAX_COLLECTED", 0)
    app = App(MemoryStore(), closures=True, retry=None)
    for fn in (number, day, read, aread, split, asum):
        app.task(name=fn.__name__)(fn)
    apps.append(app)
    yield app
    apps.clear()
    app.close()


apps: list[App] = []


def number(x: int) -> int:
    if x in fails:
        raise ValueError(f"not {x}")
    return x


def day(x: int) -> date:
    return date(2026, 11, x)


def read() -> str:
    return " ".join(str(each) for each in current_job().results())


async def aread() -> str:
    return " ".join([str(each) async for each in current_job().aresults()])


def asum(numbers: list[int]) -> int:
    return sum(numbers)


def split(n: int) -> list[int]:
    return fan_out(apps[0].tasks["number"].call(x) for x in range(n))


def call(app: App, name: str, *args: Any) -> Any:
    return app.tasks[name].call(*args)


@pytest.mark.parametrize("reader", ["read", "aread"])
def test_all_that_a_job_comes_after_in_order_and_of_its_type(app: App, reader: str) -> None:
    with app.flow("order") as f:
        group = f.add_all(call(app, "number", x) for x in range(7))
        first, second = f.add(call(app, "day", 1)), f.add(call(app, "day", 2))
        mapped = f.map(app.tasks["day"], range(3, 8), shards=2)
        added = f.add(call(app, "split", 4))
        f.add(call(app, reader), after=[second, group, first, mapped, added])
    app.drain()
    days = [f"2026-11-0{x}" for x in range(1, 8)]
    expected = [days[1], *map(str, range(7)), days[0], *days[2:], "0", "1", "2", "3"]
    assert f.handle.result(timeout=0) == " ".join(expected)


def test_the_error_of_the_bound_names_it(app: App) -> None:
    with app.flow("order") as f:
        group = f.add_all(call(app, "number", x) for x in range(2))
        f.add(call(app, "asum", group.result))
    app.drain()
    with pytest.raises(FlowFailed, match=r"name it in after= instead, and read current_job\(\).results\(\)"):
        f.handle.result(timeout=0)


def test_what_did_not_end_well_is_none(app: App) -> None:
    fails.update((1, 11))
    with app.flow("order", on_failure="go_on") as f:
        group = f.add_all(call(app, "number", x) for x in range(3))
        mapped = f.map(app.tasks["number"], range(10, 13), shards=1)
        f.add(call(app, "read"), after=[group, mapped])
    app.drain()
    assert f.handle.result(timeout=0) == "0 None 2 None None None"


def test_neighbours_are_one_range_and_arguments_are_none_of_them(app: App) -> None:
    with app.flow("order") as f:
        nodes = [f.add(call(app, "number", x)) for x in range(3)]
        f.add(call(app, "number", nodes[2].result), after=[*nodes[:2], nodes[0]])
        f.add(call(app, "read"))
    job, alone = [node.record() for node in f.handle.nodes()][3:]
    reads = (Take(AFTER, Ref(1, 2)), Take(AFTER, Ref(1)))
    assert unwrap(job.body) == (NodeLinks(takes=(Take(0, Ref(3)), *reads)), b"[null]")
    app.drain(queues=["default"])
    assert app.get(alone.id).result(timeout=0) == ""


def test_results_that_are_gone_or_come_again(app: App) -> None:
    with app.flow("order", on_failure="go_on") as f:
        one, two = f.add(call(app, "number", 1)), f.add(call(app, "number", 2))
        later = app.tasks["read"].using(queue="later")
        f.add(later.call(), after=[one])
        f.add(later.call(), after=[two])
    app.drain(queues=["default"])
    first, second, reads_first, reads_second = f.handle.nodes()
    assert app.client.forget(first.raw_id)
    assert second.retry()
    app.drain(queues=["later"])
    assert b"ArgumentError" in reads_first.record().note
    assert b"the result of node 1 is gone" in reads_first.record().note
    assert (reads_second.state, reads_second.record().failures) == ("scheduled", 0)


def test_a_job_in_no_flow_has_none(app: App) -> None:
    job = app.tasks["read"].enqueue()
    app.drain()
    assert b"results() of read: this job is in no flow" in job.record().note
