"""Methods about hosts and workers."""

from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct

from tarry import errors
from tarry.keeper.host_requests import HostAct, HostRequest, HostRequests
from tarry.keeper.keeper_records import HostRecord, RequestRecord, host_record, request_record
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.store.queries.hosts import WorkerFigures, find_host, list_hosts
from tarry.store.rules import ids
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.arguments.options import Name

# The jobs of each take a query.
MOST_WORKERS = 64
"""Workers that are listed."""
MOST_RUNNING = 100
"""Running jobs that are listed of a worker."""


class HostList(Struct, frozen=True):
    """All masters that run or were lost within a day, by host."""

    hosts: list[HostRecord]


class RunningRecord(Struct, frozen=True):
    """A job that runs. Times are seconds since the epoch."""

    id: str
    task: str
    queue: str
    epoch: int
    since: float


class WorkerRecord(Struct, frozen=True):
    """A worker that holds jobs."""

    worker: str
    """Its name as the owner of jobs."""
    running: int
    """How many jobs it runs; at most 1,000 are counted."""
    jobs: list[RunningRecord]
    """Those that have run for the longest."""


class HostPath(Struct):
    """The host of a path: the name of a host on which one master runs, or the instance of a master."""

    host: Name


class ProcessRecord(Struct, frozen=True):
    """A worker process of a master. Times are seconds since the epoch."""

    name: str
    """`mail.2`: its pool, and its place in it."""
    pool: str
    worker: str
    """Its name as the owner of jobs."""
    pid: int
    generation: int
    state: str
    """starting, ready, stopping or gone."""
    started: float
    processed: int
    failed: int
    """Attempts that failed, also the last ones of jobs that are dead."""
    held: int
    """How many jobs it has claimed."""
    memory: int
    """Bytes."""
    cpu: float
    """How many cores it used lately."""
    silent: float
    """Seconds since its last sign of life."""
    last_exit: str
    """How the process before it in its place ended; empty: there was none."""
    jobs: list[RunningRecord]
    """Those whose code runs, the longest first; at most two. GET /v1/workers has all that are claimed."""


class HostAnswer(HostRecord, frozen=True):
    """One master, with its workers and what it was asked for."""

    processes: Sequence[ProcessRecord] = ()
    """At most 64; `worker_count` says how many there are."""
    requests: Sequence[RequestRecord] = ()
    """What it was asked for through the store within the last hour, the newest first."""


class WorkerList(Struct, frozen=True):
    """The workers that run jobs now."""

    workers: list[WorkerRecord]
    total: int
    """How many there are; 64 of them are listed."""


@method("GET /v1/hosts", Scope.READ, command="hosts list")
def list_all_hosts(call: MethodCall) -> HostList:
    """Lists the masters on all hosts, with the figures of their pools.

    Takes a caller for all queues: they are for all of them."""
    call.check(EVERY_QUEUE)
    return HostList(host_records(call))


@method("GET /v1/hosts/{host}", Scope.READ, errors=(errors.HostNotFound,), command="hosts show")
def show_host(call: MethodCall, path: HostPath) -> HostAnswer:
    """Shows a master, each of its workers, and what it was asked for.

    Takes a caller for all queues: they are for all of them."""
    call.check(EVERY_QUEUE)
    client = call.client
    host = find_host(client.store, path.host)
    # Who may not see all queues sees jobs of those only.
    asked = [id for worker in host.workers for id in worker.jobs]
    jobs = {ids.text(job.id): job for job in client.fetch([ids.parse(id) for id in asked]) if job is not None}
    seen = {id: running_record(job) for id, job in jobs.items() if call.allows(job.queue)}
    requests = HostRequests(client.store, host.instance).known(client.clock.now())
    record = host_record(host, call.app.config.master.pid_file)
    return HostAnswer(
        **{name: getattr(record, name) for name in record.__struct_fields__},
        processes=[_process(worker, seen) for worker in host.workers],
        requests=[request_record(one) for one in requests if sees_request(call, one)],
    )


@method("GET /v1/workers", Scope.READ, tag="hosts")
def list_workers(call: MethodCall) -> WorkerList:
    """Lists the workers that run jobs now, and these jobs.

    Takes a caller for all queues: they are for all of them."""
    call.check(EVERY_QUEUE)
    owners = sorted(reachable_part(call.client.store.owners))
    return WorkerList([_worker(call, owner) for owner in islice(owners, MOST_WORKERS)], len(owners))


def host_records(call: MethodCall) -> list[HostRecord]:
    """All masters, whoever asks."""
    pid_file = call.app.config.master.pid_file
    return [host_record(host, pid_file) for host in list_hosts(call.client.store)]


def sees_request(call: MethodCall, request: HostRequest) -> bool:
    """Whether the caller may see a request: one about a job, only if it may see the job's queue."""
    if not request.job and request.act not in (HostAct.STACK, HostAct.KILL):
        return True
    # The stack of a whole worker shows jobs of any queue.
    (job,) = call.client.fetch([ids.parse(request.job)]) if request.job else (None,)
    return call.allows(EVERY_QUEUE) if job is None else call.allows(job.queue)


def running_record(job: Job) -> RunningRecord:
    """The record of a job that runs."""
    return RunningRecord(ids.text(job.id), job.task, job.queue, job.epoch, job.state_since / SECOND)


def _process(worker: WorkerFigures, seen: Mapping[str, RunningRecord]) -> ProcessRecord:
    return ProcessRecord(
        f"{worker.pool}.{worker.number}",
        worker.pool,
        worker.owner,
        worker.pid,
        worker.generation,
        worker.state,
        worker.started,
        worker.processed,
        worker.failed,
        worker.held,
        worker.memory,
        round(worker.cpu, 3),
        round(worker.silent, 3),
        worker.last_exit,
        [seen[id] for id in worker.jobs if id in seen],
    )


def _worker(call: MethodCall, owner: str) -> WorkerRecord:
    client = call.client
    jobs = reachable_part(lambda: client.store.reclaim(client.clock.now(), of=owner))
    shown = sorted((job for job in jobs if call.allows(job.queue)), key=lambda job: job.state_since)[:MOST_RUNNING]
    return WorkerRecord(owner, len(jobs), [running_record(job) for job in shown])


METHODS = methods_of(__name__)
