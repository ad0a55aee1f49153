"""`tarry top`: its options, and the choice between dashboard and report."""

import argparse
import os
import sys

from tarry.errors import ConfigError
from tarry.model.duration import SECOND, microseconds
from tarry.process.loading import CommandContext

SHORTEST, LONGEST = 0.1, 3600.0
"""The limits of --interval, in seconds."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    top = commands.add_parser(
        "top",
        help="the live picture: master, workers and their jobs, queues and their rates",
        description="On a terminal, until q is pressed; ? shows the keys. Into a pipe, one look.",
    )
    top.add_argument("--interval", default="1", metavar="SECONDS", help="between two looks (1)")
    top.add_argument("--once", action="store_true", help="print one look, also on a terminal")
    top.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once the user has quit, or the report is printed. What cannot be read is shown as an error in it."""
    # Imported here, since no other command should take the time.
    from tarry.cli.top.one_shot import print_report, take_report  # noqa: PLC0415
    from tarry.cli.top.sources import store_access  # noqa: PLC0415

    interval = _interval(args.interval)
    setup = CommandContext.of(args)
    pid_file = setup.config.master.pid_file
    if args.once or args.json or not _on_a_terminal():
        print_report(take_report(store_access(setup), pid_file), args.json)
        return 0
    try:
        from tarry.cli.top.live_screen import Live  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"the live picture needs prompt_toolkit: pip install 'tarry[top]'; `tarry top --once` does not ({error})"
        ) from None
    return Live(store_access(setup), pid_file, interval).run()


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _interval(text: str) -> float:
    """Seconds, from a number or a duration."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = microseconds(text, "--interval") / SECOND
    if not SHORTEST <= seconds <= LONGEST:
        raise ConfigError(f"--interval {text}: from {SHORTEST:g} to {LONGEST:g} seconds")
    return seconds
