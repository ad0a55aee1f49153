"""A task that is called for many items: how these are divided, what a crash repeats, and what is refused."""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tarry import (
    App,
    ArgumentError,
    BodyTooLarge,
    Cancel,
    FlowFailed,
    JobCancelled,
    Retry,
    Snooze,
    current_job,
    fan_out,
    sleep,
    step,
)
from tarry.client.flows import map_part
from tarry.keeper.death_hooks import DeathHooks
from tarry.model import lifecycle
from tarry.model.outcome import Lost
from tarry.model.overrides import retry_of, timeout_of
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Want
from tarry.testing import Jobs
from tests.worker.bench import LIMIT, Bench

seen: list[int] = []
fails: set[int] = set()


@pytest.fixture
def app() -> Iterator[App]:
    seen.clear()
    fails.clear()
    app = App(MemoryStore(), closures=True, retry=None)
    for fn in (square, asquare, total):
        app.task(name=fn.__name__)(fn)
    yield app
    app.close()


def square(x: int) -> int:
    seen.append(x)
    if x in fails:
        fails.discard(x)
        raise ValueError(f"not {x}")
    return x * x


async def asquare(x: int) -> int:
    await asyncio.sleep(0)
    return square(x)


def total(numbers: list[int]) -> int:
    return sum(numbers)


def task(app: App, name: str) -> Any:
    return app.tasks[name]


def squares(count: int) -> list[int]:
    return [x * x for x in range(count)]


@pytest.mark.parametrize("name", ["square", "asquare"])
@pytest.mark.parametrize(("count", "shards"), [(0, 5), (1, 5), (3, 5), (7, 2), (250, 2), (1000, 1)])
def test_the_result_is_one_list_in_order(app: App, name: str, count: int, shards: int) -> None:
    flow = app.map(task(app, name), range(count), shards=shards)
    app.drain()
    assert flow.result(timeout=0) == list(flow.results()) == squares(count)
    assert len(list(flow.nodes())) == min(shards, count)
    assert sorted(seen) == list(range(count))


def test_the_items_are_shared_out_evenly_and_a_part_has_a_thousand_at_most(app: App) -> None:
    sizes = [len(node.result(timeout=0)) for node in drained(app, app.map(task(app, "square"), range(10), shards=4))]
    assert sizes == [2, 3, 2, 3]
    flow = app.map(task(app, "square"), range(2001), shards=2)
    assert [map_part.count_items(node.record().body) for node in flow.nodes()] == [667, 667, 667]


def drained(app: App, flow: Any) -> list[Any]:
    app.drain()
    return list(flow.nodes())


@pytest.mark.parametrize("name", ["square", "asquare"])
def test_an_attempt_after_an_error_repeats_a_hundred_items_at_most(app: App, name: str) -> None:
    fails.add(270)
    flow = app.map(task(app, name).using(retry=Retry(1, base=0)), range(400), shards=1)
    app.drain()
    assert flow.result(timeout=0) == squares(400)
    assert seen == [*range(271), *range(200, 400)]


def test_an_attempt_after_a_crash_at_the_end_repeats_the_last_items(jobs: Jobs) -> None:
    seen.clear()
    jobs.app.task(name="square")(square)
    flow = jobs.app.map(task(jobs.app, "square"), range(250), shards=1)
    jobs.kill_worker_during("tarry.map:square", at="end")
    assert jobs.run(flow) == squares(250)
    assert seen == [*range(250), *range(200, 250)]


def test_results_have_the_type_of_the_task_and_items_that_of_its_argument(app: App) -> None:
    def later(day: date, by: int = 1) -> date:
        return day.replace(day=day.day + by)

    days = [date(2026, 11, day) for day in range(1, 4)]
    flow = app.map(app.task(later), days, shards=2)
    app.drain()
    assert flow.result(timeout=0) == [date(2026, 11, day) for day in range(2, 5)]


def test_a_map_within_a_flow_is_one_list_for_others(app: App) -> None:
    with app.flow("sum") as f:
        numbers = f.map(task(app, "square"), range(5), shards=2)
        f.add(task(app, "total").call(numbers.result))
    app.drain()
    assert f.handle.result(timeout=0) == 30
    assert [node.state for node in f.handle.nodes()] == ["done"] * 3


def test_parts_are_read_from_the_store_too(app: App) -> None:
    with app.flow("sum") as f:
        numbers = f.map(task(app, "square"), range(5), shards=2)
        f.add(task(app, "total").using(queue="other").call(numbers.result))
    app.drain(queues=["default"])
    app.drain(queues=["other"])  # another worker, which has settled none of the parts
    assert f.handle.result(timeout=0) == 30


