"""Random histories with flows and signals beside plain jobs: a store answers as the reference, and the counters of the
reference are what its jobs say."""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tarry.model import flow_rules
from tarry.model.change import Change
from tarry.model.flow.node_ids import flow_id, is_node
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.flow.wiring import COMPENSATE, GO_ON, STOP
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, NotPossible, after
from tarry.model.moving import NEVER
from tarry.model.outcome import Cancelled, Outcome, Raised, Released, Returned, Suspended
from tarry.store.conformance.cases.flows import ACTIVE, flow_of
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flow_operating, flows
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery, NewFlow
from tarry.store.shards.sharded import ShardedStore
from tests.store.test_machine import ALL, BACK, STEPS, TICK, Histories, ShardHistories, histories

MOST_NODES = 12


@st.composite
def shapes(draw: st.DrawFn) -> list[list[int]]:
    """The parents of each node: any graph, or one with a wide gate."""
    if draw(st.integers(0, 3)) == 0:
        wide = draw(st.integers(4, 8))
        return [[], *([1] for _ in range(wide)), list(range(2, wide + 2))]
    count = draw(st.integers(1, MOST_NODES))
    parents = st.lists(st.integers(1, MOST_NODES), max_size=3, unique=True)
    return [sorted(of for of in draw(parents) if of <= index) for index in range(count)]


POLICIES = st.dictionaries(st.integers(1, MOST_NODES), st.sampled_from([STOP, GO_ON, GO_ON, COMPENSATE]), max_size=6)
DELAYS = st.dictionaries(st.integers(1, MOST_NODES), st.sampled_from([TICK, 2 * TICK]), max_size=3)
KEYS = st.sampled_from([None, None, "a", "b"])
ENDS: list[Outcome] = [Returned(), Returned(), Returned(b"1"), Raised(b"{}", final=True), Cancelled(), Released()]
ADDRESSES = st.tuples(st.sampled_from(["paid", "shipped"]), st.sampled_from(["1", "2"]))


