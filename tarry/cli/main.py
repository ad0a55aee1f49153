"""`tarry`: builds the parser, runs a command, and prints an error as one line."""

import argparse
import contextlib
import importlib
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import tarry
from tarry.errors import TarryError, UsageError
from tarry.model.nearest import did_you_mean
from tarry.terminal import print_line

# Only the module of the called command is imported: all of them would take time at each call.
COMMAND_MODULES = {
    "tarry.cli.start": ("start", "restart"),
    "tarry.cli.processes": ("stop", "quit", "reload", "upgrade", "scale", "status"),
    "tarry.cli.operate.hosts": ("hosts",),
    "tarry.cli.top.top_command": ("top",),
    "tarry.cli.worker": ("worker",),
    "tarry.cli.enqueue": ("enqueue",),
    "tarry.cli.operate.jobs": ("jobs",),
    "tarry.cli.operate.flows": ("flows",),
    "tarry.cli.operate.queues": ("queues",),
    "tarry.cli.top.stats": ("stats",),
    "tarry.cli.operate.tasks": ("tasks",),
    "tarry.cli.operate.endpoints": ("endpoints",),
    "tarry.cli.operate.limits": ("limits",),
    "tarry.cli.operate.schedules": ("schedules",),
    "tarry.cli.operate.errors": ("errors",),
    "tarry.cli.operate.deploys": ("deploys",),
    "tarry.cli.operate.operations": ("operations",),
    "tarry.cli.shards": ("shards",),
    "tarry.cli.check": ("check",),
    "tarry.cli.store": ("store",),
    "tarry.cli.project.init": ("init",),
    "tarry.cli.project.completion": ("completion",),
    "tarry.cli.project.doctor": ("doctor",),
    "tarry.cli.project.demo": ("demo",),
    "tarry.cli.migrate": ("migrate",),
    "tarry.cli.importing.import_celery": ("import",),
    "tarry.cli.replay": ("replay",),
    "tarry.cli.identity.tokens": ("tokens",),
    "tarry.cli.identity.passwords": ("passwords",),
    "tarry.cli.operate.audit": ("audit",),
    "tarry.cli.assistant": ("mcp",),
}
"""The commands of each module."""
CREATING = frozenset({"start", "restart", "upgrade", "worker", "enqueue", "replay", "migrate", "demo"})
"""Commands that make the store where there is none, as all do that change something. All others only read."""

CHECKING = frozenset({"check", "doctor"})
"""What they tell of a server, they find out by tarry's tables, so they make these."""

_EVERYWHERE: Mapping[Sequence[str], Mapping[str, Any]] = {
    ("-c", "--config"): {"metavar": "FILE", "help": "settings (tarry.toml, or pyproject.toml, if there)"},
    ("-a", "--app"): {"metavar": "MODULE:APP", "help": "the app; else what the settings say"},
    ("--json",): {"action": "store_true", "help": "print facts as JSON"},
    ("--utc",): {"action": "store_true", "help": "print times in UTC, and not in the local zone"},
}
"""Options that stand before the command or after it."""

_NO_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)$")


_MOST_USAGE = 3
"""Lines of a usage that are shown with an error."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the nearest choice for an unknown word, also for its subcommands."""

    about = ""
    """What it does, as the list of commands says."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and what is wrong, and exits with status 2."""
        found = _NO_CHOICE.search(message)
        meant = did_you_mean(found[1], re.findall(r"[\w-]+", found[2])) if found else ""
        if message.endswith("required: COMMAND"):
            message = "which command? `tarry --help` lists them"
        super().error(message + meant)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it; what a command does not know is told by the command, which knows its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self.about:
            meant = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def format_usage(self) -> str:
        """The usage, unless it would hide the error that follows it."""
        usage = super().format_usage()
        is_long = usage.count("\n") > _MOST_USAGE
        return f"usage: {self.prog} ...: `{self.prog} --help` shows all it takes\n" if is_long else usage

    def format_help(self) -> str:
        """The help. That of some options is read only here, since that takes time."""
        read_help(self)
        described = self.description
        try:
            self.description = " ".join(text for text in (self.about, described) if text)
            return super().format_help()
        finally:
            self.description = described