def test_a_part_that_failed_is_none_for_each_of_its_items_where_the_flow_goes_on(app: App) -> None:
    def count(numbers: list[int | None]) -> int:
        return len(numbers)

    fails.add(0)
    with app.flow("sum", on_failure="go_on") as f:
        numbers = f.map(task(app, "square"), range(5), shards=2)
        f.add(app.task(count).call(numbers.result))
    app.drain()
    assert f.handle.result(timeout=0) == 5
    fails.add(0)
    flow = app.using(on_failure="go_on").map(task(app, "square"), range(5), shards=2)
    app.drain()
    assert flow.result(timeout=0) == list(flow.results()) == [None, None, 4, 9, 16]


def test_an_error_names_the_item(app: App) -> None:
    fails.add(7)
    flow = app.map(task(app, "square"), range(9), shards=2)
    app.drain()
    with pytest.raises(FlowFailed, match=r"node 2 \(tarry.map:square\) is dead: ValueError: not 7") as raised:
        flow.result(timeout=0)
    assert "item 7 of the map" in raised.value.__notes__[0]
    assert flow.retry()
    app.drain()
    assert flow.result(timeout=0) == squares(9)


def test_a_verdict_of_an_item_is_that_of_its_part(app: App) -> None:
    def choose(x: int) -> object:
        if x == 3:
            return Cancel("no three")
        return x

    flow = app.map(app.task(choose), range(5), shards=1)
    app.drain()
    with pytest.raises(FlowFailed, match="is cancelled: Cancelled: no three"):
        flow.result(timeout=0)
    snoozes = [True]

    def wait(x: int) -> object:
        return Snooze(0) if x == 150 and snoozes.pop(0) else x

    snoozes.append(False)
    flow = app.map(app.task(wait), range(200), shards=1)
    app.drain()
    assert flow.result(timeout=0) == list(range(200))


@pytest.mark.parametrize("name", ["square", "asquare"])
def test_a_part_of_a_worker_that_stops_goes_on_elsewhere(app: App, name: str) -> None:
    stops = [150]

    def stopping(x: int) -> int:
        if x in stops:
            stops.clear()
            current_job()._running.stopping = True
        return square(x)

    async def astopping(x: int) -> int:
        return stopping(x)

    flow = app.map(app.task(stopping if name == "square" else astopping), range(400), shards=1)
    app.drain()
    assert flow.result(timeout=0) == squares(400)
    assert seen == list(range(400))  # what was done is not repeated
    (part,) = flow.nodes()
    assert (part.record().failures, part.record().epoch) == (0, 2)


def test_results_end_a_step_by_their_size_and_what_is_too_much_is_told(app: App) -> None:
    def text(size: int) -> str:
        seen.append(size)
        return "x" * size

    texts = app.task(text)
    flow = app.map(texts, [2000] * 120, shards=1)  # 240 KB, and 200 KB in steps of 32 KB
    app.drain()
    assert [len(each) for each in flow.results()] == [2000] * 120
    flow = app.map(texts, [2000] * 240, shards=1)
    app.drain()
    message = r"map of .*text: the results of a part of 240 items are too large for one job: make more parts with shard"
    with pytest.raises(FlowFailed, match=message):
        flow.result(timeout=0)
    flow = app.map(texts, [2000] * 240, shards=3)
    app.drain()
    assert [len(each) for each in flow.results()] == [2000] * 240


def test_ten_thousand_items_with_large_results(app: App) -> None:
    flow = app.map(app.task(name="text")(lambda x: "x" * x), [800] * 10_000)  # 313 items, 250 KB a part
    app.drain()
    assert sum(map(len, flow.results())) == 8_000_000


def test_what_cannot_be_kept_is_told(app: App) -> None:
    def odd(x: int) -> object:
        return object()

    def wide(x: int) -> list[int]:
        return fan_out([task(app, "square").call(x)])

    for fn, why in ((odd, "odd returned object for item 1, which cannot be"), (wide, "an item of a map cannot fan")):
        flow = app.map(app.task(fn), [1, 2])
        app.drain()
        with pytest.raises(FlowFailed, match=why.replace("item 1", "item 0")):
            flow.result(timeout=0)


def test_an_item_is_part_of_a_step(app: App) -> None:
    def deep(x: int) -> int:
        return step(square, x) + 1

    def sleeps(x: int) -> None:
        sleep("1h")

    flow = app.map(app.task(deep), range(150), shards=1)
    app.drain()
    assert flow.result(timeout=0) == [x * x + 1 for x in range(150)]
    flow_of_sleeps = app.map(app.task(sleeps), [1])
    app.drain()
    with pytest.raises(FlowFailed, match="a step cannot leave its slot"):
        flow_of_sleeps.result(timeout=0)


def test_options_of_the_task_are_those_of_its_parts(app: App) -> None:
    rule = Retry(5, base=60)
    slow = app.task(name="slow", queue="bulk", priority=7, timeout=2, retry=rule)(lambda x: x)
    flow = app.map(slow, range(20), shards=2)
    job = next(flow.nodes()).record()
    assert (job.task, job.queue, job.priority) == ("tarry.map:slow", "bulk", 7)
    assert timeout_of(job.headers, None) == 20  # that of ten items
    assert retry_of(job.headers, Retry(0)).attempts == 6
    other = app.using(queue="flow").map(slow.using(queue="other", timeout="1m", retry=None, delay=5), range(20))
    job = next(other.nodes()).record()
    assert (job.queue, job.state, timeout_of(job.headers, None)) == ("other", "scheduled", 60)
    assert retry_of(job.headers, rule).attempts == 1


