"""Flows: the list with its filters, one flow, and the jobs of one; and what waits for a person's decision."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from tarry.client.flows.searching import FLOW_STATES
from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.console.views.flow_graph import drawn_flow, label_of
from tarry.door.http.method import ApiCall
from tarry.door.http.methods.flows import (
    FlowCancelAnswer,
    FlowPath,
    FlowsQuery,
    NodesQuery,
    cancel_flow,
    list_flows,
    list_nodes,
    retry_flow,
    show_flow,
)
from tarry.door.http.methods.signals import ApprovalsQuery, DecisionAnswer, decide_approval, list_approvals
from tarry.model.job import State
from tarry.tasks.arguments.masking import without_secrets

MOST_SHOWN = 100
"""Flows, jobs or approvals of a page."""
MOST_FAILED = 10
"""Failed jobs that are named at the top of the page of a flow."""
ENDED_BADLY = (State.DEAD, State.CANCELLED)


@console_page("/flows", "flows.html")
def flows_page(call: ApiCall, query: FlowsQuery) -> PageData:
    """The flows that match the filters."""
    query = replace(query, limit=min(query.limit, MOST_SHOWN))
    page, filters = list_flows.handler(call, query), _filters(query)
    return {
        "page": page,
        "query": query,
        "states": [(state, _address("/flows", {**filters, "state": str(state)})) for state in FLOW_STATES],
        "all_states": _address("/flows", {name: value for name, value in filters.items() if name != "state"}),
        "filters": filters,
        "following": _address("/flows", filters | {"cursor": page.next}) if page.next else "",
        "first": _address("/flows", filters) if query.cursor else "",
    }


@console_page("/flows/{id}", "flow.html")
def flow_page(call: ApiCall, path: FlowPath) -> PageData:
    """One flow: what failed, its graph, and its jobs in boxes of alike ones."""
    flow = show_flow.handler(call, path)
    failed = [(box.label, one) for box in flow.boxes for one in box.failed]
    # That which failed first comes first: it is why the flow ends as it does.
    failed.sort(key=lambda each: (each[1] != flow.failed_job, each[1].since))
    return {
        "flow": flow,
        "graph": drawn_flow(flow),
        "labels": {box.first: label_of(box) for box in flow.boxes},
        "failed": failed[:MOST_FAILED],
        "is_retried": flow.state in ENDED_BADLY and flow.phase == "ended",
        "result": without_secrets(flow.result),
    }


@console_page("/flows/{id}/nodes", "flow_nodes.html")
def nodes_page(call: ApiCall, path: FlowPath, query: NodesQuery) -> PageData:
    """The jobs of a flow, one by one."""
    query = replace(query, limit=min(query.limit, MOST_SHOWN))
    page, where = list_nodes.handler(call, path, query), f"/flows/{path.id}/nodes"
    filters: dict[str, Any] = {"state": [str(state) for state in query.state]} if query.state else {}
    return {
        "id": path.id,
        "page": page,
        "query": query,
        "states": [(state, _address(where, {"state": str(state)})) for state in State],
        "all_states": where,
        "following": _address(where, filters | {"after": page.next}) if page.next else "",
        "first": _address(where, filters) if query.after else "",
    }


def _filters(query: FlowsQuery) -> dict[str, Any]:
    found = {name: getattr(query, name) for name in ("state", "name", "key")}
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _address(path: str, filters: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(filters, doseq=True)}" if filters else path


def _cancelled(answer: FlowCancelAnswer) -> str:
    return "The flow is cancelled: nothing of it starts any more." if answer.cancelled else "{detail}"


@console_page("/approvals", "approvals.html")
def approvals_page(call: ApiCall, query: ApprovalsQuery) -> PageData:
    """What waits for a decision, some at a time: of those on a page, who has waited longest comes first."""
    answer = list_approvals.handler(call, replace(query, limit=min(query.limit, MOST_SHOWN)))
    filters = {} if query.question is None else {"question": query.question}
    return {
        "approvals": sorted(answer.approvals, key=lambda one: one.since),
        "question": query.question,
        "missing": answer.missing,
        "following": _address("/approvals", {**filters, "cursor": answer.next}) if answer.next else "",
        "first": _address("/approvals", filters) if query.cursor else "",
    }


def _decided(answer: DecisionAnswer) -> str:
    return "{question}: approved." if answer.ok else "{question}: refused."


PAGES: tuple[ConsolePage, ...] = (flows_page, flow_page, nodes_page, approvals_page)
ACTS = (
    ConsoleAct(cancel_flow, _cancelled),
    ConsoleAct(retry_flow, "The flow goes on: failed jobs run again."),
    ConsoleAct(decide_approval, _decided),
)
