"""`tarry replay`: puts back what a store has lost, from the request log."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from tarry.cli.moment import since as moment
from tarry.cli.printing import ago, as_json, bar, table
from tarry.model.quantity import quantity
from tarry.process.loading import Setup
from tarry.store import ids
from tarry.terminal import say

if TYPE_CHECKING:
    from tarry.push.journal.log_lines import RequestLine
    from tarry.push.journal.replay import Replay

_SPOKEN = {
    "known": "known to the store",
    "ended": "ended",
    "unreadable": "lines not readable",
    "expired": "expired",
    "held": "with a key that another holds",
    "misplaced": "left, since the shards are others by now",
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Its place on the command line."""
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
    """Status 0 once all is put back that could be."""
    from tarry.push.journal.replay import Replay  # noqa: PLC0415

    setup = Setup.of(args)
    since = moment(args.since)
    client = setup.client
    replay = Replay(client.store, client.clock, args.logs, since, setup.config.max_body, args.dry_run)
    replay.run(_watched)
    _complain(replay)
    if args.json:
        as_json(to_builtins(replay.counts))
        return 0
    if args.dry_run:
        _show(replay, client.clock.now())
    _tell(replay, "would be put back" if args.dry_run else "put back")
    return 0


def _watched(lines: "Iterable[RequestLine]") -> "Iterator[RequestLine]":
    return bar(lines, None, "jobs")


def _complain(replay: "Replay") -> None:
    bad, tally = replay.unreadable, replay.counts
    for place in bad.places:
        say(f"tarry: {place}: not readable", file=sys.stderr)
    if bad.count > len(bad.places):
        say(f"tarry: and {quantity(bad.count - len(bad.places), 'line')} more", file=sys.stderr)
    for left in replay.conflicts:
        told = f"{left.task} {left.job} is left: its key {left.key!r} is held by {left.holder}"
        say(f"tarry: {told}", file=sys.stderr)
    if tally.held > len(replay.conflicts):
        say(f"tarry: and {quantity(tally.held - len(replay.conflicts))} more", file=sys.stderr)


def _show(replay: "Replay", now: int) -> None:
    if replay.first:
        table(
            ("id", "task", "queue", "due"), [(ids.text(j.id), j.task, j.queue, ago(j.due, now)) for j in replay.first]
        )
    if replay.counts.put_back > len(replay.first):
        say(f"The first {len(replay.first)}.")


def _tell(replay: "Replay", done: str) -> None:
    counts = to_builtins(replay.counts)
    parts = [f"{quantity(counts['put_back'])} {done}"]
    always = ("known", "ended", "unreadable")
    parts += [f"{counts[name]:,} {spoken}" for name, spoken in _SPOKEN.items() if counts[name] or name in always]
    say(", ".join(parts))
