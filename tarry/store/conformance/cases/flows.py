"""Helpers for the tests of flows: flows of any shape, and functions that run their nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.flow.node_ids import index_of, node_id
from tarry.model.flow.wiring import STOP, Gate, NodeLinks, wrap
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Outcome, Raised, Released, Returned
from tarry.store.conformance.cases.jobs import NOW, Promises, seen, taken
from tarry.store.rules.base import Store
from tarry.store.rules.flows import FLOW_TASK, STORED_AT_ONCE, NewFlow

ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
GOOD = Returned()
BAD = Raised(b'{"type":"ValueError","message":"no","traceback":""}', final=True)


class FlowCase(Promises):
    """A test of flows. It is skipped for a store that keeps none."""

    @pytest.fixture(autouse=True)
    def _keeps_flows(self) -> None:
        if not self.has_flows:
            pytest.skip("this store keeps no flows")


def flow_of(
    store: Store,
    parents: Sequence[Sequence[int]],
    *,
    policies: Mapping[int, int] = {},
    fields: Mapping[int, Mapping[str, Any]] = {},
    key: str | None = None,
    name: str = "order",
    undo: int = 0,
    id: bytes | None = None,
    **row: Any,
) -> NewFlow:
    """A flow whose node i + 1 waits for the nodes `parents[i]`. Not stored.

    policies: by index, else STOP. fields: of nodes by index. undo: the node that undoes the others. id: else a new one.
    row: fields of the flow's row.
    """
    id = id or store.flows.new_id(name, key)
    root = Job(
        id, FLOW_TASK + name, b"{}", due=NOW, state=State.BLOCKED, state_since=NOW, key=key,
        key_held_until=0 if key is None else HELD,
    )  # fmt: skip
    gates = gates_of(parents)
    nodes: list[Job] = []
    for index, waits_for in enumerate(parents, 1):
        wiring = NodeLinks(tuple(gate for of, gate in gates if index in of), on_failure=policies.get(index, STOP))
        start = Job(node_id(id, index), "mail", wrap(wiring, b"{}"), due=NOW, state_since=NOW)
        if waits_for or index == undo:
            start = replace(start, state=State.BLOCKED, due=0)
        nodes.append(replace(start, **fields.get(index, {})))
    rows = [GateRow(id, gate.first, gate.count, gate.parents) for _, gate in gates if gate.parents > 1]
    blocked = sum(job.state is State.BLOCKED for job in nodes) - bool(undo)
    counters = FlowRow(
        id, Phase.RUNNING, HELD, len(nodes) + 1, len(nodes) - blocked - bool(undo), blocked, undo=undo,
        keep_done=HOUR, keep_dead=DAY,
    )  # fmt: skip
    return NewFlow(root, replace(counters, **row), nodes, rows)


def gates_of(parents: Sequence[Sequence[int]]) -> list[tuple[Sequence[int], Gate]]:
    """The gates of such a flow, each with its parents: consecutive nodes with the same parents share one."""
    found: list[tuple[Sequence[int], Gate]] = []
    for index, waits_for in enumerate(parents, 1):
        if not waits_for:
            continue
        last = found[-1] if found else None
        if last and last[0] == waits_for and last[1].first + last[1].count == index:
            found[-1] = waits_for, Gate(last[1].first, last[1].count + 1, len(waits_for))
        else:
            found.append((waits_for, Gate(index, 1, len(waits_for))))
    return found


def stored(store: Store, parents: Sequence[Sequence[int]], **options: Any) -> bytes:
    """A flow as `flow_of`, stored; its id."""
    new = flow_of(store, parents, **options)
    assert store.flows.insert(new, NOW) == new.root.id
    if len(new.nodes) > STORED_AT_ONCE:
        tend_all(store)
    return new.root.id


def run(store: Store, flow: bytes, *indices: int, outcome: Outcome = GOOD, now: int = NOW) -> list[int]:
    """Claims all that is ready, ends those nodes so in one call, gives back the others; the indices that were ready."""
    jobs = taken(store, now=now)
    ends = [job for job in jobs if index_of(job.id) in indices]
    assert {index_of(job.id) for job in ends} == set(indices)
    end(store, ends, outcome, now)
    end(store, [job for job in jobs if job not in ends], Released(), now)
    return sorted(index_of(job.id) for job in jobs)


def end(store: Store, jobs: Sequence[Job], outcome: Outcome = GOOD, now: int = NOW) -> None:
    """Ends the attempts of running jobs with this outcome, in one call."""
    changes = [lifecycle.after(job, outcome, DEFAULT, now) for job in jobs]
    assert store.apply(changes, now) == [True] * len(jobs)


def node(store: Store, flow: bytes, index: int) -> Job:
    """A node as the store has it now."""
    return seen(store, Job(node_id(flow, index), "", b""))


def states(store: Store, flow: bytes) -> str:
    """The first letters of the states of its nodes by index, `x` for those that are dead."""
    letters = {State.DEAD: "x"}
    return "".join(letters.get(job.state, job.state[0]) for job in store.flows.nodes(flow, 0, 10_000))


def row_of(store: Store, flow: bytes) -> FlowRow:
    """The row of a flow; fails if it is gone."""
    row = store.flows.get(flow)
    assert row is not None
    return row


def numbers(store: Store, flow: bytes) -> tuple[Phase, int, int, int]:
    """Phase, active, blocked and failed of a flow."""
    row = row_of(store, flow)
    return row.phase, row.active, row.blocked, row.failed


def root(store: Store, flow: bytes) -> Job:
    """The root as the store has it now."""
    return seen(store, Job(flow, "", b""))


def tend_all(store: Store, now: int = NOW, limit: int = 1000) -> int:
    """Tends until nothing is left; how many calls it took. Fails after 10,000."""
    for calls in range(10_000):
        if not store.flows.tend(now, limit):
            return calls
    raise AssertionError("tending does not end")
