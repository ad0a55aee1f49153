"""What the pages of the admin read of jobs, and do to them. Every read is bounded."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from tarry.client.audit.acting import Actor, acting
from tarry.client.job_records import JobDetail, decode_json, job_detail
from tarry.django import compat
from tarry.django.app import DjangoApp
from tarry.django.backend import TarryBackend
from tarry.django.moments import moment
from tarry.model.attempts import Attempt, attempts_of
from tarry.model.job import Job, State
from tarry.store import ids
from tarry.store.base import Query
from tarry.store.job_search import JobSearch, search_jobs

PAGE = 50
"""Jobs of a page."""
MOST_QUEUES = 200
"""Queues that the filter offers."""
MOST_TEXT = 10_000
"""Characters of arguments and of a result that a page shows."""
ACTS = {"retry": "Retried", "cancel": "Cancelled"}
"""What can be done to jobs, and how the page says that it was."""


class AdminJobRow(Struct, frozen=True):
    """A job of the list."""

    id: str
    task: str
    queue: str
    state: str
    attempt: int
    created: datetime | None
    since: datetime | None
    error: str
    """Type and message, if its last attempt failed."""


class AdminJobList(Struct, frozen=True):
    """A page of the list. next: the query of the next page; empty: there is none. trouble: why nothing was read."""

    rows: Sequence[AdminJobRow]
    next: str
    chosen: Mapping[str, str]
    states: Sequence[str]
    queues: Sequence[str]
    backends: Sequence[str]
    trouble: str = ""


class AdminAttempt(Struct, frozen=True):
    """An attempt of a job."""

    number: int
    outcome: str
    started: datetime | None
    ended: datetime | None
    worker: str
    error: str


class AdminJobPage(Struct, frozen=True):
    """The page of a job. arguments, result: JSON, cut. left_out: attempts that are no longer kept."""

    row: AdminJobRow
    detail: JobDetail
    arguments: str
    result: str
    traceback: str
    attempts: Sequence[AdminAttempt]
    due: datetime | None


def find_jobs(given: Mapping[str, str]) -> AdminJobList:
    """The jobs that the query of a page asks for, the oldest first; ValueError for a wrong one, StoreError."""
    app = _app(given)
    state, after = given.get("state", ""), given.get("after", "")
    query = Query(
        states=(State(state),) if state else (),
        queue=given.get("queue") or None,
        task=given.get("task") or None,
        after=ids.parse(after) if after else b"",
        limit=PAGE,
    )
    found = search_jobs(app.client.store, JobSearch(query))
    queues = sorted(app.client.store.queues())[:MOST_QUEUES]
    more = {**_chosen(given), "after": ids.text(found.next)} if found.next else {}
    return _found(given, [_row(job) for job in found.jobs], urlencode(more), queues)


def nothing_found(given: Mapping[str, str], trouble: str) -> AdminJobList:
    """The page of a store that cannot be read."""
    return _found(given, [], "", [], trouble)


def read_job(given: Mapping[str, str], id: str) -> AdminJobPage:
    """The page of one job; ValueError, JobNotFound, StoreError."""
    job = _app(given).get(id).record()
    detail = job_detail(job)
    note = detail.note if job.state is not State.DONE else {}
    return AdminJobPage(
        row=_row(job),
        detail=detail,
        arguments=_shown(detail.args),
        result=_shown(decode_json(job.note)) if job.state is State.DONE else "",
        traceback=str(note.get("traceback") or note.get("message") or "") if isinstance(note, dict) else "",
        attempts=[_attempt(one) for one in attempts_of(job).attempts],
        due=moment(job.due),
    )


def change_jobs(given: Mapping[str, str], act: str, names: Sequence[str], who: str) -> int:
    """Retries or cancels jobs; how many it was done to. The store keeps who did it. ValueError, StoreError."""
    app = _app(given)
    change = app.client.retry if act == "retry" else app.client.cancel
    with acting(Actor(who, via="program")):
        return sum(change(ids.parse(name)) for name in names)


def _app(given: Mapping[str, str]) -> DjangoApp:
    aliases = _aliases()
    alias = given.get("backend") or next(iter(aliases), "")
    if alias not in aliases:
        raise ValueError(f"TASKS has no backend of tarry's that is named {alias!r}")
    app: DjangoApp = compat.task_backends[alias].app
    return app


def _aliases() -> list[str]:
    every = compat.task_backends.settings
    return [alias for alias in every if isinstance(compat.task_backends[alias], TarryBackend)]


def _chosen(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name] for name in ("backend", "state", "queue", "task") if given.get(name)}


def _found(
    given: Mapping[str, str], rows: Sequence[AdminJobRow], more: str, queues: Sequence[str], trouble: str = ""
) -> AdminJobList:
    return AdminJobList(rows, more, _chosen(given), [state.value for state in State], queues, _aliases(), trouble)


def _row(job: Job) -> AdminJobRow:
    attempts = attempts_of(job).attempts
    return AdminJobRow(
        ids.text(job.id),
        job.task,
        job.queue,
        job.state.value,
        job.attempt,
        moment(job.created),
        moment(job.state_since),
        attempts[-1].error if attempts and job.state is not State.DONE else "",
    )


def _attempt(one: Attempt) -> AdminAttempt:
    return AdminAttempt(one.number, one.outcome, moment(one.started), moment(one.ended), one.owner, one.error)


def _shown(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} characters more"
