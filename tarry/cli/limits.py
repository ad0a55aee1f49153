"""`tarry limits`: shows the use of limits, and changes them on all hosts at once."""

import argparse
from typing import Any

from tarry.cli.printing import print_json, print_table
from tarry.errors import TarryError, UsageError
from tarry.keeper.limits import EffectiveLimit, check_name, effective_limits, reset, set_by_hand
from tarry.keeper.records import limit_record
from tarry.model.limit import Limit, parse_limit
from tarry.process.loading import Setup
from tarry.terminal import say


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    limits = commands.add_parser("limits", help="list, set or reset how many jobs run at once, and start in a period")
    limits.add_argument("action", nargs="?", choices=("list", "set", "reset"), default="list")
    limits.add_argument("names", nargs="*", metavar="NAME", help="queue:mail, task:shop.send, or each:shop.send")
    limits.add_argument("--limit", type=int, metavar="N", help="so many at once; 0 stops it")
    limits.add_argument("--rate", metavar="RATE", help='so many starts in a period: "100/s", "10/m"')
    limits.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    setup = Setup.of(args)
    if args.action == "list":
        return _list(effective_limits(setup.client.store), args.json)
    if not args.names:
        raise UsageError(f"{args.action} which limit? tarry limits {args.action} queue:NAME, or task:NAME")
    limit = _parse_limit(args)
    if args.action == "set" and limit is None:
        raise UsageError("set to what? add --limit N, --rate RATE, or both")
    for name in args.names:
        if args.action == "set":
            set_by_hand(setup.client.store, name, limit)
        else:
            # A reset brings back what the code and the settings say.
            reset(setup.client.store, name, setup.app.limits if setup.app_name else setup.config.limits)
    done = [fact for fact in effective_limits(setup.client.store) if fact.name in args.names]
    if args.json:
        print_json([limit_record(found) for found in done])
    else:
        say("\n".join(f"{name}: {_describe(name, done)}" for name in args.names))
    return 0


def _parse_limit(args: argparse.Namespace) -> Limit | None:
    """The limit to set; UsageError for a name or number that is not valid."""
    try:
        for name in args.names:
            check_name(name)
        return parse_limit(args.limit, args.rate)
    except (TarryError, ValueError) as error:
        raise UsageError(str(error)) from None


def _describe(name: str, found: list[EffectiveLimit]) -> str:
    return next((str(fact.limit) for fact in found if fact.name == name), "no limit")


def _list(found: list[EffectiveLimit], json: bool) -> int:
    records = [limit_record(one) for one in found]
    if json:
        print_json(records)
        return 0
    rows = [(one.limit, _or_dash(one.at_once), one.rate or "-", _or_dash(one.running), one.set_by) for one in records]
    print_table(("limit", "at once", "rate", "running", "set by"), rows)
    return 0


def _or_dash(value: int | None) -> Any:
    return "-" if value is None else value
