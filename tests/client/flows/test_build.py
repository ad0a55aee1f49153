"""How a flow is built: which jobs and gates it becomes, and what is refused."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tarry import App, ArgumentError, Flow, Node
from tarry.client.flows.build import join_refs, wire
from tarry.model.duration import DAY, SECOND
from tarry.model.flow.node_ids import index_of, node_id
from tarry.model.flow.wiring import GO_ON, Gate, NodeLinks, Ref, Take, unwrap
from tarry.model.job import HELD, Job, State
from tarry.store.memory.store import MemoryStore


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True)
    for fn in (number, text, both, total, later, rest):
        app.task(name=fn.__name__)(fn)
    yield app
    app.close()


def number(x: int) -> int:
    return x


def text(x: int, suffix: str = "") -> str:
    return f"{x}{suffix}"


def both(a: int, /, b: int, *, c: str = "") -> int:
    return a + b + len(c)


def total(numbers: list[int], scale: int = 1) -> int:
    return sum(numbers) * scale


def later(when: datetime, name: str) -> str:
    return name + when.isoformat()


def rest(*numbers: int, scale: int = 1) -> int:
    return sum(numbers) * scale


def call(app: App, name: str, *args: Any, **kwargs: Any) -> Any:
    return app.tasks[name].call(*args, **kwargs)


def jobs(app: App, flow: Any) -> list[Job]:
    return [node.record() for node in flow.handle.nodes()]


def wired(job: Job) -> tuple[NodeLinks, bytes]:
    wiring, arguments = unwrap(job.body)
    assert wiring is not None
    return wiring, arguments


def test_nothing_is_stored_before_the_block_ends(app: App) -> None:
    with app.flow("order") as f:
        f.add(call(app, "number", 1))
        assert app.client.store.counts() == []
        with pytest.raises(RuntimeError, match="has a handle once its block has ended"):
            f.handle  # noqa: B018
    assert f.handle.name == "order"
    assert [job.state for job in jobs(app, f)] == [State.READY]


def test_nothing_is_stored_if_the_block_fails(app: App) -> None:
    flow = app.flow("order")
    with contextlib.suppress(ZeroDivisionError), flow as f:
        f.add(call(app, "number", 1))
        raise ZeroDivisionError
    assert app.client.store.counts() == []
    with pytest.raises(RuntimeError):
        flow.handle  # noqa: B018


def test_nodes_are_added_in_the_block_only(app: App) -> None:
    flow = app.flow("order")
    with pytest.raises(RuntimeError, match="in the block"):
        flow.add(call(app, "number", 1))
    with flow:
        flow.add(call(app, "number", 1))
    with pytest.raises(RuntimeError, match="in the block"):
        flow.add(call(app, "number", 1))
    with pytest.raises(RuntimeError, match="run once"), flow:
        pass


def test_a_result_stands_as_null_and_makes_its_node_a_parent(app: App) -> None:
    with app.flow("order") as f:
        one = f.add(call(app, "number", 1))
        two = f.add(call(app, "number", 2))
        f.add(call(app, "both", one.result, two.result, c="x"))
    first, second, third = jobs(app, f)
    gate = Gate(3, 1, 2)
    assert wired(first) == (NodeLinks((gate,)), b"[1]")
    assert wired(second)[0].tells == (gate,)
    takes = (Take("a", Ref(1)), Take("b", Ref(2)))
    assert wired(third) == (NodeLinks(takes=takes), b'{"a":null,"b":null,"c":"x"}')
    assert [job.state for job in (first, second, third)] == [State.READY, State.READY, State.BLOCKED]
    assert [index_of(job.id) for job in (first, second, third)] == [1, 2, 3]


def test_a_result_by_position_keeps_its_position(app: App) -> None:
    with app.flow("order") as f:
        f.add(call(app, "rest", 5, f.add(call(app, "number", 1)).result, 7))
    assert wired(jobs(app, f)[1]) == (NodeLinks(takes=(Take(1, Ref(1)),)), b"[5,null,7]")


def test_a_list_of_results_is_as_few_ranges_as_can_be(app: App) -> None:
    with app.flow("order") as f:
        nodes = [f.add(call(app, "number", n)) for n in range(5)]
        f.add(call(app, "total", [nodes[at].result for at in (0, 1, 2, 4, 3)]))
    takes = (Take(0, Ref(1, 3)), Take(0, Ref(5, 1)), Take(0, Ref(4, 1)))
    assert wired(jobs(app, f)[5])[0].takes == takes


def test_a_group_is_one_gate_for_what_waits_for_it(app: App) -> None:
    with app.flow("order") as f:
        first = f.add(call(app, "number", 0))
        group = f.add_all((call(app, "number", n) for n in range(3)), after=[first])
        f.add(call(app, "total", group.result, scale=2))
        f.add(call(app, "number", 9), after=[group])
    found = jobs(app, f)
    assert wired(found[0])[0].tells == (Gate(2, 3, 1),)
    assert [wired(job)[0].tells for job in found[1:4]] == [(Gate(5, 2, 3),)] * 3
    assert wired(found[4])[0].takes == (Take("numbers", Ref(2, 3)),)


def test_an_empty_group_is_the_empty_list(app: App) -> None:
    with app.flow("order") as f:
        nothing: Node[list[int]] = f.add_all([])
        f.add(call(app, "total", nothing.result), after=[nothing])
    assert wired(jobs(app, f)[0]) == (NodeLinks(), b"[[]]")


def test_policy_label_and_what_the_flow_says(app: App) -> None:
    with app.using(on_failure="go_on", queue="slow").flow("order", key="7", deadline="2d") as f:
        f.add(call(app, "number", 1), name="first")
        f.add(app.tasks["number"].using(queue="fast", priority=5).call(2), on_failure="stop")
    one, two = jobs(app, f)
    assert wired(one)[0] == NodeLinks(on_failure=GO_ON, label="first")
    assert wired(two)[0] == NodeLinks()
    assert (one.queue, two.queue, two.priority) == ("slow", "fast", 5)
    row = f.handle.record()
    assert row.root is not None
    assert (row.root.key, row.root.key_held_until, row.root.queue) == ("7", HELD, "slow")
    assert abs(row.at - app.client.clock.now() - 2 * DAY) < 60 * SECOND
    assert (row.size, row.active, row.blocked) == (3, 2, 0)


def test_times_of_a_blocked_node_count_from_its_release(app: App) -> None:
    task = app.tasks["number"]
    when = datetime(2200, 1, 1, tzinfo=UTC)
    with app.flow("order") as f:
        first = f.add(task.using(delay=30).call(0))
        f.add(task.using(delay="5s", expires="1m").call(1), after=[first])
        f.add(task.using(at=when).call(2), after=[first])
        f.add(task.using(at=1.0).call(3), after=[first])
        f.add(task.call(4), after=[first])
    scheduled, *blocked = jobs(app, f)
    assert scheduled.state is State.SCHEDULED
    assert [job.due for job in blocked] == [5 * SECOND, round(when.timestamp()) * SECOND, 0, 0]
    assert [job.expires for job in blocked] == [60 * SECOND, 0, 0, 0]


def test_a_key_gives_the_flow_that_has_it(app: App) -> None:
    handles = []
    for _ in range(2):
        with app.flow("order", key="7") as f:
            f.add(call(app, "number", 1))
        handles.append(f.handle)
    assert handles[0] == handles[1]
    assert [handle.is_new for handle in handles] == [True, False]
    assert app.flows.list(name="order", key="7") == [handles[0]]
    assert app.flows.list(key="8") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "a"}, "number: key= is not for a job of a flow; the flow has key="),
        ({"idempotency": "a"}, "idempotency="),
        ({"connection": object()}, "connection="),
        ({"durable": "replica"}, "durable="),
    ],
)
def test_options_that_only_a_flow_has(app: App, options: dict[str, Any], message: str) -> None:
    with app.flow("order") as f, pytest.raises(ValueError, match=message):
        f.add(app.tasks["number"].using(**options).call(1))


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "message"),
    [
        ("text", ("RESULT",), {"sufix": "x"}, "unexpected keyword argument 'sufix'"),
        ("text", ("RESULT", 5), {}, "argument suffix: Expected str, got int"),
        ("text", ("RESULT",), {"suffix": 5}, "argument suffix: Expected str, got int"),
        ("both", ("RESULT",), {}, "missing a required"),
        ("both", ("RESULT", 1, 2), {}, "too many positional arguments"),
        ("later", ("RESULT", {1}), {}, "argument name: Expected str, got"),
        ("total", (["RESULT", 5],), {}, r"total\(numbers\): a list with results has nothing else in it"),
        ("total", ([["RESULT"]],), {}, r"total\(numbers\): cannot travel as JSON"),
        ("rest", (1, "RESULT"), {"scale": 2}, "a result here needs a call without names"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_added(
    app: App, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    def put(value: Any, result: Any) -> Any:
        if isinstance(value, list):
            return [put(each, result) for each in value]
        return result if value == "RESULT" else value

    with app.flow("order") as f:
        result = f.add(call(app, "number", 1)).result
        with pytest.raises(ArgumentError, match=message):
            f.add(call(app, name, *(put(arg, result) for arg in args), **kwargs))


def test_nodes_of_another_flow_are_refused(app: App) -> None:
    with app.flow("one") as one:
        node = one.add(call(app, "number", 1))
    with app.flow("two") as two:
        with pytest.raises(ArgumentError, match="node of another flow"):
            two.add(call(app, "number", node.result))
        with pytest.raises(ValueError, match="node of another flow"):
            two.add(call(app, "number", 1), after=[node])
        with pytest.raises(TypeError, match="a list of nodes"):
            two.add(call(app, "number", 1), after=["node"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="no call of a task"):
            two.add(5)  # type: ignore[call-overload]


@pytest.mark.parametrize("wrap", [lambda node: node, lambda node: [node], lambda node: (1, node)])
def test_a_node_is_not_its_result(app: App, wrap: Callable[[Any], Any]) -> None:
    with app.flow("order") as f:
        node = f.add(call(app, "number", 1))
        for name in ("number", "text"):
            with pytest.raises(ArgumentError, match=rf"{name}: <Node 1> is a node; .* `\.result` of it"):
                f.add(call(app, name, wrap(node)))


def test_a_result_is_no_value_yet(app: App) -> None:
    with app.flow("order") as f:
        result = f.add(call(app, "number", 1)).result
        for use in (str, bool, len, list, int, hash, lambda value: value.x, lambda value: value == 1, "{}".format):
            with pytest.raises(ArgumentError, match="is not known before that node has run"):
                use(result)
        assert repr(result) == "<result of node 1>"


def test_limit_by_cannot_use_a_result(app: App) -> None:
    limited = app.task(name="limited", limit=1, limit_by=lambda x: f"k{x}")(number)
    plain = app.task(name="plain", limit=1, limit_by=lambda x: x)(number)
    with app.flow("order") as f:
        node = f.add(limited.call(1))
        for task in (limited, plain):
            with pytest.raises(ArgumentError, match="limit_by="):
                f.add(task.call(node.result))
    assert jobs(app, f)[0].lane == "k1"


def test_ranges_of_parents_are_joined() -> None:
    assert join_refs([Ref(5), Ref(1, 3), Ref(4), Ref(9, -2), Ref(2), Ref(5)]) == ((1, 5), (9, 2))


def test_consecutive_nodes_with_the_same_parents_share_a_gate() -> None:
    wires = wire([(), (), ((1, 2),), ((1, 2),), ((3, 1),), ((1, 2),)])
    assert wires.gates == [Gate(3, 2, 2), Gate(5, 1, 1), Gate(6, 1, 2)]
    assert wires.tells == {1: [Gate(3, 2, 2), Gate(6, 1, 2)], 2: [Gate(3, 2, 2), Gate(6, 1, 2)], 3: [Gate(5, 1, 1)]}


def test_middleware_sees_each_node(app: App) -> None:
    seen: list[Any] = []

    @app.middleware("enqueue")
    def mark(job: Any, call_next: Any) -> Any:
        seen.append((job.task, list(job.args)))
        job.headers["by"] = "me"
        job.using(priority=3)
        handle = call_next(job)
        seen.append(handle.id)
        return handle

    with app.flow("order") as f:
        node = f.add(call(app, "number", 1))
        f.add(call(app, "number", node.result))
        assert seen == []
    assert [job.priority for job in jobs(app, f)] == [3, 3]
    assert jobs(app, f)[0].headers == b'{"by":"me"}'
    assert seen[1::2] == [str(handle.id) for handle in f.handle.nodes()]


def test_middleware_may_not_leave_out_a_node(app: App) -> None:
    other = app.tasks["number"].enqueue(5)

    @app.middleware("enqueue")
    def leave_out(job: Any, call_next: Any) -> Any:
        return other

    with pytest.raises(TypeError, match="left out a job of a flow"), app.flow("order") as f:
        f.add(call(app, "number", 1))


def test_async_block_and_middleware(app: App) -> None:
    @app.middleware("enqueue")
    async def mark(job: Any, call_next: Any) -> Any:
        job.headers["by"] = "me"
        return await call_next(job)

    async def run() -> None:
        async with app.flow("order") as f:
            f.add(call(app, "number", 1))
        assert jobs(app, f)[0].headers == b'{"by":"me"}'
        handle: Flow[Any] = await app.achain(call(app, "number", 1), call(app, "text", suffix="x"))
        assert await handle.astate() == "running"
        assert handle.name == "chain"

    asyncio.run(run())


def test_chain_group_chord(app: App) -> None:
    chain: Flow[Any] = app.chain(call(app, "number", 1), call(app, "number"), call(app, "text", suffix="x"))
    assert [wired(node.record())[1] for node in chain.nodes()] == [b"[1]", b"[null]", b'{"x":null,"suffix":"x"}']
    group = app.group(call(app, "number", n) for n in range(3))
    assert [node.state for node in group.nodes()] == [State.READY] * 3
    chord: Flow[Any] = app.chord((call(app, "number", n) for n in range(3)), call(app, "total", scale=2))
    assert wired(list(chord.nodes())[3].record()) == (
        NodeLinks(takes=(Take("numbers", Ref(1, 3)),)),
        b'{"numbers":null,"scale":2}',
    )
    with pytest.raises(TypeError, match="needs a call"):
        app.chain()  # type: ignore[call-overload]


def test_a_flow_of_nothing_has_ended(app: App) -> None:
    assert app.group([]).result(timeout=0) == []
    with app.flow("empty") as f:
        pass
    assert f.handle.result(timeout=0) is None
    assert f.handle.state == "done"
    assert f.handle.progress == 1


def test_a_large_flow_is_there_at_once(app: App) -> None:
    group = app.group(call(app, "number", n) for n in range(2500))
    found = [node.record() for node in group.nodes()]
    assert [index_of(job.id) for job in found] == list(range(1, 2501))
    # The first pieces were released by the client.
    assert sum(job.state is State.READY for job in found) >= 2000
    assert found[0].id == node_id(group.record().id, 1)


def test_names_and_options_are_checked(app: App) -> None:
    for name in ("", 5, "x" * 200, "a\0b"):
        with pytest.raises(ValueError, match="a flow's name"):
            app.flow(name)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_failure='never'"):
        app.flow("order", on_failure="never")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key="):
        app.using(key="")
    with app.flow("order") as f, pytest.raises(ValueError, match="name="):
        f.add(call(app, "number", 1), name="")


def test_a_flow_has_a_bound(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root counts, too; nothing is stored of one that is too large."""
    monkeypatch.setattr("tarry.client.flows.build.MAX_NODES", 4)
    app.group(call(app, "number", x) for x in range(3))
    with pytest.raises(ValueError, match="flow group: at most 3 nodes"):
        app.group(call(app, "number", x) for x in range(4))
    assert len(app.flows.list()) == 1
