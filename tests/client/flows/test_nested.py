"""Chains in groups, groups in chains, and flows within a flow: all become nodes of one flow."""

from collections.abc import Iterator
from typing import Any

import pytest

from tarry import App, ArgumentError, FlowFailed, Node
from tarry.model.flow.wiring import GO_ON, STOP, Gate
from tarry.model.flow_rules import wiring_of
from tarry.model.job import State
from tarry.store.memory.store import MemoryStore

seen: list[str] = []
fails: set[int] = set()


@pytest.fixture
def app() -> Iterator[App]:
    seen.clear()
    fails.clear()
    app = App(MemoryStore(), closures=True, retry=None)
    for fn in (plus, total, say):
        app.task(name=fn.__name__)(fn)
    yield app
    app.close()


def plus(x: int, more: int = 1) -> int:
    if x in fails:
        raise ValueError(f"not {x}")
    return x + more


def total(numbers: list[int | None]) -> int:
    return sum(number or 0 for number in numbers)


def say(text: str) -> str:
    seen.append(text)
    if text in map(str, fails):
        raise ValueError(text)
    return text


def call(app: App, task: str, *args: Any, **kwargs: Any) -> Any:
    return app.tasks[task].call(*args, **kwargs)


def labels(flow: Any) -> list[str]:
    return [wiring_of(node.record()).label or node.record().task for node in flow.nodes()]


def test_chains_in_a_group_and_a_group_in_a_chain(app: App) -> None:
    with app.flow("order") as f:
        ends: Node[list[Any]] = f.add_all(f.chain(call(app, "plus", n), call(app, "plus", more=10)) for n in range(3))
        f.chain(ends, call(app, "total"), call(app, "plus", more=100))
    app.drain()
    assert f.handle.result(timeout=0) == 11 + 12 + 13 + 100
    assert len(list(f.handle.nodes())) == 8


def test_a_group_of_chains_is_the_result_of_a_flow_and_of_a_chord(app: App) -> None:
    with app.flow("order") as f:
        f.add_all(f.chain(call(app, "plus", n), call(app, "plus", more=10)) for n in range(3))
    with app.flow("order") as g:
        g.chord([g.chain(call(app, "plus", 1), call(app, "plus")), call(app, "plus", 5)], call(app, "total"))
    app.drain()
    assert f.handle.result(timeout=0) == list(f.handle.results()) == [11, 12, 13]
    assert g.handle.result(timeout=0) == 3 + 6


def test_what_a_chain_waits_for_holds_its_first_link(app: App) -> None:
    with app.flow("order") as f:
        first = f.add(call(app, "say", "first"))
        group = f.add_all([call(app, "plus", 1), call(app, "plus", 2)])
        f.chain(call(app, "say", "second"), call(app, "say"), after=[first])
        f.chain(group, call(app, "total"), call(app, "plus"), after=[first])
    third, fourth = list(f.handle.nodes())[3:5]
    assert wiring_of(next(f.handle.nodes()).record()).tells == (Gate(4, 1, 1), Gate(6, 1, 3))
    assert (third.record().state, fourth.record().state) == (State.BLOCKED, State.BLOCKED)
    app.drain()
    assert seen == ["first", "second", "second"]
    assert f.handle.result(timeout=0) == 6


def test_a_group_of_groups_is_refused(app: App) -> None:
    with app.flow("order") as f:
        group = f.add_all([call(app, "plus", 1)])
        with pytest.raises(ValueError, match="<Node 1> in a group: its result is a list of many; add a job"):
            f.add_all([group])
        only: Any = group
        with pytest.raises(TypeError, match="needs a call"):
            f.chain(only)
    with app.flow("other") as g, pytest.raises(ValueError, match="of another flow"):
        g.add_all([group])


def pack_within(app: App, f: Any, after: list[Node[Any]], **options: Any) -> Any:
    with f.flow("pack", after=after, **options) as g:
        cup = g.add(call(app, "say", "cup"))
        g.add(call(app, "say", "plate"), name="the plate")
        with g.flow("box") as box:
            box.add(call(app, "say", cup.result))
        g.add(call(app, "say", "late"))
        g.returns(box.node)
    return g.node


