"""Jobs: the list with its filters."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.jobs import JobsQuery, list_jobs
from tarry.door.http.method import ApiCall
from tarry.model.job import State


@console_page("/jobs", "jobs.html")
def jobs_page(call: ApiCall, query: JobsQuery) -> PageData:
    """The jobs that match the filters."""
    page, filters = list_jobs.handler(call, query), _filters(query)
    following = urlencode({**filters, "cursor": page.next}, doseq=True) if page.next else ""
    return {"page": page, "query": query, "states": tuple(State), "filters": filters, "following": following}


def _filters(query: JobsQuery) -> Mapping[str, Any]:
    """The filters that are set, as in the address of the page."""
    found = {name: getattr(query, name) for name in ("queue", "task", "key", "older")}
    states = {"state": [str(state) for state in query.state]} if query.state else {}
    return states | {name: value for name, value in found.items() if value is not None}


PAGES: tuple[ConsolePage, ...] = (jobs_page,)
ACTS: tuple[ConsoleAct, ...] = ()
