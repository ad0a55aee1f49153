"""The registry of masters on all hosts: each master updates its own cell in the store, and anyone can read them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.client.clock import Clock
from tarry.errors import HostNotFound, StoreAway, StoreBusy, StoreUnavailable, UsageError
from tarry.model.duration import DAY, MINUTE, SECOND
from tarry.model.job import StoredCount, StoredTime
from tarry.store.base import Store
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.partial_result import reachable_part
from tarry.worker import owner

PREFIX = "host:"
HEARTBEAT_EVERY = 5 * SECOND
"""Microseconds between two heartbeats of a host whose state does not change."""
LOST_AFTER = 15 * SECOND
FORGOTTEN_AFTER = DAY
LOST = "lost"

_SWEEP_EVERY = MINUTE
_TRIES = 20
# Each name may be on another shard, so that one of them is on an available shard.
_CELLS_PER_HOST = 8
"""How many cell names a host may use on a sharded store."""

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
    `hang` (a job that did not end), `crash`."""


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
    """A name that is never used again, built as in `worker.owner`."""
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


def list_hosts(store: Store, now: int | None = None) -> list[Host]:
    """All masters that run or were lost within a day, by name. now: the store's time; None: the store is asked.

    Of a sharded store only available shards are read. Cells that are not valid entries are skipped. StoreError.
    """
    moment = store.time() if now is None else now
    newest: dict[str, Host] = {}
    for _, _, host in _entries(store):
        # A host that changed its cell leaves older entries in the others.
        if abs(moment - host.seen) < FORGOTTEN_AFTER and not _is_newer(newest.get(host.instance), host):
            newest[host.instance] = host
    found = [replace(host, state=LOST) if _is_lost(host, moment) else host for host in newest.values()]
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


def _is_lost(host: Host, now: int) -> bool:
    """Whether its heartbeats have stopped, or its process is gone."""
    # A heartbeat far in the future counts as none: it was sent with a wrong clock.
    return abs(now - host.seen) >= LOST_AFTER or owner.is_dead(host.instance)


def _entries(store: Store) -> Iterator[tuple[str, bytes, Host]]:
    for name, cell in reachable_part(lambda: store.kv_list(PREFIX)).items():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield name, cell, msgspec.json.decode(cell, type=Host)


class HostEntry:
    """The entry of this host: call `register_host` about every second, and `remove` at the end.

    get_host: returns the current figures, without `seen`; None if there are none: then no heartbeat is sent.
    """

    def __init__(self, store: Store, get_host: Callable[[], Host | None], clock: Clock | None = None) -> None:
        self._store, self._get_host = store, get_host
        self._clock = clock or Clock(store.time)
        self._cell_count = _CELLS_PER_HOST if isinstance(store, ShardedStore) else 1
        self._written: dict[str, bytes | None] = {}
        """The last known content of our cells."""
        self._heartbeat_at = self._sweep_at = 0
        self._last_summary = ""
        """The summary that was written last."""

    def register_host(self) -> None:
        """Writes the entry if it is due or has changed; once a minute removes old entries of others. StoreError."""
        host = self._get_host()
        if host is None:
            return
        now, summary = self._clock.now(), _summary(host)
        # Written at once if the state changed. A heartbeat too far ahead means that the clock was set back.
        if summary == self._last_summary and now < self._heartbeat_at <= now + HEARTBEAT_EVERY:
            return
        self._write_entry(replace(host, seen=now))
        self._heartbeat_at, self._last_summary = now + HEARTBEAT_EVERY, summary
        if now >= self._sweep_at:
            self._sweep(host, now)
            self._sweep_at = now + _SWEEP_EVERY

    def remove(self) -> None:
        """Removes the entry after an orderly stop. StoreError."""
        host = self._get_host()
        if host is None:
            return
        # All cells with this prefix: earlier heartbeats may have used other names.
        for name, cell in reachable_part(lambda: self._store.kv_list(_cell_name(host.instance))).items():
            with contextlib.suppress(StoreAway):
                self._store.kv_cas(name, None, cell)

    def _write_entry(self, host: Host) -> None:
        """Writes the entry; if the shard of one cell is away, uses the next cell name."""
        value = msgspec.json.encode(host)
        for number in range(self._cell_count):
            try:
                self._write_cell(_cell_name(host.instance, number), value)
                return
            except StoreUnavailable:
                if number == self._cell_count - 1:
                    raise

    def _write_cell(self, name: str, value: bytes) -> None:
        for _ in range(_TRIES):
            if self._store.kv_cas(name, value, self._written.setdefault(name, None)):
                self._written[name] = value
                return
            # An answer was lost, another keeper of this master wrote, or another host removed the entry.
            self._written[name] = reachable_part(lambda: self._store.kv_list(name)).get(name)
        raise StoreBusy(f"the entry {name} changes all the time")

    def _sweep(self, own: Host, now: int) -> None:
        for name, cell, host in _entries(self._store):
            if host.instance != own.instance and (_is_expired(host, now) or _is_replaced(host, own, now)):
                with contextlib.suppress(StoreAway):
                    self._store.kv_cas(name, None, cell)


def _cell_name(instance: str, number: int = 0) -> str:
    return f"{PREFIX}{instance}#{number}" if number else PREFIX + instance


def _summary(host: Host) -> str:
    pools = [(pool.name, pool.workers, pool.wanted) for pool in host.pools]
    workers = [worker.owner for worker in host.workers]
    return f"{host.state} {host.generation} {host.reloaded} {pools} {workers}"


def _is_expired(host: Host, now: int) -> bool:
    return abs(now - host.seen) >= FORGOTTEN_AFTER


def _is_replaced(host: Host, own: Host, now: int) -> bool:
    """Whether the entry is of a master that died and that ours has replaced."""
    return (host.name, host.pid_file) == (own.name, own.pid_file) and _is_lost(host, now)
