"""Whether a store is the one that this host has seen before, and no older: a restored backup, a server that came back
without its data and a replica that lagged behind look like a store in which nothing waits.

The store keeps an id, made at random, and a time that the keeper of each host raises. Each host remembers both in a
file. What it finds stays until a person accepts it, since the store goes on from there.
"""

import contextlib
import logging
import secrets
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from tarry import files
from tarry.errors import StoreError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import StoredTime
from tarry.store.rules.base import Store
from tarry.store.shards.shard import Shard

log = logging.getLogger("tarry.store")

CELL = "store:identity"
ACCEPT = "jobs may be lost, or may run again: bring its data back; or go on with it as it is: tarry store accept"
"""What to do about a finding."""
STALE = 120 * SECOND
"""The times of several hosts may be written in the wrong order, by less than this."""


class StoreIdentity(Struct, frozen=True):
    """Which store it is."""

    id: str
    seen: StoredTime
    """When a keeper was last there; microseconds since the epoch."""
    accepted: StoredTime = 0
    """When a person last accepted the store as it is."""


class RememberedStore(Struct):
    """What a host remembers of a store."""

    id: str
    seen: StoredTime
    finding: str = ""
    """What was found that nobody has accepted; empty: nothing."""
    found: StoredTime = 0
    """When."""


class StoreMemory:
    """What this host remembers of its stores, by URL, in a file that lasts longer than its processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, RememberedStore] = {}

    @classmethod
    def beside(cls, pid_file: Path) -> "StoreMemory":
        """In a file beside the pid file."""
        return cls(pid_file.with_name(f"{pid_file.name}.stores"))

    def finding(self, shard: Shard) -> str:
        """What is wrong with the store as it is now; empty: nothing. Changes nothing. StoreError."""
        self._read()
        known = self._known.get(shard.url)
        return "" if known is None else _compare(shard.url, known, _decode(shard.ask(_read_cell)))

    def watch(self, shard: Shard, now: int) -> str:
        """As `finding`, for the keeper: it keeps the finding, or tells the store that it is seen. StoreError."""
        self._read()
        cell, known = shard.ask(_read_cell), self._known.get(shard.url)
        there = _decode(cell)
        finding = "" if known is None else _compare(shard.url, known, there)
        if known is not None and finding:
            if not known.finding:
                log.error("%s: %s; %s", shard.url, finding, ACCEPT)
                known.finding, known.found = finding, now
                self._write()
            return finding
        next_ = StoreIdentity(secrets.token_hex(8), now) if there is None else _seen(there, now)
        if shard.ask(lambda store: store.kv_cas(CELL, msgspec.json.encode(next_), cell)):
            self._known[shard.url] = RememberedStore(next_.id, next_.seen)
            self._write()
        return ""

    def accept(self, shard: Shard, now: int) -> None:
        """From now on the store is right as it is, for all hosts. StoreError."""
        self._read()
        cell = shard.ask(_read_cell)
        there = _decode(cell)
        next_ = StoreIdentity(secrets.token_hex(8) if there is None else there.id, now, now)
        if not shard.ask(lambda store: store.kv_cas(CELL, msgspec.json.encode(next_), cell)):
            raise StoreError(f"{shard.url}: another process wrote at the same moment; accept it again")
        self._known[shard.url] = RememberedStore(next_.id, now)
        self._write()

    def _read(self) -> None:
        # Anew each time: `tarry store accept` writes it too. Without the file, what this process knows counts.
        with contextlib.suppress(OSError, *UNREADABLE):
            self._known = decode_json(self._path.read_bytes(), dict[str, RememberedStore])

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            files.replace(self._path, msgspec.json.encode(self._known))


def _compare(url: str, known: RememberedStore, there: StoreIdentity | None) -> str:
    last = f"it was last seen at {_format_moment(known.seen)}"
    if there is not None and there.accepted > max(known.found, known.seen):
        return ""
    # Whoever deletes a SQLite file begins anew on purpose; while it is in use its processes notice by themselves.
    if there is None:
        return "" if url.startswith("sqlite:") else f"it came back empty; {last}"
    if there.id != known.id:
        return f"it is another store than before; {last}"
    if there.seen < known.seen - STALE:
        return f"it is as it was at {_format_moment(there.seen)}; {last}"
    return known.finding


def _format_moment(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment / SECOND))


def _seen(there: StoreIdentity, now: int) -> StoreIdentity:
    return StoreIdentity(there.id, max(there.seen, now), there.accepted)


def _read_cell(store: Store) -> bytes | None:
    return store.kv_get(CELL)


def _decode(cell: bytes | None) -> StoreIdentity | None:
    """None: the store says nothing, or nothing that can be read."""
    if cell is not None:
        with contextlib.suppress(*UNREADABLE):
            return decode_json(cell, StoreIdentity)
    return None