def read_help(parser: argparse.ArgumentParser) -> None:
    """Reads the help of those options that have a function in its place."""
    for action in parser._actions:
        if callable(action.help):
            action.help = action.help()


class _ShowVersion(argparse.Action):
    """Reads the version only where it is shown, since that takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Prints it, and exits."""
        # Not by `exit`, which prints to stderr.
        print_line(f"tarry {tarry.__version__}")
        parser.exit()


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; or only of those in the module of the command `only`."""
    whole = Parser(
        "tarry",
        description="The fastest way to do it later: a durable job queue.",
        epilog="`tarry COMMAND --help` tells more of a command. `tarry init` writes what to begin with.",
    )
    for names, options in _EVERYWHERE.items():
        whole.add_argument(*names, **options)
    whole.add_argument("--version", action=_ShowVersion, nargs=0, help="show program's version number and exit")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="command")
    for home, names in COMMAND_MODULES.items():
        if only is None or only in names:
            importlib.import_module(home).add(commands)
    about = {one.dest: one.help or "" for one in commands._choices_actions}
    for name, command in commands.choices.items():
        command.about = f"{about[name][:1].upper()}{about[name][1:]}."
        # SUPPRESS: leaving one out there does not undo one before the command.
        for names, options in _EVERYWHERE.items():
            command.add_argument(*names, **options, default=argparse.SUPPRESS)
    return whole


def _find_command(words: Sequence[str]) -> str | None:
    """The command among these words; None if that is not certain."""
    known = {name for names in COMMAND_MODULES.values() for name in names}
    # The word after one of these options is its value, not a command.
    plain = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if before not in ("-c", "--config", "-a", "--app")
    ]
    first = next((word for word in plain if not word.startswith("-")), "")
    return first if first in known else None


def _run(args: argparse.Namespace) -> int:
    # Only here: `tarry status` and the like need no store.
    from tarry.store.shared import creation  # noqa: PLC0415

    method = getattr(args, "methods", {}).get(getattr(args, "action", ""))
    is_change = method is not None and method.may_change and not getattr(args, "dry_run", False)
    reading = creation.only_existing(stands_in=args.command != "top", on_servers=args.command not in CHECKING)
    try:
        with contextlib.nullcontext() if is_change or args.command in CREATING else reading:
            status: int = _in_zone(args)
    finally:
        for place in creation.created:
            print_line(f"tarry: new store at {place}", file=sys.stderr)
        for place in creation.missing if args.command not in CHECKING else ():
            print_line(f"tarry: no store at {place} yet: the first `tarry start` or enqueue makes it", file=sys.stderr)
    return status


def _in_zone(args: argparse.Namespace) -> int:
    if not args.utc:
        return int(args.run(args))
    from tarry.cli.shared.printing import in_utc  # noqa: PLC0415 - many commands print no time

    with in_utc():
        return int(args.run(args))


def main(argv: Sequence[str] | None = None) -> int:
    """The command's exit status: 0 done, 1 not, with the reason on stderr; 2 is for a wrong call."""
    words = sys.argv[1:] if argv is None else argv
    # The version is of no command, and to import all of them takes half a second.
    only = "" if list(words[:1]) == ["--version"] else _find_command(words)
    args = parser(only).parse_args(words)
    # Commands print their errors themselves; only those that keep running configure logging.
    logging.getLogger("tarry").addHandler(logging.NullHandler())
    try:
        status = _run(args)
        # In this block, so that it notices a closed pipe.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has left, as `head` does. Python flushes stdout once more at its exit, and that must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        # 128 plus the number of SIGINT, as shells have it.
        return 130
    except (TarryError, ValueError, OSError) as error:
        # ValueError and OSError may come from a bug, and the traceback shows where.
        if os.environ.get("TARRY_TRACEBACK"):
            raise
        print_line(f"tarry: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
