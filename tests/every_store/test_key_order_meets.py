"""The order of a key together with what else a job may have: weights, costs, unique keys, flows, a pause of the key."""

from tarry import App, State
from tarry.model import lifecycle
from tarry.model.outcome import Returned
from tests.cli.project import until
from tests.every_store.test_key_order import FailsAtFirst, Ordered


def test_nodes_of_a_flow_keep_their_order(app: App) -> None:
    ordered = Ordered(app)
    ordered.act = FailsAtFirst(1)
    flow = app.group(ordered.task.call("a", n) for n in range(4))
    other = ordered.put(10, key="b")
    until(lambda: app.drain() >= 0 and flow.state.finished)
    ordered.finish(other)
    assert ordered.of() == [0, 1, 1, 2, 3]


def test_a_flow_of_one_key_waits_for_nobody_but_its_own_nodes(app: App) -> None:
    ordered = Ordered(app)
    ordered.act = FailsAtFirst(0)
    with app.flow("line") as flow:
        first = flow.add(ordered.task.call("a", 0))
        flow.add(ordered.task.call("a", 1), after=[first])
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    assert ordered.of() == [0, 0, 1]


def test_a_call_that_is_replaced_keeps_its_place(app: App) -> None:
    ordered = Ordered(app)
    held = ordered.put(0)
    replaced = ordered.task.using(key="doc", on_duplicate="replace").enqueue("a", 1)
    last = ordered.put(3)
    again = ordered.task.using(key="doc", on_duplicate="replace").enqueue("a", 2)
    assert again.id == replaced.id
    ordered.finish([*held, again, *last])
    assert ordered.of() == [0, 2, 3]


def test_one_that_is_cancelled_for_a_newer_one_leaves_the_line(app: App) -> None:
    ordered = Ordered(app)
    old = ordered.task.using(key="doc").enqueue("a", 0)
    (running,) = ordered.claim()
    between = ordered.put(1)
    newer = ordered.task.using(key="doc", running="cancel").enqueue("a", 2)
    app.drain()
    # Its code still runs.
    assert (old.state, ordered.of()) == (State.CANCELLED, [])
    store = app.client.store
    now = store.time()
    assert store.apply([lifecycle.after(running, Returned(), lifecycle.DEFAULT, now)], now) == [False]
    ordered.finish([*between, newer])
    assert ordered.of() == [1, 2]


def test_keys_with_weights_and_costs_keep_their_order(app: App) -> None:
    ordered = Ordered(app, weight=2, cost=3, rate="1000/s")
    ordered.task.tenant("a").set(weight=20, rate="2000/s")
    ordered.act = FailsAtFirst(2, 12)
    jobs = ordered.put(0, 1, 2, 3) + ordered.put(10, 11, 12, 13, key="b")
    ordered.finish(jobs)
    assert (ordered.of("a"), ordered.of("b")) == ([0, 1, 2, 2, 3], [10, 11, 12, 12, 13])


def test_a_key_that_is_paused_goes_on_in_its_order(app: App) -> None:
    ordered = Ordered(app)
    tenant = ordered.task.tenant("a")
    jobs, others = ordered.put(0, 1), ordered.put(5, key="b")
    tenant.pause()
    ordered.finish(others)
    assert ordered.of() == []
    later = ordered.put(2)
    tenant.resume()
    ordered.finish([*jobs, *later])
    assert ordered.of() == [0, 1, 2]
