"""Jobs: the list with its filters."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.method import ApiCall
from tarry.door.http.methods.jobs import JobsQuery, list_jobs
from tarry.model.job import State

MOST_SHOWN = 100
"""Jobs of a page: with 1,000 it would have half a megabyte."""
_NAMED = ("queue", "task", "key", "older")
_SEARCHED = ("created_since", "created_until", "text")
"""Filters that an operation does not have."""


@console_page("/jobs", "jobs.html")
def jobs_page(call: ApiCall, query: JobsQuery) -> PageData:
    """The jobs that match the filters."""
    query = replace(query, limit=min(query.limit, MOST_SHOWN))
    page, filters = list_jobs.handler(call, query), _filters(query)
    return {
        "page": page,
        "query": query,
        "states": _state_links(call, query, filters),
        "filters": filters,
        "following": _address(filters | {"cursor": page.next}) if page.next else "",
        "first": _address(filters) if query.cursor else "",
        "is_searched": any(name in filters for name in _SEARCHED),
    }


def _state_links(call: ApiCall, query: JobsQuery, filters: Mapping[str, Any]) -> list[tuple[State, int, str]]:
    """Each state with the number of its jobs in that queue and of that task, and the page that lists them."""
    counts = dict.fromkeys(State, 0)
    for tally in call.look().counts:
        if call.allows(tally.queue) and query.queue in (None, tally.queue) and query.task in (None, tally.task):
            counts[tally.state] += tally.count
    return [(state, count, _address({**filters, "state": [str(state)]})) for state, count in counts.items()]


def _address(filters: Mapping[str, Any]) -> str:
    return f"/jobs?{urlencode(filters, doseq=True)}" if filters else "/jobs"


def _filters(query: JobsQuery) -> dict[str, Any]:
    """The filters that are set, as in the address of the page."""
    found = {name: getattr(query, name) for name in (*_NAMED, *_SEARCHED)}
    states = {"state": [str(state) for state in query.state]} if query.state else {}
    return states | {name: value for name, value in found.items() if value not in (None, "")}


PAGES: tuple[ConsolePage, ...] = (jobs_page,)
ACTS: tuple[ConsoleAct, ...] = ()
