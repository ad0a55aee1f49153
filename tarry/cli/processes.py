"""`tarry start`, `stop`, `quit`, `restart`, `status`."""

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from tarry.cli.hosts import show_all
from tarry.cli.loading import Setup
from tarry.cli.printing import as_json, clock, table
from tarry.cli.roles import plan
from tarry.cli.shards import rows, show
from tarry.config import Config
from tarry.errors import AppError, MasterError
from tarry.model.duration import SECOND, microseconds, spoken
from tarry.runtime import control, logs
from tarry.runtime.daemon import Readiness, daemonize
from tarry.runtime.master import Master
from tarry.runtime.pidfile import holder
from tarry.runtime.report import troubles
from tarry.runtime.role import Plan
from tarry.runtime.scoreboard import Board, ChildStatus, board_path
from tarry.store.opening import open_store
from tarry.store.shards.sharded import ShardedStore

NOT_RUNNING = 3
MOST_WORKERS = 1000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Their places on the command line."""
    start = commands.add_parser("start", help="start the master and its workers")
    _daemon_option(start)
    start.set_defaults(run=run_start)
    stop = commands.add_parser("stop", help="stop gracefully: workers finish what they run")
    stop.add_argument("--timeout", help="give up waiting after so long (it goes on stopping)")
    stop.set_defaults(run=run_stop)
    quit = commands.add_parser("quit", help="end now: what runs goes back and is run again")
    quit.set_defaults(run=run_quit)
    restart = commands.add_parser("restart", help="quit, then start")
    _daemon_option(restart)
    restart.set_defaults(run=run_restart)
    reload = commands.add_parser("reload", help="take over new code and configuration, with no pause and nothing lost")
    reload.add_argument("--timeout", help="give up waiting after so long (it goes on reloading)")
    reload.set_defaults(run=run_reload)
    scale = commands.add_parser("scale", help="change how many workers a pool has, until the next restart")
    scale.add_argument("pool", metavar="POOL")
    scale.add_argument("workers", metavar="N", type=_count)
    scale.set_defaults(run=run_scale)
    status = commands.add_parser("status", help="show master and workers; exit status 3 if none is running")
    status.add_argument("--all", action="store_true", help="the masters of all hosts, as the store knows them")
    status.set_defaults(run=lambda args: show_all(args) if args.all else run_status(args))


def _daemon_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("-d", "--daemon", action="store_true", help="in the background; returns once it serves")


def run_start(args: argparse.Namespace) -> int:
    """In the foreground until stopped; as a daemon, until it serves."""
    setup = Setup.of(args)
    config, name = setup.config, setup.app_name
    if not name:
        raise AppError("no app is named: give -a module:app, or set app in tarry.toml (`tarry init` writes one)")
    running = holder(config.master.pid_file)
    if running is not None:
        raise MasterError(f"a master is already running, pid {running} ({config.master.pid_file})")
    log = _log_target(config, args.daemon)
    readiness = daemonize(_output(config, log)) if args.daemon else None
    try:
        logs.configure(log, config.master.log_format, config.master.log_level)
        return _run_master(args, config, name, readiness)
    except Exception as error:
        if readiness is None:
            raise
        readiness.failed(f"tarry: {error}")
        return 1


def _output(config: Config, log: str | Path) -> Path:
    """Where a daemon's stdout and stderr go: into its log if that is a file, else beside the pid file."""
    return log if isinstance(log, Path) else config.master.pid_file.with_suffix(".log")


def _log_target(config: Config, daemon: bool) -> str | Path:
    """A daemon has no stderr: without a file of its own it logs beside the pid file."""
    if config.master.log != "stderr":
        return Path(config.master.log) if logs.names_file(config.master.log) else config.master.log
    return config.master.pid_file.with_suffix(".log") if daemon else "stderr"


def _replanned(args: argparse.Namespace, before: Config, app: str) -> Plan:
    """The configuration as it is now. What belongs to the master itself stays until a restart."""
    setup = Setup.of(args)
    if not setup.app_name:
        raise AppError(f"no app is named any more; it was {app}")
    now = setup.config.master
    for name in ("pid_file", "log", "log_format", "log_level"):
        if getattr(now, name) != getattr(before.master, name):
            logging.getLogger("tarry.master").warning("[master] %s has changed: that takes a restart", name)
    return plan(setup.config, setup.app_name)


