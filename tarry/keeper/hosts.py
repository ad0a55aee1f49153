"""The entry of this master in the registry of masters (`store/queries/hosts.py`)."""

import contextlib
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from tarry.client.clock import Clock
from tarry.errors import StoreAway, StoreBusy, StoreUnavailable
from tarry.model.duration import MINUTE, SECOND
from tarry.store.queries.hosts import FORGOTTEN_AFTER, PREFIX, Host, entries, is_lost
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part
from tarry.store.shards.sharded import ShardedStore

HEARTBEAT_EVERY = 5 * SECOND
"""Microseconds between two heartbeats of a host whose state does not change."""
_SWEEP_EVERY = MINUTE
_TRIES = 20
# Each name may be on another shard, so that one of them is on an available shard.
_CELLS_PER_HOST = 8
"""How many cell names a host may use on a sharded store."""


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
        for name, cell, host in entries(self._store):
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
    return (host.name, host.pid_file) == (own.name, own.pid_file) and is_lost(host, now)
