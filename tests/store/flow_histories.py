"""Random histories with flows and signals, in which a store must do as the reference does."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tarry.model import flow_rules, lifecycle
from tarry.model.flow.node_ids import flow_id
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.flow_row import FlowChange, FlowRow, GateRow, Phase
from tarry.model.job import State
from tarry.model.lifecycle import DEFAULT, NotPossible
from tarry.model.moving import NEVER
from tarry.model.outcome import Suspended
from tarry.store.conformance.cases.flows import flow_of
from tarry.store.conformance.cases.jobs import NOW
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flow_operating
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery
from tests.store.test_machine import ALL, STEPS, TICK, Histories

SHAPES = st.integers(1, 12).flatmap(
    lambda size: st.tuples(*(st.sets(st.integers(1, max(1, index - 1)), max_size=3) for index in range(1, size + 1)))
)
"""For each node of whom it waits for; the first one for nobody, whatever is drawn."""
FIELDS = st.fixed_dictionaries(
    {
        "due": st.sampled_from([0, 0, 0, TICK, NOW - TICK, NOW + 3 * TICK]),
        "expires": st.sampled_from([0, 0, 0, TICK, NOW + 9 * TICK]),
        "priority": st.sampled_from([0, 0, 1, -1]),
        "lane": st.sampled_from([None, None, "x"]),
    }
)
NAMES = st.sampled_from(["a", "b"])
CHANGES: list[Callable[[FlowRow], FlowChange]] = [
    lambda row: flow_rules.cancel_flow(row.id, "no"),
    flow_rules.time_out,
    lambda row: FlowChange(row.id, row.phase, row.phase, at=row.at + TICK, seen=(row.active, row.blocked, row.failed)),
    lambda row: FlowChange(row.id, Phase.RUNNING, Phase.RUNNING, active=0, failed=1, note=b"gone"),
]


class FlowHistories(Histories):
    """Drives both with flows, too."""

    flows_made = signals_made = 0

    def new_id(self, name: str, key: str | None = None) -> bytes:
        """As that of `StoreFlows`, but by counting."""
        self.flows_made += 1
        return flow_id(self.flows_made, self.flows_made)

    @property
    def flows(self) -> "FlowHistories":
        """For `flow_of`, which asks a store for an id."""
        return self

    @rule(
        shape=SHAPES,
        fields=st.lists(FIELDS, min_size=12, max_size=12),
        policies=st.lists(st.integers(0, 2), min_size=12, max_size=12),
        key=st.sampled_from([None, None, "k"]),
        undoes=st.booleans(),
        in_parts=st.booleans(),
    )
    def insert_flow(
        self,
        shape: tuple[set[int], ...],
        fields: list[dict[str, Any]],
        policies: list[int],
        key: str | None,
        undoes: bool,
        in_parts: bool,
    ) -> None:
        parents = [[], *(sorted(of) for of in shape[1:]), *([[]] if undoes else [])]
        blocked = {index: fields[index - 1] for index, of in enumerate(parents[: len(shape)], 1) if of}
        undo = len(parents) if undoes else 0
        new: Any = flow_of(
            self, parents, policies=dict(enumerate(policies, 1)), fields=blocked, key=key, undo=undo,  # type: ignore[arg-type]
            keep_done=2 * TICK, keep_dead=4 * TICK,
        )  # fmt: skip
        for flows in (self.store.flows, self.reference.flows):
            flows._insert(new, self.now) if not in_parts else flows._insert_in_parts(new, self.now)
        self.tend_all(3)
        self.saw(*self.reference.get([job.id for job in new.nodes]))

    def tend_all(self, limit: int) -> None:
        """To the end: which gate comes first is not promised."""
        for store in (self.store, self.reference):
            for _ in range(1000):
                if not store.flows.tend(self.now, limit):
                    break
            else:
                raise AssertionError("tending does not end")

    @rule(step=STEPS, limit=st.integers(1, 5))
    def tend(self, step: int, limit: int) -> None:
        self.now += step
        self.tend_all(limit)

    @rule(back=st.integers(0, 5), change=st.sampled_from(CHANGES))
    def change_flow(self, back: int, change: Callable[[FlowRow], FlowChange]) -> None:
        if rows := self.reference.flows.find(FlowQuery(limit=ALL)):
            made = change(rows[back % len(rows)])
            assert self.store.flows.change(made, self.now) == self.reference.flows.change(made, self.now)

    @rule(back=st.integers(0, 5), count=st.integers(1, 3))
    def grow(self, back: int, count: int) -> None:
        if rows := self.reference.flows.find(FlowQuery(limit=ALL)):
            id = rows[back % len(rows)].id
            assert self.store.flows.grow(id, count) == self.reference.flows.grow(id, count)

    @rule(back=st.integers(0, 5), act=st.sampled_from([flow_operating.cancel_flow, flow_operating.retry_flow]))
    def operate(self, back: int, act: Callable[[Store, bytes, int], object]) -> None:
        if rows := self.reference.flows.find(FlowQuery(limit=ALL)):
            id = rows[back % len(rows)].id
            assert self.said(act, self.store, id) == self.said(act, self.reference, id)
            self.saw(*self.reference.flows.nodes(id, 0, ALL))

    def said(self, act: Callable[[Store, bytes, int], object], store: Store, id: bytes) -> object:
        """What it answers, or why it refuses."""
        try:
            return act(store, id, self.now)
        except NotPossible as error:
            return str(error)

    @rule(name=NAMES, key=NAMES, again=st.booleans(), kept=st.sampled_from([TICK, 3 * TICK]))
    def signal(self, name: str, key: str, again: bool, kept: int) -> None:
        self.signals_made += not again
        sent = Signal(name, key, self.signals_made.to_bytes(16, "big"), b"%d" % self.signals_made, self.now + kept)
        assert self.store.flows.signal(sent, self.now) == self.reference.flows.signal(sent, self.now)

    @precondition(lambda self: self.seen)
    @rule(name=NAMES, key=NAMES, most=st.integers(1, 4), after=st.integers(0, 3), until=st.sampled_from([NEVER, TICK]))
    def suspend(self, name: str, key: str, most: int, after: int, until: int) -> None:
        running = self.reference.find(Query(states=(State.RUNNING,), limit=most))
        outcome = Suspended(until if until == NEVER else self.now + until, Awaited(name, key, after))
        self.made_of_all([lifecycle.after(job, outcome, DEFAULT, self.now) for job in running])

    @invariant()
    def flows_are_the_same(self) -> None:
        expected = self.reference.flows.find(FlowQuery(limit=ALL))
        assert self.store.flows.find(FlowQuery(limit=ALL)) == expected
        for phase in Phase:
            of = [row for row in expected if row.phase is phase]
            assert self.store.flows.find(FlowQuery(phases=(phase,), at_before=2**63 - 1, limit=ALL)) == of
        assert isinstance(self.reference, MemoryStore)
        assert self.gates([row.id for row in expected]) == sorted(
            self.reference.flows.tables.by_gate.values(), key=lambda gate: (gate.flow, gate.first)
        )

    @invariant()
    def signals_are_the_same(self) -> None:
        assert self.store.flows.awaiting("", ALL) == self.reference.flows.awaiting("", ALL)
        for name, key in (("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")):
            found = self.store.flows.signals(b"", name, key, 0)
            assert found == self.reference.flows.signals(b"", name, key, 0)

    def gates(self, flows: list[bytes]) -> list[GateRow]:
        """All gates that the store under test keeps, by flow and index of the first node."""
        raise NotImplementedError
