"""The reference: flows and signals in the simplest correct form."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.model import flow_rules
from tarry.model.change import Change
from tarry.model.flow.node_ids import MAX_NODES, flow_of, index_of, is_node, node_id
from tarry.model.flow.signal import MOST_KEPT, Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow, GateRow, Phase
from tarry.model.job import HELD, Job, State
from tarry.model.wake import WakeReason
from tarry.store.memory.index import JobIndex
from tarry.store.rules import flows
from tarry.store.rules.flow_settle import RELEASING, Settled, change_flow, end_flow, release_flow, settle
from tarry.store.rules.flow_turns import Turns
from tarry.store.rules.flows import (
    RELEASED_AT_ONCE,
    STORING_TIME,
    FlowQuery,
    NewFlow,
    StoreFlows,
    abandoned,
    deleted_meanwhile,
)

_POSTPONED = STORING_TIME
"""When a flow that has a node that still runs is looked at again."""


class MemoryTables:
    """`FlowTables` over dicts. The caller has the store's lock. lane_of: the lane of a job that comes back."""

    def __init__(self, index: JobIndex, lane_of: Callable[[Job], str | None]) -> None:
        self._index, self._lane_of = index, lane_of
        self.flows: dict[bytes, FlowRow] = {}
        self.by_gate: dict[tuple[bytes, int], GateRow] = {}

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        return {id: self.flows[id] for id in ids if id in self.flows}

    def save(self, flows: Iterable[FlowRow]) -> None:
        self.flows |= {flow.id: flow for flow in flows}

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        places = sorted((flow, first) for flow, some in firsts.items() for first in some)
        return [self.by_gate[place] for place in places if place in self.by_gate]

    def told_gates(self, flow: bytes) -> list[GateRow]:
        return [gate for gate in self.all_gates(flow) if not gate.waits]

    def open_gates(self, flow: bytes, most: int) -> list[GateRow]:
        return [gate for gate in self.all_gates(flow) if gate.next >= 0][:most]

    def all_gates(self, flow: bytes) -> list[GateRow]:
        """The gates of a flow, by index."""
        return [gate for place, gate in sorted(self.by_gate.items()) if place[0] == flow]

    def save_gates(self, gates: Iterable[GateRow]) -> None:
        self.by_gate |= {(gate.flow, gate.first): gate for gate in gates}

    def drop_gates(self, gates: Iterable[GateRow]) -> None:
        for gate in gates:
            self.by_gate.pop((gate.flow, gate.first), None)

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        found = [self._index.jobs.get(node_id(flow, index)) for index in range(first, first + count)]
        blocked = [job for job in found if job is not None and job.state is State.BLOCKED]
        for job in blocked:
            freed = flow_rules.release(job, now)
            self._index.put(job.id, replace(freed, lane=self._lane_of(freed)))
        return len(blocked)

    def end_root(self, flow: bytes, state: State, note: bytes, now: int) -> None:
        root = self._index.jobs.get(flow)
        if root is not None and root.state is State.BLOCKED:
            ended = replace(root, state=state, note=note, state_since=now, keep_until=HELD, key_held_until=0)
            self._index.put(flow, ended)


