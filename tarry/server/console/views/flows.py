"""Flows: the list with its filters, one flow, and the jobs of one; and what waits for a person's decision."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta
from msgspec.structs import replace

from tarry.client.flows.approvals import ApprovalRecord
from tarry.client.flows.searching import FLOW_STATES
from tarry.client.job_records import decode_json
from tarry.model.job import State
from tarry.operate.flows import (
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
from tarry.operate.signals import ApprovalsQuery, DecisionAnswer, decide_approval, list_approvals
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.console.views.arguments import masked_arguments, on_a_line
from tarry.server.console.views.flow_graph import drawn_flow, label_of
from tarry.server.http.method import ApiCall
from tarry.store.rules import ids
from tarry.tasks.arguments.masking import without_secrets

MOST_SHOWN = 100
"""Flows, jobs or approvals of a page."""
MOST_SORTED = 1000
"""Approvals that are read at once, to be shown in their order."""
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


def _cancel_text(answer: FlowCancelAnswer) -> str:
    return "The flow is cancelled: nothing of it starts any more." if answer.cancelled else "{detail}"


class ApprovalsPageQuery(ApprovalsQuery, forbid_unknown_fields=True):
    """Which approvals to show. page: of all that wait, where these are few enough to be sorted; from 0."""

    page: Annotated[int, Meta(ge=0, le=MOST_SORTED)] = 0


@console_page("/approvals", "approvals.html")
def approvals_page(call: ApiCall, query: ApprovalsPageQuery) -> PageData:
    """What waits for a decision, by question and key, 2 before 10. Of more than can be sorted, each page by itself."""
    every = list_approvals.handler(call, ApprovalsQuery(query.question, MOST_SORTED)) if not query.cursor else None
    filters: dict[str, Any] = {} if query.question is None else {"question": query.question}
    if every is not None and not every.next:
        start = query.page * MOST_SHOWN
        shown = sorted(every.approvals, key=natural_order)[start : start + MOST_SHOWN]
        answer, following = every, {"page": query.page + 1} if start + MOST_SHOWN < len(every.approvals) else {}
    else:
        answer = list_approvals.handler(call, ApprovalsQuery(query.question, MOST_SHOWN, query.cursor))
        shown, following = sorted(answer.approvals, key=natural_order), {"cursor": answer.next} if answer.next else {}
    return {
        "approvals": shown,
        "arguments": _arguments(call, shown),
        "question": query.question,
        "missing": answer.missing,
        "following": _address("/approvals", {**filters, **following}) if following else "",
        "first": _address("/approvals", filters) if query.cursor or query.page else "",
    }


def natural_order(one: ApprovalRecord) -> tuple[Any, ...]:
    """By question and key, with numbers in them by their value; then by the time of the question."""
    return (*(_parts(text) for text in (one.question, one.key)), one.since)


def _parts(text: str) -> list[tuple[int, int, str]]:
    # A number comes before other text. Its length first: so no number is too long.
    return [(0, len(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"0*(\d+)", text) if part]


def _arguments(call: ApiCall, shown: Sequence[ApprovalRecord]) -> Mapping[str, str]:
    """The arguments of the jobs that ask, by their ids: what is approved."""
    jobs = call.service.client.fetch([ids.parse(one.id) for one in shown])
    return {
        one.id: on_a_line(masked_arguments(call, job.task, decode_json(job.body)))
        for one, job in zip(shown, jobs, strict=True)
        if job is not None and call.allows(job.queue)
    }


def _decision_text(answer: DecisionAnswer) -> str:
    return "{question}: approved." if answer.ok else "{question}: refused."


PAGES: tuple[ConsolePage, ...] = (flows_page, flow_page, nodes_page, approvals_page)
ACTS = (
    ConsoleAct(cancel_flow, _cancel_text),
    ConsoleAct(retry_flow, "The flow goes on: failed jobs run again."),
    ConsoleAct(decide_approval, _decision_text),
)
