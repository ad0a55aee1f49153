"""What the pages of the admin read of jobs, and do to them. Every read is bounded."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext_lazy
from msgspec import Struct

from tarry.client.acting import Actor, acting
from tarry.client.job_records import JobDetail, decode_json, job_detail
from tarry.django import compat
from tarry.django.app import DjangoApp, find_django_task
from tarry.django.backend import TarryBackend
from tarry.django.codec import REST
from tarry.django.moments import moment
from tarry.model.attempts import Attempt, attempts_of
from tarry.model.job import Job, State
from tarry.store.queries.job_search import JobSearch
from tarry.store.queries.newest_jobs import newest_jobs
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.tasks.arguments.masking import name_positional, without_secrets

PAGE = 50
"""Jobs of a page."""
MOST_QUEUES = 200
"""Queues that the filter offers."""
MOST_TEXT = 10_000
"""Characters of arguments and of a result that a page shows."""
ACTS = {
    "retry": gettext_lazy("Retried: %(done)d of %(all)d"),
    "cancel": gettext_lazy("Cancelled: %(done)d of %(all)d"),
    "delete": gettext_lazy("Deleted: %(done)d of %(all)d"),
}
"""What can be done to jobs, and how the page says that it was."""
STATES = {
    State.SCHEDULED: gettext_lazy("scheduled"),
    State.READY: gettext_lazy("ready"),
    State.RUNNING: gettext_lazy("running"),
    State.DONE: gettext_lazy("done"),
    State.DEAD: gettext_lazy("dead"),
    State.CANCELLED: gettext_lazy("cancelled"),
    State.BLOCKED: gettext_lazy("blocked"),
}
"""How a page names a state; one that is not here by its own name."""


class AdminJobRow(Struct, frozen=True):
    """A job of the list."""

    id: str
    task: str
    queue: str
    state: str
    state_name: Any
    """For people, in their language."""
    attempt: int
    created: datetime | None
    since: datetime | None
    error: str
    """Type and message, if its last attempt failed."""


class FilterChoice(Struct, frozen=True):
    """A link of a filter. query: that of the list with it."""

    name: Any
    query: str
    is_chosen: bool


class FilterLinks(Struct, frozen=True):
    """A filter of the list, as Django's are: a title and links."""

    title: Any
    choices: Sequence[FilterChoice]


class AdminJobList(Struct, frozen=True):
    """A page of the list. next: the query of the next page; empty: there is none. trouble: why nothing was read."""

    rows: Sequence[AdminJobRow]
    next: str
    chosen: Mapping[str, str]
    filters: Sequence[FilterLinks]
    tasks: Sequence[str]
    """Those that this process knows."""
    trouble: str = ""


class AdminAttempt(Struct, frozen=True):
    """An attempt of a job."""

    number: int
    outcome: str
    started: datetime | None
    ended: datetime | None
    worker: str
    error: str
    traceback: str


class AdminJobPage(Struct, frozen=True):
    """The page of a job. arguments, result: JSON, cut, without secrets. left_out: attempts that are no longer kept."""

    row: AdminJobRow
    detail: JobDetail
    arguments: str
    result: str
    traceback: str
    attempts: Sequence[AdminAttempt]
    due: datetime | None


def find_jobs(given: Mapping[str, str]) -> AdminJobList:
    """The jobs that the query of a page asks for, the newest first; ValueError for a wrong one, StoreError."""
    backend = _backend(given)
    app = backend.app
    state, before = given.get("state", ""), given.get("before", "")
    query = Query(
        states=(State(state),) if state else (),
        queue=given.get("queue") or None,
        task=given.get("task") or None,
        limit=PAGE,
    )
    found = newest_jobs(app.client.store, JobSearch(query), ids.parse(before) if before else b"")
    # The store knows those in which jobs wait, the settings those that tasks may have.
    queues = sorted({*app.client.store.queues(), *backend.queues})[:MOST_QUEUES]
    more = {**_chosen(given), "before": ids.text(found.next)} if found.next else {}
    return _found(given, [_row(job) for job in found.jobs], urlencode(more), queues, tasks=sorted(app.tasks))


def nothing_found(given: Mapping[str, str], trouble: str) -> AdminJobList:
    """The page of a store that cannot be read."""
    return _found(given, [], "", [], trouble)


def read_job(given: Mapping[str, str], id: str) -> AdminJobPage:
    """The page of one job; ValueError, JobNotFound, StoreError."""
    app = app_of(given)
    job = app.get(id).record()
    detail = job_detail(job)
    note = detail.note if job.state is not State.DONE else {}
    return AdminJobPage(
        row=_row(job),
        detail=detail,
        # By name, so that a password is known as one, however it was given.
        arguments=_shown(_name_arguments(app, job.task, detail.args)),
        result=_shown(decode_json(job.note)) if job.state is State.DONE else "",
        traceback=str(note.get("traceback") or note.get("message") or "") if isinstance(note, dict) else "",
        attempts=[_attempt(one) for one in attempts_of(job).attempts],
        due=moment(job.due),
    )


