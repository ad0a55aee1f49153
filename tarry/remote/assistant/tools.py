"""The tools of an assistant: what each takes, and which methods of the HTTP API it calls."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tarry.errors import ArgumentError, NotAllowed, StoreError, TarryError
from tarry.operate.errors import ErrorPath, ErrorsQuery
from tarry.operate.history import HistoryQuery
from tarry.operate.jobs import JobPath
from tarry.store.queries.deploys import SINCE_DEPLOY

Methods = Any
"""`RemoteClient.methods`."""
MOST_IDS = 20
MOST_RETRIED = 1000
"""Dead jobs of a group that one call retries, as they were counted just before."""
_REASON = "by an assistant"
_SHOWN, _FEW = 20, 5
_WAITED, _POLL = 10.0, 0.1
"""Seconds for which the end of an operation is awaited, and between two looks."""
_FINISHED = ("done", "failed", "stopped")


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class WantedJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs."""

    q: Annotated[str, Meta(max_length=500)] = ""
    """Words such as `state:dead task:shop.* error:timeout since:2d queue:mail label:value`; empty: any jobs."""
    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    cursor: Annotated[str, Meta(max_length=500)] | None = None
    """Of the page before, for the next one."""


class JobIds(Struct, frozen=True, forbid_unknown_fields=True):
    """Some jobs."""

    ids: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=MOST_IDS)]


class GroupRetry(Struct, frozen=True, forbid_unknown_fields=True):
    """The dead jobs of a group of errors."""

    error: Annotated[str, Meta(max_length=64)]
    """The id of the group."""
    dry_run: bool = True
    """Counts the jobs, and changes none."""


class AssistantTool(Struct, frozen=True):
    """One tool."""

    name: str
    description: str
    takes: type[Struct]
    call: Callable[[Methods, Any], Any]
    is_write: bool = False


def _given(values: Struct) -> dict[str, Any]:
    """What was said, by the names that the API has."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(values)}
    return {names[name]: one for name, one in msgspec.structs.asdict(values).items() if one is not None}


def _overview(methods: Methods, _: Nothing) -> Mapping[str, Any]:
    parts: Mapping[str, Callable[[], Any]] = {
        "queues": lambda: sorted(methods.list_queues().queues, key=lambda one: -one.ready)[:_SHOWN],
        "new_errors_since_the_last_deploy": lambda: methods.list_errors(new_since=SINCE_DEPLOY, limit=_FEW).errors,
        "last_deploys": lambda: methods.list_deploys(limit=_FEW).deploys,
        "today": lambda: methods.get_totals().today.total,
        "hosts": lambda: [_host(one) for one in methods.list_all_hosts().hosts[:_SHOWN]],
        "stores": lambda: methods.list_stores().stores,
    }
    return {name: _part(ask) for name, ask in parts.items()}


def _part(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NotAllowed as error:
        return f"not shown: {error}"


def _host(host: Any) -> Mapping[str, Any]:
    names = ("name", "state", "alive", "generation", "reload_failure")
    return {name: getattr(host, name) for name in names if hasattr(host, name)}


def _search(methods: Methods, wanted: WantedJobs) -> Any:
    return methods.list_jobs(**_given(wanted))


def _outcomes(wanted: JobIds, act: Callable[[str], Any]) -> Sequence[Mapping[str, Any]]:
    """What became of each job; the others go on where one cannot be changed."""
    found: list[Mapping[str, Any]] = []
    for job in dict.fromkeys(wanted.ids):
        try:
            found.append({"id": job, "done": True, "answer": act(job)})
        except StoreError:
            # The server is away: nor can the others be changed.
            raise
        except TarryError as error:
            found.append({"id": job, "done": False, "error": str(error)})
    return found


def _retry_group(methods: Methods, wanted: GroupRetry) -> Any:
    counted = _finish(methods, methods.retry_error(error=wanted.error, dry_run=True))
    if wanted.dry_run:
        return counted
    if counted.state != "done" or counted.matched > MOST_RETRIED:
        raise ArgumentError(
            f"{counted.matched:,} jobs or more: an assistant retries {MOST_RETRIED:,} of a group at once; a person may:"
            f" tarry errors retry {wanted.error}"
        )
    return _finish(methods, methods.retry_error(error=wanted.error, dry_run=False))


def _finish(methods: Methods, operation: Any) -> Any:
    """The operation once it has ended, or as it is after some seconds."""
    until = time.monotonic() + _WAITED
    while operation.state not in _FINISHED and time.monotonic() < until:
        time.sleep(_POLL)
        operation = methods.get_operation(id=operation.id)
    return operation


TOOLS = (
    AssistantTool(
        "overview",
        "How all is: queues with the most jobs ready, errors new since the last deploy, deploys, hosts, stores.",
        Nothing,
        _overview,
    ),
    AssistantTool("queues", "All queues: how many jobs are in each state.", Nothing, lambda m, _: m.list_queues()),
    AssistantTool(
        "errors",
        "Failed attempts in groups of equal errors: how many, since when, since which deploy, which tasks and queues.",
        ErrorsQuery,
        lambda methods, query: methods.list_errors(**_given(query)),
    ),
    AssistantTool(
        "error", "One group of errors, by its id.", ErrorPath, lambda methods, path: methods.show_error(**_given(path))
    ),
    AssistantTool("jobs", "Finds jobs.", WantedJobs, _search),
    AssistantTool(
        "job",
        "One job, by its id: state, arguments, attempts with their errors, output.",
        JobPath,
        lambda methods, path: methods.show_job(**_given(path)),
    ),
    AssistantTool(
        "why",
        "Why a job does not run: what keeps it, the most important first.",
        JobPath,
        lambda methods, path: methods.explain_job(**_given(path)),
    ),
    AssistantTool(
        "history",
        "What was put, done, failed and dead, by time and by task, with waiting and running times and deploys.",
        HistoryQuery,
        lambda methods, query: methods.get_history(**_given(query)),
    ),
    AssistantTool(
        "retry",
        f"Makes dead jobs ready again, up to {MOST_IDS} by their ids. They run.",
        JobIds,
        lambda methods, wanted: _outcomes(wanted, lambda job: methods.retry_job(id=job)),
        is_write=True,
    ),
    AssistantTool(
        "retry_errors",
        f"Makes the dead jobs of a group of errors ready again, if it has {MOST_RETRIED:,} at most. They run. Counts"
        " them only, unless dry_run is false.",
        GroupRetry,
        _retry_group,
        is_write=True,
    ),
    AssistantTool(
        "cancel",
        f"Cancels jobs, up to {MOST_IDS} by their ids: for good; one that runs is interrupted.",
        JobIds,
        lambda methods, wanted: _outcomes(wanted, lambda job: methods.cancel_job(id=job, reason=_REASON)),
        is_write=True,
    ),
)
