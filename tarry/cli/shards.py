"""`tarry shards`: lists the shards of a store, moves jobs between them, and changes which there are."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, command_method
from tarry.cli.shared.printing import print_json, print_table
from tarry.errors import StoreError, TarryError, UsageError
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules import owner
from tarry.store.shards.joining import check_new, prepare
from tarry.store.shards.mover import Mover, MoveReport
from tarry.store.shards.shard import Shard, parse_shard_url, public_url
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.topology import HOLDS_AFTER, Topology, list_entry, name_in_list, with_added, with_state
from tarry.store.shards.topology_follower import count_unfinished, current, describe_loss, publish
from tarry.store.shared.masking import mask_password
from tarry.terminal import print_line

MOVE_PAUSE = 1.0
"""Seconds between two rounds of `move --wait`."""


class MoveOptions(Struct, frozen=True):
    """How to move jobs."""

    wait: bool = False
    """Go on until nothing is left, also of what runs now."""
    rate: Annotated[int, Meta(ge=1)] | None = None
    """At most so many jobs a second."""


class ForgetOptions(Struct, frozen=True):
    """Whether it is sure."""

    lost: bool = False
    """What it held is lost."""


class ShardMove(Struct, frozen=True):
    """What a move has done, and what it left."""

    moved: int
    running: int
    key_held: int
    in_flows: int
    away: list[str]


@command_method("shards move")
def move_shards(call: CommandCall, body: MoveOptions) -> ShardMove:
    """Moves jobs to the shards where they belong."""
    store = call.client.store
    if not isinstance(store, ShardedStore) or len(store.shards) == 1:
        raise TarryError("there is one store only; nothing can be moved (several: store = [URL, URL])")
    mover = Mover(store, owner.new_name(), Pace(body.rate).wait if body.rate else lambda moved: None)
    moved = mover.run(_print_progress)
    total = moved.moved
    # A running job stays where it is until it ends.
    while body.wait and moved.running:
        time.sleep(MOVE_PAUSE)
        moved = mover.run()
        total += moved.moved
    return ShardMove(total, moved.running, moved.held, moved.nodes, moved.away)


class Pace:
    """Waits so that no more happens than so much a second."""

    def __init__(self, rate: int) -> None:
        self._rate, self._next = rate, 0.0

    def wait(self, count: int) -> None:
        """Called after so many."""
        self._next = max(self._next, time.monotonic()) + count / self._rate
        time.sleep(max(0.0, self._next - time.monotonic()))


class ShardPath(Struct, frozen=True):
    """Which store."""

    name: Annotated[str, Meta(max_length=2000)]


class ShardChange(Struct, frozen=True):
    """A change of the list of stores that are used as one."""

    name: str
    version: int
    holds_in: int
    """Seconds until it holds, in all processes."""
    held: str = ""
    """What a store that is lost held when it was last seen."""


@command_method("shards add")
def add_shard(call: CommandCall, path: ShardPath) -> ShardChange:
    """Adds a store, by its URL, to those that are used as one."""
    call.subject = mask_password(path.name)
    store, listing = _read_list(call)
    plain, name, draining = parse_shard_url(path.name)
    if draining:
        raise UsageError("a store that is added takes jobs: leave out #draining")
    new = list_entry(plain, name)
    changed = with_added(listing, new, store.time())
    shard = store.make_shard(new)
    try:
        check_new(store, shard, listing)
        prepare(store, shard)
        return _publish(store, changed, new.name, [shard])
    except StoreError as error:
        raise TarryError(f"{public_url(plain)}: {error}") from None
    finally:
        shard.close()


@command_method("shards drain")
def drain_shard(call: CommandCall, path: ShardPath) -> ShardChange:
    """From now on it gets no new jobs; `move --wait` brings those that it has to the others."""
    store, listing, name = _find_listed(call, path)
    return _publish(store, with_state(listing, name, "draining", store.time()), name)


@command_method("shards remove")
def remove_shard(call: CommandCall, path: ShardPath) -> ShardChange:
    """Takes out one that is drained and empty."""
    store, listing, name = _find_listed(call, path)
    changed = with_state(listing, name, "removed", store.time())
    number, shard = _find_shard(store, name)
    if shard is not None:
        if not shard.draining:
            raise TarryError(f"{name} takes new jobs: tarry shards drain {name}, then move --wait")
        if left := count_unfinished(shard):
            raise TarryError(f"{name} has {quantity(left)}: tarry shards move --wait brings them to the others")
        # Where there were no jobs, nobody needed to move anything: HTTP tasks and tokens may be there all the same.
        Mover(store, owner.new_name()).move_values(number)
    return _publish(store, changed, name)


@command_method("shards forget")
def forget_shard(call: CommandCall, path: ShardPath, body: ForgetOptions) -> ShardChange:
    """Takes out one that is gone for good, with all that it held."""
    store, listing, name = _find_listed(call, path)
    if not body.lost:
        raise UsageError(f"what {name} holds will not be run: say so with --lost")
    _, shard = _find_shard(store, name)
    if shard is not None and not shard.away:
        raise TarryError(f"{name} answers: tarry shards drain {name} loses nothing")
    changed = with_state(listing, name, "removed", store.time())
    return replace(_publish(store, changed, name), held=describe_loss(store, name))


def _find_shard(store: ShardedStore, name: str) -> tuple[int, Shard | None]:
    """The store of that name, and its number."""
    found = ((number, one) for number, one in enumerate(store.shards) if one.name == name and not one.is_removed)
    return next(found, (0, None))


def _find_listed(call: CommandCall, path: ShardPath) -> tuple[ShardedStore, Topology, str]:
    """The store, the list, and the name there of the one that is named, or whose URL is given."""
    call.subject = mask_password(path.name)
    store, listing = _read_list(call)
    call.subject = name_in_list(listing, path.name)
    return store, listing, call.subject


def _read_list(call: CommandCall) -> tuple[ShardedStore, Topology]:
    """The store, and the list as it is; TarryError where there is none."""
    store = call.client.store
    if not isinstance(store, ShardedStore) or not store.is_listed:
        raise TarryError("there is one store only: write two or more into store = [URL, URL], and restart once")
    return store, current(store)


def _publish(store: ShardedStore, changed: Topology, name: str, also: Sequence[Shard] = ()) -> ShardChange:
    publish(store, changed, also)
    return ShardChange(name, changed.version, HOLDS_AFTER // SECOND)


def shard_rows(store: ShardedStore) -> list[dict[str, Any]]:
    """The state of each shard and its number of jobs by state; None where it is not known."""
    return [_row(shard) for shard in store.shards if not shard.is_removed]


def _row(shard: Shard) -> dict[str, Any]:
    row: dict[str, Any] = {"shard": shard.url, **dict.fromkeys((state.value for state in State), None), "trouble": ""}
    try:
        tallies = shard.ask(lambda store: store.counts())
    except StoreError as error:
        return row | {"state": shard.describe(), "trouble": shard.away or str(error)}
    counts = {state.value: sum(t.count for t in tallies if t.state is state) for state in State}
    return row | {"state": shard.describe()} | counts


def print_shards(shard_rows: list[dict[str, Any]]) -> None:
    """Prints these rows as a table."""
    states = [state.value for state in State]
    lines = [
        (row["shard"], row["state"], *("-" if row[s] is None else row[s] for s in states), row["trouble"])
        for row in shard_rows
    ]
    print_table(("shard", "is", *states, ""), lines)


def _list(args: argparse.Namespace) -> int:
    store = CommandContext.of(args).client.store
    shards = shard_rows(store if isinstance(store, ShardedStore) else ShardedStore([store]))
    if args.json:
        print_json({"shards": shards})
    else:
        print_shards(shards)
    return 1 if any(row["trouble"] for row in shards) else 0


def _print_progress(moved: MoveReport) -> None:
    if sys.stderr.isatty():
        print(f"\r{moved.seen:,} looked at, {moved.moved:,} moved", end="", file=sys.stderr, flush=True)


def _print_result(_: CommandCall, found: ShardMove) -> None:
    print_line(f"{quantity(found.moved)} moved")
    if found.running:
        print_line(f"{found.running:,} run where they do not belong: move again when they have ended, or --wait")
    if found.key_held:
        held = f"{found.key_held:,} stay, since where they belong another job holds their key"
        print_line(f"{held}: move again when that has ended")
    if found.in_flows:
        print_line(f"{found.in_flows:,} are jobs of flows, which stay on their store until the flow goes")
    for trouble in found.away:
        print_line(f"{trouble}; move again when it is back")


def _print_change(_: CommandCall, __: Sequence[str], found: Sequence[ShardChange]) -> None:
    for one in found:
        held = f"; {one.held}" if one.held else ""
        print_line(f"{one.name}: list {one.version} holds in {one.holds_in} s, in all processes{held}")


def _is_done(found: ShardMove | ShardChange) -> bool:
    # Else a job is left on a shard where it does not belong, or may be.
    return isinstance(found, ShardChange) or not (found.running or found.key_held or found.away)


SUBJECT = Subject(
    (move_shards, add_shard, drain_shard, remove_shard, forget_shard),
    {"move": _print_result, **dict.fromkeys(("add", "drain", "remove", "forget"), _print_change)},
    "list several stores that are used as one, change which they are, or move jobs to where they belong",
    "add, drain, remove and forget hold in all processes 10 s later, without a restart; then: move.",
    names="NAME",
    own={"list": _list},
    is_done=_is_done,
    warns=False,
)
add = partial(add_methods, "shards", SUBJECT)
