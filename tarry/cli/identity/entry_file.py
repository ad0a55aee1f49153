"""Changes the files of tokens and passwords, each with a section `[KIND.NAME]` for every entry."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tarry import files
from tarry.cli.printing import print_json, print_table
from tarry.config.config import load
from tarry.config.parser import as_toml
from tarry.door.identity.entries import EntrySettings
from tarry.errors import TarryError, UsageError
from tarry.model.nearest import did_you_mean
from tarry.operate.access import Scope
from tarry.terminal import say

SCOPES = [scope.value for scope in Scope]

ReadEntries = Callable[[Path], Mapping[str, EntrySettings]]


def add_rights(command: argparse.ArgumentParser, noun: str) -> None:
    """Adds the options for what an entry allows."""
    command.add_argument(
        "--scope", action="append", choices=SCOPES, help=f"what the {noun} is for; several times for several"
    )
    command.add_argument("--queue", action="append", metavar="PATTERN", help='such as "mail" or "shop-*"; default: all')


def add_tasks(command: argparse.ArgumentParser) -> None:
    """Adds the option for the tasks whose jobs an entry may put."""
    said = 'such as "shop.*", to put; default: those whose own queue it may use'
    command.add_argument("--task", action="append", metavar="PATTERN", help=said)


def find_file(args: argparse.Namespace, kind: str) -> Path:
    """The file of `tokens` or `passwords` that the settings name; TarryError."""
    config = load(Path(args.config) if args.config else None)
    path: Path | None = getattr(config.server, kind)
    if path is None:
        raise TarryError(f'there is no file of {kind}: set [server] {kind} = "run/{kind}.toml"')
    return path


def print_entries(entries: Mapping[str, EntrySettings], json: bool, *more: str) -> int:
    """Prints the rights of all entries. more: names of further fields."""
    rows = [_fact(name, entry, more) for name, entry in entries.items()]
    if json:
        print_json(rows)
        return 0
    print_table(
        ("name", "scopes", "queues", "tasks", *more),
        [
            (
                row["name"],
                *(" ".join(row[part]) for part in ("scopes", "queues", "tasks")),
                *(row[name] or "" for name in more),
            )
            for row in rows
        ],
    )
    return 0


def _fact(name: str, entry: EntrySettings, more: Sequence[str]) -> dict[str, Any]:
    rights = {"name": name, "scopes": sorted(entry.scopes), "queues": list(entry.queues), "tasks": list(entry.tasks)}
    return {**rights, **{field: getattr(entry, field) for field in more}}


def check_new(path: Path, noun: str, args: argparse.Namespace, read: ReadEntries) -> str:
    """The name of the entry that is to be added; UsageError, TarryError."""
    if len(args.names) > 1 or not re.fullmatch(r"[\w-]+", args.names[0]):
        raise UsageError("add takes one name, of letters, digits, - and _")
    if not args.scope:
        raise UsageError(f"what is the {noun} for? add --scope {' or --scope '.join(SCOPES)}")
    name: str = args.names[0]
    if path.exists() and name in read(path):
        raise TarryError(f"there is a {noun} {name} already; `tarry {noun}s remove {name}` revokes it")
    return name


def append_section(path: Path, section: str, lines: Sequence[str], args: argparse.Namespace) -> None:
    """Writes a section, with the rights that were asked for, at the end of the file. section: `tokens.NAME`."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rights = [f"scopes = {as_toml(args.scope)}"]
    if args.queue:
        rights.append(f"queues = {as_toml(args.queue)}")
    if getattr(args, "task", None):
        rights.append(f"tasks = {as_toml(args.task)}")
    written = "\n".join((f"[{section}]", *lines, *rights)) + "\n"
    write(path, f"{text.rstrip()}\n\n{written}".lstrip())


def check_known(path: Path, noun: str, names: Sequence[str], read: ReadEntries) -> None:
    """TarryError if the file lacks one of these entries."""
    entries = read(path)
    for name in names:
        if name not in entries:
            raise TarryError(f"no {noun} {name!r} in {path}{did_you_mean(name, list(entries))}")


def section_pattern(noun: str, name: str) -> str:
    """Matches the section up to the next one: comments of people above other sections stay."""
    return rf"(?ms)^\[{noun}s\.\"?{re.escape(name)}\"?\]\s*$.*?(?=^\[|\Z)"


def remove_sections(path: Path, noun: str, names: Sequence[str], read: ReadEntries) -> int:
    """Removes these entries; TarryError."""
    check_known(path, noun, names, read)
    text = path.read_text(encoding="utf-8")
    for name in names:
        text = re.sub(section_pattern(noun, name), "", text)
    write(path, text)
    left = read(path)
    if failed := [name for name in names if name in left]:
        raise TarryError(f"{path}: {failed[0]} is not written as a section [{noun}s.{failed[0]}]; remove it by hand")
    say(f"{', '.join(names)} removed")
    return 0


def write(path: Path, text: str) -> None:
    """Replaces the file as a whole: a server that reads it meanwhile sees the old or the new one."""
    files.make_directory(path.parent)
    files.replace(path, text.encode())
