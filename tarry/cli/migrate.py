"""`tarry migrate`: brings the schemas of stores, and of the outbox, up to date."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tarry.cli.shared.printing import confirm, print_json
from tarry.process.loading import CommandContext
from tarry.store import migrating
from tarry.store.shards.shard import public_url
from tarry.terminal import print_line


class _Migration(NamedTuple):
    """Tables, and how they are brought up to date. shown: a URL may have a password in it, this has none."""

    shown: str
    steps: list[str]
    migrate: Callable[[], list[str]]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser("migrate", help="bring the store's schema up to date, forward only")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run_migrate)


def run_migrate(args: argparse.Namespace) -> int:
    """Status 1 if the user says no."""
    setup = CommandContext.of(args)
    stores, outbox = _stores(setup), _outbox(setup)
    places = stores + outbox
    if not args.json:
        _say(places)
    if any(place.steps for place in places) and not args.dry_run:
        if not confirm(
            "Workers of the version before may go on meanwhile, unless a step says otherwise. Do it now?", args.yes
        ):
            return 1
        for place in places:
            done = place.migrate() if place.steps else []
            if done and not args.json:
                print_line(f"{place.shown}: {len(done)} done")
    if args.json:
        steps = {place.shown: place.steps for place in stores}
        print_json({"stores": steps, "outbox": [step for place in outbox for step in place.steps],
                    "done": not args.dry_run})  # fmt: skip
    return 0


def _stores(setup: CommandContext) -> list[_Migration]:
    given = setup.app.store_url if setup.app_name else setup.config.stores
    urls = [given] if isinstance(given, str) else given
    return [_Migration(public_url(url), migrating.pending(url), partial(migrating.migrate, url)) for url in urls]


def _outbox(setup: CommandContext) -> list[_Migration]:
    outbox = setup.home.outbox
    return [] if outbox is None else [_Migration(f"outbox {outbox.path}", outbox.pending_steps(), outbox.migrate)]


def _say(places: list[_Migration]) -> None:
    for place in places:
        print_line(f"{place.shown}: {'' if place.steps else 'up to date'}".rstrip())
        for step in place.steps:
            print_line(f"  {step}")
