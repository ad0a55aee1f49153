"""Methods about hosts and workers; and those by which a master is told what to do: the request waits in the store until
that master takes it."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry import errors
from tarry.keeper.host_requests import MOST_SCALED, HostAct, HostRequest, HostRequests, new_request, why_none
from tarry.keeper.keeper_records import HostRecord, RequestRecord, host_record, request_record
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.jobs import JobPath, fetch_job
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError
from tarry.store.queries.hosts import Host, WorkerFigures, find_host, host_of_worker, list_hosts
from tarry.store.rules import ids
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.arguments.options import Name

_ERRORS = (errors.HostNotFound, errors.TooManyRequests, NotPossible)
_JOB_ERRORS = (errors.JobNotFound, errors.TooManyRequests, NotPossible)
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


class ScaleRequest(Struct, forbid_unknown_fields=True):
    """How many workers a pool is to have, until the next restart."""

    pool: Annotated[str, Meta(min_length=1, max_length=200)]
    workers: Annotated[int, Meta(ge=0, le=MOST_SCALED)]


class StackRequest(Struct, forbid_unknown_fields=True):
    """Of which worker the stacks are wanted."""

    worker: Annotated[str, Meta(min_length=1, max_length=200)]
    """Its name as the owner of jobs, or as its pool has it: `mail.2`."""


class KillRequest(Struct, forbid_unknown_fields=True):
    """What becomes of a job whose attempt is ended."""

    outcome: Literal["failed", "cancelled"] = "failed"
    """failed: the attempt counts, and the job runs again if it has attempts left. cancelled: it does not run again."""


class JobRequests(Struct, frozen=True):
    """What the master of the worker of a job was asked for about this job, the newest first."""

    requests: list[RequestRecord]


def _reachable(call: MethodCall, path: JobPath, body: object = None) -> tuple[Job, Host]:
    """The job, which runs, and the host that can be asked about it; RequestError."""
    job = fetch_job(call, path)
    if job.state is not State.RUNNING:
        raise RequestError(f"the job does not run: it is {job.state}", None, 409)
    try:
        host = host_of_worker(call.client.store, job.owner)
    except errors.HostNotFound as error:
        raise RequestError(f"the job cannot be reached: {error}", None, 409) from None
    _check_control(host)
    return job, host


@method("POST /v1/hosts/{host}/reload", Scope.ADMIN, errors=_ERRORS, status=202, command="hosts reload")
def reload_host(call: MethodCall, path: HostPath) -> RequestRecord:
    """Has a master take over new code and settings.

    The request waits in the store until the master takes it, which it does within seconds, or never. Its outcome is
    that of the reload: `GET /v1/hosts/{host}` has it."""
    return _ask(call, _host(call, path), HostAct.RELOAD)


@method("POST /v1/hosts/{host}/scale", Scope.ADMIN, errors=_ERRORS, status=202, command="hosts scale")
def scale_host(call: MethodCall, path: HostPath, body: ScaleRequest) -> RequestRecord:
    """Sets how many workers a pool of a master has, until its next restart."""
    host = _host(call, path)
    pools = [pool.name for pool in host.pools]
    if body.pool not in pools:
        raise RequestError(f"no pool {body.pool!r}: there are {', '.join(sorted(pools)) or 'none'}", "pool", 422)
    return _ask(call, host, HostAct.SCALE, pool=body.pool, workers=body.workers)


@method("POST /v1/hosts/{host}/stop", Scope.ADMIN, errors=_ERRORS, status=202, command="hosts stop")
def stop_host(call: MethodCall, path: HostPath) -> RequestRecord:
    """Stops a master gracefully: its workers finish what they run. It can be started on its own host only."""
    return _ask(call, _host(call, path), HostAct.STOP)


@method("POST /v1/hosts/{host}/stack", Scope.OPERATE, errors=_ERRORS, status=202, command="hosts stack")
def dump_worker(call: MethodCall, path: HostPath, body: StackRequest) -> RequestRecord:
    """Asks for the stacks of a worker: where its threads and coroutines are. The worker goes on."""
    host = _host(call, path)
    named = {f"{worker.pool}.{worker.number}": worker.owner for worker in host.workers}
    owner = named.get(body.worker, body.worker)
    # Of many workers a host does not name all.
    if len(named) == host.worker_count and owner not in named.values():
        known = ", ".join(islice(named, 8))
        raise RequestError(f"no worker {body.worker!r} on {host.name}: there are {known or 'none'}", "worker", 422)
    return _ask(call, host, HostAct.STACK, owner=owner)


@method(
    "POST /v1/jobs/{id}/stack", Scope.OPERATE, errors=_JOB_ERRORS, status=202, command="jobs stack", check=_reachable
)
def dump_job(call: MethodCall, path: JobPath) -> RequestRecord:
    """Asks where a running job is: for the stack of its thread or coroutine. The job goes on.

    `GET /v1/jobs/{id}/requests` has the answer within seconds."""
    job, host = _reachable(call, path)
    return _ask(call, host, HostAct.STACK, job)


@method("POST /v1/jobs/{id}/kill", Scope.OPERATE, errors=_JOB_ERRORS, status=202, command="jobs kill", check=_reachable)
def kill_job(call: MethodCall, path: JobPath, body: KillRequest) -> RequestRecord:
    """Ends the present attempt of a job, at once, whatever its task does.

    A sync task that does not end takes its worker process with it: the other jobs of that worker run again, and nothing
    is counted for them."""
    job, host = _reachable(call, path)
    if body.outcome == "cancelled":
        call.subject += " outcome=cancelled"
        client = call.client
        HostRequests(client.store, host.instance).cancel_first(
            partial(client.cancel, job.id), client.clock.now(), call.caller.name
        )
    return _ask(call, host, HostAct.KILL, job)


@method("GET /v1/jobs/{id}/requests", Scope.READ, errors=(errors.JobNotFound,))
def list_job_requests(call: MethodCall, path: JobPath) -> JobRequests:
    """Lists what was asked about a running job, with the answers, such as its stack."""
    job, client = fetch_job(call, path), call.client
    if job.state is not State.RUNNING:
        return JobRequests([])
    try:
        host = host_of_worker(client.store, job.owner)
    except errors.HostNotFound:
        return JobRequests([])
    known = HostRequests(client.store, host.instance).known(client.clock.now())
    return JobRequests([request_record(one) for one in known if one.job == ids.text(job.id)])


def _host(call: MethodCall, path: HostPath) -> Host:
    # It has jobs of all queues.
    call.check(EVERY_QUEUE)
    return find_host(call.client.store, path.host)


def _check_control(host: Host) -> None:
    if why := why_none(host):
        raise RequestError(why, "host", 409)


def _ask(call: MethodCall, host: Host, act: HostAct, job: Job | None = None, **fields: Any) -> RequestRecord:
    _check_control(host)
    request = replace(new_request(act, call.caller.name, call.client.clock.now(), job), **fields)
    return request_record(call.ask(host, request, job))


METHODS = methods_of(__name__)
