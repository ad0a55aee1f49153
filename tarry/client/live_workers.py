"""Who takes the jobs of a broadcast: the masters, or the workers, that are there now."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from tarry.errors import HostNotFound
from tarry.model.flow.own_queues import own_queue
from tarry.store.queries.hosts import Host, WorkerFigures, list_hosts
from tarry.store.rules.base import Store
from tarry.tasks.shield import shielded

Per = Literal["host", "worker"]
_ENDING = ("stopping", "quitting")
_READY = "ready"


class BroadcastTarget(Struct, frozen=True):
    """A master or worker that runs one job of a broadcast."""

    name: str
    """What its result is found by."""
    label: str
    """What people see."""
    queue: str
    """The queue from which nobody else takes jobs."""


def find_targets(store: Store, per: Per) -> list[BroadcastTarget]:
    """The masters that have a worker which is ready, or these workers. HostNotFound if there is none; StoreError."""
    with shielded:
        known = list_hosts(store)
    hosts = [host for host in known if host.is_alive and host.state not in _ENDING]
    found = [target for host in hosts for target in (_workers(host) if per == "worker" else _master(host))]
    if not found:
        raise HostNotFound(
            "a broadcast needs a worker that is ready, and no master that the store knows of has one: tarry start."
            " Workers that run without a master get no broadcasts"
        )
    return found


def _master(host: Host) -> Iterator[BroadcastTarget]:
    if any(pool.workers for pool in host.pools):
        yield BroadcastTarget(host.instance, host.name, own_queue(host.instance))


def _workers(host: Host) -> Iterator[BroadcastTarget]:
    told = {worker.owner: f"{host.name} {worker.pool}.{worker.number}" for worker in host.workers if _is_ready(worker)}
    for owner, label in (told | dict.fromkeys(host.more_workers, host.name)).items():
        yield BroadcastTarget(owner, label, own_queue(owner))


def _is_ready(worker: WorkerFigures) -> bool:
    return worker.state == _READY and bool(worker.owner)
