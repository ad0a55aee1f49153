"""How processes follow the list of the stores that are used as one, and how it is changed."""

import contextlib
import logging
import random
import threading
import time
import weakref
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from tarry.errors import StoreBusy, StoreError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.store.rules.base import Store
from tarry.store.rules.owner import new_name
from tarry.store.shards.answers import ask_shards
from tarry.store.shards.shard import Shard, parse_shard_url
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.topology import (
    HELD_CELL,
    NOTED_EVERY,
    READ_EVERY,
    ListedShard,
    ShardContent,
    Topology,
    list_entry,
    newest,
    read,
    repair,
    write,
)
from tarry.store.shared.backoff import TurnGuard, jitter

log = logging.getLogger("tarry.store")


class TopologyFollower:
    """Makes the stores of this process those of the list: at the start, and by a thread until the store is closed, or
    nobody has it any more."""

    def __init__(self, store: ShardedStore) -> None:
        self._store, self._has_stopped = store, threading.Event()
        self._known: Topology | None = None
        self._used: list[ListedShard] | None = None
        pause = 0.0
        with contextlib.suppress(StoreError):
            pause = self._begin()
        # Only weakly: commands do not close their store.
        words = weakref.ref(self), self._has_stopped, pause
        threading.Thread(target=_run, args=words, name="tarry-shards", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        self._has_stopped.set()

    def _begin(self) -> float:
        """Reads all lists, and does what the newest says; in how many seconds to look again. StoreError."""
        # All are asked: one that was forgotten, or away for long, may have an old list. And the stores of a list may
        # have a newer one.
        known, pause = self._known, jitter(READ_EVERY)
        while self._read(shards_in_order(self._store)) != known:
            known, pause = self._known, self._use()
        return pause

    def look(self) -> float:
        """Reads the list, and does what it says; in how many seconds to look again. StoreError."""
        # All ask the same store, to which a change is written first. It was away, perhaps, when that was made, or is
        # away for whoever makes one: so another one each time, too.
        there = shards_in_order(self._store)
        self._read([*there[:1], *random.sample(there[1:], min(1, len(there[1:])))])
        return jitter(READ_EVERY) if self._known is None else self._use()

    def _read(self, shards: Sequence[Shard]) -> Topology | None:
        """Reads the lists of these stores, and gives the newest to those that lack it. StoreError if none answers."""
        answers = ask_shards(shards, range(len(shards)), lambda _, store: read(store))
        if not answers:
            answers.result(None)
        known = self._known = newest((self._known, *answers.values()))
        if known is not None:
            old = [number for number, there in answers.items() if there != known]
            ask_shards(shards, old, lambda _, store: repair(store, known))
        return known

    def _use(self) -> float:
        """Does what the list says; in how many seconds to look again. StoreError."""
        assert self._known is not None
        now = self._store.time()
        listed = self._known.at_time(now)
        if listed != self._used:
            self._log_leftovers({one.name for one in listed if one.state != "removed"})
            self._store.use(listed)
            self._used = listed
            log.warning("the stores used as one, version %d: %s", self._known.version, describe(listed))
        left = (self._known.at - now) / SECOND
        return min(READ_EVERY, left) if left > 0 else jitter(READ_EVERY)

    def _log_leftovers(self, names: Collection[str]) -> None:
        """Logs which stores have jobs all the same that are used no more."""
        # A process that stood still over the drain may have put some there.
        for shard in self._store.shards:
            if shard.name not in names and not shard.away:
                with contextlib.suppress(StoreError):
                    if count := count_unfinished(shard):
                        text = "%s was removed and has %s, which nobody runs: tarry shards add, and drain it again"
                        log.error(text, shard.name, quantity(count, "unfinished job"))


def _run(follower: "weakref.ref[TopologyFollower]", has_stopped: threading.Event, pause: float) -> None:
    guard = TurnGuard(log, "looking for changes of the shards", has_stopped.wait)
    while not has_stopped.wait(pause):
        pause = jitter(READ_EVERY)
        # A store that is away says so itself.
        with guard, contextlib.suppress(StoreError):
            if (known := follower()) is None:
                return
            pause = known.look()
        known = None


def shards_in_order(store: ShardedStore) -> list[Shard]:
    """The stores that are there, the one first from which all read the list first."""
    return sorted((shard for shard in store.shards if not shard.away), key=lambda shard: shard.name)


def describe(listed: Sequence[ListedShard]) -> str:
    """The stores in words, without passwords."""
    return ", ".join(one.name if one.state == "up" else f"{one.name} ({one.state})" for one in listed)


def current(store: ShardedStore) -> Topology:
    """The newest list of all stores that are there; where there is none, that of the settings. StoreError."""
    return newest(shard.ask(read) for shard in shards_in_order(store)) or Topology(0, 0, seeds(store))


def seeds(store: ShardedStore) -> list[ListedShard]:
    """The stores of this process as the settings name them."""
    urls = [store.opened_by] if isinstance(store.opened_by, str) else store.opened_by
    each = [parse_shard_url(url) for url in urls]
    return [replace(list_entry(url, name), state="draining" if draining else "up") for url, name, draining in each]


def publish(store: ShardedStore, topology: Topology, also: Sequence[Shard] = ()) -> None:
    """Gives all stores that are there the list. StoreError: the change may be made all the same, if the first of them
    got it; the others get it from whoever reads it."""
    for number, shard in enumerate((*shards_in_order(store), *also)):
        try:
            is_given = shard.ask(lambda one: write(one, topology))
        except StoreError:
            # With the first one the change is made.
            if not number:
                raise
            continue
        if not is_given:
            raise StoreBusy("another process changed the list just now; look at `tarry shards`, and try again")


class ShardNotes:
    """Notes on the others how many unfinished jobs each store has, in case one is lost."""

    def __init__(self, store: ShardedStore) -> None:
        self._store, self._name = store, new_name()

    def note_held(self) -> None:
        """Notes it; one host does it for all. StoreError."""
        now = self._store.time()
        if not self._store.hold(HELD_CELL, self._name, now + round(1.5 * NOTED_EVERY * SECOND), now):
            return
        there = shards_in_order(self._store)
        noted = {shard.name: ShardContent(count_unfinished(shard), now) for shard in there}
        for shard in there:
            cell = shard.ask(_held_cell)
            # Of those that are away what was noted last stays.
            held = msgspec.json.encode(_held(cell) | noted)
            shard.ask(lambda one: one.kv_cas(HELD_CELL, held, cell))  # noqa: B023


def count_unfinished(shard: Shard) -> int:
    """How many jobs it has that have not finished. StoreError."""
    return sum(tally.count for tally in shard.ask(lambda one: one.counts()) if not tally.state.finished)


def describe_loss(store: ShardedStore, name: str) -> str:
    """What that store held when it was last seen, in words. StoreError."""
    found = [held for shard in shards_in_order(store) if (held := _held(shard.ask(_held_cell)).get(name))]
    newest = max(found, key=lambda held: held.at, default=None)
    if newest is None:
        return "what it held is not known"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(newest.at / SECOND))
    return f"at {when} it held {quantity(newest.jobs, 'unfinished job')}"


def _held_cell(store: Store) -> bytes | None:
    return store.kv_get(HELD_CELL)


def _held(cell: bytes | None) -> dict[str, ShardContent]:
    if cell is not None:
        with contextlib.suppress(*UNREADABLE):
            return decode_json(cell, dict[str, ShardContent])
    return {}
