"""`tarry hosts`, `tarry status --all`: all masters that use the store, on all hosts, and what they are told to do."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, Words, add_methods, warn_of_missing
from tarry.cli.shared.host_requests import TIMEOUT, is_done, print_outcomes
from tarry.cli.shared.printing import format_ago, format_clock, print_json, print_table
from tarry.errors import UsageError
from tarry.keeper.keeper_records import host_record, is_own
from tarry.model.duration import format_duration
from tarry.operate.hosts import METHODS, HostAnswer
from tarry.process.loading import CommandContext
from tarry.store.queries.hosts import Host, PoolFigures, find_host, list_hosts
from tarry.terminal import print_line

_OF_POOL = ("pool", "workers", "busy", "processed", "failed attempts", "memory")
HEADS = ("", "host", "state", *_OF_POOL, "up", "seen", "version", "master")
_NONE_ALIVE = 3


def show_all(args: argparse.Namespace) -> int:
    """Status 0 if at least one is alive, 3 if none is."""
    setup = CommandContext.of(args)
    store = setup.client.store
    now = store.time()
    warn_of_missing(store)
    found = list_hosts(store, now)
    pid_file = setup.config.master.pid_file
    if args.json:
        print_json({"hosts": [host_record(host, pid_file) for host in found]})
    elif not found:
        print_line("no master is known to the store")
    else:
        print_table(HEADS, [row for host in found for row in _rows(host, pid_file, now)])
    return 0 if any(host.is_alive for host in found) else _NONE_ALIVE


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
    return (pool.name, pool.workers, pool.busy, pool.processed, pool.failed, _memory(pool.memory))


def _print_details(call: CommandCall, _: Sequence[str], found: Sequence[HostAnswer]) -> None:
    pid_file, now = call.app.config.master.pid_file, call.client.clock.now()
    for one in found:
        print_table(HEADS, [*_rows(find_host(call.client.store, one.instance), pid_file, now)])
        rows = [
            (each.name, each.state, each.pid, each.processed, each.failed, each.held, _memory(each.memory))
            for each in one.processes
        ]
        print_table(("worker", "state", "pid", "processed", "failed attempts", "jobs", "memory"), rows)


def _memory(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def _read_words(args: argparse.Namespace) -> Words:
    """NAME POOL N, and NAME POOL.N."""
    fields = ("pool", "workers") if args.action == "scale" else ("worker",)
    if len(args.names) != 1 + len(fields):
        raise UsageError(f"tarry hosts {args.action} NAME {'POOL N' if args.action == 'scale' else 'POOL.N'}")
    return args.names[:1], dict(zip(fields, args.names[1:], strict=True))


SUBJECT = Subject(
    METHODS,
    {"show": _print_details, **dict.fromkeys(("reload", "scale", "stop", "stack"), print_outcomes)},
    "show the masters of all hosts; reload, scale or stop one of them, or see where its workers are",
    """Without an action: as `tarry status --all`. The others name a host, or the instance of a master where several run
    on a host: show NAME; reload NAME; scale NAME POOL N; stop NAME; stack NAME POOL.N, the worker. The request goes
    through the store, and the command waits for its outcome.""",
    own={"list": show_all},
    words={"scale": _read_words, "stack": _read_words},
    worded=("pool", "workers", "worker"),
    extra={"timeout": ("reload", "scale", "stop", "stack")},
    is_done=is_done,
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    hosts = add_methods("hosts", SUBJECT, commands)
    hosts.add_argument("--timeout", type=float, help=f"give up waiting after so many seconds ({TIMEOUT:g})")
