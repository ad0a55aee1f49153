"""`tarry`: the parser, and errors as one line."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from tarry import __version__
from tarry.cli import check, enqueue, jobs, limits, migrate, processes, queues, schedules, shards, worker
from tarry.cli.top import command as top
from tarry.errors import TarryError


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    whole = argparse.ArgumentParser("tarry", description="The fastest way to do it later: a durable job queue.")
    whole.add_argument("-c", "--config", metavar="FILE", help="settings (tarry.toml, or pyproject.toml, if there)")
    whole.add_argument("-a", "--app", metavar="MODULE:APP", help="the app; else what the settings say")
    whole.add_argument("--json", action="store_true", help="print facts as JSON")
    whole.add_argument("--version", action="version", version=f"tarry {__version__}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (processes, top, worker, enqueue, jobs, queues, limits, schedules, shards, check, migrate):
        module.add(commands)
    for command in commands.choices.values():
        # Also after the command; SUPPRESS, so that its absence there does not undo one before.
        command.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print facts as JSON")
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """The command's exit status: 0 done, 1 not, with the reason on stderr; 2 is for a wrong call."""
    args = parser().parse_args(argv)
    # A command says itself what is wrong; those that work on log as they are configured to.
    logging.getLogger("tarry").addHandler(logging.NullHandler())
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except (TarryError, ValueError, OSError) as error:
        if os.environ.get("TARRY_TRACEBACK"):
            raise
        print(f"tarry: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
