"""Methods about queues: look at them, pause, resume and purge them."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

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
from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.problem import RequestError
from tarry.door.identity.access import Scope
from tarry.door.service import DoorService
from tarry.errors import TooManyOperations
from tarry.metrics.store_look import StoreLook
from tarry.model.bound import Bound, WhenFull
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.nearest import did_you_mean
from tarry.tasks.options import Name


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


@api_method("GET /v1/queues", Scope.READ)
def list_queues(call: ApiCall) -> QueueList:
    """Lists the queues: how many jobs each has in which state."""
    return QueueList([record for record in _records(call) if call.allows(record.queue)])


@api_method("GET /v1/queues/{queue}", Scope.READ)
def get_queue(call: ApiCall, path: QueuePath) -> QueueDetail:
    """Shows a queue: also its ready jobs by band, and when it is predicted to be empty."""
    call.check(path.queue)
    client = call.service.client
    return queue_detail(_known(call, path.queue), client.store, client.clock.now())


@api_method("POST /v1/queues/{queue}/pause", Scope.OPERATE)
def pause_queue(call: ApiCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
    """Pauses a queue on all hosts: it takes new jobs, and none of them starts."""
    return _pause(call, path.queue, True, body.force)


@api_method("POST /v1/queues/{queue}/resume", Scope.OPERATE)
def resume_queue(call: ApiCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
    """Resumes a paused queue."""
    return _pause(call, path.queue, False, body.force)


@api_method("PUT /v1/queues/{queue}/bound", Scope.OPERATE)
def set_bound(call: ApiCall, path: QueuePath, body: NewBound) -> QueueRecord:
    """Bounds how many jobs of a queue may wait, for all producers, in place of what settings say, until it is deleted.

    Producers know it after two seconds at most."""
    call.check(path.queue)
    call.subject = f"{path.queue} max_waiting={body.max_waiting} when_full={body.when_full}"
    return _bounded(call, path.queue, Bound(body.max_waiting, body.when_full), None)


@api_method("DELETE /v1/queues/{queue}/bound", Scope.OPERATE, status=200)
def reset_bound(call: ApiCall, path: QueuePath) -> QueueRecord:
    """Brings back the bound of the settings, if they have one."""
    call.check(path.queue)
    declared = call.service.app.config.bounds.get(path.queue)
    return _bounded(call, path.queue, None, declared)


@api_method("POST /v1/queues/{queue}/purge", Scope.OPERATE, status=202, errors=(TooManyOperations,))
def purge_queue(call: ApiCall, path: QueuePath, body: PurgeRequest) -> OperationRecord:
    """Deletes all jobs that wait in a queue, for good.

    An operation does that in the background: `GET /v1/operations/{id}` shows how far it has come."""
    call.check(path.queue)
    _known(call, path.queue)
    which = JobFilter(path.queue, states=WAITING)
    purge = Operation("", "delete", which, dry_run=body.dry_run, caller=call.caller.name)
    return OperationRecord.of(call.service.operations.submit(purge))


@api_method("GET /v1/stats", Scope.READ)
def get_stats(call: ApiCall) -> Stats:
    """Counts the jobs by queue, task and state."""
    counts = call.look(1.0).counts
    return Stats(
        [
            JobCount(one.queue, one.task, one.state, one.count, one.oldest / SECOND, one.bytes)
            for one in sorted(counts, key=lambda one: (one.queue, one.task, one.state))
            if call.allows(one.queue)
        ]
    )


def list_queue_records(service: DoorService, look: StoreLook, also: Iterable[str] = ()) -> list[QueueRecord]:
    """The queues that the store, the tasks or the settings know, and those of `also`."""
    config = service.app.config
    declared = declared_queues(config, list(service.app.tasks.values()))
    bounds = bounds_in_use(service.client.store)
    return queue_records(
        look.counts, look.paused, look.limits, lambda name: is_served(config, name), declared | set(also), bounds
    )


def _records(call: ApiCall) -> list[QueueRecord]:
    call.service.sync_tasks()
    return list_queue_records(call.service, call.look(0))


def _known(call: ApiCall, queue: str) -> QueueRecord:
    records = {record.queue: record for record in _records(call)}
    if queue not in records:
        # Only what the caller may see: the names of other queues are none of its business.
        near = did_you_mean(queue, [name for name in records if call.allows(name)])
        raise RequestError(f"no queue {queue}{near or '; GET /v1/queues lists them'}", "queue", 404)
    return records[queue]


def _bounded(call: ApiCall, queue: str, bound: Bound | None, declared: Bound | None) -> QueueRecord:
    client = call.service.client
    set_bound_by_hand(client.store, queue, bound, declared)
    client.queues.read_again()
    return _any(call, queue)


def _any(call: ApiCall, queue: str) -> QueueRecord:
    """The record of a queue, also of one that nothing knows."""
    look = call.service.look.read(0)
    return next(one for one in list_queue_records(call.service, look, (queue,)) if one.queue == queue)


def _pause(call: ApiCall, queue: str, paused: bool, force: bool) -> QueueRecord:
    call.check(queue)
    service = call.service
    record = _any(call, queue) if force else _known(call, queue)
    service.client.store.pause(queue, paused)
    # What was read may be older.
    return replace(record, paused=paused)


METHODS: tuple[ApiMethod, ...] = (
    list_queues,
    get_queue,
    pause_queue,
    resume_queue,
    set_bound,
    reset_bound,
    purge_queue,
    get_stats,
)
