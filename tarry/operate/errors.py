"""Methods about errors in groups: what failed, since when, how often, and what becomes of the jobs; and about deploys,
in which errors begin."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tarry.client.operations.operation import BulkAct, JobFilter, Operation, OperationRecord
from tarry.errors import ErrorGroupNotFound, TooManyOperations
from tarry.model.duration import SECOND
from tarry.model.history.counting import Fingerprint
from tarry.model.job import State
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.history import seen_deploys
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import checking
from tarry.store.queries.deploy_records import DeployRecord, deploy_record
from tarry.store.queries.deploys import SINCE_DEPLOY, last_began, read_deploys
from tarry.store.queries.error_changing import forget_group, mute_group, no_group
from tarry.store.queries.error_reading import ErrorGroupRecord, read_groups, unsummed_places
from tarry.store.queries.job_search import parse_moment
from tarry.store.rules.history.sums import OTHERS
from tarry.store.rules.partial_result import partial_result
from tarry.tasks.arguments.options import Name


class ErrorsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which groups to list."""

    queue: Name | None = None
    """Only errors in this queue."""
    task: Name | None = None
    """Only groups that this task is in."""
    since: float | Short | None = None
    """Only groups with an error since then: how long ago ("2h", or seconds), or a time (2026-11-24T16:00Z)."""
    new_since: float | Short | None = None
    """Only groups whose first error was seen then or later; `deploy`: since the last deploy began."""
    muted: bool | None = None
    """Only those that are muted, or that are not."""
    order: Literal["last", "first", "count"] = "last"
    """Which come first: those seen last, those that began last, or those with most errors."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class DeploysQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 20


class DeployList(Struct, frozen=True):
    """Deploys, the newest first."""

    deploys: list[DeployRecord]


class ErrorPath(Struct, frozen=True):
    """Names a group of errors."""

    error: Fingerprint


class ErrorList(Struct, frozen=True):
    """Groups of errors. A second or two old, while a keeper runs."""

    errors: list[ErrorGroupRecord]
    total: int
    """How many groups match."""
    missing: str | None = None
    """Set if some of several stores could not be asked: why. Then their errors are not counted."""


class ErrorJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead jobs of a group."""

    queue: Name | None = None
    """Only those of this queue."""
    task: Name | None = None
    """Only those of this task."""
    dry_run: bool = False
    """Counts the jobs, and changes none."""


@method("GET /v1/errors", Scope.READ, command="errors list")
def list_errors(call: MethodCall, query: ErrorsQuery) -> ErrorList:
    """Lists failed attempts in groups of equal errors: 5,000 dead jobs are mostly three errors.

    Kept for a month after their last error; 1,000 groups at most."""
    if query.queue is not None:
        call.check(query.queue)
    now, deploys = call.client.clock.now(), read_deploys(call.client.store)
    since = _moment("since", query.since, now)
    is_deploy = query.new_since == SINCE_DEPLOY
    # Where nobody leaves a mark nothing began since the last one.
    began = (last_began(deploys, now) or now) / SECOND
    new_since = began if is_deploy else _moment("new_since", query.new_since, now)

    wanted = partial(_is_wanted, call, query.queue, query.task)
    seen = seen_deploys(call, deploys)
    groups, away = partial_result(lambda: read_groups(call.client.store.history, now, wanted, seen))
    found = [
        one
        for one in groups.values()
        if one.last >= since and query.muted in (None, one.is_muted)
        # A worker may fail a moment before its generation has its mark.
        if one.first >= new_since or (is_deploy and one.deploy is not None and one.deploy.at >= new_since)
    ]
    if query.order != "last":
        found.sort(key=lambda one: one.first if query.order == "first" else one.count, reverse=True)
    return ErrorList(found[: query.limit], len(found), None if away is None else str(away))


@method("GET /v1/deploys", Scope.READ, command="deploys list")
def list_deploys(call: MethodCall, query: DeploysQuery) -> DeployList:
    """Lists when which code began to run: each start and reload of each master, the newest first. 500 are kept."""
    found = seen_deploys(call, read_deploys(call.client.store))
    return DeployList([deploy_record(one) for one in found[: query.limit]])


@method("GET /v1/errors/{error}", Scope.READ, errors=(ErrorGroupNotFound,), command="errors show")
def show_error(call: MethodCall, path: ErrorPath) -> ErrorGroupRecord:
    """Shows a group of errors: where and since when, which tasks and queues, and a job that had it."""
    return _known(call, path.error)


