"""`tarry tokens`: lists, adds and removes the tokens of the doors."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from tarry import files
from tarry.cli.printing import print_json, print_table
from tarry.config import load
from tarry.door.identity.access import Scope
from tarry.door.identity.tokens import TokenSettings, digest, new_token, read_tokens
from tarry.errors import TarryError, UsageError
from tarry.model.limit import rate
from tarry.model.nearest import did_you_mean
from tarry.terminal import say

_SCOPES = [scope.value for scope in Scope]


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
    tokens.add_argument(
        "--scope", action="append", choices=_SCOPES, help="what the token is for; several times for several"
    )
    tokens.add_argument("--queue", action="append", metavar="PATTERN", help='such as "mail" or "shop-*"; default: all')
    tokens.add_argument("--rate", metavar="RATE", help='requests in a period: "100/s"')
    tokens.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    path = _path(args)
    if args.action == "list":
        if args.names:
            raise UsageError("list takes no names; `tarry tokens` shows them all")
        return _list(read_tokens(path), args.json)
    if not args.names:
        raise UsageError(f"{args.action} which token? tarry tokens {args.action} NAME")
    return _add(path, args) if args.action == "add" else _remove(path, args.names)


def _path(args: argparse.Namespace) -> Path:
    config = load(Path(args.config) if args.config else None)
    if config.server.tokens is None:
        raise TarryError('there is no file of tokens: set [server] tokens = "run/tokens.toml"')
    return config.server.tokens


def _list(tokens: dict[str, TokenSettings], json: bool) -> int:
    rows = [_fact(name, token) for name, token in tokens.items()]
    if json:
        print_json(rows)
    else:
        print_table(
            ("name", "scopes", "queues", "rate"),
            [(row["name"], " ".join(row["scopes"]), " ".join(row["queues"]), row["rate"] or "") for row in rows],
        )
    return 0


def _fact(name: str, token: TokenSettings) -> dict[str, Any]:
    return {"name": name, "scopes": sorted(token.scopes), "queues": list(token.queues), "rate": token.rate}


def _add(path: Path, args: argparse.Namespace) -> int:
    if len(args.names) > 1 or not re.fullmatch(r"[\w-]+", args.names[0]):
        raise UsageError("add takes one name, of letters, digits, - and _")
    if not args.scope:
        raise UsageError(f"what is the token for? add --scope {' or --scope '.join(_SCOPES)}")
    _check_rate(args.rate)
    name = args.names[0]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.exists() and name in read_tokens(path):
        raise TarryError(f"there is a token {name} already; `tarry tokens remove {name}` revokes it")
    token = new_token()
    _write(path, f"{text.rstrip()}\n\n{_section(name, token, args)}".lstrip())
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


def _section(name: str, token: str, args: argparse.Namespace) -> str:
    lines = [f"[tokens.{name}]", f'sha256 = "{digest(token).hex()}"', f"scopes = {_strings(args.scope)}"]
    if args.queue:
        lines.append(f"queues = {_strings(args.queue)}")
    if args.rate:
        lines.append(f"rate = {_string(args.rate)}")
    return "\n".join(lines) + "\n"


def _strings(texts: list[str]) -> str:
    return f"[{', '.join(map(_string, texts))}]"


def _string(text: str) -> str:
    # What JSON escapes, TOML escapes in the same way, but for DEL, which it does not allow.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _remove(path: Path, names: list[str]) -> int:
    tokens = read_tokens(path)
    for name in names:
        if name not in tokens:
            raise TarryError(f"no token {name!r} in {path}{did_you_mean(name, tokens)}")
    text = path.read_text(encoding="utf-8")
    for name in names:
        # The section up to the next one: comments of people above other sections stay.
        text = re.sub(rf"(?ms)^\[tokens\.\"?{re.escape(name)}\"?\]\s*$.*?(?=^\[|\Z)", "", text)
    _write(path, text)
    left = read_tokens(path)
    if failed := [name for name in names if name in left]:
        raise TarryError(f"{path}: {failed[0]} is not written as a section [tokens.{failed[0]}]; remove it by hand")
    say(f"{', '.join(names)} removed")
    return 0


def _write(path: Path, text: str) -> None:
    """Replaces the file as a whole: a server that reads it meanwhile sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fd = files.open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.OURS)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
