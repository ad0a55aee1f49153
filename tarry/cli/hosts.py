"""`tarry status --all`: all masters that use the store, on all hosts."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tarry.cli.printing import format_ago, format_clock, print_json, print_table
from tarry.keeper.hosts import Host, PoolFigures, list_hosts
from tarry.keeper.records import host_record, is_own
from tarry.model.duration import format_duration
from tarry.process.loading import Setup
from tarry.store.base import Store
from tarry.store.shards.sharded import ShardedStore
from tarry.terminal import say

_OF_POOL = ("pool", "workers", "busy", "processed", "failed", "memory")
HEADS = ("", "host", "state", *_OF_POOL, "up", "seen", "version", "master")
_NONE_ALIVE = 3


def show_all(args: argparse.Namespace) -> int:
    """Status 0 if at least one is alive, 3 if none is."""
    setup = Setup.of(args)
    store = setup.client.store
    now = store.time()
    _warn_of_missing(store)
    found = list_hosts(store, now)
    pid_file = setup.config.master.pid_file
    if args.json:
        print_json({"hosts": [host_record(host, pid_file) for host in found]})
    elif not found:
        say("no master is known to the store")
    else:
        print_table(HEADS, [row for host in found for row in _rows(host, pid_file, now)])
    return 0 if any(host.is_alive for host in found) else _NONE_ALIVE


def _warn_of_missing(store: Store) -> None:
    for shard in store.shards if isinstance(store, ShardedStore) else ():
        if shard.away:
            say(f"tarry: {shard.url} is away: {shard.away}; what follows is without it", file=sys.stderr)


def _rows(host: Host, pid_file: Path, now: int) -> Iterator[tuple[Any, ...]]:
    """One row for each pool; the first one also has the columns of the host."""
    mark = "*" if is_own(host, pid_file) else ""
    state = host.state if host.is_alive else f"lost since {format_clock(host.seen)}"
    up = format_duration(max(0, (now if host.is_alive else host.seen) - host.started))
    before = (mark, host.name, state)
    # After a clock was set back, an entry may be from the future.
    after = (up, format_ago(min(host.seen, now), now), host.version, f"{host.pid} {host.pid_file}")
    # A host without pools has a row, too.
    for number, pool in enumerate(host.pools or [None]):
        first = number == 0
        yield (*(before if first else [""] * 3), *_pool_cells(pool), *(after if first else [""] * 4))


def _pool_cells(pool: PoolFigures | None) -> tuple[Any, ...]:
    if pool is None:
        return ("-", 0, 0, 0, 0, "-")
    memory = f"{pool.memory / 2**20:.1f} MB"
    return (pool.name, pool.workers, pool.busy, pool.processed, pool.failed, memory)
