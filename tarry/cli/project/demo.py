"""`tarry demo`: the embedded default at work, and an account of it."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import msgspec

from tarry.cli.shared.printing import print_json
from tarry.demo.account import Account
from tarry.demo.run import EMPTY, WORKERS, Demo
from tarry.errors import TarryError
from tarry.terminal import print_line


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    demo = commands.add_parser("demo", help="run thousands of jobs here, kill a worker, and count: nothing is lost")
    demo.add_argument("--quiet", action="store_true", help="print the account only")
    demo.add_argument("--files", type=_parse_count, metavar="N", help="take N files, not all of the standard library")
    demo.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    """0 only if nothing was lost."""
    quiet = args.quiet or args.json
    # A demo that is ended from outside stops its master, too.
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="tarry-demo-") as home:
        demo = Demo(Path(home), _ignore if quiet else _say, quiet, args.files)
        account = demo.run()
        log = demo.log() if account.lost else ""
    if args.json:
        print_json(msgspec.to_builtins(account) | {"empty_jobs": EMPTY, "empty_seconds": demo.empty})
    else:
        _print_account(account, demo.empty)
    print_line(log, end="", file=sys.stderr)
    return 0 if account.lost == 0 and account.put > 0 else 1


def _end(number: int, frame: FrameType | None) -> None:
    raise TarryError(f"the demo was ended by {signal.Signals(number).name}")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return int(text)


def _ignore(line: str) -> None:
    """Shows nothing."""


def _say(line: str) -> None:
    print_line(line)
    # Into a pipe, too, a line is to come when it is true.
    sys.stdout.flush()


def _print_account(account: Account, empty: float) -> None:
    """empty: seconds that the jobs took that do nothing."""
    p50, p99, worst = account.start_ms
    print_line(
        f"put {account.put}, done {account.done}, retried {account.retried}, dead {account.dead} (2 expected), "
        f"run twice {account.run_twice}, lost {account.lost}"
    )
    print_line(
        f"the tasks' own work took {account.work:.1f} s and keeps {WORKERS} workers busy ({account.per_second:.0f}"
        f" files/s), so a job began {p50:.0f} ms after it was due (p99 {p99:.0f}, worst {worst:.0f})"
    )
    print_line(f"without work: {EMPTY:,} jobs enqueued and run in {empty:.1f} s, {EMPTY / empty:,.0f} jobs/s")