def test_a_flow_within_a_flow_waits_ends_and_has_a_result_as_a_whole(app: App) -> None:
    with app.flow("order") as f:
        paid = f.add(call(app, "say", "paid"))
        packed = pack_within(app, f, [paid])
        f.add(call(app, "say", packed.result))
        f.add(call(app, "say", "sent"), after=[packed])
    *_, taker, sender = [node.record() for node in f.handle.nodes()]
    assert labels(f.handle) == ["say", "pack/say", "pack/the plate", "pack/box/say", "pack/say", "say", "say"]
    nodes = [node.record() for node in f.handle.nodes()]
    # Its first nodes wait for what it waits for; those within it do not once more.
    assert wiring_of(nodes[0]).tells == (Gate(2, 2, 1), Gate(5, 1, 1))
    # Both wait for all of it: for the nodes for which no other one of it waits.
    assert [gate for node in nodes[2:5] for gate in wiring_of(node).tells] == [Gate(6, 2, 3)] * 3
    assert (taker.state, sender.state) == (State.BLOCKED, State.BLOCKED)
    app.drain()
    assert f.handle.result(timeout=0) == "sent"
    assert seen[0] == "paid"
    assert seen[-2:] == ["cup", "sent"]
    assert sorted(seen[1:-2]) == ["cup", "cup", "late", "plate"]


def test_the_result_of_a_flow_is_that_of_the_one_within_that_came_last(app: App) -> None:
    with app.flow("order") as f:
        pack_within(app, f, [])
    app.drain()
    assert f.handle.result(timeout=0) == "cup"


def test_a_node_that_fails_within_acts_by_its_own_policy(app: App) -> None:
    fails.add(7)
    with app.flow("order") as f:
        with f.flow("loose", on_failure="go_on") as g:
            g.add(call(app, "plus", 7))
            g.add(call(app, "plus", 1), on_failure="stop")
        f.add(call(app, "say", "on"), after=[g.node])
    policies = [wiring_of(node.record()).on_failure for node in f.handle.nodes()]
    assert policies == [GO_ON, STOP, STOP]
    app.drain()
    assert f.handle.result(timeout=0) == "on"
    with app.flow("order") as h:
        with h.flow("strict") as s:
            s.add(call(app, "plus", 7))
        h.add(call(app, "say", "off"), after=[s.node])
    app.drain()
    with pytest.raises(FlowFailed, match=r"node 1 \(plus\) is dead: ValueError: not 7"):
        h.handle.result(timeout=0)
    assert "off" not in seen


def test_a_flow_within_in_the_middle_of_a_chain_and_a_group(app: App) -> None:
    with app.flow("order") as f:
        with f.flow("sum") as g:
            g.chain(g.map(app.tasks["plus"], range(4), shards=2), call(app, "total"))
        f.chord([g.node, call(app, "plus", 1)], call(app, "total"))
    app.drain()
    assert f.handle.result(timeout=0) == 10 + 2
    assert labels(f.handle)[:2] == ["sum/tarry.map:plus"] * 2


def test_an_empty_flow_within_waits_for_what_it_waits_for(app: App) -> None:
    with app.flow("order") as f:
        first = f.add(call(app, "say", "first"))
        with f.flow("none", after=[first]) as g:
            pass
        f.add(call(app, "total", g.node.result))
    app.drain()
    assert f.handle.result(timeout=0) == 0
    assert wiring_of(next(f.handle.nodes()).record()).tells == (Gate(2, 1, 1),)


def test_nothing_is_stored_if_a_flow_within_fails(app: App) -> None:
    f = app.flow("order")
    f.__enter__()
    with pytest.raises(ZeroDivisionError), f.flow("pack") as g:
        g.add(call(app, "plus", 1 // 0))
    with pytest.raises(RuntimeError, match="order: a flow within it did not end well, so nothing is stored"):
        f.__exit__(None, None, None)
    assert app.flows.list() == []


def test_a_flow_within_is_used_after_its_block(app: App) -> None:
    with app.flow("order") as f:
        g = f.flow("pack")
        with pytest.raises(RuntimeError, match="once its block has ended"):
            g.node  # noqa: B018
        with pytest.raises(RuntimeError, match="in the block"):
            g.add(call(app, "plus", 1))
        with g:
            g.add(call(app, "plus", 1))
            with pytest.raises(RuntimeError, match="once its block has ended"):
                g.node  # noqa: B018
        with pytest.raises(RuntimeError, match="run once"), g:
            pass
        for wrong in ("", "x" * 201):
            with pytest.raises(ValueError, match="1 to 200 characters"):
                f.flow(wrong)
        with pytest.raises(ValueError, match="on_failure"):
            f.flow("pack", on_failure="never")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="in the block"):
        f.flow("late")
    with app.flow("other") as h, pytest.raises(ArgumentError, match="of another flow"):
        h.add(call(app, "plus", g.node.result))


@pytest.mark.asyncio
async def test_in_an_async_block(app: App) -> None:
    async with app.flow("order") as f:
        with f.flow("pack") as g:
            g.add(call(app, "plus", 1))
        f.chain(g.node, call(app, "plus"))
    await app.adrain()
    assert await f.handle.aresult(timeout=0) == 3
