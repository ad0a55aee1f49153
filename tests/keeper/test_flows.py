"""The keeper's part of flows: pieces, deadlines, cancellations that broke off, and flows that nothing would wake."""

import pytest
from msgspec import json
from msgspec.structs import replace

from tarry.client.clock import FakeClock
from tarry.keeper import flows as chores
from tarry.keeper.chores import Keeper
from tarry.keeper.flows import FlowChores
from tarry.model import flow_rules, lifecycle
from tarry.model.duration import HOUR
from tarry.model.flow_row import Phase
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.flows import BAD, end, flow_of, node, numbers, root, row_of, run, states
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, taken
from tarry.store.memory.store import MemoryStore

CHAIN = [[], [1], [2]]


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
def keeping(store: MemoryStore, clock: FakeClock) -> FlowChores:
    return FlowChores(store, clock, "ann")


def put(store: MemoryStore, parents: list[list[int]], **options: object) -> bytes:
    return store.flows.insert(flow_of(store, parents, **options), store.time())  # type: ignore[arg-type]


def audit_twice(keeping: FlowChores, clock: FakeClock) -> None:
    for _ in range(2):
        keeping.audit_flows()
        clock.advance(60)


def test_pieces_are_released(store: MemoryStore, clock: FakeClock, keeping: FlowChores) -> None:
    flow = put(store, [[] for _ in range(2500)])
    assert states(store, flow) == "b" * 2500
    keeping.release_more()
    assert states(store, flow) == "r" * 2500


def test_a_deadline_cancels_what_is_active(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, caplog: pytest.LogCaptureFixture
) -> None:
    flow = put(store, [[], [], [1], [2]], at=clock.now() + HOUR)
    store.claim(EVERYTHING, 1, "ann", LEASE, clock.now())
    keeping.end_late_flows()
    assert states(store, flow) in ("rrbb", "r" + "rbb")
    clock.advance(3600)
    keeping.end_late_flows()
    assert (states(store, flow), root(store, flow).state) == ("ccbb", State.DEAD)
    assert json.decode(root(store, flow).note)["type"] == "Deadline"
    assert "did not end before its deadline" in caplog.text


