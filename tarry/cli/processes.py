"""`tarry stop`, `quit`, `reload`, `upgrade`, `scale`, `status`: commands for a running master.

They must be fast, so modules that only some of them need are imported there.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from tarry.cli.shared.printing import format_clock, print_json, print_table
from tarry.errors import ConfigError, UsageError
from tarry.model.duration import SECOND, microseconds
from tarry.process.loading import CommandContext
from tarry.runtime import control
from tarry.runtime.board.reader import SERVER, Board, ChildStatus
from tarry.runtime.master_report import (
    connections,
    format_span,
    listening_lines,
    longest_running,
    problem_lines,
    scaling_lines,
)
from tarry.runtime.pidfile import holder
from tarry.terminal import print_line

NOT_RUNNING = 3
MOST_WORKERS = 1000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the commands to the parser."""
    stop = commands.add_parser("stop", help="stop gracefully: workers finish what they run")
    stop.add_argument("--timeout", help="give up waiting after so long (it goes on stopping)")
    stop.set_defaults(run=run_stop)
    quit = commands.add_parser("quit", help="end now: what runs goes back and is run again")
    quit.set_defaults(run=run_quit)
    reload = commands.add_parser("reload", help="take over new code and configuration, with no pause and nothing lost")
    reload.add_argument("--timeout", help="give up waiting after so long (it goes on reloading)")
    reload.set_defaults(run=run_reload)
    upgrade = commands.add_parser(
        "upgrade", help="start a new master of what is installed now, in place of the old one"
    )
    upgrade.set_defaults(run=run_upgrade)
    scale = commands.add_parser("scale", help="change how many workers a pool has, until the next restart")
    scale.add_argument("pool", metavar="POOL")
    scale.add_argument("workers", metavar="N", type=_count)
    scale.set_defaults(run=run_scale)
    status = commands.add_parser("status", help="show master and workers; exit status 3 if none is running")
    status.add_argument("--all", action="store_true", help="the masters of all hosts, as the store knows them")
    _add_connection_options(status)
    status.set_defaults(run=run_status)


def _add_connection_options(status: argparse.ArgumentParser) -> None:
    status.add_argument("--connections", action="store_true", help="who holds the connections of the servers here")
    status.add_argument("--door", choices=("http", "beanstalk"), help="with --connections: of this door")
    status.add_argument("--address", metavar="ADDRESS", help="with --connections: from this address")
    status.add_argument("--caller", metavar="NAME", help='with --connections: of this token or person; "" for none')
    status.add_argument("--limit", type=int, metavar="N", help="with --connections: list at most so many (100)")
    status.add_argument("--end", metavar="ID", help="with --connections: end this one, as if its client had gone")


def run_stop(args: argparse.Namespace) -> int:
    """Waits until all processes have ended, and prints which it waits for."""
    timeout, pid_file = _timeout(args), CommandContext.of(args).pid_file
    if holder(pid_file) is None:
        return _print_not_running(args, pid_file)
    control.stop(pid_file, timeout, print_waiting)
    return _print_state(args, "stopped")


def run_quit(args: argparse.Namespace) -> int:
    """Waits until all processes are gone; this is quick."""
    pid_file = CommandContext.of(args).pid_file
    if holder(pid_file) is None:
        return _print_not_running(args, pid_file)
    control.quit(pid_file, 30.0, print_waiting)
    return _print_state(args, "ended")


def _print_not_running(args: argparse.Namespace, pid_file: Path) -> int:
    """Status 0: there is nothing to stop."""
    if args.json:
        print_json({"state": "not running"})
    else:
        print_line(f"no master is running ({pid_file})")
    return 0


def run_reload(args: argparse.Namespace) -> int:
    """Waits until the new generation serves; MasterError, with the reason, if it does not."""
    timeout = _timeout(args)
    generation = control.reload(CommandContext.of(args).config.master.pid_file, timeout, print_waiting, asker_name())
    if args.json:
        print_json({"state": "reloaded", "generation": generation})
    else:
        print_line(f"reloaded: generation {generation} serves")
    return 0


def run_upgrade(args: argparse.Namespace) -> int:
    """Waits until the new master serves; MasterError, with the reason, if it does not."""
    pid = control.upgrade(CommandContext.of(args).config.master.pid_file, print_waiting, asker_name())
    if args.json:
        print_json({"state": "upgraded", "pid": pid})
    else:
        print_line(f"upgraded: master {pid} serves; the one before it ends when its jobs have")
    return 0


def run_scale(args: argparse.Namespace) -> int:
    """Returns once the master has accepted the new count; the workers follow."""
    control.scale(CommandContext.of(args).pid_file, args.pool, args.workers)
    if args.json:
        print_json({"pool": args.pool, "workers": args.workers})
    else:
        print_line(f"{args.pool}: {args.workers} wanted")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 0 to {MOST_WORKERS}")
    return int(text)