@method(
    "POST /v1/errors/{error}/retry",
    Scope.OPERATE,
    status=202,
    errors=(ErrorGroupNotFound, TooManyOperations),
    command="errors retry",
    asks_first=True,
)
def retry_error(call: MethodCall, path: ErrorPath, body: ErrorJobs) -> OperationRecord:
    """Makes the dead jobs of a group ready again, in the background."""
    return _operate(call, "retry", path.error, body)


@method(
    "POST /v1/errors/{error}/delete",
    Scope.OPERATE,
    status=202,
    errors=(ErrorGroupNotFound, TooManyOperations),
    command="errors delete",
    asks_first=True,
)
def delete_error(call: MethodCall, path: ErrorPath, body: ErrorJobs) -> OperationRecord:
    """Deletes the dead jobs of a group, in the background, and forgets the group: if such an error comes again, it is
    new."""
    done = _operate(call, "delete", path.error, body)
    if not body.dry_run and body.task is None:
        forget_group(call.client.store.history, path.error, partial(_is_in, call, body.queue))
    return done


@method("POST /v1/errors/{error}/mute", Scope.OPERATE, errors=(ErrorGroupNotFound,), command="errors mute")
def mute_error(call: MethodCall, path: ErrorPath) -> ErrorGroupRecord:
    """Mutes a group: nobody is alerted about it any more, in the queues that the caller may operate. Its errors are
    counted all the same."""
    return _set_muted(call, path.error, is_muted=True)


@method("POST /v1/errors/{error}/unmute", Scope.OPERATE, errors=(ErrorGroupNotFound,), command="errors unmute")
def unmute_error(call: MethodCall, path: ErrorPath) -> ErrorGroupRecord:
    """Ends the muting of a group."""
    return _set_muted(call, path.error, is_muted=False)


def _set_muted(call: MethodCall, id: str, is_muted: bool) -> ErrorGroupRecord:
    mute_group(call.client.store.history, id, call.allows, is_muted, is_for_all=call.allows(EVERY_QUEUE))
    return _known(call, id)


def _operate(call: MethodCall, act: BulkAct, id: str, body: ErrorJobs) -> OperationRecord:
    call.check(body.queue or EVERY_QUEUE)
    group = _known(call, id)
    call.subject = f"{act} error {id} {group.type}"
    task, queue = _narrowest(call, group)
    chosen = JobFilter(body.queue or queue, body.task or task, states=(State.DEAD,), error=id)
    return OperationRecord.of(call.submit(Operation("", act, chosen, dry_run=body.dry_run, caller=call.caller.name)))


def _narrowest(call: MethodCall, group: ErrorGroupRecord) -> tuple[str | None, str | None]:
    """The task and the queue of all of them; None: they are of several, or it is not known."""
    # Of one task or queue the store looks at fewer jobs. Those that died just now may be of others.
    recent = unsummed_places(call.client.store.history, group.id)
    if recent is None:
        return None, None
    return _only({*group.tasks, *(task for _, task in recent)}), _only({*group.queues, *(queue for queue, _ in recent)})


def _only(names: Collection[str]) -> str | None:
    (name,) = names if len(names) == 1 else (None,)
    return name or None


def _known(call: MethodCall, id: str) -> ErrorGroupRecord:
    store, wanted = call.client.store, partial(_is_wanted, call, None, None)
    now, deploys = call.client.clock.now(), seen_deploys(call, read_deploys(store))
    groups, away = partial_result(lambda: read_groups(store.history, now, wanted, deploys))
    if id in groups:
        return groups[id]
    raise no_group(id) if away is None else away


def _is_wanted(call: MethodCall, queue: str | None, task: str | None, of: str, tasks: Mapping[str, int]) -> bool:
    return _is_in(call, queue, of) and (task is None or task in tasks)


def _is_in(call: MethodCall, queue: str | None, of: str) -> bool:
    # The errors that are not counted by kind are those of any queue.
    return call.allows(EVERY_QUEUE if of == OTHERS else of) and queue in (None, of)


def _moment(field: str, value: float | str | None, now: int) -> float:
    if value is None:
        return 0.0
    with checking(field):
        return parse_moment(value, now) / SECOND


METHODS = methods_of(__name__)