class MemoryFlows(StoreFlows):
    """The flows of a memory store. lock: that of the store; insert_all: its insert, without the lock."""

    def __init__(
        self,
        lock: "threading.Lock | threading.RLock",
        index: JobIndex,
        insert_all: Callable[[Sequence[Job]], list[bytes]],
        lane_of: Callable[[Job], str | None],
        wake: Callable[..., bool],
    ) -> None:
        self._lock, self._index, self._insert_all, self._wake = lock, index, insert_all, wake
        self.tables = MemoryTables(index, lane_of)
        self._signals: defaultdict[tuple[str, str], list[Signal]] = defaultdict(list)
        self._last: defaultdict[tuple[str, str], int] = defaultdict(int)
        """The number of the last signal of each address."""
        self._awaiting: dict[bytes, SignalWait] = {}
        self._turns = Turns()

    def _insert(self, new: NewFlow, now: int) -> bytes:
        with self._lock:
            holder = self._index.find_holder(new.root, now)
            if new.root.id in self._index.jobs or holder is not None:
                return holder or new.root.id
            self._insert_all([new.root, *new.nodes])
            self.tables.save([new.flow])
            self.tables.save_gates(new.gates)
            return new.root.id

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if jobs and flow_of(jobs[0].id) not in self.tables.flows:
                raise deleted_meanwhile()
            self._insert_all(jobs)

    def grow(self, flow: bytes, count: int) -> int | None:
        with self._lock:
            row = self.tables.flows.get(flow)
            if row is None or row.phase is Phase.ENDED or row.size + count > MAX_NODES:
                return None
            self.tables.save([replace(row, size=row.size + count)])
            return row.size

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        with self._lock:
            found = [job for job in self._of(flow) if index_of(job.id) > after and (not states or job.state in states)]
            return found[: max(0, limit)]

    def _of(self, flow: bytes) -> list[Job]:
        """The nodes of a flow by index, without the root."""
        return [
            job for id, job in sorted(self._index.jobs.items()) if is_node(id) and flow_of(id) == flow and id != flow
        ]

    def find(self, query: FlowQuery) -> list[FlowRow]:
        with self._lock:
            rows = [replace(row, root=self._index.jobs.get(id)) for id, row in sorted(self.tables.flows.items())]
        return [row for row in reversed(rows) if query.matches(row)][: max(0, query.limit)]

    def get(self, flow: bytes) -> FlowRow | None:
        with self._lock:
            return self.tables.flows.get(flow)

    def change(self, change: FlowChange, now: int) -> bool:
        with self._lock:
            if (settled := change_flow(self.tables, change, now)) is not None:
                self._announce(settled)
            return settled is not None

    def settle(self, changes: Sequence[Change], now: int) -> bool:
        """What changes that were made do to flows and signals, with the lock held; whether there is more to release."""
        for change in changes:
            if change.awaits is not None:
                self._await(change)
        settled = settle(self.tables, changes, now)
        self._announce(settled)
        return settled.more_to_release

    def _announce(self, settled: Settled) -> None:
        reasons = ((WakeReason.WORK, settled.released), (WakeReason.RESULT, settled.ended))
        if due := [reason for reason, happened in reasons if happened]:
            self._wake(*due)

    # What is left over

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        with self._lock:
            return self._turns.take(lambda after, most: self._release_next(after, now, most), limit)

    def _release_next(self, after: bytes, now: int, most: int) -> tuple[bytes | None, int]:
        opened = {gate.flow for gate in self.tables.by_gate.values() if gate.next >= 0 and gate.flow > after}
        flow = min((flow for flow in opened if self.tables.flows[flow].phase in RELEASING), default=None)
        if flow is None:
            return None, 0
        settled = release_flow(self.tables, flow, now, most)
        self._announce(settled)
        return flow, settled.released

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        with self._lock:
            return self._delete(now, limit) or self._drop_signals(now, limit)

    def _delete(self, now: int, limit: int) -> bool:
        rows = sorted(self.tables.flows.values(), key=lambda row: (row.at, row.id))
        for row in rows:
            if row.phase is Phase.STORING and row.at <= now - STORING_TIME:
                end_flow(self.tables, abandoned(row), now, keep=0)
                return True
        ended = [row for row in rows if row.phase is Phase.ENDED]
        too_many = sum(row.size for row in ended) > flows.KEPT_NODES
        for row in ended[:1]:
            if row.at <= now or too_many:
                self._delete_some(row, now, limit)
                return True
        return False

    def _delete_some(self, row: FlowRow, now: int, limit: int) -> None:
        """Deletes some nodes of an ended flow, or the flow itself if there are none."""
        nodes = self._of(row.id)
        idle = [job for job in nodes if job.state.finished or job.state is State.BLOCKED]
        for job in idle[:limit]:
            self._index.remove(job)
        if nodes and not idle:
            # A person runs one of them once more.
            self.tables.save([replace(row, at=max(now, row.at) + _POSTPONED)])
        if not nodes:
            self.tables.drop_gates(self.tables.all_gates(row.id))
            if (root := self._index.jobs.get(row.id)) is not None:
                self._index.remove(root)
            del self.tables.flows[row.id]

    # Signals

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        with self._lock:
            address = signal.name, signal.key
            kept = self._signals[address]
            if any(one.id == signal.id for one in kept):
                return 0, False
            self._last[address] += 1
            self._signals[address] = [*kept, replace(signal, n=self._last[address])][-MOST_KEPT:]
            # Others would look, and not find this one.
            last = self._last[address]
            waiting = [one for one in self._awaiting.values() if (one.name, one.key) == address and one.after < last]
            woken = sum(self._wake_job(one, now) for one in waiting)
            if woken:
                self._wake(WakeReason.WORK, WakeReason.STEP)
            # All at once: nothing can break off between.
            return woken, False

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        return 0, False

    def _wake_job(self, one: SignalWait, now: int) -> bool:
        """Makes a job ready that awaits a signal which has come; False if it does not sleep for it any more."""
        self._awaiting.pop(one.job, None)
        if not self._sleeps(one):
            return False
        job = flow_rules.wake(self._index.jobs[one.job], now)
        self._index.put(job.id, job)
        return True

    def _sleeps(self, one: SignalWait) -> bool:
        job = self._index.jobs.get(one.job)
        return job is not None and job.state is State.SCHEDULED and job.epoch == one.epoch

    def _await(self, change: Change) -> None:
        awaits = change.awaits
        assert awaits is not None
        one = SignalWait(awaits.name, awaits.key, change.id, change.epoch, awaits.after)
        if not self._sleeps(one):
            return
        kept = self._signals.get((awaits.name, awaits.key))
        if kept and kept[-1].n > awaits.after:
            # It came between the look of the task and this suspension. The last number does not tell: its signal may
            # have been deleted since, and the job would find nothing.
            self._wake_job(one, change.state_since)
        else:
            self._awaiting[change.id] = one

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        with self._lock:
            kept = self._signals.get((name, key), [])
            return kept[bisect_left(kept, after + 1, key=lambda signal: signal.n) :]

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        with self._lock:
            found = [one for one in self._awaiting.values() if one.name.startswith(prefix) and self._sleeps(one)]
        left = [one for one in found if after is None or one.place > after.place]
        return sorted(left, key=lambda one: one.place)[: max(0, limit)]

    def _drop_signals(self, now: int, limit: int) -> bool:
        old = [(address, one) for address, kept in self._signals.items() for one in kept if one.until <= now]
        for address, one in old[:limit]:
            self._signals[address].remove(one)
        return len(old) > limit
