"""Jobs: the list with its filters, and one job."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.jobs import (
    CancelAnswer,
    JobPath,
    JobsQuery,
    cancel_job,
    delete_job,
    list_jobs,
    move_job,
    retry_job,
    show_job,
)
from tarry.door.http.method import ApiCall
from tarry.model.job import State


@console_page("/jobs", "jobs.html")
def jobs_page(call: ApiCall, query: JobsQuery) -> PageData:
    """The jobs that match the filters."""
    page, filters = list_jobs.handler(call, query), _filters(query)
    following = urlencode({**filters, "cursor": page.next}, doseq=True) if page.next else ""
    return {"page": page, "query": query, "states": tuple(State), "filters": filters, "following": following}


@console_page("/jobs/{id}", "job.html")
def job_page(call: ApiCall, path: JobPath) -> PageData:
    """One job."""
    return {"job": show_job.handler(call, path)}


def _filters(query: JobsQuery) -> Mapping[str, Any]:
    """The filters that are set, as in the address of the page."""
    found = {name: getattr(query, name) for name in ("queue", "task", "key", "older")}
    states = {"state": [str(state) for state in query.state]} if query.state else {}
    return states | {name: value for name, value in found.items() if value is not None}


def _cancelled(answer: CancelAnswer) -> str:
    if answer.detail:
        return "{detail}"
    return "The job is cancelled." if answer.cancelled else "The job had ended already."


PAGES: tuple[ConsolePage, ...] = (jobs_page, job_page)
ACTS = (
    ConsoleAct(retry_job, "The job is ready."),
    ConsoleAct(cancel_job, _cancelled),
    ConsoleAct(move_job, "The job is moved."),
    ConsoleAct(delete_job, "The job is deleted.", lambda _: "/jobs"),
)
