"""`tarry tokens`: lists, adds and removes the tokens of the doors."""

import argparse
from pathlib import Path

from tarry.cli.identity.entry_file import (
    add_rights,
    add_tasks,
    append_section,
    check_new,
    find_file,
    print_entries,
    remove_sections,
)
from tarry.cli.printing import print_json
from tarry.config.parser import as_toml
from tarry.door.identity.tokens import digest, new_token, read_tokens
from tarry.errors import UsageError
from tarry.model.limit import rate
from tarry.terminal import say


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    tokens = commands.add_parser(
        "tokens",
        help="list, add or remove tokens of the HTTP API",
        description="""The tokens of the file that [server] tokens names. add prints the new token, once: the file keeps
        only its SHA-256. Servers notice a change within a second.""",
    )
    tokens.add_argument("action", nargs="?", choices=("list", "add", "remove"), default="list")
    tokens.add_argument("names", nargs="*", metavar="NAME")
    add_rights(tokens, "token")
    add_tasks(tokens)
    tokens.add_argument("--rate", metavar="RATE", help='requests in a period: "100/s"')
    tokens.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    path = find_file(args, "tokens")
    if args.action == "list":
        if args.names:
            raise UsageError("list takes no names; `tarry tokens` shows them all")
        return print_entries(read_tokens(path), args.json, "rate")
    if not args.names:
        raise UsageError(f"{args.action} which token? tarry tokens {args.action} NAME")
    if args.action == "add":
        return _add(path, args)
    return remove_sections(path, "token", args.names, read_tokens)


def _add(path: Path, args: argparse.Namespace) -> int:
    _check_rate(args.rate)
    name, token = check_new(path, "token", args, read_tokens), new_token()
    lines = [f'sha256 = "{digest(token).hex()}"']
    if args.rate:
        lines.append(f"rate = {as_toml(args.rate)}")
    append_section(path, f"tokens.{name}", lines, args)
    if args.json:
        print_json({"name": name, "token": token})
    else:
        say(token)
    return 0


def _check_rate(written: str | None) -> None:
    try:
        if written is not None:
            rate(written)
    except ValueError as error:
        raise UsageError(str(error)) from None
