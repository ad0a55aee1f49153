"""Jobs: the list with its filters, and changes of those that are selected in it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.client.job_records import JobTerms
from tarry.client.operations.line_words import FIELDS, format_line
from tarry.client.operations.operation import JobFilter, Operation
from tarry.client.operations.runner import change_page
from tarry.model.job import State
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.jobs import JobPage, JobsQuery, allowed_jobs, list_jobs, terms_of
from tarry.operate.problem import RequestError
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall, api_method
from tarry.store.rules.base import Tally
from tarry.store.rules.name_pattern import fits

MOST_SHOWN = 100
"""Jobs of a page: with 1,000 it would have half a megabyte."""
MOST_NAMES = 200
"""Names that a field suggests."""
_ID_PART = re.compile("[0-9a-fA-F-]{6,36}")
_SINGLE = ("id", "parent")
"""Filters that an operation does not have."""
_SCANS = ("text", "id", "error", "error_text", "node", "since")
"""Filters for which jobs are looked at one by one."""


class JobsPageQuery(JobsQuery, forbid_unknown_fields=True):
    """As of the API; but who looks wants the newest."""

    order: Literal["newest", "oldest"] = "newest"


class SelectedJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to become of the jobs that a person has selected."""

    act: Literal["retry", "cancel", "delete"]
    id: Annotated[list[Short], Meta(max_length=MOST_SHOWN)] = []
    reason: Annotated[str, Meta(max_length=1000)] = ""


class SelectedAnswer(Struct, frozen=True):
    """How many were selected, and how many of them changed: the others had changed before, or are in a state that does
    not allow it."""

    selected: int
    changed: int


@console_page("/jobs", "jobs.html")
def jobs_page(call: ApiCall, query: JobsPageQuery) -> PageData:
    """The jobs that match the filters."""
    # The field of a label that was left empty asks for nothing.
    query = replace(query, limit=min(query.limit, MOST_SHOWN), label=list(filter(None, query.label)))
    page, terms, wrong = JobPage([], None, q=query.q), JobTerms(), ""
    try:
        terms = terms_of(query)
        page = list_jobs.handler(call, query)
    except RequestError as error:
        if not query.q:
            raise
        wrong = str(error).removeprefix("q: ")
    query = replace(query, q="", **{name: getattr(terms, name) for name in JobTerms.__struct_fields__})
    filters = _filters(terms)
    ordered = {} if query.order == "newest" else {"order": query.order}
    other = {"order": "oldest"} if query.order == "newest" else {}
    known = [tally for tally in call.look().counts if call.allows(tally.queue)]
    return {
        "page": page,
        "query": query,
        "states": _state_links(known, query, filters | ordered),
        "filters": filters,
        "wrong": wrong,
        "words": ", ".join(FIELDS),
        "acted_on": "" if wrong or _is_single(terms) else _fixed_line(terms, call.client.clock.now()),
        "following": _address(filters | ordered | {"cursor": page.next}) if page.next else "",
        "first": _address(filters | ordered) if query.cursor else "",
        "other_order": _address(filters | other),
        # An operation of all queues is for those who may use all.
        "is_for_some": bool(call.queues) and query.queue is None,
        "key_as_id": query.key if query.key and _ID_PART.fullmatch(query.key) else "",
        "is_scan": any(getattr(terms, name) for name in _SCANS),
        "queue_names": _names(known, lambda tally: tally.queue),
        "task_names": _names(known, lambda tally: tally.task),
    }


@api_method("POST /jobs/selected", Scope.OPERATE, tag="console")
def change_selected(call: ApiCall, body: SelectedJobs) -> SelectedAnswer:
    """Retries, cancels or deletes the jobs that are selected. Those that are gone meanwhile are left out."""
    call.subject = f"{body.act} {len(body.id)} selected jobs"
    jobs = allowed_jobs(call, body.id)
    if body.act == "cancel":
        call.service.sync_tasks()
    wanted = Operation("", body.act, JobFilter(), reason=body.reason, caller=call.caller.name)
    return SelectedAnswer(len(body.id), change_page(call.service.client, wanted, jobs))


def _state_links(
    known: Iterable[Tally], query: JobsPageQuery, filters: Mapping[str, Any]
) -> list[tuple[State, int, str]]:
    """Each state with the number of its jobs in that queue and of that task, and the page that lists them."""
    counts = dict.fromkeys(State, 0)
    for tally in known:
        if query.queue in (None, tally.queue) and (query.task is None or fits((query.task,), tally.task)):
            counts[tally.state] += tally.count
    return [(state, count, _address({**filters, "state": [str(state)]})) for state, count in counts.items()]


def _names(known: Iterable[Tally], name: Callable[[Tally], str]) -> list[str]:
    """What a field suggests: the names with most jobs, sorted."""
    counts: dict[str, int] = {}
    for tally in known:
        counts[name(tally)] = counts.get(name(tally), 0) + tally.count
    return sorted(sorted(counts, key=lambda one: -counts[one])[:MOST_NAMES])


def _address(filters: Mapping[str, Any]) -> str:
    return f"/jobs?{urlencode(filters, doseq=True)}" if filters else "/jobs"


def _filters(terms: JobTerms) -> dict[str, Any]:
    """The filters that are set, as in the address of the page."""
    found = {name: getattr(terms, name) for name in JobTerms.__struct_fields__}
    given = {name: value for name, value in found.items() if value not in (None, "", [])}
    return given | ({"state": [str(state) for state in terms.state]} if terms.state else {})


def _is_single(terms: JobTerms) -> bool:
    return any(getattr(terms, name) for name in _SINGLE)


def _fixed_line(terms: JobTerms, now: int) -> str:
    """The line of an operation of these jobs. It begins later: so moments stand where the terms may say how long
    ago."""
    return format_line(JobFilter.of(terms, now).terms())


PAGES: tuple[ConsolePage, ...] = (jobs_page,)
ACTS = (ConsoleAct(change_selected, "{changed} of {selected} selected jobs are changed."),)