def change_jobs(given: Mapping[str, str], act: str, names: Sequence[str], who: str) -> int:
    """Does one of ACTS to jobs; how many it was done to. The store keeps who did it. ValueError, StoreError."""
    client = app_of(given).client
    change = {"retry": client.retry, "cancel": client.cancel, "delete": client.forget}[act]
    with acting(Actor(who, via="program")):
        return sum(change(ids.parse(name)) for name in names)


def app_of(given: Mapping[str, str]) -> DjangoApp:
    """The app of the backend that the query of a page names; ValueError."""
    return _backend(given).app


def _backend(given: Mapping[str, str]) -> TarryBackend:
    aliases = _aliases()
    alias = given.get("backend") or next(iter(aliases), "")
    if alias not in aliases:
        raise ValueError(f"TASKS has no backend of tarry's that is named {alias!r}")
    backend: TarryBackend = compat.task_backends[alias]
    return backend


def _aliases() -> list[str]:
    every = compat.task_backends.settings
    return [alias for alias in every if isinstance(compat.task_backends[alias], TarryBackend)]


def _chosen(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name] for name in ("backend", "state", "queue", "task") if given.get(name)}


def home_query(given: Mapping[str, str]) -> str:
    """The query that keeps the backend from page to page, with its `?`; empty: it is the first one."""
    return f"?{urlencode({'backend': given['backend']})}" if given.get("backend") else ""


def search_target(given: Mapping[str, str], wanted: str) -> str:
    """Where a search leads: to the page of a job, if that is an id, else to the list of a task's jobs."""
    try:
        return f"{ids.text(ids.parse(wanted))}/change/{home_query(given)}"
    except ValueError:
        return f"?{urlencode({**_chosen(given), 'task': wanted})}"


def _found(
    given: Mapping[str, str],
    rows: Sequence[AdminJobRow],
    more: str,
    queues: Sequence[str],
    trouble: str = "",
    tasks: Sequence[str] = (),
) -> AdminJobList:
    chosen, aliases = _chosen(given), _aliases()
    states = {state.value: STATES.get(state, state.value) for state in State}
    filters = [
        _filter(chosen, "state", gettext_lazy("State"), states),
        _filter(chosen, "queue", gettext_lazy("Queue"), {queue: queue for queue in queues}),
    ]
    if chosen.get("task"):
        filters.append(_filter(chosen, "task", gettext_lazy("Task"), {chosen["task"]: chosen["task"]}))
    if len(aliases) > 1:
        filters.append(_filter(chosen, "backend", gettext_lazy("Backend"), {alias: alias for alias in aliases}))
    return AdminJobList(rows, more, chosen, filters, tasks, trouble)


def _filter(chosen: Mapping[str, str], name: str, title: Any, values: Mapping[str, Any]) -> FilterLinks:
    others = {key: value for key, value in chosen.items() if key != name}
    # Another backend may have none of these queues and tasks.
    others = {} if name == "backend" else others
    now = chosen.get(name) or (next(iter(values), None) if name == "backend" else None)
    links = [FilterChoice(gettext_lazy("All"), urlencode(others), now is None)] if name != "backend" else []
    links += [FilterChoice(shown, urlencode({**others, name: value}), value == now) for value, shown in values.items()]
    return FilterLinks(title, links)


def _row(job: Job) -> AdminJobRow:
    attempts = attempts_of(job).attempts
    return AdminJobRow(
        ids.text(job.id),
        job.task,
        job.queue,
        job.state.value,
        STATES.get(job.state, job.state.value),
        job.attempt,
        moment(job.created),
        moment(job.state_since),
        attempts[-1].error if attempts and job.state is not State.DONE else "",
    )


def _attempt(one: Attempt) -> AdminAttempt:
    return AdminAttempt(
        one.number, one.outcome, moment(one.started), moment(one.ended), one.owner, one.error, one.traceback
    )


def _name_arguments(app: DjangoApp, task: str, args: Any) -> Any:
    """The arguments by name, where the task of Django's is known."""
    found = find_django_task(task, app.may_import)
    given, others = (args.get(REST), args) if isinstance(args, dict) else (args, {})
    if found is None or not isinstance(given, list):
        return args
    named = name_positional(found.func, given, int(found.takes_context))
    return {**others, REST: named} if others else named


def _shown(value: Any) -> str:
    text = json.dumps(without_secrets(value), indent=2, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} characters more"
