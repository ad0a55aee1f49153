"""Methods about flows: look at them and their jobs, retry and cancel them."""

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from tarry import errors
from tarry.client.flows.flow_records import (
    FlowDetail,
    FlowRecord,
    NodeRecord,
    flow_detail,
    flow_record,
    node_record,
    without_error,
)
from tarry.client.flows.searching import FLOW_STATES, FlowSearch, fetch_flow, search_flows
from tarry.client.job_records import most_attempts
from tarry.model.flow.node_ids import MAX_NODES, flow_of, index_of, is_node, is_root
from tarry.model.flow_row import FlowRow
from tarry.model.job import State, States
from tarry.model.lifecycle import NotPossible
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.store.rules import flow_operating, ids
from tarry.store.rules.flow_graph import ALL_LOOKED_AT, LOOKED_AT, read_graph
from tarry.store.rules.ids import IdText
from tarry.store.rules.partial_result import partial_result
from tarry.tasks.arguments.options import Name


class FlowPath(Struct):
    """The flow of a path."""

    id: IdText


class FlowsQuery(Struct, forbid_unknown_fields=True):
    """Which flows to list; what is left out matches all."""

    state: State | None = None
    """`running` (not ended), `done`, `dead` or `cancelled`."""
    name: Name | None = None
    key: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Short | None = None
    """`next` of the page before."""


class FlowPage(Struct, frozen=True):
    """Some of the flows that match, the newest first."""

    flows: list[FlowRecord]
    next: str | None
    """The cursor of the next page; null: there is none. A page may have few flows, or none, and a next."""
    missing: str | None = None
    """Why some flows are not listed: a store that is away; null: all are."""


class NodesQuery(Struct, forbid_unknown_fields=True):
    """Which jobs of a flow to list."""

    after: Annotated[int, Meta(ge=0, le=MAX_NODES)] = 0
    """Only those with a greater index."""
    state: States = []
    """In one of these states; may be given several times."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class NodePage(Struct, frozen=True):
    """Some jobs of a flow, by index."""

    jobs: list[NodeRecord]
    next: int | None
    """`after` of the next page; null: there is none."""


class FlowCancelRequest(Struct, forbid_unknown_fields=True):
    """Why a flow is cancelled."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class FlowCancelAnswer(Struct, frozen=True):
    """What became of a cancel."""

    id: str
    cancelled: bool
    """False: it had ended already, or is being undone, and is unchanged."""
    detail: str
    """Why not; empty: it is cancelled."""
    flow: FlowRecord
    """As it is now: `cancelling` as long as jobs of it run."""


class FlowRetryAnswer(Struct, frozen=True):
    """What became of a retry."""

    id: str
    jobs: int
    """How many failed jobs run again."""
    flow: FlowRecord


@method("GET /v1/flows", Scope.READ, command="flows list")
def list_flows(call: MethodCall, query: FlowsQuery) -> FlowPage:
    """Lists flows, page by page, the newest first."""
    if query.state not in (None, *FLOW_STATES):
        said = f"state: a flow is {', '.join(FLOW_STATES)}, and not {query.state}"
        raise RequestError(said, "state", 422)
    before = b""
    if query.cursor is not None:
        with checking("cursor"):
            before = ids.parse(query.cursor)
    wanted = FlowSearch(query.state, query.name, query.key, query.limit, before, call.queues)
    found, away = partial_result(partial(search_flows, call.client.store, wanted))
    seen = [_list_record(call, row) for row in found.rows]
    following = None if found.next is None else ids.text(found.next)
    return FlowPage(seen, following, str(away) if away else None)


def _exists(call: MethodCall, path: FlowPath, body: object = None) -> None:
    fetch_to_change(call, path)


@method("GET /v1/flows/{id}", Scope.READ, errors=(errors.JobNotFound,), command="flows show")
def show_flow(call: MethodCall, path: FlowPath) -> FlowDetail:
    """Shows a flow: its graph, as boxes of alike jobs, and its result.

    Of very wide flows some 10,000 jobs are read: a box says of how many of its jobs its facts are. A caller for some
    queues sees the flows that were made with one of them, and of these only the jobs in them."""
    return flow_detail(call.client, fetch(call, path), call.allows, ALL_LOOKED_AT if call.may_take_long else LOOKED_AT)


