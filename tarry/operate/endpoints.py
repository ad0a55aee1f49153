"""Methods about the endpoints of HTTP tasks: look, pause, resume, close the circuit, try now, send again."""

from typing import Literal

from msgspec import Struct

from tarry.client.operations.operation import JobFilter, OperationRecord
from tarry.client.queue_records import waiting_by
from tarry.errors import ConfigError, TooManyOperations, UnknownTask
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.operations import NewOperation, start_operation
from tarry.operate.problem import checking
from tarry.push.editing import HttpTaskEditor
from tarry.push.endpoint_records import (
    EndpointDetail,
    EndpointRecord,
    close_circuit,
    endpoint_detail,
    endpoint_records,
    probe,
)
from tarry.store.queries.job_search import parse_moment
from tarry.tasks.arguments.options import Name


class EndpointPath(Struct, frozen=True):
    """Names an endpoint by its HTTP task."""

    task: Name


class EndpointList(Struct, frozen=True):
    """Endpoints, by the names of their tasks."""

    endpoints: list[EndpointRecord]


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to send again."""

    since: float | Short
    """What ended then or later: how long ago, such as "2h" or seconds, or a time such as 2026-11-24T16:00Z."""
    which: Literal["failed", "all"] = "failed"
    """`failed`: dead jobs; `all`: also those that were delivered."""
    dry_run: bool = False
    """Counts the jobs, and sends none."""


_ERRORS = (UnknownTask, ConfigError)


def _exists(call: MethodCall, path: EndpointPath, body: object = None) -> None:
    _known(call, path.task)


@method("GET /v1/endpoints", Scope.READ, command="endpoints list")
def list_endpoints(call: MethodCall) -> EndpointList:
    """Lists the endpoints of HTTP tasks, with their health: circuit, requests at once, last error."""
    return EndpointList([one for one in _records(call) if call.allows(one.queue)])


@method("GET /v1/endpoints/{task}", Scope.READ, errors=(UnknownTask,), command="endpoints show", check=_exists)
def get_endpoint(call: MethodCall, path: EndpointPath) -> EndpointDetail:
    """Shows an endpoint: its health, its answers by status, and its last exchanges."""
    record, client = _known(call, path.task), call.client
    return endpoint_detail(client.store, record, client.clock.now(), call.allows)


@method("POST /v1/endpoints/{task}/pause", Scope.OPERATE, errors=_ERRORS, command="endpoints pause", check=_exists)
def pause_endpoint(call: MethodCall, path: EndpointPath) -> EndpointRecord:
    """Pauses deliveries: jobs of the task wait. Requests under way go on."""
    return _set_enabled(call, path.task, False)


@method("POST /v1/endpoints/{task}/resume", Scope.OPERATE, errors=_ERRORS, command="endpoints resume", check=_exists)
def resume_endpoint(call: MethodCall, path: EndpointPath) -> EndpointRecord:
    """Resumes deliveries, and closes the circuit."""
    return _set_enabled(call, path.task, True)


@method(
    "POST /v1/endpoints/{task}/close", Scope.OPERATE, errors=(UnknownTask,), command="endpoints close", check=_exists
)
def close_endpoint(call: MethodCall, path: EndpointPath) -> EndpointRecord:
    """Closes the circuit: the endpoint gets requests within a second, few at once at first."""
    _known(call, path.task)
    close_circuit(call.client.store, path.task)
    return _known(call, path.task)


@method(
    "POST /v1/endpoints/{task}/probe", Scope.OPERATE, errors=(UnknownTask,), command="endpoints probe", check=_exists
)
def probe_endpoint(call: MethodCall, path: EndpointPath) -> EndpointRecord:
    """Ends the pause of an endpoint: if its circuit is open, one request is sent, whose outcome closes it or opens it
    again."""
    _known(call, path.task)
    probe(call.client.store, path.task)
    return _known(call, path.task)


@method(
    "POST /v1/endpoints/{task}/replay",
    Scope.OPERATE,
    status=202,
    errors=(UnknownTask, TooManyOperations),
    command="endpoints replay",
    asks_first=True,
    check=_exists,
)
def replay_endpoint(call: MethodCall, path: EndpointPath, body: ReplayRequest) -> OperationRecord:
    """Sends again what failed since a time, or all, as an operation in the background. Each job starts anew, with all
    its attempts."""
    record, client = _known(call, path.task), call.client
    with checking("since"):
        since = parse_moment(body.since, client.clock.now()) / SECOND
    states = (State.DEAD,) if body.which == "failed" else (State.DEAD, State.DONE)
    # A caller for some queues is one for this queue; whoever is for all of them reaches jobs that were put elsewhere.
    queue = None if call.allows(EVERY_QUEUE) else record.queue
    chosen = JobFilter(queue=queue, task=path.task, states=states, since=max(0.0, since))
    started: OperationRecord = start_operation.handler(call, NewOperation("retry", chosen, dry_run=body.dry_run))
    return started


def _records(call: MethodCall) -> list[EndpointRecord]:
    call.sync_tasks()
    client = call.client
    waiting = waiting_by((one for one in call.look().counts if call.allows(one.queue)), lambda tally: tally.task)
    endpoints = call.app.http.endpoints
    return endpoint_records(client.store, endpoints, waiting, client.clock.now(), call.allows)


def _known(call: MethodCall, name: str) -> EndpointRecord:
    records = {record.task: record for record in _records(call) if call.allows(record.queue)}
    if name not in records:
        near = did_you_mean(name, records)
        raise UnknownTask(f"no HTTP task {name}{near or f'; {call.way_to(list_endpoints)} lists them'}")
    call.check(records[name].queue)
    return records[name]


def _set_enabled(call: MethodCall, name: str, enabled: bool) -> EndpointRecord:
    _known(call, name)
    app = call.app
    HttpTaskEditor(app.http, call.client.store, app.declare_limits).set_enabled(name, enabled)
    return _known(call, name)


METHODS = methods_of(__name__)
