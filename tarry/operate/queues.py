"""Methods about queues: look at them, pause, resume and purge them."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.app import App
from tarry.client.bounds import bounds_in_use, set_bound_by_hand
from tarry.client.operations.operation import JobFilter, Operation, OperationRecord
from tarry.client.queue_records import (
    WAITING,
    QueueDetail,
    QueueRecord,
    declared_queues,
    is_served,
    queue_detail,
    queue_records,
)
from tarry.errors import TooManyOperations
from tarry.metrics.store_overview import StoreOverview
from tarry.model.bound import Bound, WhenFull
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.nearest import did_you_mean
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError
from tarry.tasks.arguments.options import Name


class QueuePath(Struct, frozen=True):
    """Names a queue."""

    queue: Name


class QueueList(Struct, frozen=True):
    """All queues that the caller may see, by name."""

    queues: list[QueueRecord]


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How to pause or resume a queue."""

    force: bool = False
    """Also a queue that neither the store, the tasks nor the settings know."""


class PurgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How to purge a queue."""

    dry_run: bool = False
    """Counts the jobs that wait, and deletes none."""
    force: bool = False
    """Also a queue that neither the store, the tasks nor the settings know."""


class NewBound(Struct, frozen=True, forbid_unknown_fields=True):
    """A bound to set by hand."""

    max_waiting: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    """So many jobs may wait, ready and scheduled; 0: any number, whatever settings say."""
    when_full: WhenFull = "refuse"
    """What becomes of a new job then."""


class JobCount(Struct, frozen=True):
    """How many jobs of a queue and task are in a state."""

    queue: str
    task: str
    state: State
    count: int
    oldest: float
    """The earliest time at which one of them was or is due; seconds since the epoch."""
    bytes: int


class Stats(Struct, frozen=True):
    """How many jobs there are. At most a second old."""

    counts: list[JobCount]


def _target(call: MethodCall, path: QueuePath, body: PauseRequest | PurgeRequest) -> QueueRecord:
    """The queue that is to be changed."""
    call.check(path.queue)
    return _any(call, path.queue) if body.force else _known(call, path.queue, call.option("force"))


@method("GET /v1/queues", Scope.READ, command="queues list")
def list_queues(call: MethodCall) -> QueueList:
    """Lists the queues: how many jobs each has in which state."""
    return QueueList([record for record in _records(call) if call.allows(record.queue)])


@method("GET /v1/queues/{queue}", Scope.READ, command="queues show")
def get_queue(call: MethodCall, path: QueuePath) -> QueueDetail:
    """Shows a queue: also its ready jobs by band, and when it is predicted to be empty."""
    call.check(path.queue)
    client = call.client
    return queue_detail(_known(call, path.queue), client.store, client.clock.now())


@method("POST /v1/queues/{queue}/pause", Scope.OPERATE, command="queues pause", check=_target)
def pause_queue(call: MethodCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
    """Pauses a queue on all hosts: it takes new jobs, and none of them starts."""
    return _pause(call, path, body, True)


@method("POST /v1/queues/{queue}/resume", Scope.OPERATE, command="queues resume", check=_target)
def resume_queue(call: MethodCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
    """Resumes a paused queue."""
    return _pause(call, path, body, False)


@method("PUT /v1/queues/{queue}/bound", Scope.OPERATE, command="queues bound")
def set_bound(call: MethodCall, path: QueuePath, body: NewBound) -> QueueRecord:
    """Bounds how many jobs of a queue may wait, for all producers, in place of what settings say, until it is deleted.

    Producers know it after two seconds at most."""
    call.check(path.queue)
    call.subject = f"{path.queue} max_waiting={body.max_waiting} when_full={body.when_full}"
    return _set_bound(call, path.queue, Bound(body.max_waiting, body.when_full), None)


@method("DELETE /v1/queues/{queue}/bound", Scope.OPERATE, status=200, command="queues reset-bound")
def reset_bound(call: MethodCall, path: QueuePath) -> QueueRecord:
    """Brings back the bound of the settings, if they have one."""
    call.check(path.queue)
    declared = call.app.config.bounds.get(path.queue)
    return _set_bound(call, path.queue, None, declared)


@method(
    "POST /v1/queues/{queue}/purge",
    Scope.OPERATE,
    status=202,
    errors=(TooManyOperations,),
    command="queues purge",
    asks_first=True,
    check=_target,
)
def purge_queue(call: MethodCall, path: QueuePath, body: PurgeRequest) -> OperationRecord:
    """Deletes all jobs that wait in a queue, for good.

    An operation does that in the background: `GET /v1/operations/{id}` shows how far it has come."""
    _target(call, path, body)
    which = JobFilter(path.queue, states=WAITING)
    purge = Operation("", "delete", which, dry_run=body.dry_run, caller=call.caller.name)
    return OperationRecord.of(call.submit(purge))


@method("GET /v1/stats", Scope.READ)
def get_stats(call: MethodCall) -> Stats:
    """Counts the jobs by queue, task and state."""
    counts = call.look(1.0).counts
    return Stats(
        [
            JobCount(one.queue, one.task, one.state, one.count, one.oldest / SECOND, one.bytes)
            for one in sorted(counts, key=lambda one: (one.queue, one.task, one.state))
            if call.allows(one.queue)
        ]
    )


def list_queue_records(app: App, look: StoreOverview, also: Iterable[str] = ()) -> list[QueueRecord]:
    """The queues that the store, the tasks or the settings know, and those of `also`."""
    config = app.config
    declared = declared_queues(config, list(app.tasks.values()))
    bounds = bounds_in_use(app.client.store)
    return queue_records(
        look.counts, look.paused, look.limits, lambda name: is_served(config, name), declared | set(also), bounds
    )


def _records(call: MethodCall) -> list[QueueRecord]:
    call.sync_tasks()
    return list_queue_records(call.app, call.look(0))


def _known(call: MethodCall, queue: str, force: str = "") -> QueueRecord:
    """The record of a queue; RequestError. force: the option that takes it all the same; empty: there is none."""
    records = {record.queue: record for record in _records(call)}
    if queue not in records:
        # Only what the caller may see: the names of other queues are none of its business.
        near = did_you_mean(queue, [name for name in records if call.allows(name)])
        way = near or f"; {call.way_to(list_queues)} lists them"
        if force:
            way = f"{near or ';'} {force} takes it all the same"
        raise RequestError(f"no queue {queue}{way}", "queue", 404)
    return records[queue]


def _set_bound(call: MethodCall, queue: str, bound: Bound | None, declared: Bound | None) -> QueueRecord:
    client = call.client
    set_bound_by_hand(client.store, queue, bound, declared)
    client.queues.read_again()
    return _any(call, queue)


def _any(call: MethodCall, queue: str) -> QueueRecord:
    """The record of a queue, also of one that nothing knows."""
    look = call.look(0)
    return next(one for one in list_queue_records(call.app, look, (queue,)) if one.queue == queue)


def _pause(call: MethodCall, path: QueuePath, body: PauseRequest, paused: bool) -> QueueRecord:
    record = _target(call, path, body)
    call.client.store.pause(path.queue, paused)
    # What was read may be older.
    return replace(record, paused=paused)


METHODS = methods_of(__name__)
