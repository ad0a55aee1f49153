"""`tarry migrate`: brings the schemas of stores on servers up to date."""

import argparse

from tarry.cli.shared.printing import confirm, print_json
from tarry.process.loading import CommandContext
from tarry.store import migrating
from tarry.store.shards.shard import public_url
from tarry.terminal import say


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser("migrate", help="bring the store's schema up to date, forward only")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run_migrate)


def run_migrate(args: argparse.Namespace) -> int:
    """Status 1 if the user says no."""
    plans = {url: migrating.pending(url) for url in _urls(CommandContext.of(args))}
    wanted = [url for url, steps in plans.items() if steps]
    if not args.json:
        _say(plans)
    if wanted and not args.dry_run:
        if not confirm(
            "Workers of the version before may go on meanwhile, unless a step says otherwise. Do it now?", args.yes
        ):
            return 1
        for url in wanted:
            done = migrating.migrate(url)
            if not args.json:
                # public_url: the URL may have a password in it.
                say(f"{public_url(url)}: {len(done)} done")
    if args.json:
        print_json({"stores": {public_url(url): steps for url, steps in plans.items()}, "done": bool(not args.dry_run)})
    return 0


def _urls(setup: CommandContext) -> list[str]:
    given = setup.app.store_url if setup.app_name else setup.config.stores
    return [given] if isinstance(given, str) else list(given)


def _say(plans: dict[str, list[str]]) -> None:
    for url, steps in plans.items():
        say(f"{public_url(url)}: {'' if steps else 'up to date'}".rstrip())
        for step in steps:
            say(f"  {step}")
