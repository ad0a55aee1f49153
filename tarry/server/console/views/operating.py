"""What operators look after: schedules, limits, errors, operations."""

from typing import Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from tarry.keeper.waiting_facts import StoreReader, limit_holders, running_jobs
from tarry.model.values.console_paths import limit_keys_path
from tarry.operate.errors import (
    ErrorPath,
    ErrorsQuery,
    delete_error,
    list_errors,
    mute_error,
    retry_error,
    show_error,
    unmute_error,
)
from tarry.operate.jobs import JobsQuery, list_jobs
from tarry.operate.limits import (
    LimitPath,
    LimitsQuery,
    get_limit,
    list_limits,
    pause_limit_key,
    reset_limit,
    resume_limit_key,
    set_limit,
)
from tarry.operate.operations import OperationPath, get_operation, list_operations, start_operation, stop_operation
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall
from tarry.store.queries.deploys import SINCE_DEPLOY
from tarry.tasks.arguments.options import MAX_NAME

_SHOWN = 100
"""Keys of a limit on one page."""
NEW_SINCE = ("", SINCE_DEPLOY, "24h", "7d")
"""Times to choose from; empty: whenever an error began."""
_JOBS = 20
"""Jobs of an error on its page."""


@console_page("/limits", "limits.html")
def limits_page(call: ApiCall) -> PageData:
    """The limits, how far each is used, and which jobs hold those that are reached."""
    limits = list_limits.handler(call, LimitsQuery()).limits
    reached = [one.limit for one in limits if one.running is not None and one.at_once and one.running >= one.at_once]
    # Who holds it is read only where that matters: it takes a query for each worker.
    client = call.service.client
    jobs = list(running_jobs(StoreReader(client.store), client.clock.now())) if reached else []
    seen = [job for job in jobs if call.allows(job.queue)]
    return {"limits": limits, "holders": {name: limit_holders(seen, name) for name in reached}}


class KeysPageQuery(Struct, frozen=True):
    """A page of keys, and perhaps one of them by name."""

    after: Annotated[str, Meta(max_length=MAX_NAME)] | None = None
    key: Annotated[str, Meta(max_length=MAX_NAME)] | None = None
    """Shown first, also if it has nothing of its own."""


@console_page("/limits/{limit}/keys", "limit_keys.html")
def limit_keys_page(call: ApiCall, path: LimitPath, query: KeysPageQuery) -> PageData:
    """The keys of a task that have numbers of their own; and any key by name."""
    keys = list_limits.handler(call, LimitsQuery(path.limit, query.after, _SHOWN + 1)).limits
    shown = keys[:_SHOWN]
    found = [get_limit.handler(call, LimitPath(f"{path.limit}={query.key}"))] if query.key else []
    following = None
    if len(keys) > len(shown):
        last = {"after": shown[-1].limit.removeprefix(f"{path.limit}=")}
        following = f"{limit_keys_path(path.limit)}?{urlencode(last)}"
    others = [one for one in shown if one.limit not in {each.limit for each in found}]
    return {"limit": path.limit, "keys": [*found, *others], "key": query.key, "following": following}


@console_page("/errors", "errors.html")
def errors_page(call: ApiCall, query: ErrorsQuery) -> PageData:
    """Failed attempts in groups of equal errors."""
    found = list_errors.handler(call, query)
    kept = {name: value for name in ("queue", "task", "order") if (value := getattr(query, name))}
    times = {time: f"/errors?{urlencode({**kept, 'new_since': time} if time else kept)}" for time in NEW_SINCE}
    return {"errors": found.errors, "total": found.total, "missing": found.missing, "query": query, "times": times}


@console_page("/errors/{error}", "error.html")
def error_page(call: ApiCall, path: ErrorPath) -> PageData:
    """One of these groups, with some of the jobs that have the error now."""
    error = show_error.handler(call, path)
    jobs = list_jobs.handler(call, JobsQuery(error=path.error, order="newest", limit=_JOBS))
    return {"error": error, "jobs": jobs.jobs, "missing": jobs.missing}


@console_page("/operations", "operations.html")
def operations_page(call: ApiCall) -> PageData:
    """Changes of many jobs."""
    return {"operations": list_operations.handler(call).operations}


@console_page("/operations/{id}", "operation.html")
def operation_page(call: ApiCall, path: OperationPath) -> PageData:
    """One of them."""
    operation = get_operation.handler(call, path)
    # What was only counted can be done next, to the same jobs.
    filter_json, target_json = (msgspec.json.encode(one or {}).decode() for one in (operation.filter, operation.target))
    return {"operation": operation, "filter_json": filter_json, "target_json": target_json}


PAGES: tuple[ConsolePage, ...] = (
    limits_page,
    limit_keys_page,
    errors_page,
    error_page,
    operations_page,
    operation_page,
)
ACTS = (
    ConsoleAct(set_limit, "Limit {limit} is set."),
    ConsoleAct(pause_limit_key, "{limit} is paused: no job of this key starts."),
    ConsoleAct(resume_limit_key, "{limit} is resumed."),
    ConsoleAct(reset_limit, "The limit is what code and settings say."),
    ConsoleAct(retry_error, "The operation has begun.", lambda one: f"/operations/{one.id}"),
    ConsoleAct(delete_error, "The operation has begun.", lambda one: f"/operations/{one.id}"),
    ConsoleAct(mute_error, "Nobody is alerted about this error any more."),
    ConsoleAct(unmute_error, "This error is not muted any more."),
    ConsoleAct(start_operation, "The operation has begun.", lambda one: f"/operations/{one.id}"),
    ConsoleAct(stop_operation, "The operation ends after its present page of jobs."),
)
