"""`tarry start`, `restart`: runs the master in this process, or in a daemon."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from tarry.cli.processes import asker_name, print_waiting
from tarry.config.config import Config
from tarry.errors import AppError, MasterError
from tarry.model.quantity import quantity
from tarry.process import title
from tarry.process.loading import CommandContext
from tarry.process.roles import create_plan, import_early
from tarry.runtime import control
from tarry.runtime.board.scoreboard import board_path
from tarry.runtime.daemon import Readiness, daemonize
from tarry.runtime.logs import handlers
from tarry.runtime.master import Master
from tarry.runtime.pidfile import holder
from tarry.runtime.role import Plan
from tarry.runtime.upgrades import is_successor
from tarry.terminal import print_line


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the commands to the parser."""
    start = commands.add_parser("start", help="start the master and its workers")
    _daemon_option(start)
    start.set_defaults(run=run_start)
    restart = commands.add_parser("restart", help="quit, then start")
    _daemon_option(restart)
    restart.set_defaults(run=run_restart)


def _daemon_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("-d", "--daemon", action="store_true", help="in the background; returns once it serves")


def run_start(args: argparse.Namespace) -> int:
    """Returns when the master has stopped; as a daemon, when it serves."""
    here = Path.cwd()
    setup = CommandContext.of(args, here)
    # Read before the process becomes a daemon, so that errors still reach the terminal.
    config, name = setup.config, setup.app_name
    setup.require_start()
    runs = setup.describe_work()
    running = holder(config.master.pid_file)
    # Checked here for the message. The master checks again, and then holds the lock.
    upgrades = is_successor()
    if running is not None and not upgrades:
        raise MasterError(f"a master is already running, pid {running} ({config.master.pid_file})")
    log = _log_target(config, args.daemon)
    # A new master is a daemon already if the old one is.
    readiness = daemonize(_output_path(config, log)) if args.daemon and not upgrades else None
    title.show(f"master {Path(args.config or 'tarry.toml').name}")
    try:
        handlers.configure(log, config.master.log_format, config.master.log_level)
        message = "" if readiness is None else _serving_message(args.json, runs, log)
        return _run_master(
            lambda: _new_plan(CommandContext.of(args, here), config, runs), config, name, runs, readiness, message, here
        )
    except Exception as error:
        if readiness is None:
            raise
        readiness.report_failure(f"tarry: {error}")
        return 1


def _warn_of_root() -> None:
    if os.geteuid() == 0:
        logging.getLogger("tarry.master").warning(
            "started as root: tasks may do anything on this host; let a user of its own start it"
        )


def _serving_message(json: bool, runs: str, log: str | Path) -> str:
    """The output of the command that started a daemon."""
    if json:
        return msgspec.json.encode({"state": "serving", "pid": os.getpid(), "log": str(log)}).decode()
    return f"{runs} serves: master {os.getpid()}, log {log}"


def _output_path(config: Config, log: str | Path) -> Path:
    """The file for stdout and stderr of a daemon: its log file if it has one, else a file beside the pid file."""
    return log if isinstance(log, Path) else config.master.pid_file.with_suffix(".log")


def _log_target(config: Config, daemon: bool) -> str | Path:
    """Where the log goes."""
    # A daemon has no stderr, so without a log file it logs beside the pid file.
    if config.master.log != "stderr":
        return Path(config.master.log) if handlers.is_file_target(config.master.log) else config.master.log
    return config.master.pid_file.with_suffix(".log") if daemon else "stderr"


def _new_plan(setup: CommandContext, before: Config, served_before: str) -> Plan:
    """The plan from the current configuration; settings of the master itself need a restart."""
    if not setup.app_name and not setup.config.tasks and served_before != setup.describe_work():
        raise AppError(f"no app is named any more; it was {served_before}")
    now = setup.config.master
    for name in ("pid_file", "log", "log_format", "log_level"):
        if getattr(now, name) != getattr(before.master, name):
            logging.getLogger("tarry.master").warning("[master] %s has changed: that takes a restart", name)
    return create_plan(setup.config, setup.app_name)


def _run_master(
    replan: Callable[[], Plan],
    config: Config,
    app: str | None,
    runs: str,
    readiness: Readiness | None,
    message: str,
    directory: Path,
) -> int:
    def serving() -> None:
        count = sum(pool.bounds.min for pool in config.pools.values())
        logging.getLogger("tarry.master").info("%s: jobs run in %s", runs, quantity(count, "worker"))
        _warn_of_root()
        if readiness is not None:
            readiness.report_serving(message)

    import_early(config)
    pid_file = config.master.pid_file
    master = Master(create_plan(config, app), pid_file, board_path(pid_file), serving, replan, directory, asker_name())
    status = master.run()
    if master.failure and readiness is not None:
        readiness.report_failure(f"tarry: {master.failure}")
    elif master.failure:
        print_line(f"tarry: {master.failure}", file=sys.stderr)
    return status


def run_restart(args: argparse.Namespace) -> int:
    """Quits a running master, then starts one."""
    # With wrong settings this fails, and the master goes on.
    pid_file = CommandContext.of(args).config.master.pid_file
    if holder(pid_file) is not None and not is_successor():
        control.quit(pid_file, 30.0, print_waiting)
    return run_start(args)
