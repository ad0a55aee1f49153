"""Methods by which a master is told what to do: the request waits in the store until that master takes it."""

from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry import errors
from tarry.keeper.host_requests import MOST_SCALED, HostAct, HostRequests, new_request, why_none
from tarry.keeper.keeper_records import RequestRecord, request_record
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.hosts import HostPath
from tarry.operate.jobs import JobPath, fetch_job
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError
from tarry.store.queries.hosts import Host, find_host, host_of_worker
from tarry.store.rules import ids

_ERRORS = (errors.HostNotFound, errors.TooManyRequests, NotPossible)
_JOB_ERRORS = (errors.JobNotFound, errors.TooManyRequests, NotPossible)


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
