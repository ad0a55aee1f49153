"""A flow of a few nodes: every order in which they start and end, every way to fail, cancellation and deadline at each
moment, retries that break off, and people who run, cancel or delete single nodes.

A step runs `lifecycle`, `flow_rules` and the flows of `MemoryStore`, and with them `flow_settle`. Epochs and owners are
left out: a stale change does nothing to a flow, which the model of jobs shows.
"""

import itertools
from collections.abc import Iterator, Sequence
from unittest import mock

from msgspec import Struct
from msgspec.structs import replace

from tarry.model import flow_rules, lifecycle
from tarry.model.change import Change
from tarry.model.flow.node_ids import flow_id, index_of
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.flow_rules import FLOW_CANCELLED
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Cancelled, Outcome, Raised, Returned, outcome_note
from tarry.store.conformance.cases.flows import flow_of
from tarry.store.memory.index import claim_job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flow_operating, flows
from tests.exhaustive.explorer import Step
from tests.exhaustive.flow_checks import fault_of_flow, fault_of_step
from tests.exhaustive.store_state import NOW, plain, store_with

FLOW = flow_id(1, 1)
OUTCOMES: dict[str, Outcome] = {
    "returned": Returned(),
    "failed": Raised(b'{"type":"E"}', final=True),
    "cancels itself": Cancelled(),
}
_CANCELLED_NOTE = outcome_note(FLOW_CANCELLED, "")
_ACTIVE = (State.READY, State.SCHEDULED, State.RUNNING)


class FlowState(Struct, frozen=True):
    """jobs: the root and the nodes that are there, by index. retry: whether somebody retries the flow now; lost:
    whether one who did has died in between, and the audit has not come yet."""

    jobs: tuple[Job, ...]
    row: FlowRow
    gates: tuple[GateRow, ...]
    retry: bool = False
    lost: bool = False

    @property
    def nodes(self) -> tuple[Job, ...]:
        """All but the root."""
        return tuple(job for job in self.jobs if job.id != FLOW)