def _run_master(args: argparse.Namespace, config: Config, app: str, readiness: Readiness | None) -> int:
    def serving() -> None:
        count = sum(pool.workers for pool in config.pools.values())
        logging.getLogger("tarry.master").info("%s: %d workers run jobs", app, count)
        if readiness is not None:
            readiness.serving()

    pid_file = config.master.pid_file
    master = Master(plan(config, app), pid_file, board_path(pid_file), serving, lambda: _replanned(args, config, app))
    status = master.run()
    if master.failure and readiness is not None:
        readiness.failed(f"tarry: {master.failure}")
    elif master.failure:
        print(f"tarry: {master.failure}", file=sys.stderr)
    return status


def run_stop(args: argparse.Namespace) -> int:
    """Waits until all have ended, telling for whom."""
    timeout = None if args.timeout is None else microseconds(_number(args.timeout)) / SECOND
    control.stop(Setup.of(args).config.master.pid_file, timeout, _tell)
    return _said(args, "stopped")


def run_quit(args: argparse.Namespace) -> int:
    """Waits until all are gone, which takes a moment."""
    control.quit(Setup.of(args).config.master.pid_file, 30.0, _tell)
    return _said(args, "ended")


def run_restart(args: argparse.Namespace) -> int:
    """Quit, if one is running, then start."""
    pid_file = Setup.of(args).config.master.pid_file
    if holder(pid_file) is not None:
        control.quit(pid_file, 30.0, _tell)
    return run_start(args)


def run_reload(args: argparse.Namespace) -> int:
    """Waits until the new generation serves; MasterError says why it does not."""
    timeout = None if args.timeout is None else microseconds(_number(args.timeout)) / SECOND
    generation = control.reload(Setup.of(args).config.master.pid_file, timeout, _tell)
    if args.json:
        as_json({"state": "reloaded", "generation": generation})
    else:
        print(f"reloaded: generation {generation} serves")
    return 0


def run_scale(args: argparse.Namespace) -> int:
    """Returns once the master has taken it up; the workers follow."""
    control.scale(Setup.of(args).config.master.pid_file, args.pool, args.workers)
    if args.json:
        as_json({"pool": args.pool, "workers": args.workers})
    else:
        print(f"{args.pool}: {args.workers} wanted")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 0 to {MOST_WORKERS}")
    return int(text)


def _said(args: argparse.Namespace, what: str) -> int:
    if args.json:
        as_json({"state": what})
    else:
        print(what)
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def run_status(args: argparse.Namespace) -> int:
    """0 running, 3 not running."""
    pid_file = Setup.of(args).config.master.pid_file
    board = control.status(pid_file)
    if board is None or not board.alive:
        if args.json:
            as_json({"state": "not running"})
        else:
            print(f"not running ({pid_file})")
        return NOT_RUNNING
    shards = _shards(args)
    if args.json:
        as_json({**to_builtins(board), "shards": shards} if shards else board)
    else:
        _print(board)
        if shards:
            show(shards)
    return 0


def _shards(args: argparse.Namespace) -> list[dict[str, Any]]:
    """How each of several stores is. Of one nothing: then the workers' log says so, and `tarry check`."""
    stores = Setup.of(args).config.stores
    if len(stores) == 1:
        return []
    store = open_store(stores, patient=True)
    try:
        return rows(store) if isinstance(store, ShardedStore) else []
    finally:
        store.close()


def _print(board: Board) -> None:
    now = time.time()
    up = spoken(_micro(now - board.started))
    print(
        f"master pid {board.pid}, {board.state}, generation {board.notice.generation},"
        f" since {clock(_micro(board.started))}, up {up}"
    )
    for line in troubles(board):
        print(line)
    heads = ("process", "pid", "state", "memory", "processed", "failed", "started", "up", "job")
    table(heads, [_row(child, now) for child in board.children])


def _row(child: ChildStatus, now: float) -> tuple[Any, ...]:
    jobs = sorted(child.running, key=lambda job: -job.seconds)
    doing = ", ".join(f"{job.task} {job.id} {spoken(_micro(job.seconds))}" for job in jobs[:3])
    return (
        child.name,
        str(child.pid),
        child.boot,
        f"{child.rss / 2**20:.1f} MB",
        child.processed,
        child.failed,
        clock(_micro(child.started)),
        spoken(_micro(now - child.started)),
        doing or (f"(before: {child.last_exit})" if child.last_exit else "-"),
    )


def _micro(seconds: float) -> int:
    return max(0, round(seconds * SECOND))
