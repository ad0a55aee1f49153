"""Folds the nodes of a flow into boxes: nodes that wait for the same, tell the same and run the same task are alike."""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

from msgspec import Struct

from tarry.model.attempts import attempts_of, short_error
from tarry.model.flow.node_ids import index_of
from tarry.model.flow.wiring import UNDO_TASK, Gate, NodeLinks, added_nodes, opened_by
from tarry.model.flow_row import FlowRow
from tarry.model.flow_rules import wiring_of
from tarry.model.job import RELATIVE, Job, State

MOST_BOXES = 200
FAILED_SHOWN = 10
"""How many failed nodes of a box are named."""
ON_FAILURE = ("stop", "go_on", "compensate")
_FAILED = (State.DEAD, State.CANCELLED)


class FailedNode(Struct, frozen=True):
    """A node that is dead or cancelled."""

    index: int
    id: bytes
    state: State
    error: str
    """Type and message, in short."""
    since: int
    """Microseconds since the epoch."""


class NodeGroup(Struct, frozen=True):
    """Alike nodes. Times are microseconds since the epoch; 0: not known."""

    first: int
    """The index of the first of them."""
    last: int
    count: int
    looked_at: int
    """How many of them were read: all other facts are of these."""
    label: str
    """The name that was given to the node; else that of its task."""
    task: str
    queue: str
    states: Mapping[State, int]
    after: tuple[int, ...]
    """`first` of the boxes whose nodes run before these."""
    on_failure: str
    """`stop`, `go_on` or `compensate`."""
    failed: tuple[FailedNode, ...]
    """Some of those that are dead or cancelled."""
    failures: int
    """The most attempts of one node that failed."""
    since: int
    """Since when a node is as it is that has not ended; of several, the earliest."""
    started: int
    """When the first attempt began, as far as there is a record of it."""
    ended: int
    """When the last node ended that has."""
    undoes: str = ""
    """The task that undoes such a node."""
    is_unlinked: bool = False
    """No node releases them: they were added by an attempt that has not ended well."""


class _BoxCounts:
    """A box while nodes are added."""

    __slots__ = ("count", "ended", "failed", "failures", "first", "job", "last", "looked_at", "since", "started",
                 "states", "unlinked", "wiring")  # fmt: skip

    def __init__(self, job: Job, wiring: NodeLinks, unlinked: bool) -> None:
        self.first, self.job, self.wiring, self.unlinked = index_of(job.id), job, wiring, unlinked
        self.last = self.first
        self.count = self.looked_at = self.failures = self.since = self.started = self.ended = 0
        self.states: Counter[State] = Counter()
        self.failed: dict[int, FailedNode] = {}

    def add(self, job: Job) -> None:
        """Counts a node."""
        self.last = index_of(job.id)
        self.count += 1
        self.looked_at += 1
        self.states[job.state] += 1
        self.failures = max(self.failures, job.failures)
        if job.state.finished:
            self.ended = max(self.ended, job.state_since)
        else:
            self.since = _earlier(self.since, job.state_since)
        self.started = _earlier(self.started, _start_of(job))
        if job.state in _FAILED:
            self.add_failed(job)

    def add_failed(self, job: Job) -> None:
        """Names a failed node, if not enough are named."""
        if len(self.failed) < FAILED_SHOWN:
            index = index_of(job.id)
            self.failed[index] = FailedNode(index, job.id, job.state, short_error(job.note), job.state_since)

    def seen(self, after: set[int]) -> NodeGroup:
        """The box as it is seen."""
        job, wiring = self.job, self.wiring
        label = "undo" if job.task == UNDO_TASK else wiring.label or job.task
        on_failure = ON_FAILURE[wiring.on_failure] if 0 <= wiring.on_failure < len(ON_FAILURE) else ON_FAILURE[0]
        return NodeGroup(
            self.first, self.last, self.count, self.looked_at, label, job.task, job.queue, dict(self.states),
            tuple(sorted(after - {self.first})), on_failure,
            tuple(failed for _, failed in sorted(self.failed.items())), self.failures, self.since, self.started,
            self.ended, wiring.undo[0] if wiring.undo else "", self.unlinked,
        )  # fmt: skip


class _SeenGate:
    """A gate that was told. sources: `first` of the boxes whose nodes tell it."""

    __slots__ = ("end", "first", "sources")

    def __init__(self, gate: Gate) -> None:
        self.first, self.end = gate.first, gate.first + gate.count
        self.sources: set[int] = set()


