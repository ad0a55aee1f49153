"""`tarry replay`: restores jobs that a store has lost, from the request log."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from tarry.cli.shared.moment import parse_since
from tarry.cli.shared.printing import format_ago, print_json, print_table, progress_bar
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules import ids
from tarry.terminal import print_line

if TYPE_CHECKING:
    from tarry.push.journal.log_lines import RequestLine
    from tarry.push.journal.replay import Replay

_LABELS = {
    "known": "known to the store",
    "ended": "ended",
    "unreadable": "lines not readable",
    "expired": "expired",
    "held": "with a key that another holds",
    "misplaced": "left, since the shards are others by now",
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "replay",
        help="put back jobs that the store has lost, from request.log",
        description="""Puts back the jobs of HTTP tasks that request.log says were accepted since then, that the store
        does not know, and that did not end by what notify.log says. Doing it twice does nothing more.""",
    )
    command.add_argument(
        "--from",
        dest="logs",
        metavar="LOG",
        action="append",
        required=True,
        type=Path,
        help="request.log, or its directory; also several, of several hosts",
    )
    command.add_argument(
        "--since", metavar="T", required=True, help='a time as in 2030-12-31T23:59Z, or so long ago, such as "10m"'
    )
    command.add_argument("--dry-run", action="store_true", help="change nothing, show what would be done")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once everything that can be restored is."""
    # Here, since `tarry --help` imports this module and needs none of that.
    from tarry.push.journal.replay import Replay  # noqa: PLC0415

    setup = CommandContext.of(args)
    since = parse_since(args.since)
    client = setup.client
    replay = Replay(client.store, client.clock, args.logs, since, setup.config.max_body, args.dry_run)
    replay.run(_with_progress)
    _print_problems(replay)
    if args.json:
        print_json(to_builtins(replay.counts))
        return 0
    if args.dry_run:
        _print_jobs(replay, client.clock.now())
    _print_summary(replay, "would be put back" if args.dry_run else "put back")
    return 0


def _with_progress(lines: "Iterable[RequestLine]") -> "Iterator[RequestLine]":
    return progress_bar(lines, None, "jobs")


def _print_problems(replay: "Replay") -> None:
    bad, tally = replay.unreadable, replay.counts
    for place in bad.places:
        print_line(f"tarry: {place}: not readable", file=sys.stderr)
    if bad.count > len(bad.places):
        print_line(f"tarry: and {quantity(bad.count - len(bad.places), 'line')} more", file=sys.stderr)
    for left in replay.conflicts:
        text = f"{left.task} {left.job} is left: its key {left.key!r} is held by {left.holder}"
        print_line(f"tarry: {text}", file=sys.stderr)
    if tally.held > len(replay.conflicts):
        print_line(f"tarry: and {quantity(tally.held - len(replay.conflicts))} more", file=sys.stderr)


def _print_jobs(replay: "Replay", now: int) -> None:
    if replay.first:
        print_table(
            ("id", "task", "queue", "due"),
            [(ids.text(j.id), j.task, j.queue, format_ago(j.due, now)) for j in replay.first],
        )
    if replay.counts.put_back > len(replay.first):
        print_line(f"The first {len(replay.first)}.")


def _print_summary(replay: "Replay", done: str) -> None:
    counts = to_builtins(replay.counts)
    parts = [f"{quantity(counts['put_back'])} {done}"]
    always = ("known", "ended", "unreadable")
    parts += [f"{counts[name]:,} {label}" for name, label in _LABELS.items() if counts[name] or name in always]
    print_line(", ".join(parts))
