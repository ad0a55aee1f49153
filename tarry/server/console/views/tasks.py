"""Tasks: functions of the app, and HTTP tasks with the state of their endpoints."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlencode

from tarry.model.job import State
from tarry.model.limit import EACH, TASK
from tarry.operate.jobs import JobsQuery, list_jobs
from tarry.operate.limits import LimitsQuery, list_limits
from tarry.operate.tasks import (
    SampleAnswer,
    TaskPath,
    TaskQuery,
    get_task,
    list_tasks,
    remove_task,
    try_task,
)
from tarry.server.console.act import ConsoleAct
from tarry.server.console.charts.history import history_charts
from tarry.server.console.charts.ranges import RANGES, TODAY, RangeName, read_span
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall
from tarry.store.queries.history_reading import Figures

_NONE = Figures()
_SHOWN = 10
"""Jobs of a task that its page lists."""


class TaskPageQuery(SampleAnswer, frozen=True, forbid_unknown_fields=True):
    """A sample answer, and which time the charts show."""

    range: RangeName = "1h"


class TasksPageQuery(TaskQuery, frozen=True, forbid_unknown_fields=True):
    """Which tasks to list, and by what of today: the most first."""

    sort: Literal["name", "put", "done", "failed", "dead"] = "name"


@console_page("/tasks", "tasks.html")
def tasks_page(call: ApiCall, query: TasksPageQuery) -> PageData:
    """The tasks that match, with what each did today and in the last 24 hours."""
    today = read_span(call, TODAY).figures_of_each(call.allows)
    tasks = list_tasks.handler(call, query).tasks
    if query.sort != "name":
        tasks = sorted(tasks, key=lambda one: (-getattr(today.get(one.task, _NONE), query.sort), one.task))
    filters = {name: value for name in ("search", "kind") if (value := getattr(query, name))}
    return {
        "tasks": tasks,
        "query": query,
        "sorts": {name: _address({**filters, "sort": name}) for name in ("put", "done", "failed", "dead")},
        "by_name": _address(filters),
        "today": today,
        "ended": read_span(call, RANGES["24h"]).ended_of_each(call.allows),
    }


def _address(filters: Mapping[str, str]) -> str:
    return f"/tasks?{urlencode(filters)}" if filters else "/tasks"


@console_page("/tasks/{task}", "task.html")
def task_page(call: ApiCall, path: TaskPath, query: TaskPageQuery) -> PageData:
    """One task; with a sample answer, what the rule of an HTTP task makes of it."""
    task = get_task.handler(call, path)
    dead = list_jobs.handler(call, JobsQuery([State.DEAD], task=path.task, limit=_SHOWN))
    is_tried = bool(query.body) or query.status is not None
    tried = try_task.handler(call, path, query) if is_tried and task.kind == "http" else None
    limits = {one.limit: one for one in list_limits.handler(call, LimitsQuery()).limits}
    return {
        "task": task,
        "history": history_charts(call, query.range, task=path.task),
        "dead": dead.jobs,
        "sample": query,
        "tried": tried,
        "limits": [limits.get(kind + path.task) for kind in (TASK, EACH)],
    }


PAGES: tuple[ConsolePage, ...] = (tasks_page, task_page)
ACTS = (ConsoleAct(remove_task, "Task {task} is removed. Jobs that wait for it: {waiting}.", lambda _: "/tasks"),)
