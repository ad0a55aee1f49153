"""Methods about hosts and workers."""

from itertools import islice

from msgspec import Struct

from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.identity.access import Scope
from tarry.door.store_health import StoreHealth
from tarry.keeper.hosts import list_hosts
from tarry.keeper.records import HostRecord, host_record
from tarry.model.duration import SECOND
from tarry.store import ids
from tarry.store.shared.partial_result import reachable_part

# The jobs of each take a query.
MOST_WORKERS = 64
"""Workers that are listed."""
MOST_RUNNING = 100
"""Running jobs that are listed of a worker."""
_AWAY_FOR = 1.0
"""Seconds for which it is told that a store is away before it is asked again."""


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


class FactRecord(Struct, frozen=True):
    """What an operator should know of a store."""

    name: str
    value: str
    advice: str
    """What to change; empty: nothing."""


class StoreRecord(Struct, frozen=True):
    """A store, as it answered within the last seconds."""

    url: str
    """Without passwords."""
    trouble: str
    """Why it does not answer; empty: it does."""
    latency: float | None
    """Seconds that the smallest read took; null: it did not answer."""
    draining: bool
    """It gets no new jobs."""
    facts: list[FactRecord]


class StoreList(Struct, frozen=True):
    """The stores; several if they are used as one."""

    stores: list[StoreRecord]


class WorkerList(Struct, frozen=True):
    """The workers that run jobs now."""

    workers: list[WorkerRecord]
    total: int
    """How many there are; 64 of them are listed."""


@api_method("GET /v1/hosts", Scope.READ)
def list_all_hosts(call: ApiCall) -> HostList:
    """Lists the masters on all hosts, with the figures of their pools."""
    pid_file = call.service.app.config.master.pid_file
    return HostList([host_record(host, pid_file) for host in list_hosts(call.service.client.store)])


@api_method("GET /v1/workers", Scope.READ, tag="hosts")
def list_workers(call: ApiCall) -> WorkerList:
    """Lists the workers that run jobs now, and these jobs."""
    owners = sorted(reachable_part(call.service.client.store.owners))
    return WorkerList([_worker(call, owner) for owner in islice(owners, MOST_WORKERS)], len(owners))


@api_method("GET /v1/stores", Scope.READ, tag="hosts")
def list_stores(call: ApiCall) -> StoreList:
    """Lists the stores: whether each answers, how fast, and what an operator should know of it."""
    found = call.service.health.read()
    # That a store is back is seen sooner.
    found = call.service.health.read(_AWAY_FOR) if any(one.trouble for one in found) else found
    return StoreList([_store(one) for one in found])


def _store(health: StoreHealth) -> StoreRecord:
    facts = [FactRecord(one.name, one.value, one.advice) for one in health.facts]
    return StoreRecord(health.url, health.trouble, health.latency, health.draining, facts)


def _worker(call: ApiCall, owner: str) -> WorkerRecord:
    client = call.service.client
    jobs = reachable_part(lambda: client.store.reclaim(client.clock.now(), of=owner))
    shown = sorted((job for job in jobs if call.allows(job.queue)), key=lambda job: job.state_since)[:MOST_RUNNING]
    running = [
        RunningRecord(ids.text(job.id), job.task, job.queue, job.epoch, job.state_since / SECOND) for job in shown
    ]
    return WorkerRecord(owner, len(jobs), running)


METHODS: tuple[ApiMethod, ...] = (list_all_hosts, list_workers, list_stores)
