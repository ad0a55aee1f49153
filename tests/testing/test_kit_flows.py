"""Flows in the fixture `jobs`."""

import asyncio
from typing import Any

import pytest

from tarry import App, Flow, FlowFailed, fan_out
from tarry.testing import Jobs

app = App("sqlite:////nowhere/at/all.db", retry=None)


@app.task(name="shop.charge")
def charge(order: int) -> int:
    if order < 0:
        raise ValueError("no such order")
    return order * 10


@app.task(name="shop.ship", queue="slow")
def ship(order: int, paid: int) -> str:
    return f"{order} for {paid}"


@app.task(name="shop.split")
def split(n: int) -> list[int]:
    return fan_out(charge.call(i) for i in range(n))


@app.task(name="shop.total")
async def total(paid: list[int]) -> int:
    return sum(paid)


def order(number: int, delay: int = 0) -> Flow[Any]:
    with app.flow("order", key=str(number)) as f:
        paid = f.add(charge.call(number))
        f.add(ship.using(delay=delay).call(number, paid.result))
    return f.handle


def test_a_flow_runs_and_gives_its_result(jobs: Jobs) -> None:
    assert jobs.run(order(7)) == "7 for 70"
    assert jobs.run(app.chord([charge.call(1), charge.call(2)], total.call())) == 30
    assert jobs.run(app.chain(split.call(3), total.call())) == 30
    with app.flow("other") as f:
        f.add(charge.call(3))
    assert jobs.run(f) == 30


def test_nodes_are_seen_as_enqueued(jobs: Jobs) -> None:
    order(7, delay=60)
    jobs.assert_enqueued(charge, 7)
    jobs.assert_enqueued(ship, delay=60, queue="slow", count=1)
    assert [repr(job) for job in jobs.enqueued(ship)] == [
        "shop.ship(7, None) with delay='1m', queue='slow'",
    ]
    assert jobs.run(app.chain(split.call(2))) == [0, 10]
    jobs.assert_enqueued(charge, 1)


def test_a_flow_that_has_not_ended_is_shown(jobs: Jobs) -> None:
    flow = order(7, delay=60)
    with pytest.raises(AssertionError, match="flow order has not ended, and nothing is due") as error:
        jobs.run(flow)
    assert error.value.args[0].splitlines()[1:] == ["  2 shop.ship: scheduled", "  1 shop.charge: done"]
    jobs.advance(60)
    assert jobs.run(flow) == "7 for 70"


def test_a_flow_that_fails(jobs: Jobs) -> None:
    with pytest.raises(FlowFailed, match="no such order"):
        jobs.run(order(-1))
    with pytest.raises(ValueError, match="no such order"):
        jobs.run(order(-2), raising=True)
    assert [flow.state for flow in jobs.flows("order")] == ["dead", "dead"]


def test_a_worker_dies_in_a_node(jobs: Jobs) -> None:
    flow = app.chain(split.call(3), total.call())
    jobs.kill_worker_during(split)
    jobs.kill_worker_during(total, at="start")
    assert jobs.run(flow) == 30


def test_flows_run_inline(jobs: Jobs) -> None:
    with jobs.inline():
        assert order(7).result(timeout=0) == "7 for 70"

    async def run() -> None:
        flow = await app.achain(charge.call(1), charge.call())
        assert await flow.aresult(timeout=0) == 100

    with jobs.inline():
        asyncio.run(run())


def test_flows_are_listed_in_order(jobs: Jobs) -> None:
    first, second = order(1), order(2)
    assert jobs.flows() == [first, second]
    assert jobs.flows("other") == []


def test_within_a_transaction(jobs: Jobs) -> None:
    with app.flow("order", connection=object()) as f:
        f.add(charge.call(7))
    assert jobs.run(f) == 70


@app.task(name="shop.clear")
def clear(what: str) -> int:
    return len(what)


@app.task(name="shop.publish")
def publish(what: str) -> str:
    return clear.broadcast(what).id


def test_a_broadcast_finds_one_host_with_one_worker(jobs: Jobs) -> None:
    assert jobs.run(clear.broadcast("cache")) == {"test": 5}
    later = clear.using(per="worker", delay=5).broadcast("all")
    jobs.advance(5)
    assert jobs.run(later) == {"test": 3}
    jobs.assert_enqueued(clear, "all", count=1)
    other = publish.enqueue("page")
    assert jobs.drain() == 2, "the job, and that of its broadcast"
    assert app.flows.get(other.result(timeout=0)).result(timeout=0) == {"test": 4}
