"""The graph of a flow as people see it: its boxes and what comes after what, whole and in part."""

from collections.abc import Collection, Sequence

import pytest

from tarry import App, fan_out
from tarry.model.flow.node_ids import flow_id, node_id
from tarry.model.flow.wiring import GO_ON, Gate, NodeLinks, wrap
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import HELD, Job, State
from tarry.store.conformance.cases.flows import BAD, row_of, run, stored
from tarry.store.conformance.cases.jobs import NOW
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flow_folding, flow_graph
from tarry.store.rules.flow_folding import NodeGroup
from tarry.store.rules.flow_graph import Graph, read_graph
from tarry.store.rules.flows import NoFlows
from tarry.testing.kit import Jobs

CHAIN = [[], [1], [2]]
DIAMOND = [[], [1], [1], [2, 3]]


def chord(width: int) -> list[Sequence[int]]:
    return [*([] for _ in range(width)), range(1, width + 1)]


def read(store: MemoryStore, flow: bytes, most: int = flow_graph.LOOKED_AT) -> Graph:
    return read_graph(store.flows, row_of(store, flow), most)


def edges(seen: Graph) -> dict[int, tuple[int, ...]]:
    return {box.first: box.after for box in seen.boxes}


def states(box: NodeGroup) -> dict[str, int]:
    return {str(state): count for state, count in box.states.items()}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_chain(store: MemoryStore) -> None:
    flow = stored(store, CHAIN)
    run(store, flow, 1, now=NOW + 5)
    seen = read(store, flow)
    assert edges(seen) == {1: (), 2: (1,), 3: (2,)}
    assert [states(box) for box in seen.boxes] == [{"done": 1}, {"ready": 1}, {"blocked": 1}]
    first = seen.boxes[0]
    assert (first.label, first.task, first.queue, first.on_failure) == ("mail", "mail", "default", "stop")
    assert (first.ended, first.since) == (NOW + 5, 0)
    assert seen.boxes[1].since == NOW + 5
    assert (seen.is_whole, seen.looked_at, seen.left_out) == (True, 3, 0)


def test_alike_nodes_of_a_gate_are_one_box(store: MemoryStore) -> None:
    assert edges(read(store, stored(store, DIAMOND))) == {1: (), 2: (1,), 4: (2,)}
    assert [box.count for box in read(store, stored(store, DIAMOND)).boxes] == [1, 2, 1]


@pytest.mark.parametrize(
    "fields",
    [{"task": "sms"}, {"queue": "slow"}, {"body": wrap(NodeLinks(label="the other"), b"{}")}],
    ids=lambda fields: next(iter(fields)),
)
def test_nodes_that_differ_are_boxes_of_their_own(store: MemoryStore, fields: dict[str, object]) -> None:
    seen = read(store, stored(store, [[], [1], [1]], fields={3: fields}))
    assert edges(seen) == {1: (), 2: (1,), 3: (1,)}
    assert seen.boxes[2].label == {"task": "sms", "body": "the other"}.get(next(iter(fields)), "mail")


def test_alike_nodes_need_not_follow_each_other(store: MemoryStore) -> None:
    shape = [[], [1], [1], [1], [2, 3, 4]]
    seen = read(store, stored(store, shape, fields={3: {"task": "sms"}}))
    assert edges(seen) == {1: (), 2: (1,), 3: (1,), 5: (2, 3)}
    assert [(box.first, box.last, box.count) for box in seen.boxes] == [(1, 1, 1), (2, 4, 2), (3, 3, 1), (5, 5, 1)]


def test_nodes_that_wait_for_others_are_not_alike(store: MemoryStore) -> None:
    seen = read(store, stored(store, [[], [], [1], [2], [3, 4]]))
    assert edges(seen) == {1: (), 2: (), 3: (1,), 4: (2,), 5: (3, 4)}


def test_policies_and_failed_nodes(store: MemoryStore) -> None:
    flow = stored(store, [[], [], [1, 2]], policies={2: GO_ON})
    run(store, flow, 1, outcome=BAD, now=NOW + 7)
    seen = read(store, flow)
    assert [box.on_failure for box in seen.boxes] == ["stop", "go_on", "stop"]
    (failed,) = seen.boxes[0].failed
    assert (failed.index, failed.id, failed.state) == (1, node_id(flow, 1), State.DEAD)
    assert (failed.error, failed.since) == ("ValueError: no", NOW + 7)
    assert seen.boxes[0].failures == 1


def test_wide_flow_is_two_boxes(store: MemoryStore) -> None:
    flow = stored(store, chord(3000))
    run(store, flow, 1, 2, outcome=BAD)
    seen = read(store, flow)
    assert edges(seen) == {1: (), 3001: (1,)}
    assert seen.boxes[0].states[State.DEAD] == 2
    assert (seen.boxes[0].count, seen.boxes[0].looked_at, seen.is_whole) == (3000, 3000, True)