class FlowHistories(Histories):
    """As `Histories`, with flows. Few nodes are released at once, so that gates often stay open."""

    released_at_once = 3

    def __init__(self) -> None:
        self._usual = flows.RELEASED_AT_ONCE
        flows.RELEASED_AT_ONCE = self.released_at_once
        super().__init__()
        self.flow_ids: list[bytes] = []

    def teardown(self) -> None:
        flows.RELEASED_AT_ONCE = self._usual
        super().teardown()

    def flow_fits(self, id: bytes, key: str | None) -> bool:
        """Whether a flow with that key may have the id."""
        return True

    def new_flow(
        self, shape: list[list[int]], policies: dict[int, int], delays: dict[int, int], **more: Any
    ) -> NewFlow:
        while True:
            self.made += 1
            if self.flow_fits(id := flow_id(self.made, 0), more.get("key")):
                break
        fields = {at: {"due": delay} for at, delay in delays.items() if at <= len(shape) and shape[at - 1]}
        undo = len(shape) if not shape[-1] and len(shape) > 1 and COMPENSATE in policies.values() else 0
        return flow_of(self.store, shape, id=id, policies=policies, fields=fields, undo=undo, **more)

    @rule(shape=shapes(), policies=POLICIES, delays=DELAYS, key=KEYS)
    def insert_flow(
        self, shape: list[list[int]], policies: dict[int, int], delays: dict[int, int], key: str | None
    ) -> None:
        new = self.new_flow(shape, policies, delays, key=key)
        id = self.reference.flows.insert(new, self.now)
        assert [self.store.flows.insert(new, self.now) for _ in range(2)] == [id] * 2
        if id == new.root.id:
            self.flow_ids.append(id)
            self.saw(*new.nodes)

    @initialize(several=st.lists(st.tuples(shapes(), POLICIES, DELAYS, KEYS), min_size=2, max_size=4))
    def begin_with_flows(
        self, several: list[tuple[list[list[int]], dict[int, int], dict[int, int], str | None]]
    ) -> None:
        for one in several:
            self.insert_flow(*one)

    @precondition(lambda self: self.flow_ids)
    @rule(outcomes=st.lists(st.sampled_from(ENDS), min_size=1, max_size=3), most=st.integers(1, 20), step=STEPS)
    def run_nodes(self, outcomes: list[Outcome], most: int, step: int) -> None:
        """What is ready starts, and the nodes that run end."""
        self.claim_all(step, "ann")
        nodes = [job for job in self.reference.find(Query(states=(State.RUNNING,), limit=ALL)) if is_node(job.id)]
        pairs = zip(nodes[:most], itertools.cycle(outcomes), strict=False)
        self.made_of_all([after(job, outcome, DEFAULT, self.now) for job, outcome in pairs])

    def back(self, number: int) -> Job:
        """Of a node, as it is: what a stale copy says of its flow may be wrong, which is for the audit to find."""
        job = super().back(number)
        (fresh,) = self.reference.get([job.id]) if is_node(job.id) else (job,)
        return fresh or job

    def changes(self, said: list[Any]) -> list[Change]:
        # A node has no key, so no other enqueue replaces its call.
        return [change for change in super().changes(said) if not (is_node(change.id) and change.body == b"new")]

    @rule(step=STEPS)
    def tend(self, step: int) -> None:
        self.now += step
        for _ in range(1000):
            more = [store.flows.tend(self.now) for store in (self.reference, self.store)]
            if not any(more):
                return
        raise AssertionError("tending has no end")

    @precondition(lambda self: self.flow_ids)
    @rule(back=BACK, retries=st.booleans(), late=st.booleans())
    def operate(self, back: int, retries: bool, late: bool) -> None:
        flow = self.flow_ids[-1 - back % len(self.flow_ids)]
        answers = [self._operate(store, flow, retries, late) for store in (self.reference, self.store)]
        assert answers[0] == answers[1]

    def _operate(self, store: Store, flow: bytes, retries: bool, late: bool) -> object:
        try:
            if retries:
                return flow_operating.retry_flow(store, flow, self.now)
            if late and (row := store.flows.get(flow)) is not None and row.phase is Phase.RUNNING:
                return store.flows.change(flow_rules.time_out(row), self.now)
            flow_operating.cancel_flow(store, flow, self.now, "no")
        except NotPossible as why:
            return str(why)
        return None

    @rule(address=ADDRESSES, after_n=st.integers(0, 2), until=st.sampled_from([TICK, NEVER]), most=st.integers(1, 4))
    def suspend(self, address: tuple[str, str], after_n: int, until: int, most: int) -> None:
        running = self.reference.find(Query(states=(State.RUNNING,), limit=most))
        sleep = Suspended(until if until == NEVER else self.now + until, Awaited(*address, after_n))
        self.made_of_all(self.apart([after(job, sleep, DEFAULT, self.now) for job in running]))

    @rule(address=ADDRESSES, number=st.integers(0, 9), step=STEPS)
    def signal(self, address: tuple[str, str], number: int, step: int) -> None:
        self.now += step
        signal = Signal(*address, number.to_bytes(16, "big"), b"%d" % number, self.now + 2 * TICK)
        assert self.store.flows.signal(signal, self.now) == self.reference.flows.signal(signal, self.now)

    @invariant()
    def flows_are_the_same(self) -> None:
        assert self.store.flows.find(FlowQuery(limit=ALL)) == self.reference.flows.find(FlowQuery(limit=ALL))
        assert self.store.flows.awaiting("", ALL) == self.reference.flows.awaiting("", ALL)
        for flow in self.flow_ids:
            assert self.store.flows.nodes(flow, 0, ALL) == self.reference.flows.nodes(flow, 0, ALL)

    @invariant()
    def counters_are_what_the_jobs_say(self) -> None:
        for row in self.reference.flows.find(FlowQuery(limit=ALL)):
            self._check(row)

    def _check(self, row: FlowRow) -> None:
        nodes = self.reference.flows.nodes(row.id, 0, ALL)
        gates = [gate for gate in self.reference.flows.tables.all_gates(row.id) if gate.next >= 0]
        unreleased = sum(gate.first + gate.count - gate.next for gate in gates)
        active = sum(job.state in ACTIVE and not flow_rules.wiring_of(job).alone for job in nodes)
        assert row.active == active + unreleased, row
        blocked = [job for job in nodes if job.state is State.BLOCKED and job.id[-1] != abs(row.undo)]
        # Deletion takes nodes of an ended flow in pieces.
        if row.phase is not Phase.ENDED:
            assert row.blocked == len(blocked) - unreleased, row
            assert row.active > 0, row
        assert row.root is not None
        assert row.root.state.finished == (row.phase is Phase.ENDED), row


class MemoryFlowHistories(FlowHistories):
    """The reference beside itself: its counters are right, and what it does depends on nothing else."""

    def opened(self) -> Store:
        return MemoryStore()


class ShardFlowHistories(FlowHistories, ShardHistories):
    """Each shard releases so many by itself, so here all are released at once."""

    released_at_once = 1000

    def flow_fits(self, id: bytes, key: str | None) -> bool:
        store = self.shards
        assert isinstance(store, ShardedStore)
        return key is None or store._hashing.place_of_job(id) == store.home("flow:order", key)


TestMemoryFlows = pytest.mark.timeout(400)(MemoryFlowHistories.TestCase)
TestShardFlows = pytest.mark.timeout(400)(ShardFlowHistories.TestCase)
TestMemoryFlows.settings = TestShardFlows.settings = histories(30)
