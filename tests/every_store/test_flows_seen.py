"""Flows and approvals as people see them, on each kind of store."""

from typing import Any

from tarry import App, approve
from tarry.client.flows.approvals import decide, find_approvals, read_approvals
from tarry.client.flows.flow_records import flow_detail
from tarry.client.flows.searching import FlowSearch, search_flows
from tarry.model.job import State
from tarry.tasks.durable.durable_waits import Approval


def test_a_flow_is_found_and_shown(app: App) -> None:
    @app.task(name="charge", queue="bank")
    def charge(order: int) -> int:
        return order

    @app.task(name="total", queue="bank")
    def total(orders: list[int]) -> int:
        return sum(orders)

    first = app.chord((charge.call(order) for order in range(30)), total.call())
    second = app.using(key="7").chain(charge.call(1))
    app.drain()
    third = app.chain(charge.call(1))
    store, key = app.client.store, FlowSearch(key="7")
    everything = search_flows(store, FlowSearch(limit=2))
    rest = search_flows(store, FlowSearch(limit=2, before=everything.next or b""))
    assert {row.id.hex() for row in (*everything.rows, *rest.rows)} == {
        flow.id.replace("-", "") for flow in (first, second, third)
    }
    assert rest.next is None
    assert [row.id.hex() for row in search_flows(store, key).rows] == [second.id.replace("-", "")]
    assert len(search_flows(store, FlowSearch(State.RUNNING)).rows) == 1
    seen = flow_detail(app.client, first.record())
    assert [(box.first, box.count, box.after, box.states) for box in seen.boxes] == [
        (1, 30, [], {State.DONE: 30}), (31, 1, [1], {State.DONE: 1}),
    ]  # fmt: skip
    assert (seen.state, seen.ended, seen.result) == (State.DONE, 31, sum(range(30)))


def test_an_approval(app: App) -> None:
    @app.task(name="refund")
    def refund() -> Any:
        said = approve("refund of 7", key="7")
        return [said.ok, said.by]

    gone = refund.enqueue()
    app.drain()
    assert gone.cancel()
    job = refund.enqueue()
    app.drain()
    store = app.client.store
    assert [(one.question, one.address.key, one.job.id.hex()) for one in read_approvals(store).jobs] == [
        ("refund of 7", "7", job.id.replace("-", ""))
    ]
    assert read_approvals(store, "refund").jobs == []
    assert decide(store, app.client.clock, find_approvals(store, "7", None), Approval(True, "ann")) == 1
    assert read_approvals(store).jobs == []
    app.drain()
    assert job.result(0) == [True, "ann"]