def _print_state(args: argparse.Namespace, what: str) -> int:
    if args.json:
        print_json({"state": what})
    else:
        print_line(what)
    return 0


def print_waiting(line: str) -> None:
    """Prints a line on stderr about what the command waits for."""
    # Not on stdout, which has only the result.
    print_line(line, file=sys.stderr)


def asker_name() -> str:
    """The user of this command, with who became that user; for people, and no identity."""
    from tarry.client.acting import command_actor  # noqa: PLC0415 - most commands about processes need none of it

    name, became = command_actor().name, os.environ.get("SUDO_USER", "")
    return f"{became} as {name}" if became and became != name else name


def _timeout(args: argparse.Namespace) -> float | None:
    """Seconds; None: as long as it takes."""
    return None if args.timeout is None else microseconds(_number(args.timeout)) / SECOND


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def run_status(args: argparse.Namespace) -> int:
    """0 running, 3 not running."""
    _check_connection_options(args)
    if args.all:
        # Its imports take twice as long as the rest of the command.
        from tarry.cli.operate.hosts import show_all  # noqa: PLC0415

        return show_all(args)
    setup = CommandContext.of(args)
    board = control.status(setup.pid_file)
    if board is None or not board.alive:
        if args.json:
            print_json({"state": "not running"})
        else:
            print_line(f"not running ({setup.pid_file})")
        return NOT_RUNNING
    if args.connections:
        from tarry.cli.connections import show_connections  # noqa: PLC0415

        return show_connections(args)
    if args.json:
        shards = _shard_rows(setup)
        print_json({**facts(board), "shards": shards} if shards else facts(board))
        return 0
    _print_board(board)
    sys.stdout.flush()  # before the stores are asked, which may be away
    if shards := _shard_rows(setup):
        from tarry.cli.shards import print_shards  # noqa: PLC0415

        print_shards(shards)
    return 0


def _check_connection_options(args: argparse.Namespace) -> None:
    given = [name for name in ("door", "address", "caller", "limit", "end") if getattr(args, name) is not None]
    if given and not args.connections:
        raise UsageError(f"--{given[0]} is for connections: add --connections")
    if args.connections and args.all:
        raise UsageError("--connections is for the servers of this host: leave out --all")


def facts(board: Board) -> dict[str, Any]:
    """The board for JSON; a child that is not running has no pid."""
    result: dict[str, Any] = to_builtins(board)
    for child in result["children"]:
        child["pid"] = child["pid"] or None
    return result


def _shard_rows(setup: CommandContext) -> list[dict[str, Any]]:
    """The state of each shard; empty for a single store and if the settings are wrong."""
    # For a single store, the log of the workers and `tarry check` show its state.
    try:
        stores = setup.config.stores
    # A master that runs has a status even if the settings are wrong by now.
    except ConfigError:
        return []
    if len(stores) == 1:
        return []
    from tarry.cli.shards import shard_rows  # noqa: PLC0415
    from tarry.store.opening import open_store  # noqa: PLC0415
    from tarry.store.shards.sharded import ShardedStore  # noqa: PLC0415

    # patient: a shard that is away is a row of the table, not an error.
    store = open_store(stores, patient=True)
    try:
        return shard_rows(store) if isinstance(store, ShardedStore) else []
    finally:
        store.close()


def _print_board(board: Board) -> None:
    now = time.time()
    print_line(
        f"master pid {board.pid}, {board.state}, generation {board.notice.generation},"
        f" since {_clock(board.started)}, up {format_span(now - board.started)}"
    )
    for line in problem_lines(board):
        print_line(line)
    for line in [*scaling_lines(board), *listening_lines(board)]:
        print_line(line)
    heads = ("process", "pid", "state", "memory", "processed", "failed attempts", "started", "up", "job")
    children = sorted(board.children, key=lambda child: (bool(child.pool), child.pool, child.role, child.number))
    print_table(heads, [_row(child, now) for child in children])


def _row(child: ChildStatus, now: float) -> tuple[Any, ...]:
    doing = ", ".join(f"{job.task} {job.id} {format_span(job.seconds)}" for job in longest_running(child))
    if child.role == SERVER:
        doing = connections(child)
    return (
        child.name,
        str(child.pid or "-"),
        child.boot,
        f"{child.rss / 2**20:.1f} MB",
        child.processed,
        "-" if child.role == SERVER else child.failed,
        _clock(child.started),
        format_span(now - child.started),
        doing or (f"(before: {child.last_exit})" if child.last_exit else "-"),
    )


def _clock(seconds: float) -> str:
    return format_clock(round(seconds * SECOND))
