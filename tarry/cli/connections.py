"""`tarry status --connections`: who holds the connections of the server processes of this host; and ends one."""

import argparse
import socket
import sys
import time

from tarry.cli.shared.printing import format_clock, print_json, print_result, print_table
from tarry.client.acting import command_actor
from tarry.errors import UsageError
from tarry.model.duration import SECOND
from tarry.model.values.connection_records import (
    LISTED,
    MOST_LISTED,
    ConnectionFilter,
    ConnectionGroup,
    ConnectionList,
    ConnectionRecord,
    describe_connection,
    merge_reports,
)
from tarry.process.connection_sockets import HostConnections
from tarry.process.loading import CommandContext
from tarry.runtime.master_report import format_span
from tarry.terminal import print_line


def show_connections(args: argparse.Namespace) -> int:
    """Lists them, or ends one; status 0. ConnectionNotFound."""
    if args.limit is not None and not 1 <= args.limit <= MOST_LISTED:
        raise UsageError(f"--limit {args.limit}: 1 to {MOST_LISTED}")
    processes = HostConnections(CommandContext.of(args).pid_file)
    if args.end is not None:
        ended = processes.end(args.end, command_actor())
        print_result(args.json, ended, f"ended: {describe_connection(ended)}")
        return 0
    wanted = ConnectionFilter(args.door, args.address, args.caller, args.limit or LISTED)
    found = merge_reports(*processes.reports(wanted), wanted.limit, socket.gethostname())
    if args.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _print(found: ConnectionList) -> None:
    for pid in found.silent:
        print_line(f"tarry: server process {pid} does not answer; what follows is without it", file=sys.stderr)
    if not found.processes:
        print_line("no server process runs here: [server] has none, or the master is not ready yet")
    elif not found.total:
        print_line("no connection is open")
    else:
        now = time.time()
        print_table(
            ("door", "address", "caller", "connections", "idle", "received", "sent", "oldest"),
            [_group_row(one, now) for one in found.groups],
        )
        print_line(f"\n{found.total:,} in all; the {len(found.connections):,} oldest:")
        print_table(
            ("id", "door", "address", "caller", "since", "received", "sent", "state", "what"),
            [_row(one) for one in found.connections],
        )


def _group_row(one: ConnectionGroup, now: float) -> tuple[object, ...]:
    sizes = _size(one.received), _size(one.sent)
    return (
        one.door,
        one.address or "-",
        one.caller or "-",
        one.connections,
        one.idle,
        *sizes,
        format_span(now - one.since),
    )


def _row(one: ConnectionRecord) -> tuple[object, ...]:
    what = [one.request, one.waits_for and f"waits for {one.waits_for}", f"holds {one.held} jobs" if one.held else ""]
    return (
        one.id,
        one.door,
        one.address or "-",
        one.caller or "-",
        format_clock(round(one.since * SECOND)),
        _size(one.received),
        _size(one.sent),
        one.state,
        ", ".join(filter(None, what)) or "-",
    )


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} KB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"
