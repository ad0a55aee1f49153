"""Where a job stands in its flow: after which jobs it runs, and which wait for it."""

from collections.abc import Sequence

from msgspec import Struct

from tarry import errors
from tarry.client.flows.flow_records import BoxRecord, FlowDetail
from tarry.model.flow.node_ids import index_of
from tarry.model.job import State
from tarry.operate.flows import FlowPath, NodesQuery, list_nodes, show_flow
from tarry.operate.jobs import JobAnswer
from tarry.server.console.views.flow_graph import label_of, page_of
from tarry.server.http.method import ApiCall
from tarry.store.rules import ids


class Neighbour(Struct, frozen=True):
    """Alike jobs beside a job in its flow. where: their page."""

    label: str
    where: str
    states: Sequence[tuple[State, int]]


class JobPlace(Struct, frozen=True):
    """Where a job stands in its flow."""

    flow: FlowDetail
    index: int
    """0: the job stands for the flow itself."""
    label: str
    after: Sequence[Neighbour] = ()
    before: Sequence[Neighbour] = ()


def place_of(call: ApiCall, job: JobAnswer) -> JobPlace | None:
    """Where it stands; None: it is of no flow, or of one that the reader may not see or that is gone."""
    if job.flow is None:
        return None
    path, index = FlowPath(job.flow), index_of(ids.parse(job.id))
    try:
        flow = show_flow.handler(call, path)
        found = list_nodes.handler(call, path, NodesQuery(after=index - 1, limit=1)).jobs if index else []
    except (errors.JobNotFound, errors.NotAllowed):
        return None
    label = found[0].label if found else job.task
    box = next((box for box in flow.boxes if _holds(box, job, index, label)), None)
    if box is None:
        return JobPlace(flow, index, label)
    after = [_neighbour(flow.id, one) for one in flow.boxes if one.first in box.after]
    before = [_neighbour(flow.id, one) for one in flow.boxes if box.first in one.after]
    return JobPlace(flow, index, label, after, before)


def _holds(box: BoxRecord, job: JobAnswer, index: int, label: str) -> bool:
    return box.first <= index <= box.last and (box.label, box.task, box.queue) == (label, job.task, job.queue)


def _neighbour(flow: str, box: BoxRecord) -> Neighbour:
    return Neighbour(label_of(box), page_of(flow, box), list(box.states.items()))
