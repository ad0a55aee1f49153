"""What people and programs see of a flow: `tarry flows --json`, and the HTTP API."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tarry.client.flows.flow_results import nodes_of
from tarry.client.flows.root import name_of, read_root
from tarry.client.flows.searching import state_of
from tarry.client.job_records import JobRecord, decode_json, job_fields
from tarry.model.attempts import short_error
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import index_of, node_id
from tarry.model.flow.wiring import Ref, added_nodes
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.flow_rules import wiring_of
from tarry.model.job import HELD, Job, State
from tarry.store.rules import ids
from tarry.store.rules.flow_folding import FailedNode, NodeGroup
from tarry.store.rules.flow_graph import LOOKED_AT, Graph, read_graph

if TYPE_CHECKING:
    from tarry.client.client import Client

MOST_RESULT = 256 * 1024
"""Bytes of a result that is shown with its flow."""
MOST_PARTS = 1000
"""Nodes from which a result that is shown is read."""


class FlowRecord(Struct, frozen=True):
    """A flow. Times are seconds since the epoch; null: none."""

    id: str
    name: str
    key: str | None
    queue: str
    """The queue that it was made with. A caller that may see this queue may see the flow."""
    state: State
    """`running` until it has ended; then `done`, `dead` or `cancelled`."""
    phase: str
    """`storing`, `running`, `cancelling`, `undoing` or `ended`."""
    size: int
    """How many jobs it has."""
    ended: int
    """How many of them have ended, well or not."""
    active: int
    """How many are ready, scheduled or running."""
    blocked: int
    """How many wait for others."""
    failed: int
    """How many ended so that they stop it."""
    created: float
    finished: float | None
    deadline: float | None
    """If it has not ended then, it is cancelled, and dead."""
    kept_until: float | None
    """Once it has ended: when it is deleted."""
    note: Any
    """Why it is dead or cancelled: an object with `type`, `message` and `node`, the index of the job that failed first;
    0: none did."""


class FailedNodeRecord(Struct, frozen=True):
    """A job of a flow that is dead or cancelled. since: seconds since the epoch."""

    index: int
    id: str
    state: State
    error: str
    """In short."""
    since: float


class BoxRecord(Struct, frozen=True):
    """Jobs of a flow that are alike: they run the same task, after the same jobs and before the same. Times are seconds
    since the epoch; null: not known, or not yet."""

    first: int
    """The index of the first of them, which names the box."""
    last: int
    count: int
    looked_at: int
    """How many of them were read: what follows is of these. Fewer than `count` in very wide flows."""
    label: str
    task: str
    queue: str
    states: dict[State, int]
    """How many are in each state."""
    after: list[int]
    """`first` of the boxes whose jobs run before these."""
    on_failure: str
    """`stop`, `go_on` or `compensate`."""
    failures: int
    """The most failed attempts of one job."""
    since: float | None
    """Since when a job is in its state that has not ended; of several, the earliest."""
    started: float | None
    """When the first attempt began, if that is on record."""
    ended: float | None
    """When the last one ended, of those that have."""
    failed: list[FailedNodeRecord]
    """The first of those that are dead or cancelled."""
    undo: str | None
    """The task that undoes such a job."""
    unlinked: bool
    """Nothing releases them: they were added by an attempt that has not ended well."""


class FlowDetail(FlowRecord, frozen=True):
    """A flow, with its graph and its result."""

    failed_job: FailedNodeRecord | None
    """The job that failed first, if it is there still."""
    result: Any
    """What it returned, once it is done."""
    result_omitted: str
    """Why `result` is null though there is one; empty: it is not."""
    boxes: list[BoxRecord]
    """At most 200, by `first`."""
    looked_at: int
    """How many jobs were read for the boxes."""
    left_out: int
    """How many jobs are in no box: there are too many."""
    hidden: int
    """How many jobs are of queues that the caller may not see."""


class NodeRecord(JobRecord, frozen=True):
    """A job of a flow. In its `args` the results of others are null."""

    index: int
    """Its number in the flow, from 1."""
    label: str
    """The name that it was given; else that of its task."""


def flow_record(row: FlowRow) -> FlowRecord:
    """The record of a flow, whose row has its root."""
    return FlowRecord(**_fields(row))


def without_error(record: FlowRecord) -> FlowRecord:
    """The same, for a reader who may not see what the job that failed said."""
    note = record.note
    return replace(record, note={**note, "message": ""}) if isinstance(note, dict) and note.get("node") else record


def node_record(job: Job, attempts: int | None = None) -> NodeRecord:
    """The record of a job of a flow. attempts: `most_attempts`."""
    label = wiring_of(job).label or job.task
    return NodeRecord(**job_fields(job, attempts), index=index_of(job.id), label=label)


def flow_detail(
    client: "Client", row: FlowRow, allows: Callable[[str], bool] = lambda queue: True, most: int = LOOKED_AT
) -> FlowDetail:
    """A flow as it is now, from up to `most` of its jobs. row: with its root. allows: whether the reader may see a
    queue; `*`: all queues."""
    graph = read_graph(client.store.flows, row, most)
    result, omitted = _result(client, row, allows)
    boxes = [box for box in graph.boxes if allows(box.queue)]
    record, failed = flow_record(row), _failed_job(client, row)
    # Of one that is gone nobody knows the queue any more.
    if not allows("*" if failed is None else failed.queue):
        record, failed = without_error(record), None
    return FlowDetail(
        **asdict(record),
        failed_job=None if failed is None else _failed_node_record(_as_failed(failed)),
        result=result,
        result_omitted=omitted,
        boxes=[_box(box, {box.first for box in boxes}) for box in boxes],
        looked_at=graph.looked_at,
        left_out=graph.left_out,
        hidden=_hidden(graph, allows),
    )


def _fields(row: FlowRow) -> dict[str, Any]:
    root = row.root
    assert root is not None
    size = row.size - 1 - (row.undo != 0)
    has_ended = row.phase is Phase.ENDED
    has_deadline = row.phase not in (Phase.ENDED, Phase.STORING) and row.at < HELD
    return {
        "id": ids.text(row.id),
        "name": name_of(root),
        "key": root.key,
        "queue": root.queue,
        "state": state_of(row),
        "phase": row.phase.name.lower(),
        "size": size,
        "ended": max(0, size - row.active - row.blocked),
        "active": row.active,
        "blocked": row.blocked,
        "failed": row.failed,
        "created": root.created / SECOND,
        "finished": root.state_since / SECOND if has_ended else None,
        "deadline": row.at / SECOND if has_deadline else None,
        "kept_until": row.at / SECOND if has_ended else None,
        "note": decode_json(root.note if has_ended else row.note),
    }


def _box(box: NodeGroup, shown: set[int]) -> BoxRecord:
    return BoxRecord(
        box.first, box.last, box.count, box.looked_at, box.label, box.task, box.queue, dict(box.states),
        [first for first in box.after if first in shown], box.on_failure, box.failures, _seconds(box.since),
        _seconds(box.started), _seconds(box.ended), [_failed_node_record(one) for one in box.failed],
        box.undoes or None, box.is_unlinked,
    )  # fmt: skip


def _failed_node_record(node: FailedNode) -> FailedNodeRecord:
    return FailedNodeRecord(node.index, ids.text(node.id), node.state, node.error, node.since / SECOND)


def _as_failed(job: Job) -> FailedNode:
    return FailedNode(index_of(job.id), job.id, job.state, short_error(job.note), job.state_since)


def _seconds(moment: int) -> float | None:
    return moment / SECOND or None


def _failed_job(client: "Client", row: FlowRow) -> Job | None:
    note = decode_json(row.note)
    index = note.get("node") if isinstance(note, Mapping) else None
    if not isinstance(index, int) or not 0 < index < row.size:
        return None
    (job,) = client.store.get([node_id(row.id, index)])
    return job if job is not None and job.state in (State.DEAD, State.CANCELLED) else None


def _hidden(graph: Graph, allows: Callable[[str], bool]) -> int:
    return sum(box.count for box in graph.boxes if not allows(box.queue))


def _result(client: "Client", row: FlowRow, allows: Callable[[str], bool]) -> tuple[Any, str]:
    """The result of a flow that is done, and why it is left out."""
    root = row.root
    if root is None or root.state is not State.DONE:
        return None, ""
    body = read_root(root)
    if body.returns is None:
        return ([] if body.is_list else None), ""
    reader = _ResultReader(client, row.id, allows)
    try:
        # Parts of a map are lists, which are joined.
        found = [
            each
            for ref in body.parts
            for result in reader.read(ref)
            for each in (result or [] if ref.count < 0 else [result])
        ]
    except _Omitted as reason:
        return None, str(reason)
    return body.shape(found), ""


class _Omitted(Exception):
    """Why a result is not shown."""


class _ResultReader:
    """Reads a result as JSON, as long as it is small."""

    def __init__(self, client: "Client", flow: bytes, allows: Callable[[str], bool]) -> None:
        self._client, self._flow, self._allows = client, flow, allows
        self._parts = self._bytes = 0

    def read(self, ref: Ref) -> list[Any]:
        """The results of these nodes."""
        self._parts += len(ref.nodes)
        if self._parts > MOST_PARTS:
            raise _Omitted(f"it has more than {MOST_PARTS:,} parts")
        return [self._value(job) for job in nodes_of(self._client, self._flow, ref)]

    def _value(self, job: Job | None) -> Any:
        if job is None or job.state is not State.DONE:
            return None
        if not self._allows(job.queue):
            raise _Omitted("it is of a queue that this caller may not see")
        added = added_nodes(job.note)
        if added is not None:
            return self.read(added)
        self._bytes += len(job.note)
        if self._bytes > MOST_RESULT:
            raise _Omitted(f"it has more than {MOST_RESULT // 1024} KB")
        return decode_json(job.note)