def test_a_cancellation_that_broke_off_goes_on(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.store.rules.flow_operating.PAGE", 3)
    flow = put(store, [*([] for _ in range(10)), [1]])
    assert store.flows.change(flow_rules.cancel_flow(flow, "not wanted"), clock.now())
    assert states(store, flow) == "r" * 10 + "b"
    assert keeping.resume_cancels()
    assert (states(store, flow), root(store, flow).state) == ("c" * 10 + "b", State.CANCELLED)
    assert json.decode(root(store, flow).note) == {"type": "FlowCancelled", "message": "not wanted", "node": 0}
    assert numbers(store, flow) == (Phase.ENDED, 0, 1, 10)
    assert not keeping.resume_cancels()


def test_an_active_node_that_is_gone_ends_the_flow(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, caplog: pytest.LogCaptureFixture
) -> None:
    flow = put(store, CHAIN)
    store._index.remove(node(store, flow, 1))
    keeping.audit_flows()
    assert numbers(store, flow) == (Phase.RUNNING, 1, 2, 0)
    clock.advance(60)
    keeping.audit_flows()
    assert (numbers(store, flow), root(store, flow).state) == ((Phase.ENDED, 0, 2, 1), State.DEAD)
    assert json.decode(root(store, flow).note)["type"] == "Lost"
    assert "nothing would have woken it: 1 of its jobs were to be active, and 0 are" in caplog.text


def test_the_last_node_that_is_gone_makes_no_flow_done(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores
) -> None:
    flow = put(store, [[]])
    store._index.remove(node(store, flow, 1))
    audit_twice(keeping, clock)
    assert root(store, flow).state is State.DEAD


def test_an_end_without_an_effect_ends_the_flow(store: MemoryStore, clock: FakeClock, keeping: FlowChores) -> None:
    """As by a worker of an older version."""
    flow = put(store, CHAIN)
    (job,) = store.claim(EVERYTHING, 9, "ann", LEASE, clock.now())
    change = lifecycle.after(job, BAD, DEFAULT, clock.now())
    assert store.apply([replace(change, node=None)], clock.now()) == [True]
    audit_twice(keeping, clock)
    assert (numbers(store, flow), root(store, flow).state) == ((Phase.ENDED, 0, 2, 1), State.DEAD)


def test_the_hold_of_a_broken_retry_is_taken_away(store: MemoryStore, clock: FakeClock, keeping: FlowChores) -> None:
    """Then it can be tried again, and end well."""
    flow = put(store, CHAIN)
    run(store, flow, 1, outcome=BAD, now=clock.now())
    for _ in range(2):
        assert store.apply([flow_rules.reopen(root(store, flow), clock.now())], clock.now()) == [True]
        audit_twice(keeping, clock)
        assert (numbers(store, flow), root(store, flow).state) == ((Phase.ENDED, 0, 2, 1), State.DEAD)
        clock.advance(3600)
        keeping.audit_flows()
    store.apply([flow_rules.reopen(root(store, flow), clock.now())], clock.now())
    store.apply([lifecycle.run_now(node(store, flow, 1), clock.now())], clock.now())
    store.apply([flow_rules.end_reopening(root(store, flow))], clock.now())
    for index in (1, 2, 3):
        run(store, flow, index, now=clock.now())
    assert root(store, flow).state is State.DONE


def test_a_flow_that_only_runs_long_stays_as_it_is(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is counted once in ten minutes; also if a person runs a node of it once more."""
    flow = put(store, CHAIN)
    run(store, flow, 1, now=clock.now())
    store.apply([lifecycle.run_now(node(store, flow, 1), clock.now())], clock.now())
    counted, nodes = list[int](), store.flows.nodes

    def counting(flow: bytes, after: int, limit: int) -> list[Job]:
        counted.append(after)
        return nodes(flow, after, limit)

    monkeypatch.setattr(store.flows, "nodes", counting)
    before = row_of(store, flow)
    for _ in range(11):
        keeping.audit_flows()
        clock.advance(60)
    assert row_of(store, flow) == before
    # Two pages each time: the last one is empty.
    assert len(counted) == 2
    clock.advance(600)
    keeping.audit_flows()
    assert len(counted) == 4


def test_what_moves_is_not_counted(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = put(store, [[], [], [], []])
    # Nothing may read its nodes.
    monkeypatch.setattr(store.flows, "nodes", None)
    for index in (1, 2, 3):
        keeping.audit_flows()
        clock.advance(60)
        run(store, flow, index, now=clock.now())


def test_what_is_not_released_yet_is_not_missed(store: MemoryStore, clock: FakeClock, keeping: FlowChores) -> None:
    """The audit would take the nodes behind an open gate for gone ones."""
    flow = put(store, [[] for _ in range(2500)])
    audit_twice(keeping, clock)
    assert numbers(store, flow) == (Phase.RUNNING, 2500, 0, 0)
    assert states(store, flow).count("b") == 500


def test_flows_are_audited_by_pages(
    store: MemoryStore, clock: FakeClock, keeping: FlowChores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "_AUDITED", 2)
    flows = [put(store, [[]]) for _ in range(5)]
    for flow in flows:
        store._index.remove(node(store, flow, 1))
    for _ in range(6):
        keeping.audit_flows()
        clock.advance(60)
    assert [row_of(store, flow).phase for flow in flows] == [Phase.ENDED] * 5


def test_one_keeper_audits_for_all(store: MemoryStore, clock: FakeClock, keeping: FlowChores) -> None:
    flow = put(store, CHAIN)
    store._index.remove(node(store, flow, 1))
    other = FlowChores(store, clock, "bob")
    keeping.audit_flows()
    for _ in range(3):
        other.audit_flows()
    assert numbers(store, flow)[0] is Phase.RUNNING


def test_the_keeper_does_it_all(store: MemoryStore, clock: FakeClock) -> None:
    """In its turns."""
    late = put(store, [[] for _ in range(1200)], at=clock.now() + HOUR)
    keeper = Keeper(store, clock=clock)
    keeper.tick()
    assert states(store, late) == "r" * 1200
    end(store, taken(store, now=clock.now()), Returned(), clock.now())
    assert root(store, late).state is State.DONE
    keeper.close()