class TestInPart:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow_graph, "PAGE", 20)
        monkeypatch.setattr(flow_graph, "LONG", 60)

    @pytest.mark.parametrize("width", [1998, 1999, 2000, 2001, 2500])
    def test_it_skips_alike_nodes(self, store: MemoryStore, width: int) -> None:
        flow = stored(store, chord(width))
        seen = read(store, flow, most=400)
        assert edges(seen) == {1: (), width + 1: (1,)}
        wide = seen.boxes[0]
        assert (wide.first, wide.last, wide.count) == (1, width, width)
        assert 60 <= wide.looked_at <= 200
        assert sum(wide.states.values()) == wide.looked_at
        assert (seen.left_out, seen.is_whole) == (0, False)

    def test_what_it_looks_at_is_spread(self, store: MemoryStore) -> None:
        flow = stored(store, chord(2000))
        run(store, flow, *range(1, 1001))
        share = states(read(store, flow, most=400).boxes[0])
        assert share["done"] > 60
        assert share["ready"] >= 40

    def test_it_finds_where_a_run_ends_without_gates(self, store: MemoryStore) -> None:
        wide: list[list[int]] = [[] for _ in range(1700)]
        fields = {index: {"task": "sms"} for index in range(1234, 1701)}
        seen = read(store, stored(store, wide, fields=fields), most=500)
        assert [(box.first, box.last, box.count) for box in seen.boxes] == [(1, 1233, 1233), (1234, 1700, 467)]

    def test_failed_nodes_that_it_skipped_are_named(self, store: MemoryStore) -> None:
        flow = stored(store, chord(2000))
        seen = read(store, flow, most=400).boxes[0]
        assert seen.failed == ()
        run(store, flow, 100, 333, outcome=BAD)
        assert [failed.index for failed in read(store, flow, most=400).boxes[0].failed] == [100, 333]

    def test_it_reads_no_more_than_it_may(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        flow = stored(store, [[], *([index] for index in range(1, 1500))])
        monkeypatch.setattr(flow_folding, "MOST_BOXES", 30)
        seen = read(store, flow, most=300)
        assert (len(seen.boxes), seen.looked_at, seen.left_out) == (30, 300, 1470)

    def test_nodes_that_are_gone_are_not_left_out(self, store: MemoryStore) -> None:
        flow = stored(store, chord(2000))
        store.flows.grow(flow, 500)
        seen = read(store, flow, most=3000)
        assert (seen.left_out, seen.is_whole) == (0, True)


@pytest.mark.parametrize("width", [100_000, 999_998])
def test_reads_are_bounded_at_any_size(width: int) -> None:
    flow, calls = flow_id(1, 1), []
    gate = Gate(width + 1, 1, width)
    body, last = wrap(NodeLinks((gate,)), b"{}"), wrap(NodeLinks(), b"{}")

    class Chord(NoFlows):
        """A wide flow whose nodes are made when they are read."""

        def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
            calls.append(limit)
            indices = range(after + 1, min(after + limit, width + 1) + 1)
            return [Job(node_id(flow, index), "mail", body if index <= width else last) for index in indices]

    row = FlowRow(flow, Phase.RUNNING, HELD, width + 2, width, 1)
    seen = read_graph(Chord(), row)
    assert edges(seen) == {1: (), width + 1: (1,)}
    assert (seen.boxes[0].count, seen.left_out, seen.is_whole) == (width, 0, False)
    assert sum(calls) <= flow_graph.LOOKED_AT
    assert len(calls) < 60


def test_nodes_that_are_added(jobs: Jobs) -> None:
    app = App(closures=True)

    @app.task(name="shrink")
    def shrink(page: int) -> int:
        return page

    @app.task(name="split")
    def split(pages: int) -> list[int]:
        return fan_out(shrink.call(page) for page in range(pages))

    @app.task(name="join")
    def join(pages: list[int]) -> int:
        return sum(pages)

    flow = app.chain(split.call(3), join.call())
    assert edges(read_graph(app.client.store.flows, flow.record())) == {1: (), 2: (1,)}
    assert jobs.run(flow) == 3
    seen = read_graph(app.client.store.flows, flow.record())
    assert edges(seen) == {1: (), 2: (3,), 3: (1,)}
    assert [(box.label, box.count) for box in seen.boxes] == [("split", 1), ("join", 1), ("shrink", 3)]


def test_nodes_of_a_failed_attempt_are_told_apart(store: MemoryStore) -> None:
    flow = stored(store, CHAIN)
    first = store.flows.grow(flow, 2)
    assert first == 4
    (job,) = store.flows.nodes(flow, 2, 1)
    for index in (4, 5):
        store.insert([type(job)(node_id(flow, index), "mail", job.body, state=State.BLOCKED)])
    seen = read(store, flow)
    assert [(box.first, box.count, box.is_unlinked) for box in seen.boxes] == [
        (1, 1, False), (2, 1, False), (3, 1, False), (4, 2, True),
    ]  # fmt: skip


def test_what_is_undone(jobs: Jobs) -> None:
    app = App(closures=True, retry=None)

    @app.task(name="charge")
    def charge(order: int) -> int:
        return order

    @app.task(name="refund")
    def refund(cents: int) -> None: ...

    @app.task(name="ship")
    def ship() -> None:
        raise LookupError("no box")

    with app.flow("order", on_failure="compensate") as f:
        paid = f.add(charge.call(7), undo=refund.call())
        f.add(ship.call(), after=[paid])
    seen = read_graph(app.client.store.flows, f.handle.record())
    # Nothing has failed: nobody asks for the node that undoes the others.
    assert [(box.label, box.undoes, box.on_failure) for box in seen.boxes] == [
        ("charge", "refund", "compensate"), ("ship", "", "compensate"),
    ]  # fmt: skip
    jobs.drain()
    seen = read_graph(app.client.store.flows, f.handle.record())
    assert [(box.first, box.label, box.after) for box in seen.boxes] == [
        (1, "charge", ()), (2, "ship", (1,)), (3, "undo", ()), (4, "undo 1", (3,)),
    ]  # fmt: skip
    assert seen.boxes[1].failed[0].error == "LookupError: no box"