def test_middleware_and_hooks_are_called_for_each_part(app: App) -> None:
    calls: list[Any] = []
    tenant: ContextVar[str] = ContextVar("tenant", default="none")

    def who(x: int) -> str:
        return tenant.get()

    asks = app.task(name="who")(who)
    app.carry(tenant)
    flow = app.map(asks, [1, 2, 3], shards=1)
    assert next(flow.nodes()).record().task == "tarry.map:who"

    @app.middleware("run")
    def around(job: Any, call_next: Any) -> Any:
        calls.append((job.task, list(job.args)))
        return call_next(job)

    asks.on_success(lambda job, value: calls.append(value))
    token = tenant.set("ann")
    other = app.map(asks, [4, 5], shards=1)
    tenant.reset(token)
    app.drain()
    assert (flow.result(timeout=0), other.result(timeout=0)) == (["none"] * 3, ["ann"] * 2)
    assert calls == [
        ("tarry.map:who", [[1, 2, 3], 0]),
        ["none"] * 3,
        ("tarry.map:who", [[4, 5], 0]),
        ["ann"] * 2,
    ]


def test_hooks_of_a_dead_worker_are_called_for_its_part(app: App) -> None:
    told: list[Any] = []
    app.tasks["square"].on_failure(lambda job, error: told.append((job.task, list(job.args))))
    app.map(task(app, "square"), [1, 2], shards=1)
    store, now = app.client.store, app.client.clock.now()
    (job,) = store.claim([Want("default", 0, 1)], 1, "owner", 1, now)
    hooks = DeathHooks(app.tasks, store)
    hooks.notify([(job, lifecycle.after(job, Lost(on=True), lifecycle.DEFAULT, now))])
    hooks.close()
    assert told == [("tarry.map:square", [[1, 2], 0])]


def test_what_cannot_hold_is_refused(app: App) -> None:
    square_task = task(app, "square")
    limited = app.task(name="limited", limit=3)(lambda x: x)
    by_key = app.task(name="by", limit_by=lambda x: x, limit=1)(lambda x: x)
    batched = app.task(batch=10, wait=0, name="batched")(lambda xs: None)
    for refused, why in ((limited, "has limits"), (by_key, "has limits"), (batched, "takes many jobs in one call")):
        with pytest.raises(ValueError, match=f"{why}.*app.group"):
            app.map(refused, [1])
    with pytest.raises(ArgumentError, match=r"item 1 of a map: square: argument x: Expected `?int`?, got `?str`?"):
        app.map(square_task, [1, "two"])
    with pytest.raises(ValueError, match="key= is not for a job of a flow"):
        app.map(square_task.using(key="7"), [1])
    wrong: Any
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match="at least 1"):
            app.map(square_task, [1], shards=wrong)
    with pytest.raises(TypeError, match="give a task"):
        app.map(square, [1])  # type: ignore[arg-type]
    with pytest.raises(BodyTooLarge, match="make more parts with shards="):
        app.map(app.task(name="text")(lambda text: None), ["x" * 600_000] * 2, shards=1)
    with app.flow("order") as f, pytest.raises(ArgumentError, match="items of a map cannot be results"):
        f.map(square_task, [f.add(square_task.call(1)).result])


def test_a_worker_without_the_task_leaves_the_part_to_others(app: App) -> None:
    flow = app.map(task(app, "square"), [1, 2], shards=1)
    del app.tasks["square"]
    app.drain()
    (part,) = flow.nodes()
    assert (part.state, part.record().failures) == ("scheduled", 0)


@pytest.mark.asyncio
async def test_awaited(app: App) -> None:
    flow = await app.amap(task(app, "asquare"), range(3))
    await app.adrain()
    assert await flow.aresult(timeout=0) == [0, 1, 4]


@pytest.mark.parametrize("name", ["square", "asquare"])
def test_in_a_worker_of_its_own(tmp_path: Path, name: str) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True, retry=Retry(1, base=0))
    bench = Bench(app, lambda: app.open_store(durable=False))
    seen.clear()
    fails.add(170)
    app.task(name=name)(square if name == "square" else asquare)
    flow = app.map(task(app, name), range(300), shards=1)
    bench.work()
    try:
        assert flow.result(LIMIT) == squares(300)
    finally:
        bench.close()
    assert seen == [*range(171), *range(100, 300)]


def test_a_cancelled_map(app: App) -> None:
    flow = app.map(task(app, "square"), range(5))
    assert flow.cancel("no longer wanted")
    app.drain()
    with pytest.raises(JobCancelled, match="no longer wanted"):
        flow.result(timeout=0)
    assert seen == []
