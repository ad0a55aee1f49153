"""Which stores are used as one, while all runs: a list with a version, of which each of them has a copy.

`store` in tarry.toml is what a process begins with. Once there is a list, it holds: a process reads it from the stores
that it knows, and from then on every few seconds. A change holds from a moment in the future on, when all processes
have read it: so all change where new jobs live at the same time, as far as their clocks agree.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.errors import ConfigError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import StoredCount, StoredTime
from tarry.store.rules.base import Store
from tarry.store.shards.shard import absolute_url, parse_shard_url, public_url, url_identity

CELL = "shards:list"
MOST_SHARDS = 100
READ_EVERY = 4.0
"""Seconds between two looks of a process."""
HOLDS_AFTER = 10 * SECOND
"""From a change of the list until it holds: every process that runs has looked by then."""

HELD_CELL = "shards:held"
NOTED_EVERY = 60.0
"""Seconds between two notes of how many jobs each store has."""

ShardState = Literal["up", "joining", "draining", "removed"]
"""joining: it was added, and that does not hold yet."""


class ListedShard(Struct, frozen=True):
    """One store of the list."""

    url: Annotated[str, Meta(max_length=2000)]
    """With its password: as whoever added it has written it."""
    name: Annotated[str, Meta(max_length=2000)]
    state: ShardState = "up"


class Topology(Struct, frozen=True):
    """The list."""

    version: StoredCount
    at: StoredTime
    """From when on it holds, by the store's clock."""
    shards: Annotated[list[ListedShard], Meta(max_length=MOST_SHARDS)]
    was: Annotated[list[ListedShard], Meta(max_length=MOST_SHARDS)] = []
    """The list before, which holds until then."""

    def at_time(self, now: int) -> list[ListedShard]:
        """The stores that hold at that time. One that was added is there from the first, and gets no new jobs yet."""
        if now >= self.at:
            return self.shards
        # One that was removed before is added as if it were new.
        old = {one.name: one for one in self.was if one.state != "removed"}
        return [old.get(listed.name, _to_joining(listed)) for listed in self.shards]

    @property
    def is_sound(self) -> bool:
        """Whether it can be used: each name stands there once, and some store takes new jobs, now and later."""
        has_room = (any(one.state == "up" for one in shards) for shards in (self.shards, self.at_time(self.at - 1)))
        return all(has_room) and len({one.name for one in self.shards}) == len(self.shards)


def _to_joining(listed: ListedShard) -> ListedShard:
    return listed if listed.state == "removed" else replace(listed, state="joining")


def read(store: Store) -> Topology | None:
    """The list as this store has it; None: it has none, or none that can be read. StoreError."""
    return _decode(store.kv_get(CELL))


def _decode(cell: bytes | None) -> Topology | None:
    if cell is not None:
        with contextlib.suppress(*UNREADABLE):
            found = decode_json(cell, Topology)
            return found if found.is_sound else None
    return None


def write(store: Store, topology: Topology) -> bool:
    """Gives this store the list, unless it has another one that is as new. False: it has. StoreError."""
    return _replace(store, topology, lambda known: known.version >= topology.version)


def repair(store: Store, topology: Topology) -> bool:
    """Gives this store the list that all others are to have, unless it has a newer one. False: it has. StoreError."""
    return _replace(store, topology, lambda known: _rank(known) > _rank(topology))


def _replace(store: Store, topology: Topology, is_newer: Callable[[Topology], bool]) -> bool:
    cell = store.kv_get(CELL)
    known = _decode(cell)
    if known is None or not is_newer(known):
        store.kv_cas(CELL, msgspec.json.encode(topology), cell)
        known = read(store)
    # Another process may have brought it there.
    return known == topology


def newest(found: Iterable[Topology | None]) -> Topology | None:
    """The one with the highest version."""
    return max((one for one in found if one is not None), key=_rank, default=None)


def _rank(topology: Topology) -> tuple[int, bytes]:
    # Two who saw different stores away may both have made the next version: all must take the same one of these.
    return topology.version, msgspec.json.encode(topology)


def with_added(topology: Topology, listed: ListedShard, now: int) -> Topology:
    """With one more store; ConfigError."""
    same = [one for one in topology.shards if one.name == listed.name]
    if same and same[0].state != "removed":
        raise ConfigError(f"{listed.name} is in the list already: {same[0].state}")
    place = url_identity(listed.url)
    for one in topology.shards:
        if one.state != "removed" and url_identity(one.url) == place:
            raise ConfigError(f"{place} is in the list already, as {one.name}")
    others = [one for one in topology.shards if one.name != listed.name]
    if len(others) >= MOST_SHARDS:
        raise ConfigError(f"there are {MOST_SHARDS} stores in the list: no more can be used as one")
    return _next_list(topology, [*others, listed], now)


def name_in_list(topology: Topology, given: str) -> str:
    """The name of the store of this name or URL; where there is none, what was given, without a password.
    ConfigError."""
    if any(one.name == given for one in topology.shards):
        return given
    url, name, _ = parse_shard_url(given)
    place = url_identity(absolute_url(url))
    found = (one.name for one in topology.shards if one.name == name or url_identity(one.url) == place)
    return next(found, public_url(url))


def with_state(topology: Topology, name: str, state: ShardState, now: int) -> Topology:
    """With another state of that store; ConfigError."""
    if name not in {one.name for one in topology.shards}:
        known = ", ".join(one.name for one in topology.shards)
        raise ConfigError(f"no store of the list is named {name}: {known}")
    shards = [replace(one, state=state) if one.name == name else one for one in topology.shards]
    if not any(one.state == "up" for one in shards):
        raise ConfigError(f"{name} is the last store that takes new jobs: add another one first")
    return _next_list(topology, shards, now)


def _next_list(topology: Topology, shards: list[ListedShard], now: int) -> Topology:
    if now < topology.at:
        left = -(-(topology.at - now) // SECOND)
        raise ConfigError(f"the list was changed just now: that holds in {left} s; change it again then")
    return Topology(topology.version + 1, now + HOLDS_AFTER, shards, topology.shards)


class ShardContent(Struct, frozen=True):
    """What a store held at a time."""

    jobs: StoredCount
    at: StoredTime


def list_entry(url: str, name: str = "") -> ListedShard:
    """The store of that URL, as in the list."""
    url = absolute_url(url)
    return ListedShard(url, name or url_identity(url))
