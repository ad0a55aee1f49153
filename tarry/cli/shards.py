"""`tarry shards`: lists the shards of a store, and moves jobs between them."""

import argparse
import sys
import time
from typing import Any

from tarry.cli.printing import print_json, print_table
from tarry.errors import StoreError, TarryError
from tarry.model.job import State
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.shards.mover import Mover, MoveReport
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore
from tarry.terminal import say

MOVE_PAUSE = 1.0
"""Seconds between two rounds of `move --wait`."""
UNFINISHED = (State.SCHEDULED, State.READY, State.RUNNING)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    shards = commands.add_parser(
        "shards",
        help="list several stores that are used as one, or move jobs to where they belong",
        description="After a store was added to `store`, or marked with #draining, and all processes know: move.",
    )
    shards.add_argument("action", nargs="?", choices=("list", "move"), default="list")
    shards.add_argument("--wait", action="store_true", help="move: go on until nothing is left, also of what runs now")
    shards.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 if a shard is away, or a job is left on a shard where it does not belong."""
    store = CommandContext.of(args).client.store
    if args.action == "list":
        return _list(store, args.json)
    if not isinstance(store, ShardedStore) or len(store.shards) == 1:
        raise TarryError("there is one store only; nothing can be moved (several: store = [URL, URL])")
    return _move(store, args)


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


def _list(store: Store, json: bool) -> int:
    shards = shard_rows(store if isinstance(store, ShardedStore) else ShardedStore([store]))
    if json:
        print_json({"shards": shards})
    else:
        print_shards(shards)
    return 1 if any(row["trouble"] for row in shards) else 0


def _move(store: ShardedStore, args: argparse.Namespace) -> int:
    mover = Mover(store, owner.new_name())
    moved = mover.run(_print_progress)
    total = moved.moved
    # A running job stays where it is until it ends.
    while args.wait and moved.running:
        time.sleep(MOVE_PAUSE)
        moved = mover.run()
        total += moved.moved
    if args.json:
        print_json(
            {
                "moved": total,
                "running": moved.running,
                "key_held": moved.held,
                "in_flows": moved.nodes,
                "away": moved.away,
            }
        )
    else:
        _print_result(total, moved)
    return 1 if moved.left or moved.away else 0


def _print_progress(moved: MoveReport) -> None:
    if sys.stderr.isatty():
        print(f"\r{moved.seen:,} looked at, {moved.moved:,} moved", end="", file=sys.stderr, flush=True)


def _print_result(total: int, moved: MoveReport) -> None:
    say(f"{quantity(total)} moved")
    if moved.running:
        say(f"{moved.running:,} run where they do not belong: move again when they have ended, or --wait")
    if moved.held:
        say(f"{moved.held:,} stay, since where they belong another job holds their key: move again when that has ended")
    if moved.nodes:
        say(f"{moved.nodes:,} are jobs of flows, which stay on their store until the flow goes")
    for trouble in moved.away:
        say(f"{trouble}; move again when it is back")
