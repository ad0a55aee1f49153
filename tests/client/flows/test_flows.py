"""Flows that run: results as arguments, what follows when a node fails, cancel and retry, nodes added at run time."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tarry import (
    App,
    ArgumentError,
    Cancel,
    Flow,
    FlowFailed,
    JobCancelled,
    JobNotFound,
    ResultTimeout,
    Retry,
    current_job,
    fan_out,
)
from tarry.client.clock import FakeClock
from tarry.client.flows import flow_results
from tarry.keeper.death_hooks import DeathHooks
from tarry.model import lifecycle
from tarry.model.flow.wiring import UNDO_TASK
from tarry.model.flow_row import Phase
from tarry.model.outcome import Lost
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Want
from tarry.store.rules.flows import FlowQuery

clock = FakeClock(1_700_000_000_000_000)
seen: list[Any] = []
fails: set[int] = set()


@pytest.fixture
def app() -> Iterator[App]:
    seen.clear()
    fails.clear()
    app = App(MemoryStore(), closures=True, retry=None)
    for fn in (plus, aplus, total, words, late, split, asplit, nothing, name_it):
        app.task(name=fn.__name__)(fn)
    app.task(batch=10, wait=0, name="squares")(squares)
    yield app
    app.close()


def plus(x: int, more: int = 1) -> int:
    seen.append(x)
    if x in fails:
        raise ValueError(f"not {x}")
    return x + more


async def aplus(x: int) -> int:
    return x + 1


def total(numbers: list[int], scale: int = 1) -> int:
    return sum(numbers) * scale


def words(parts: list[int | None], end: str = "") -> str:
    return "-".join(map(str, parts)) + end


def late(x: int) -> int:
    raise Cancel("too late")


def split(n: int) -> list[int]:
    return fan_out(call("plus", i) for i in range(n))


async def asplit(numbers: list[int]) -> list[int]:
    return fan_out([call("plus", i, more=10) for i in numbers])


def nothing(x: int | None) -> None:
    seen.append(x)


def name_it(x: int) -> str:
    job = current_job()
    return f"{job.args} {job.kwargs}"


def squares(numbers: list[int]) -> list[int]:
    return [number**2 for number in numbers]


apps: list[App] = []


@pytest.fixture(autouse=True)
def _current(app: App) -> Iterator[None]:
    apps.append(app)
    yield
    apps.clear()


def call(task: str, *args: Any, **kwargs: Any) -> Any:
    return apps[0].tasks[task].call(*args, **kwargs)


def states(flow: Flow[Any]) -> list[str]:
    return [str(node.state) for node in flow.nodes()]


def test_each_link_gets_the_result_before(app: App) -> None:
    flow: Flow[Any] = app.chain(call("plus", 1), call("aplus"), call("plus", more=5))
    assert flow.state == "running"
    assert flow.progress == 0
    with pytest.raises(ResultTimeout):
        flow.result(timeout=0)
    app.drain()
    assert (flow.result(timeout=0), flow.state, flow.progress) == (8, "done", 1)
    assert list(flow.results()) == [8]


def test_group_and_chord(app: App) -> None:
    group = app.group(call("plus", n) for n in range(5))
    chord: Flow[Any] = app.chord((call("plus", n) for n in range(5)), call("total", scale=2))
    app.drain()
    assert group.result(timeout=0) == list(group.results()) == [1, 2, 3, 4, 5]
    assert chord.result(timeout=0) == 30


def test_any_graph(app: App) -> None:
    with app.flow("diamond") as f:
        top = f.add(call("plus", 0))
        left, right = f.add(call("plus", top.result)), f.add(call("aplus", top.result))
        end = f.add(call("words", [right.result, top.result, left.result], end="!"), after=[top])
        f.add(call("nothing", 3), after=[end])
        f.returns(end)
    app.drain()
    assert f.handle.result(timeout=0) == "2-1-2!"
    assert seen == [0, 1, 3]


def test_middleware_and_current_job_see_the_results(app: App) -> None:
    calls = []

    @app.middleware("run")
    def watch(job: Any, call_next: Any) -> Any:
        calls.append(list(job.args) or dict(job.kwargs))
        return call_next(job)

    flow: Flow[Any] = app.chain(call("plus", 1), call("name_it"))
    app.drain()
    assert flow.result(timeout=0) == "(2,) {}"
    assert calls == [[1], [2]]


def test_a_batch_task_as_a_node(app: App) -> None:
    with app.flow("batch") as f:
        nodes = [f.add(call("squares", f.add(call("plus", n)).result)) for n in range(3)]
        f.add(call("total", [node.result for node in nodes]))
    app.drain()
    assert f.handle.result(timeout=0) == 1 + 4 + 9


def test_results_are_read_from_the_store_too(app: App) -> None:
    """A worker that did not settle the parents has to read them: one result, a range, several ranges."""
    with app.flow("order") as f:
        one = f.add(app.tasks["plus"].using(queue="first").call(1))
        many = f.add_all([app.tasks["plus"].using(queue="first").call(n) for n in range(2500)])
        f.add(call("total", many.result))
        f.add(call("plus", one.result))
        f.add(call("words", [one.result, one.result]))
    app.drain(queues=["first"])
    app.drain()
    last = [node.result(timeout=0) for node in list(f.handle.nodes())[-3:]]
    assert last == [sum(range(1, 2501)), 3, "2-2"]


def test_a_failure_stops_the_flow(app: App) -> None:
    fails.add(2)
    flow: Flow[Any] = app.chain(call("plus", 1), call("plus"), call("plus"))
    app.drain()
    assert (flow.state, states(flow)) == ("dead", ["done", "dead", "blocked"])
    with pytest.raises(
        FlowFailed, match=r"^flow chain [0-9a-f-]{36}: node 2 \(plus\) is dead: ValueError: not 2"
    ) as error:
        flow.result(timeout=0)
    assert error.value.node == flow.failed_nodes()[0]
    assert "in plus" in error.value.__notes__[0]


def test_go_on_gives_none(app: App) -> None:
    fails.add(2)
    with app.flow("order") as f:
        group = f.add_all([call("plus", n) for n in range(4)], on_failure="go_on")
        one = f.add(call("late", 1), on_failure="go_on")
        f.add(call("nothing", one.result))
        f.returns(f.add(call("words", group.result)))
    app.drain()
    assert f.handle.result(timeout=0) == "1-2-None-4"
    assert None in seen


def test_retry_goes_on_from_the_failed_nodes(app: App) -> None:
    fails.update((2, 12))
    with app.using(key="7").flow("order") as f:
        one, two = f.add(call("plus", 1)), f.add(call("plus", 11))
        ends = [f.add(call("plus", node.result)) for node in (one, two)]
        f.add(call("words", [end.result for end in ends]))
    app.drain()
    assert f.handle.state == "dead"
    fails.clear()
    seen.clear()
    assert f.handle.retry()
    assert (f.handle.state, f.handle.key) == ("running", "7")
    assert f.handle.retry() is False
    app.drain()
    assert (f.handle.result(timeout=0), sorted(seen)) == ("3-13", [2, 12])
    assert f.handle.retry() is False


def test_no_retry_while_another_flow_has_the_key(app: App) -> None:
    fails.add(1)
    handles = []
    for _ in range(2):
        with app.flow("order", key="7") as f:
            f.add(call("plus", 1))
        handles.append(f.handle)
        app.drain()
    fails.clear()
    assert handles[1].retry()
    assert not handles[0].retry()
    app.drain()
    assert [handle.state for handle in handles] == ["dead", "done"]


def test_cancel_stops_what_waits_and_what_is_ready(app: App) -> None:
    with app.flow("order", key="7") as f:
        node = f.add(call("plus", 1))
        f.add(app.tasks["plus"].using(delay="1h").call(5), on_failure="go_on")
        f.add(call("plus", node.result))
    assert f.handle.cancel("no need")
    assert (f.handle.state, states(f.handle)) == ("cancelled", ["cancelled", "cancelled", "blocked"])
    assert not f.handle.cancel()
    assert app.drain() == 0
    with pytest.raises(JobCancelled, match=r"^flow order [0-9a-f-]{36} was cancelled: no need$"):
        f.handle.result(timeout=0)
    assert f.handle.retry()
    assert states(f.handle) == ["ready", "ready", "blocked"]
    app.drain()
    assert f.handle.state == "done"


def test_cancel_while_a_node_runs_ends_with_it(app: App) -> None:
    @app.task(name="canceller")
    def canceller() -> int:
        assert f.handle.cancel("from within")
        assert f.handle.state == "cancelled"
        return 1

    with app.flow("order") as f:
        f.add(canceller.call())
        f.add(call("plus", 1), after=[f.add(call("plus", 7))])
    app.drain()
    assert f.handle.state == "cancelled"


def test_a_node_adds_nodes(app: App) -> None:
    flow: Flow[Any] = app.chain(call("split", 3), call("asplit"), call("total"))
    app.drain()
    assert flow.result(timeout=0) == (1 + 2 + 3) + 30
    assert [node.record().task for node in flow.nodes()] == ["split", "asplit", "total"] + ["plus"] * 6
    assert flow.record().phase is Phase.ENDED
    assert (flow.record().active, flow.record().blocked) == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 2, 1500])
def test_what_waits_for_a_node_waits_for_those_that_it_adds(app: App, count: int) -> None:
    with app.flow("order") as f:
        node = f.add(call("split", count))
        f.add(call("nothing", 7), after=[node])
        f.add(call("total", node.result))
        f.returns(node)
    app.drain()
    assert f.handle.result(timeout=0) == list(f.handle.results()) == list(range(1, count + 1))
    first, _, third = list(f.handle.nodes())[:3]
    assert first.result(timeout=0) == list(range(1, count + 1))
    assert third.result(timeout=0) == sum(range(1, count + 1))


def test_a_failed_node_that_was_added_stops_the_flow_and_is_retried(app: App) -> None:
    fails.add(1)
    flow: Flow[Any] = app.chain(call("split", 3), call("total"))
    app.drain()
    assert (flow.state, states(flow)) == ("dead", ["done", "blocked", "done", "dead", "done"])
    fails.clear()
    assert flow.retry()
    app.drain()
    assert flow.result(timeout=0) == 6


def test_added_nodes_pass_the_middleware(app: App) -> None:
    @app.middleware("enqueue")
    def mark(job: Any, call_next: Any) -> Any:
        job.using(priority=7)
        return call_next(job)

    flow: Flow[Any] = app.chain(call("split", 2), call("asplit"))
    app.drain()
    assert flow.result(timeout=0) == [11, 12]
    assert {node.record().priority for node in flow.nodes()} == {7}


def test_only_a_job_of_a_flow_can_add_nodes(app: App) -> None:
    job = app.tasks["split"].enqueue(2)
    app.drain()
    assert job.state == "dead"
    assert b"this job is in no flow" in job.record().note
    with pytest.raises(TypeError, match="no call of a task"):
        fan_out([5])  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_end_the_node_that_adds(app: App) -> None:
    @app.task(name="wrong")
    def wrong() -> list[int]:
        return fan_out([call("plus", "x")])

    flow = app.chain(wrong.call())
    app.drain()
    with pytest.raises(FlowFailed, match="ArgumentError: plus: argument x"):
        flow.result(timeout=0)
    assert len(states(flow)) == 1


def test_a_result_that_was_deleted(app: App) -> None:
    with app.flow("order") as f:
        node = f.add(call("plus", 1))
        f.add(app.tasks["plus"].using(delay=30).call(node.result))
    app.drain()
    first = next(iter(f.handle.nodes()))
    assert app.client.forget(first.raw_id)
    (second,) = f.handle.nodes()
    assert second.retry()
    app.drain()
    with pytest.raises(FlowFailed, match="ArgumentError: plus: the result of node 1 is gone"):
        f.handle.result(timeout=0)


def test_results_that_are_too_large(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_results, "MAX_COLLECTED", 10)
    monkeypatch.setattr("tarry.worker.run.inputs.MAX_COLLECTED", 10)
    with app.flow("order") as f:
        group = f.add_all([call("plus", 100 + n) for n in range(4)])
        f.add(call("total", group.result), on_failure="go_on")
        f.returns(group)
    app.drain()
    assert b"are more than 0 MB, up to node 4" in list(f.handle.nodes())[4].record().note
    with pytest.raises(ValueError, match="iterate over results"):
        f.handle.result(timeout=0)
    assert list(f.handle.results()) == [101, 102, 103, 104]


def test_a_parent_that_runs_again_just_now(app: App) -> None:
    with app.flow("order") as f:
        node = f.add(call("plus", 1))
        f.add(app.tasks["plus"].using(queue="other").call(node.result))
    app.drain(queues=["default"])
    first, second = f.handle.nodes()
    assert first.retry()
    app.drain(queues=["other"])
    # It waits a second, and no attempt is counted.
    assert (second.state, second.record().failures) == ("scheduled", 0)
    app.drain(queues=["default"])
    assert second.retry()
    app.drain()
    assert f.handle.result(timeout=0) == 3


undone: list[Any] = []


def refund(paid: int, why: str = "") -> None:
    undone.append(("refund", paid, why))
    if paid in fails:
        raise ValueError("no refund")


def unpack(order: int) -> None:
    undone.append(("unpack", order))


def order(app: App, number: int) -> Flow[Any]:
    undone.clear()
    for fn in (refund, unpack):
        if fn.__name__ not in app.tasks:
            app.task(name=fn.__name__)(fn)
    with app.flow("order", on_failure="compensate") as f:
        paid = f.add(call("plus", 70), undo=call("refund", why="order"))
        packed = f.add(call("plus", 5, 0), undo=call("unpack", 7))
        failed = f.add(call("plus", number), after=[paid, packed])
        f.add(call("plus", paid.result), after=[failed], undo=call("unpack", 9))
    return f.handle


def test_what_was_done_is_undone_the_last_first(app: App) -> None:
    fails.add(8)
    flow = order(app, 8)
    app.drain()
    assert undone == [("unpack", 7), ("refund", 71, "order")]
    assert (flow.state, flow.record().phase) == ("dead", Phase.ENDED)
    with pytest.raises(FlowFailed, match=r"node 3 \(plus\) is dead: ValueError: not 8"):
        flow.result(timeout=0)
    assert not flow.retry()


def test_a_flow_that_ends_well_undoes_nothing(app: App) -> None:
    flow = order(app, 1)
    app.drain()
    assert (flow.state, flow.progress, undone) == ("done", 1, [])


def test_the_node_that_undoes_is_put_with_its_flow(app: App) -> None:
    """Else the history would count it in 1970."""
    before = app.client.clock.now()
    flow = order(app, 1)
    (row,) = app.client.store.flows.find(FlowQuery())
    nodes = app.client.store.flows.nodes(row.id, 0, 10)
    assert [node.task for node in nodes][-1] == UNDO_TASK
    assert all(node.state_since >= before for node in nodes)
    assert flow.cancel()


def test_undoing_goes_on_if_one_cannot_be_undone(app: App) -> None:
    fails.update((8, 71))
    with app.flow("order") as f:
        app.task(name="refund")(refund)
        app.task(name="unpack")(unpack)
        undone.clear()
        first = f.add(call("plus", 1), undo=call("unpack", 1))
        second = f.add(call("plus", 70), after=[first], undo=call("refund"))
        f.add(call("plus", 8), after=[second], on_failure="compensate")
    app.drain()
    assert undone == [("refund", 71, ""), ("unpack", 1)]
    assert f.handle.state == "dead"


def test_nothing_to_undo(app: App) -> None:
    fails.add(70)
    app.task(name="refund")(refund)
    with app.flow("order", on_failure="compensate") as f:
        f.add(call("plus", 70), undo=call("refund"))
    app.drain()
    with app.flow("plain", on_failure="compensate") as g:
        g.add(call("plus", 70))
    app.drain()
    assert (f.handle.state, g.handle.state) == ("dead", "dead")


def test_what_cannot_undo(app: App) -> None:
    limited = app.task(name="limited", limit=1)(refund)
    with app.flow("order") as f:
        with pytest.raises(ValueError, match="limited"):
            f.add(call("plus", 1), undo=limited.call(1))
        with pytest.raises(TypeError, match="no call of a task"):
            f.add(call("plus", 1), undo=5)  # type: ignore[call-overload]
        with pytest.raises(ArgumentError, match="argument why"):
            f.add(call("plus", 1), undo=app.task(name="refund")(refund).call(why=5))  # type: ignore[call-overload]


def test_hooks_of_a_dead_worker_see_the_results(app: App) -> None:
    """The keeper calls them, and has no worker's results at hand."""
    told = []

    @app.task(name="dies")
    def dies(x: int) -> int:
        return x

    @dies.on_failure
    def on_failure(job: Any, error: BaseException) -> None:
        told.append(list(job.args))

    flow: Flow[Any] = app.chain(call("plus", 1), app.tasks["dies"].using(queue="last").call())
    app.drain(queues=["default"])
    _, node = flow.nodes()
    store, now = app.client.store, app.client.clock.now()
    (job,) = store.claim([Want("last", 0, 1)], 1, "owner", 1, now)
    hooks = DeathHooks(app.tasks, store)
    hooks.notify([(job, lifecycle.after(job, Lost(on=True), lifecycle.DEFAULT, now))])
    hooks.close()
    assert (told, node.state) == ([[2]], "running")


