"""`tarry hosts`, `tarry status --all`: all masters that use the store, on all hosts, and what they are told to do."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tarry.cli.host_requests import TIMEOUT, ask_master, check_outcome, make_request
from tarry.cli.printing import format_ago, format_clock, print_json, print_table
from tarry.client.client import Client
from tarry.errors import UsageError
from tarry.keeper.host_requests import MOST_SCALED, HostAct, HostRequest, RequestState
from tarry.keeper.records import host_record, is_own, request_record
from tarry.model.duration import format_duration
from tarry.process.loading import CommandContext
from tarry.store.queries.hosts import Host, PoolFigures, WorkerFigures, find_host, list_hosts
from tarry.store.rules.base import Store
from tarry.store.shards.sharded import ShardedStore
from tarry.terminal import say

_OF_POOL = ("pool", "workers", "busy", "processed", "failed attempts", "memory")
HEADS = ("", "host", "state", *_OF_POOL, "up", "seen", "version", "master")
_NONE_ALIVE = 3


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    hosts = commands.add_parser(
        "hosts",
        help="show the masters of all hosts; reload, scale or stop one of them, or see where its workers are",
        description="""Without an action: as `tarry status --all`. The others name a host, or the instance of a master
        where several run on a host: reload NAME; scale NAME POOL N; stop NAME; stack NAME POOL.N, the worker. The
        request goes through the store, and the command waits for its outcome.""",
    )
    hosts.add_argument("action", nargs="?", choices=("list", "reload", "scale", "stop", "stack"), default="list")
    hosts.add_argument("words", nargs="*", metavar="NAME")
    hosts.add_argument("--timeout", type=float, default=TIMEOUT, help="give up waiting after so many seconds")
    hosts.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once the master has done it, 1 with the reason if it has not."""
    if args.action == "list":
        return show_all(args)
    wanted = {"scale": 3, "stack": 2}.get(args.action, 1)
    if len(args.words) != wanted:
        words = {"scale": " POOL N", "stack": " POOL.N"}.get(args.action, "")
        raise UsageError(f"tarry hosts {args.action} NAME{words}")
    client = CommandContext.of(args).client
    host = find_host(client.store, args.words[0])
    outcome = ask_master(client, host, _request(client, host, args), args.timeout)
    if args.json:
        print_json(request_record(outcome))
    elif outcome.state is RequestState.DONE:
        say(outcome.text)
    check_outcome(outcome)
    return 0


def _request(client: Client, host: Host, args: argparse.Namespace) -> HostRequest:
    base = make_request(client, host, HostAct(args.action))
    if args.action == "scale":
        _, pool, number = args.words
        if not number.isdecimal() or int(number) > MOST_SCALED:
            raise UsageError(f"{number!r}: a whole number from 0 to {MOST_SCALED}")
        return replace(base, pool=pool, workers=int(number))
    if args.action == "stack":
        return replace(base, owner=_find_worker(host, args.words[1]).owner)
    return base


def _find_worker(host: Host, name: str) -> WorkerFigures:
    for worker in host.workers:
        if name in (f"{worker.pool}.{worker.number}", worker.owner):
            return worker
    known = ", ".join(f"{worker.pool}.{worker.number}" for worker in host.workers[:8])
    raise UsageError(f"no worker {name!r} on {host.name}: there are {known or 'none'}")


def show_all(args: argparse.Namespace) -> int:
    """Status 0 if at least one is alive, 3 if none is."""
    setup = CommandContext.of(args)
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
