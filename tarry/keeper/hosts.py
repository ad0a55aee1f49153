"""Which masters there are, on which hosts: each keeps a cell of the store up to date, and anyone reads them all."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.client.clock import Clock
from tarry.errors import StoreAway, StoreBusy, StoreUnavailable
from tarry.model.duration import DAY, MINUTE, SECOND
from tarry.store.base import Store
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.partly import there
from tarry.worker import owner

PREFIX = "host:"
HEARTBEAT_EVERY = 5 * SECOND
"""Between two signs of life of a host to which nothing happens."""
LOST_AFTER = 15 * SECOND
FORGOTTEN_AFTER = DAY
LOST = "lost"

_SWEEP_EVERY = MINUTE
_TRIES = 20
_CELLS_PER_HOST = 8
"""With several stores as one, a host has so many names, of which one at least lives where a store is there."""

# Bounds within which whatever stands in a cell can be shown.
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Moment = Annotated[int, Meta(ge=0, le=2**57)]


class PoolFigures(Struct, frozen=True):
    """How a pool of one host does. The counts are those of the processes that are there now; memory in bytes."""

    name: str
    workers: _Count = 0
    """Ready to take jobs."""
    busy: _Count = 0
    """At a job just now."""
    processed: _Count = 0
    failed: _Count = 0
    memory: _Count = 0


class Host(Struct, frozen=True):
    """One master as it last told of itself. Times are microseconds since the epoch, by the store's clock."""

    instance: str
    """Unique for ever: an owner's name, as in `engine.owner`."""
    name: str
    """The host's."""
    pid: _Count = 0
    pid_file: str = ""
    version: str = ""
    """Of tarry."""
    state: str = "serving"
    """The master's: starting, serving, resting, stopping, quitting; or lost: nothing was heard of it since `seen`."""
    started: _Moment = 0
    seen: _Moment = 0
    pools: list[PoolFigures] = []

    @property
    def is_alive(self) -> bool:
        """Heard of lately."""
        return self.state != LOST

    @property
    def is_local(self) -> bool:
        """It is a master of this machine; in a container, of this container."""
        return owner.is_local(self.instance)


def list_hosts(store: Store, now: int | None = None) -> list[Host]:
    """All masters, by name, that run or vanished within a day; `now` is the store's time, None: it is asked.

    Of several stores as one, what those tell that are there. What is no entry of a host is passed over. StoreError.
    """
    moment = store.time() if now is None else now
    newest: dict[str, Host] = {}
    for _, _, host in _entries(store):
        if abs(moment - host.seen) < FORGOTTEN_AFTER and not _is_newer(newest.get(host.instance), host):
            newest[host.instance] = host
    found = [replace(host, state=LOST) if _is_lost(host, moment) else host for host in newest.values()]
    return sorted(found, key=lambda host: (host.name, host.pid_file, host.started, host.instance))


def _is_newer(known: Host | None, host: Host) -> bool:
    return known is not None and known.seen >= host.seen


def _is_lost(host: Host, now: int) -> bool:
    """Also one that tells of the future: then the clock was wrong, and says nothing."""
    return abs(now - host.seen) >= LOST_AFTER or owner.is_dead(host.instance)


def _entries(store: Store) -> Iterator[tuple[str, bytes, Host]]:
    for name, cell in there(lambda: store.cells(PREFIX)).items():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield name, cell, msgspec.json.decode(cell, type=Host)


class HostEntry:
    """A host's own entry: `register_host` every second or so, `leave` at the end.

    look: the host as it is now, without `seen`; None: it cannot be seen, and then it gives no sign of life.
    """

    def __init__(self, store: Store, get_host: Callable[[], Host | None], clock: Clock | None = None) -> None:
        self._store, self._get_host = store, get_host
        self._clock = clock or Clock(store.time)
        self._cell_count = _CELLS_PER_HOST if isinstance(store, ShardedStore) else 1
        self._written: dict[str, bytes | None] = {}
        """What stands in our cells, as far as we know."""
        self._heartbeat_at = self._sweep_at = 0
        self._last_summary = ""
        """In short, what others were told last."""

    def register_host(self) -> None:
        """A sign of life, if it is time or there is news; now and then, those of the vanished go. StoreError."""
        host = self._get_host()
        if host is None:
            return
        now, summary = self._clock.now(), _summary(host)
        if summary == self._last_summary and now < self._heartbeat_at <= now + HEARTBEAT_EVERY:
            return
        self._write_entry(replace(host, seen=now))
        self._heartbeat_at, self._last_summary = now + HEARTBEAT_EVERY, summary
        if now >= self._sweep_at:
            self._sweep(host, now)
            self._sweep_at = now + _SWEEP_EVERY

    def remove(self) -> None:
        """The host stopped as it should: it is no host any more. StoreError."""
        host = self._get_host()
        if host is None:
            return
        for name, cell in there(lambda: self._store.cells(_cell_name(host.instance))).items():
            with contextlib.suppress(StoreAway):
                self._store.write(name, None, cell)

    def _write_entry(self, host: Host) -> None:
        """Where one of several stores is away, its part is taken by another."""
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
            if self._store.write(name, value, self._written.setdefault(name, None)):
                self._written[name] = value
                return
            # Its answer was lost, or another keeper of this master wrote, or the entry was swept away.
            self._written[name] = there(lambda: self._store.cells(name)).get(name)
        raise StoreBusy(f"the entry {name} changes all the time")

    def _sweep(self, own: Host, now: int) -> None:
        for name, cell, host in _entries(self._store):
            if host.instance != own.instance and (_is_expired(host, now) or _is_replaced(host, own, now)):
                with contextlib.suppress(StoreAway):
                    self._store.write(name, None, cell)


def _cell_name(instance: str, number: int = 0) -> str:
    return f"{PREFIX}{instance}#{number}" if number else PREFIX + instance


def _summary(host: Host) -> str:
    return f"{host.state} {[(pool.name, pool.workers) for pool in host.pools]}"


def _is_expired(host: Host, now: int) -> bool:
    return abs(now - host.seen) >= FORGOTTEN_AFTER


def _is_replaced(host: Host, own: Host, now: int) -> bool:
    """A master that ended without a word, and we are what runs in its place."""
    return (host.name, host.pid_file) == (own.name, own.pid_file) and _is_lost(host, now)
