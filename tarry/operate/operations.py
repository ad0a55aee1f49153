"""Methods about operations: changes of many jobs that run in the background."""

from typing import Annotated

from msgspec import Meta, Struct

from tarry.client.operations import operation_cells
from tarry.client.operations.operation import BulkAct, JobFilter, MoveTarget, Operation, OperationRecord
from tarry.errors import OperationNotFound, TooManyOperations
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import checking
from tarry.store.queries.job_search import SearchLine
from tarry.store.rules.ids import IdText


class OperationPath(Struct, frozen=True):
    """Names an operation."""

    id: IdText


class NewOperation(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of all jobs that match a filter."""

    act: BulkAct
    filter: JobFilter = JobFilter()
    """Which jobs: it or `q` has to narrow something."""
    target: MoveTarget = MoveTarget()
    """Where `move` puts waiting jobs."""
    dry_run: bool = False
    """Counts the jobs that match, and changes none."""
    reason: Annotated[str, Meta(max_length=1000)] = ""
    """Why the jobs are cancelled."""
    q: SearchLine = ""
    """Which jobs, in one line, such as `state:dead task:shop.* error:timeout`; together with the filter."""


class OperationList(Struct, frozen=True):
    """Operations, the newest first."""

    operations: list[OperationRecord]


@method("GET /v1/operations", Scope.READ, command="operations list")
def list_operations(call: MethodCall) -> OperationList:
    """Lists the operations that are under way, and those that ended in the last week."""
    found = (operation for operation, _ in reversed(operation_cells.read_all(call.client.store)))
    return OperationList([OperationRecord.of(one) for one in found if call.allows(_queue(one))])


@method("GET /v1/operations/{id}", Scope.READ, errors=(OperationNotFound,), command="operations show")
def get_operation(call: MethodCall, path: OperationPath) -> OperationRecord:
    """Shows how far an operation has come."""
    return OperationRecord.of(_known(call, path.id))


@method("POST /v1/operations", Scope.OPERATE, status=202, errors=(TooManyOperations,))
def start_operation(call: MethodCall, body: NewOperation) -> OperationRecord:
    """Retries, cancels, deletes or moves all jobs that match a filter, in the background.

    If the server dies, another one goes on. Jobs that were enqueued more than five minutes later are left out."""
    filter = _merged_filter(body.filter, body.q, call.client.clock.now())
    wanted = Operation("", body.act, filter, body.target, body.dry_run, body.reason, call.caller.name)
    call.subject = f"{body.act} {describe_filter(filter)}"
    call.check(_queue(wanted))
    if body.target.queue is not None:
        call.check(body.target.queue)
    return OperationRecord.of(call.submit(wanted))


@method(
    "DELETE /v1/operations/{id}",
    Scope.OPERATE,
    status=200,
    errors=(OperationNotFound,),
    command="operations stop",
)
def stop_operation(call: MethodCall, path: OperationPath) -> OperationRecord:
    """Stops an operation after its present page of jobs. What it has changed stays changed."""
    _known(call, path.id)
    client = call.client
    return OperationRecord.of(operation_cells.stop(client.store, path.id, client.clock.now()))


def _known(call: MethodCall, id: str) -> Operation:
    operation, _ = operation_cells.read(call.client.store, id)
    if not call.allows(_queue(operation)):
        raise operation_cells.not_found(id)
    call.check(_queue(operation))
    return operation


def _queue(operation: Operation) -> str:
    """What its caller must be allowed to use: without a queue in the filter, all of them."""
    return operation.filter.queue or EVERY_QUEUE


def _merged_filter(filter: JobFilter, line: str, now: int) -> JobFilter:
    """The filter with what the line says; RequestError."""
    if not line.strip():
        return filter
    from tarry.client.operations.search_line import narrow  # noqa: PLC0415 - many operations have no line

    with checking("q"):
        return narrow(filter, line, now)


def describe_filter(filter: JobFilter) -> str:
    """The filter in one line: `state:dead queue:mail`."""
    from tarry.client.operations.line_words import format_line  # noqa: PLC0415 - few commands show operations

    try:
        return format_line(filter.terms())
    # Whoever can write to the store may have written it.
    except (ValueError, OverflowError):
        return "?"


METHODS = methods_of(__name__)