@method("GET /v1/flows/{id}/nodes", Scope.READ, errors=(errors.JobNotFound,))
def list_nodes(call: MethodCall, path: FlowPath, query: NodesQuery) -> NodePage:
    """Lists the jobs of a flow, page by page, by index."""
    row, app = fetch(call, path), call.app
    page = app.client.store.flows.nodes(row.id, query.after, query.limit, tuple(query.state))
    seen = [job for job in page if call.allows(job.queue)]
    records = [node_record(call.shown(job), most_attempts(job, app.tasks, app.rules)) for job in seen]
    return NodePage(records, index_of(page[-1].id) if len(page) == query.limit else None)


@method(
    "POST /v1/flows/{id}/cancel", Scope.OPERATE, errors=(errors.JobNotFound,), command="flows cancel", check=_exists
)
def cancel_flow(call: MethodCall, path: FlowPath, body: FlowCancelRequest) -> FlowCancelAnswer:
    """Cancels a flow: nothing of it starts any more, and what is ready or runs is cancelled.

    It has ended once all of that has. A caller for some queues may do this if all jobs of the flow are in them."""
    row, client, detail = fetch_to_change(call, path), call.client, ""
    try:
        flow_operating.cancel_flow(client.store, row.id, client.clock.now(), body.reason)
    except NotPossible as error:
        detail = str(error)
    return FlowCancelAnswer(ids.text(row.id), not detail, detail, flow_record(fetch(call, path)))


@method(
    "POST /v1/flows/{id}/retry",
    Scope.OPERATE,
    errors=(errors.JobNotFound, NotPossible),
    command="flows retry",
    check=_exists,
)
def retry_flow(call: MethodCall, path: FlowPath) -> FlowRetryAnswer:
    """Lets a flow that is dead or cancelled go on: its failed jobs run again, and then what waits for them.

    What is done stays done. A caller for some queues may do this if all jobs of the flow are in them."""
    row, client = fetch_to_change(call, path), call.client
    try:
        count = flow_operating.retry_flow(client.store, row.id, client.clock.now())
    except NotPossible as error:
        raise RequestError(f"the flow is not retried: {error}", None, 409) from None
    return FlowRetryAnswer(ids.text(row.id), count, flow_record(fetch(call, path)))


def _list_record(call: MethodCall, row: FlowRow) -> FlowRecord:
    """The record of a flow; without the error of a job whose queue is not looked up."""
    record = flow_record(row)
    return record if call.allows(EVERY_QUEUE) else without_error(record)


def fetch(call: MethodCall, path: FlowPath) -> FlowRow:
    """The flow with its root, if the caller may do this with its queue; JobNotFound."""
    with checking("id"):
        id = ids.parse(path.id)
    if is_node(id) and not is_root(id):
        raise errors.JobNotFound(f"{path.id} is a job of the flow {ids.text(flow_of(id))}")
    row = fetch_flow(call.client.store, id)
    if row is None or row.root is None or not call.allows(row.root.queue):
        raise errors.JobNotFound(f"no flow {path.id}: it never existed, or its time of keeping is over")
    call.check(row.root.queue)
    return row


def fetch_to_change(call: MethodCall, path: FlowPath) -> FlowRow:
    """The same, if the caller may do this with all jobs of the flow."""
    row = fetch(call, path)
    if call.allows(EVERY_QUEUE):
        return row
    graph = read_graph(call.client.store.flows, row, LOOKED_AT)
    if not all(call.allows(box.queue) for box in graph.boxes):
        raise errors.NotAllowed("the flow has jobs in queues that this token is not for: this takes a token for them")
    if not graph.is_whole:
        raise errors.NotAllowed("the flow is too large to look at all its jobs: this takes a token for all queues")
    return row


METHODS = methods_of(__name__)
