"""Builds flows: from calls, and what they wait for, to the jobs and gates that a store keeps.

Who tells whom in a flow: its gates, and for each node the gates that wait for its end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.flows.flow_options import FlowOptions, check_node
from tarry.client.flows.node import nodes_among
from tarry.client.flows.root import RootBody, make_root
from tarry.client.job_factory import JobFactory
from tarry.errors import ArgumentError
from tarry.model.duration import microseconds
from tarry.model.flow.node_ids import MAX_NODES, node_id
from tarry.model.flow.wiring import AFTER, COMPENSATE, UNDO_TASK, Gate, NodeLinks, Ref, Take, wrap
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.job import HELD, RELATIVE, Job, State, with_inherited
from tarry.model.lifecycle import Rules
from tarry.model.limit import EACH, Limit
from tarry.store.rules.flows import FLOW_TASK, NewFlow, NodeLane
from tarry.tasks.arguments.options import Options
from tarry.tasks.arguments.pending_results import NodeResult, encode_with_results, results_in
from tarry.tasks.call import Call
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import labels_to_inherit
from tarry.tasks.shield import shielded

ParentEdges = tuple[tuple[int, int], ...]
"""Indices of nodes as ranges, first and count, in order and apart from each other."""


class Edges(Struct, frozen=True):
    """gates: by index. tells: the gates that each node tells, by its index."""

    gates: list[Gate]
    tells: dict[int, list[Gate]]


def join_refs(refs: Iterable[Ref]) -> ParentEdges:
    """The nodes of these results, as ranges."""
    ranges: list[tuple[int, int]] = []
    for first, count in sorted({(ref.first, len(ref.nodes)) for ref in refs}):
        if ranges and first <= sum(ranges[-1]):
            start = ranges[-1][0]
            ranges[-1] = start, max(sum(ranges[-1]), first + count) - start
        else:
            ranges.append((first, count))
    return tuple(ranges)


def wire(parents: Sequence[ParentEdges]) -> Edges:
    """The wires between nodes. parents: what each waits for, from the node with the index 1."""
    gates = _gates(parents)
    tells: defaultdict[int, list[Gate]] = defaultdict(list)
    for gate in gates:
        for first, count in parents[gate.first - 1]:
            for index in range(first, first + count):
                tells[index].append(gate)
    return Edges(gates, dict(tells))


def _gates(parents: Sequence[ParentEdges]) -> list[Gate]:
    gates: list[Gate] = []
    for index, own in enumerate(parents, 1):
        if not own:
            continue
        # Nodes that follow each other and wait for the same are one gate: a wide group costs one row.
        if gates and gates[-1].first + gates[-1].count == index and parents[gates[-1].first - 1] == own:
            gates[-1] = Gate(gates[-1].first, gates[-1].count + 1, gates[-1].parents)
        else:
            gates.append(Gate(index, 1, sum(count for _, count in own)))
    return gates


class PlannedNode(Struct, gc=False):
    """A node that is not stored yet. job: without its id and its wiring; None: it has not passed the middleware."""

    call: Call[Any]
    parents: ParentEdges
    on_failure: int
    label: str
    undo: tuple[str, str, bytes] | None = None
    job: Job | None = None
    takes: tuple[Take, ...] = ()
    reads: Sequence[Ref] = ()


class FlowBuilder:
    """The nodes of one flow, in the order in which they were added. A node can only name nodes before it."""

    def __init__(self, factory: JobFactory, name: str, options: FlowOptions) -> None:
        self._factory, self.name, self.options = factory, name, options
        self.planned: list[PlannedNode] = []

    @property
    def lanes(self) -> set[NodeLane]:
        """The lanes of keys in which its jobs will wait."""
        return {lane for node in self.planned if node.call.task.lane and (lane := _node_lane(node)).lane}

    def add(
        self,
        call: Any,
        after: Iterable[Ref] = (),
        on_failure: int = 0,
        label: str = "",
        undo: Any = None,
        reads: Sequence[Ref] = (),
    ) -> Ref:
        """Adds a node; ArgumentError if its arguments do not fit, and ValueError for a wrong option.

        after: what it waits for besides the results among its arguments. reads: which results it may read.
        """
        if type(call) is not Call:
            raise TypeError(f"{call!r} is no call of a task: write task.call(...)")
        if len(self.planned) + 2 > MAX_NODES:
            raise ValueError(f"flow {self.name}: at most {MAX_NODES - 1:,} nodes")
        check_node(call.task.name, call.options)
        node = PlannedNode(call, join_refs((*after, *self.refs(call.task, call.args, call.kwargs))), on_failure, label)
        node.reads = reads
        # With middleware it waits for the end of the block: an `async def` must be awaited.
        if not call.task.app_hooks.has_enqueue_hooks:
            self.make(node, call.args, call.kwargs, call.options)
        if undo is not None:
            node.undo = self._undo(undo, Ref(len(self.planned) + 1))
        self.planned.append(node)
        return Ref(len(self.planned))

    def _undo(self, call: Any, own: Ref) -> tuple[str, str, bytes]:
        """How a node is undone; BodyTooLarge. own: its own result, which is the first argument if the call lacks
        that."""
        if type(call) is not Call:
            raise TypeError(f"undo={call!r} is no call of a task: write task.call(...)")
        task = call.task
        if task.lane or task.runner:
            raise ValueError(f"undo={call!r}: a task that is limited, or sends requests, cannot undo")
        lacks_first = not task.codec.fits(call.args, call.kwargs)
        args = (NodeResult(self, (own,)), *call.args) if lacks_first else call.args
        body, takes = _encode(task, args, call.kwargs)
        self._factory.require_in_store(f"{task.name}: the arguments of undo= take", body)
        return task.name, call.options.queue or task.queue, wrap(NodeLinks(takes=takes), body) if takes else body

    def make(
        self, node: PlannedNode, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, headers: bytes = b""
    ) -> None:
        """Makes the job of a node, with these arguments; ArgumentError."""
        task = node.call.task
        body, takes = _encode(task, args, kwargs)
        node.takes = (*takes, *(Take(AFTER, ref) for ref in node.reads))
        lane, options = _lane(task, args, kwargs), _with_cost(task, options, args, kwargs)
        if self.options.queue is not None and options.queue is None:
            options = replace(options, queue=self.options.queue)
        if self.options.labels:
            options = replace(options, labels=with_inherited(options.labels, self.options.labels))
        with shielded:
            job = self._factory.make(task, body, lane, options, headers)
        node.job = _block_job(job, task, options) if node.parents else job

    def check(self, node: PlannedNode, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> None:
        """Checks what middleware made of a call; ValueError, ArgumentError."""
        task = node.call.task
        check_node(task.name, options)
        if join_refs((*map(_as_ref, node.parents), *self.refs(task, args, kwargs))) != node.parents:
            raise ArgumentError(f"{task.name}: a middleware gave it the result of a node that it does not wait for")

    def finish(self, id: bytes, now: int, rules: Callable[[str, str], Rules], body: RootBody) -> NewFlow:
        """The flow as it is stored. now: microseconds since the epoch."""
        wires = wire([node.parents for node in self.planned])
        if undo := self._undoes():
            body = replace(body, undo=undo)
        nodes = [stored_node(id, index, node, wires.tells.get(index, ())) for index, node in enumerate(self.planned, 1)]
        rows = [GateRow(id, gate.first, gate.count, gate.parents) for gate in wires.gates if gate.parents > 1]
        labels = with_inherited(self.options.labels, labels_to_inherit())
        root = make_root(id, self.name, self.options.key, self.options.queue or "default", body, now, labels)
        row = self._row(id, now, rules, blocked=sum(bool(node.parents) for node in self.planned))
        if undo:
            undoes = Job(node_id(id, undo), UNDO_TASK, wrap(NodeLinks(), b"[]"), root.queue, headers=root.headers)
            nodes.append(replace(undoes, state=State.BLOCKED, state_since=now))
            row = replace(row, size=row.size + 1, undo=undo)
        return NewFlow(root, row, nodes, rows) if nodes else NewFlow(*_end_empty_flow(root, row, now), ())

    def _undoes(self) -> int:
        """The index of the node that undoes the others; 0: none is needed."""
        asks = any(node.on_failure == COMPENSATE for node in self.planned)
        return len(self.planned) + 1 if asks and any(node.undo for node in self.planned) else 0

    def refs(self, task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Ref]:
        """What a call with these arguments waits for; ArgumentError for a result of another flow."""
        found = list(results_in(args, kwargs))
        if any(result.flow is not self for result in found):
            raise ArgumentError(f"{task.name}: an argument is the result of a node of another flow")
        return [ref for result in found for ref in (*result.refs, *result.waits)]

    def _row(self, id: bytes, now: int, rules: Callable[[str, str], Rules], blocked: int) -> FlowRow:
        options, size = self.options, len(self.planned) + 1
        at = HELD if options.deadline is None else now + microseconds(options.deadline)
        rule = rules(FLOW_TASK + self.name, options.queue or "default")
        keep = None if options.keep is None else microseconds(options.keep)
        return FlowRow(
            id, Phase.RUNNING, at, size, active=size - 1 - blocked, blocked=blocked,
            keep_done=rule.keep_done if keep is None else keep, keep_dead=rule.keep_dead if keep is None else keep,
        )  # fmt: skip


def stored_node(flow: bytes, index: int, node: PlannedNode, tells: Sequence[Gate]) -> Job:
    """The job of a node, which tells these gates of its end."""
    job = node.job
    assert job is not None
    wiring = NodeLinks(tuple(tells), node.takes, node.on_failure, node.label, node.undo)
    return replace(job, id=node_id(flow, index), body=wrap(wiring, job.body))


def _end_empty_flow(root: Job, row: FlowRow, now: int) -> tuple[Job, FlowRow, tuple[Job, ...]]:
    """A flow without nodes has ended before it begins."""
    done = replace(root, state=State.DONE, keep_until=HELD, key_held_until=0)
    return done, replace(row, phase=Phase.ENDED, at=now + row.keep_done), ()


def _block_job(job: Job, task: TaskDefinition[Any, Any], options: Options) -> Job:
    """The job of a node that waits for others: a delay, and its expiry, count from its release."""
    expires = task.expires if options.expires is None else options.expires
    delay = task.due_after if options.delay is None else microseconds(options.delay)
    due = delay if options.at is None else job.due
    # A moment before RELATIVE would be taken for a delay; it has passed long ago.
    due = 0 if options.at is not None and due < RELATIVE else due
    return replace(job, state=State.BLOCKED, due=due, expires=0 if expires is None else microseconds(expires))


def _encode(
    task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, tuple[Take, ...]]:
    """The body of a call, and which of its arguments are results; ArgumentError."""
    try:
        return encode_with_results(task.codec, args, kwargs)
    except ArgumentError:
        # Looked for only now: the right calls of a large group should not pay for it.
        for node in nodes_among(args, kwargs):
            raise ArgumentError(f"{task.name}: {node!r} is a node; what it will return is `.result` of it") from None
        raise


def _with_cost(
    task: TaskDefinition[Any, Any], options: Options, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Options:
    try:
        return task.with_cost(options, args, kwargs)
    except TypeError as error:
        if next(results_in(args, kwargs), None) is not None:
            raise ArgumentError(f"{task.name}: cost= cannot use the result of another node: {error}") from None
        raise


def _node_lane(node: PlannedNode) -> NodeLane:
    call = node.call
    # One that has not passed the middleware has no job yet.
    lane = _lane(call.task, call.args, call.kwargs) if node.job is None else node.job.lane
    each = call.task.limits.get(EACH + call.task.name, Limit())
    return NodeLane(call.task.name, lane or "", each.most is not None or each.count > 0 or call.task.runner is not None)


def _lane(task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    try:
        return task.lane and task.lane(args, kwargs)
    except TypeError as error:
        if next(results_in(args, kwargs), None) is not None:
            setting = "order_by" if task.keeps_order else "limit_by"
            raise ArgumentError(f"{task.name}: {setting}= cannot use the result of another node: {error}") from None
        raise


def _as_ref(parents: tuple[int, int]) -> Ref:
    return Ref(*parents)