def test_flows_are_found(app: App) -> None:
    fails.add(9)
    done: Flow[Any] = app.chain(call("plus", 1))
    dead: Flow[Any] = app.chain(call("plus", 9))
    app.drain()
    running: Flow[Any] = app.group([call("plus", 1)])
    assert app.flows.get(done.id) == done
    # Those of one millisecond are in no order.
    assert set(app.flows.list()) == {running, dead, done}
    assert set(app.flows.list(name="chain")) == {dead, done}
    assert len(app.flows.list(name="chain", limit=1)) == 1
    for flow, state in ((running, "running"), (dead, "dead"), (done, "done")):
        assert app.flows.list(state=state) == [flow]
    with pytest.raises(ValueError, match="not of a flow"):
        app.flows.get(app.tasks["plus"].enqueue(1).id)
    gone = app.flows.get("01900000-0000-8000-8000-000000000000")
    with pytest.raises(JobNotFound):
        gone.result(timeout=0)


def test_awaited(app: App) -> None:
    async def run() -> None:
        flow: Flow[Any] = await app.achord([call("plus", 1)], call("total"))
        assert await flow.astate() == "running"
        await app.adrain()
        assert (await flow.aresult(timeout=5), await flow.aprogress()) == (2, 1)
        assert not await flow.aretry()
        assert not await flow.acancel()
        assert (await (await app.agroup([call("plus", 1)])).arecord()).active == 1

    asyncio.run(run())


def test_a_node_is_tried_again_like_any_job(app: App) -> None:
    tries = []

    @app.task(name="flaky", retry=Retry(3, base=0, jitter=0))
    def flaky(x: int) -> int:
        tries.append(x)
        if len(tries) < 3:
            raise ValueError
        return x

    flow: Flow[Any] = app.chain(call("plus", 1), flaky.call())
    app.drain()
    assert (flow.result(timeout=0), tries) == (2, [2, 2, 2])
