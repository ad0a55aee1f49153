"""`tarry shards`: lists the shards of a store, and moves jobs between them."""

import argparse
import sys
import time
from functools import partial
from typing import Any

from msgspec import Struct

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, command_method
from tarry.cli.shared.printing import print_json, print_table
from tarry.errors import StoreError, TarryError
from tarry.model.job import State
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules import owner
from tarry.store.shards.mover import Mover, MoveReport
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore
from tarry.terminal import print_line

MOVE_PAUSE = 1.0
"""Seconds between two rounds of `move --wait`."""
UNFINISHED = (State.SCHEDULED, State.READY, State.RUNNING)


class MoveOptions(Struct, frozen=True):
    """How to move jobs."""

    wait: bool = False
    """Go on until nothing is left, also of what runs now."""


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
    mover = Mover(store, owner.new_name())
    moved = mover.run(_print_progress)
    total = moved.moved
    # A running job stays where it is until it ends.
    while body.wait and moved.running:
        time.sleep(MOVE_PAUSE)
        moved = mover.run()
        total += moved.moved
    return ShardMove(total, moved.running, moved.held, moved.nodes, moved.away)


def shard_rows(store: ShardedStore) -> list[dict[str, Any]]:
    """The state of each shard and its number of jobs by state; None where it is not known."""
    return [_row(shard) for shard in store.shards]


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


SUBJECT = Subject(
    (move_shards,),
    {"move": _print_result},
    "list several stores that are used as one, or move jobs to where they belong",
    "After a store was added to `store`, or marked with #draining, and all processes know: move.",
    own={"list": _list},
    # Else a job is left on a shard where it does not belong, or may be.
    is_done=lambda found: not (found.running or found.key_held or found.away),
    warns=False,
)
add = partial(add_methods, "shards", SUBJECT)
