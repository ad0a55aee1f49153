"""Which masters there are, on all hosts: each writes its own cell (`keeper/hosts.py`), and anyone can read them."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.errors import HostNotFound, UsageError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import DAY, SECOND
from tarry.model.job import StoredCount, StoredTime
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

PREFIX = "host:"
LOST_AFTER = 15 * SECOND
FORGOTTEN_AFTER = DAY
LOST = "lost"

# Bounds for values that are read from a cell, so that any of them can be shown.
_Seconds = Annotated[float, Meta(ge=0, le=2**37)]
_JobId = Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class PoolFigures(Struct, frozen=True):
    """Figures of a pool on one host, summed over its current processes; memory is in bytes."""

    name: str
    workers: StoredCount = 0
    """Ready to take jobs."""
    busy: StoredCount = 0
    """Running a job now."""
    processed: StoredCount = 0
    failed: StoredCount = 0
    """Attempts that failed, also the last ones of jobs that are dead."""
    memory: StoredCount = 0
    queues: list[str] | None = None
    """Those that it serves; `*`: all. null: a master of an earlier version does not tell."""
    weights: dict[str, StoredCount] = {}
    """How it shares its starts among its queues, by `[pools.NAME] queues`; empty: equally."""
    wanted: StoredCount = 0
    """How many workers it is to have."""
    least: StoredCount = 0
    most: StoredCount = 0
    """Bounds within which it follows its backlog; 0: it does not."""
    failure: str = ""
    """Why its processes cannot start; empty: they can."""
    replaced: dict[str, StoredCount] = {}
    """How many of its processes had to be replaced, by the reason: `jobs`, `age` or `memory` (a limit of the pool),
    `hang` (a job that did not end), `crash` (an error of its own, as SIGSEGV), `killed` (SIGKILL from outside, often
    for want of memory), `signal` (another one from outside, as SIGTERM)."""


class WorkerFigures(Struct, frozen=True):
    """A worker process, as its master sees it. Memory in bytes, `started` in seconds since the epoch."""

    pool: str
    number: StoredCount
    owner: str = ""
    """Its name as the owner of jobs."""
    pid: StoredCount = 0
    generation: StoredCount = 0
    state: str = ""
    """starting, ready, stopping or gone."""
    started: _Seconds = 0.0
    processed: StoredCount = 0
    failed: StoredCount = 0
    """Attempts that failed, also the last ones of jobs that are dead."""
    held: StoredCount = 0
    """How many jobs it has claimed."""
    memory: StoredCount = 0
    cpu: _Seconds = 0.0
    """How many cores it used lately."""
    silent: _Seconds = 0.0
    """Seconds since its last sign of life."""
    last_exit: str = ""
    """How the process before it in its place ended; empty: there was none."""
    jobs: Annotated[list[_JobId], Meta(max_length=100)] = []
    """Ids of the jobs whose code runs at this moment, the longest first; at most two."""


class Host(Struct, frozen=True):
    """One master, as it last reported. Times are microseconds since the epoch, by the store's clock."""

    instance: str
    """A name that is never used again, built as in `store.owner`."""
    name: str
    """The host name."""
    pid: StoredCount = 0
    pid_file: str = ""
    version: str = ""
    """The version of tarry."""
    state: str = "serving"
    """The state of the master: starting, serving, resting, stopping, quitting; or lost: no heartbeat since `seen`."""
    started: StoredTime = 0
    seen: StoredTime = 0
    pools: list[PoolFigures] = []
    workers: Annotated[list[WorkerFigures], Meta(max_length=1000)] = []
    """At most 64 of this version."""
    more_workers: Annotated[list[str], Meta(max_length=1000)] = []
    """The owner names of workers that are ready, of those that `workers` has no room for."""
    worker_count: StoredCount = 0
    generation: StoredCount = 0
    """Of the processes that serve: each successful reload adds one."""
    reloading: str = ""
    """The stage of a running reload; empty: none runs."""
    reloaded: _Seconds = 0.0
    """When the last reload ended, in seconds since the epoch; 0: there was none."""
    reload_failure: str = ""
    """Why the last reload failed; empty: it did not."""
    remote_control: bool = False
    """Whether it takes requests that come through the store."""

    @property
    def is_alive(self) -> bool:
        """It has sent a heartbeat lately."""
        return self.state != LOST

    @property
    def is_local(self) -> bool:
        """The master runs on this machine; in a container, in this container."""
        return owner.is_local(self.instance)


def serving_pools(pools: Sequence[PoolFigures], queue: str) -> list[PoolFigures] | None:
    """Those of the pools that serve the queue; None: one of them does not say what it serves."""
    # A master of an earlier version does not tell.
    if any(pool.queues is None for pool in pools):
        return None
    return [pool for pool in pools if {queue, "*"} & set(pool.queues or ())]


def list_hosts(store: Store, now: int | None = None) -> list[Host]:
    """All masters that run or were lost within a day, by name. now: the store's time; None: the store is asked.

    Of a sharded store only available shards are read. Cells that are not valid entries are skipped. StoreError.
    """
    moment = store.time() if now is None else now
    newest: dict[str, Host] = {}
    for _, _, host in entries(store):
        # A host that changed its cell leaves older entries in the others.
        if abs(moment - host.seen) < FORGOTTEN_AFTER and not _is_newer(newest.get(host.instance), host):
            newest[host.instance] = host
    found = [replace(host, state=LOST) if is_lost(host, moment) else host for host in newest.values()]
    return sorted(found, key=lambda host: (host.name, host.pid_file, host.started, host.instance))


def find_host(store: Store, name: str) -> Host:
    """The master with this instance, or the only one on the host of this name that lives. HostNotFound; StoreError."""
    found = [host for host in list_hosts(store) if name in (host.instance, host.name)]
    exact = [host for host in found if host.instance == name]
    chosen = exact or [host for host in found if host.is_alive] or found
    if not chosen:
        raise HostNotFound(f"no master of host {name!r} is known to the store")
    if len(chosen) > 1:
        several = ", ".join(host.instance for host in chosen[:4])
        raise UsageError(f"several masters run on {name}: name one of {several}", "host")
    return chosen[0]


def host_of_worker(store: Store, owner: str) -> Host:
    """The master that this worker belongs to. HostNotFound: it is not known; the worker may have no master."""
    place = owner.split(":", maxsplit=1)[0]
    alive = [host for host in list_hosts(store) if host.is_alive and host.instance.split(":")[0] == place]
    of_it = [host for host in alive if any(worker.owner == owner for worker in host.workers)]
    # A host tells only of its first workers.
    chosen = of_it or (alive if len(alive) == 1 and alive[0].worker_count > len(alive[0].workers) else [])
    if not chosen:
        raise HostNotFound("no master that is known to the store has this worker")
    return chosen[0]


def _is_newer(known: Host | None, host: Host) -> bool:
    return known is not None and known.seen >= host.seen


def is_lost(host: Host, now: int) -> bool:
    """Whether its heartbeats have stopped, or its process is gone."""
    # A heartbeat far in the future counts as none: it was sent with a wrong clock.
    return abs(now - host.seen) >= LOST_AFTER or owner.is_dead(host.instance)


def entries(store: Store) -> Iterator[tuple[str, bytes, Host]]:
    """All valid entries: the name of the cell, its content, and what that says. StoreError."""
    for name, cell in reachable_part(lambda: store.kv_list(PREFIX)).items():
        with contextlib.suppress(*UNREADABLE):
            yield name, cell, decode_json(cell, Host)