class NodeGrouping:
    """Takes the nodes of a flow by index. A node tells its gates before the nodes of the gates come; only nodes that
    were added at run time tell gates before them."""

    def __init__(self, row: FlowRow) -> None:
        self._row = row
        self._boxes: dict[Hashable, _BoxCounts] = {}
        self._gates: dict[int, _SeenGate] = {}
        # First indices of gates whose nodes come later; each node is in one gate at most.
        self._ahead: list[int] = []
        self._gate: _SeenGate | None = None
        # Where runs of alike nodes begin, and their boxes.
        self._starts: list[int] = []
        self._runs: list[_BoxCounts | None] = []
        self._key: Hashable = None
        self.run_length = 0
        self.left_out = self.failed = 0

    def add(self, job: Job) -> None:
        """Adds the next node."""
        index = index_of(job.id)
        if index == self._row.undo and not self._row.armed:
            return  # It undoes the others if one fails; none has.
        self._enter(index)
        wiring = wiring_of(job)
        key = self._key_of(job, wiring)
        if key != self._key or not self._runs:
            self._begin_run(index, key, job, wiring)
        self.run_length += 1
        self.failed += job.state in _FAILED
        box = self._runs[-1]
        if box is None:
            self.left_out += 1
            return
        box.add(job)
        self._tell(box, job, wiring)

    def add_failed(self, job: Job) -> None:
        """Names a failed node that was skipped."""
        run = bisect_right(self._starts, index_of(job.id)) - 1
        box = self._runs[run] if run >= 0 else None
        if box is not None and box.first <= index_of(job.id) <= box.last:
            box.add_failed(job)

    def skip(self, count: int) -> None:
        """So many nodes of this run are not read."""
        box = self._runs[-1]
        if box is None:
            self.left_out += count
        else:
            box.count += count

    def continues(self, job: Job) -> bool:
        """Whether a node is alike those of this run."""
        return self._key_of(job, wiring_of(job)) == self._key

    def run_ends_before(self, size: int) -> int:
        """The index after the last one that this run may have. size: of the flow."""
        end = min(size, self._gate.end) if self._gate is not None else size
        return min(end, self._ahead[0]) if self._ahead else end

    def boxes(self) -> tuple[NodeGroup, ...]:
        """All boxes, by their first index."""
        after: dict[int, set[int]] = {box.first: set() for box in self._boxes.values()}
        for gate in self._gates.values():
            for box in self._boxes_in(gate):
                after[box.first] |= gate.sources
        found = sorted(self._boxes.values(), key=lambda box: box.first)
        return tuple(box.seen(after[box.first]) for box in found)

    def _boxes_in(self, gate: _SeenGate) -> Iterator[_BoxCounts]:
        run = max(0, bisect_right(self._starts, gate.first) - 1)
        while run < len(self._runs) and self._starts[run] < gate.end:
            box = self._runs[run]
            if box is not None and box.last >= gate.first:
                yield box
            run += 1

    def _enter(self, index: int) -> None:
        """Which gate the node with this index is in."""
        if self._gate is not None and index >= self._gate.end:
            self._gate = None
        while self._ahead and self._ahead[0] <= index:
            gate = self._gates[heapq.heappop(self._ahead)]
            if index < gate.end:
                self._gate = gate

    def _key_of(self, job: Job, wiring: NodeLinks) -> Hashable:
        sources = frozenset(self._gate.sources) if self._gate is not None else None
        undo = wiring.undo and wiring.undo[0]
        return (
            sources, job.task, job.queue, wiring.tells, wiring.on_failure, wiring.label, undo, self._is_unlinked(job),
        )  # fmt: skip

    def _is_unlinked(self, job: Job) -> bool:
        # Those that wait for none are blocked too until a large flow is stored whole, but their times are not relative.
        return self._gate is None and job.state is State.BLOCKED and job.due < RELATIVE

    def _begin_run(self, index: int, key: Hashable, job: Job, wiring: NodeLinks) -> None:
        box = self._boxes.get(key)
        if box is None and len(self._boxes) < MOST_BOXES:
            box = self._boxes[key] = _BoxCounts(job, wiring, self._is_unlinked(job))
        self._key, self.run_length = key, 0
        self._starts.append(index)
        self._runs.append(box)

    def _tell(self, box: _BoxCounts, job: Job, wiring: NodeLinks) -> None:
        added = added_nodes(job.note) if job.state is State.DONE else None
        if added is not None:
            self._told(Gate(added.first, opened_by(job.note), 1)).sources.add(box.first)
        for gate in wiring.tells:
            told = self._told(gate)
            if added is None:
                # The nodes that it has added tell it instead.
                told.sources.add(box.first)

    def _told(self, gate: Gate) -> _SeenGate:
        seen = self._gates.get(gate.first)
        if seen is None:
            seen = self._gates[gate.first] = _SeenGate(gate)
            heapq.heappush(self._ahead, gate.first)
        return seen


def _earlier(one: int, other: int) -> int:
    """The earlier of two times of which 0 is none."""
    return min(one, other) if one and other else one or other


def _start_of(job: Job) -> int:
    """When its first attempt began, if that is on record."""
    if job.state is not State.RUNNING and not job.attempts:
        return 0
    kept = attempts_of(job).attempts
    return kept[0].started if kept else 0