class FlowWorld:
    """The model. parents: those of each node, by index from 1; policies: what follows a failure, by index, else STOP;
    undo: the node that undoes the others, 0 if there is none; hands: what people do; pieces: one node is released in
    a call, as if the others were a thousand."""

    def __init__(
        self,
        name: str,
        parents: Sequence[Sequence[int]],
        policies: dict[int, int] | None = None,
        undo: int = 0,
        hands: Sequence[str] = ("cancel flow", "retry flow"),
        pieces: bool = False,
    ) -> None:
        self.name, self._undo, self._hands = name, undo, hands
        self._parents = {index: tuple(some) for index, some in enumerate(parents, 1)}
        self._policies = policies or {}
        self._new = flow_of(MemoryStore(), parents, policies=self._policies, undo=undo, id=FLOW)
        self._most = 1 if pieces else flows.RELEASED_AT_ONCE

    def starts(self) -> Iterator[FlowState]:
        store = MemoryStore(lambda: NOW)
        store.flows.insert(self._new, NOW)
        yield _state_of(store, FlowState((), self._new.flow, ()))

    def is_end(self, state: FlowState) -> bool:
        is_quiet = not any(node.state in _ACTIVE for node in state.nodes)
        return is_quiet and state.row.phase is Phase.ENDED and not state.retry

    def fault(self, state: FlowState) -> str:
        return fault_of_flow(state.row, state.jobs, state.gates, self._policies, self._undo, state.retry or state.lost)

    def steps(self, state: FlowState) -> Iterator[Step[FlowState]]:
        with mock.patch.object(flows, "RELEASED_AT_ONCE", self._most):
            yield from self._node_steps(state)
            yield from self._keeper_steps(state)
            yield from self._retry_steps(state)
            yield from self._hand_steps(state)

    def _node_steps(self, state: FlowState) -> Iterator[Step[FlowState]]:
        running = [node for node in state.nodes if node.state is State.RUNNING]
        for node in state.nodes:
            if node.state is State.READY:
                store = _store_of(state)
                store._index.put(node.id, claim_job(node, "w", NOW))
                yield self._step(state, store, f"node {index_of(node.id)} starts")
        for node, name in itertools.product(running, OUTCOMES):
            yield self._changed(state, [lifecycle.after(node, OUTCOMES[name], DEFAULT, NOW)], f"{name}")
        for both in itertools.combinations(running, 2):
            for names in itertools.product(("returned", "failed"), repeat=2):
                changes = [lifecycle.after(n, OUTCOMES[o], DEFAULT, NOW) for n, o in zip(both, names, strict=True)]
                yield self._changed(state, changes, " and ".join(names))

    def _keeper_steps(self, state: FlowState) -> Iterator[Step[FlowState]]:
        if any(gate.next >= 0 for gate in state.gates) and state.row.phase in (Phase.RUNNING, Phase.UNDOING):
            store = _store_of(state)
            store.flows.release_more(NOW, self._most)
            yield self._step(state, store, "the keeper releases more")
        elif state.lost and not state.retry:
            yield self._audit(state)
        for node in state.nodes:
            if state.row.phase is Phase.CANCELLING and node.state in _ACTIVE:
                change = lifecycle.cancel(node, DEFAULT, NOW, "", FLOW_CANCELLED)
                yield self._changed(state, [change], "cancelled with the flow")

    def _audit(self, state: FlowState) -> Step[FlowState]:
        store = _store_of(state)
        active = sum(node.state in _ACTIVE and not flow_rules.wiring_of(node).alone for node in state.nodes)
        failed = sum(map(flow_rules.stops, state.nodes))
        change = flow_rules.repair(state.row, flow_rules.CountedNodes(active, failed, len(state.nodes)))
        if change is not None:
            store.flows.change(change, NOW)
        return self._step(state, store, "the audit repairs the flow", lost=False)

    def _retry_steps(self, state: FlowState) -> Iterator[Step[FlowState]]:
        """As `flow_operating.retry_flow`, call by call."""
        root = next((job for job in state.jobs if job.id == FLOW), None)
        if not state.retry:
            if "retry flow" in self._hands and _may_retry(state.row, root):
                assert root is not None
                yield self._changed(state, [flow_rules.reopen(root, NOW)], "a retry begins", helps=False, retry=True)
            return
        for node in state.nodes:
            if node.state in flow_operating.FAILED and flow_rules.stops(node):
                yield self._changed(state, [lifecycle.run_now(node, NOW)], "retried")
        if root is not None:
            yield self._changed(state, [flow_rules.end_reopening(root)], "the retry ends", retry=False)
        yield self._step(state, _store_of(state), "the retry breaks off", helps=False, retry=False, lost=True)

    def _hand_steps(self, state: FlowState) -> Iterator[Step[FlowState]]:
        ends = {"cancel flow": flow_rules.cancel_flow(FLOW), "deadline": flow_rules.time_out(state.row)}
        for name in ends.keys() & set(self._hands):
            if state.row.phase is Phase.RUNNING:
                store = _store_of(state)
                store.flows.change(ends[name], NOW)
                yield self._step(state, store, name, helps=False)
        for node, act in itertools.product(state.nodes, self._hands):
            change = _by_hand(node, act)
            if change is not None:
                yield self._changed(state, [change], f"{act} by hand", helps=False)

    def _changed(
        self, state: FlowState, changes: Sequence[Change], what: str, helps: bool = True, **new: object
    ) -> Step[FlowState]:
        store = _store_of(state)
        store.apply(changes, NOW)
        nodes = ", ".join(str(index_of(change.id)) for change in changes if change.id != FLOW)
        return self._step(state, store, f"node {nodes}: {what}" if nodes else what, helps=helps, **new)

    def _step(
        self, state: FlowState, store: MemoryStore, label: str, helps: bool = True, **new: object
    ) -> Step[FlowState]:
        after = _state_of(store, replace(state, **new))
        is_late = label == "deadline"
        seen = (state.row, state.jobs), (after.row, after.jobs)
        fault = fault_of_step(*seen, self._parents, self._policies, self._undo, is_late)
        return Step(label, after, fault, helps)


def _may_retry(row: FlowRow, root: Job | None) -> bool:
    try:
        flow_operating._refuse_retry(row, root)
    except lifecycle.NotPossible:
        return False
    return True


def _by_hand(node: Job, act: str) -> Change | None:
    try:
        match act:
            case "run node" if node.state.finished:
                return lifecycle.run_now(node, NOW)
            case "cancel node":
                return lifecycle.cancel(node, DEFAULT, NOW)
            case "delete node":
                return lifecycle.forget(node)
    except lifecycle.NotPossible:
        return None
    return None


def _store_of(state: FlowState) -> MemoryStore:
    store = store_with(state.jobs, ())
    store.flows.tables.flows[FLOW] = state.row
    store.flows.tables.by_gate = {(gate.flow, gate.first): gate for gate in state.gates}
    return store


def _state_of(store: MemoryStore, before: FlowState) -> FlowState:
    row = store.flows.tables.flows[FLOW]
    # The times and notes of a flow decide nothing here.
    return replace(
        before,
        jobs=tuple(_plain(job) for _, job in sorted(store._jobs.items())),
        row=replace(row, at=HELD, note=b""),
        gates=tuple(store.flows.tables.all_gates(FLOW)),
    )


def _plain(job: Job) -> Job:
    is_cancelled = flow_rules._read(job.note).type == FLOW_CANCELLED if job.note else False
    return replace(plain(job), epoch=0, note=_CANCELLED_NOTE if is_cancelled else b"")
