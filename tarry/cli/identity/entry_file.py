"""Changes the files of tokens and passwords, each with a section `[KIND.NAME]` for every entry."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from tarry import files
from tarry.cli.operate.method_command import CommandCall
from tarry.cli.shared.printing import print_table
from tarry.config.parser import as_toml
from tarry.errors import TarryError
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.problem import RequestError
from tarry.server.identity.entries import EntrySettings

ReadEntries = Callable[[Path], Mapping[str, EntrySettings]]


class EntryPath(Struct, frozen=True):
    """Names an entry."""

    name: Annotated[str, Meta(max_length=200)]


class NewRights(Struct, frozen=True):
    """What a new entry allows."""

    scope: Annotated[list[Scope], Meta(max_length=len(Scope))] = []
    """What it is for; several times for several."""
    queue: list[Short] = []
    """Such as "mail" or "shop-*"; default: all."""


class EntryRecord(Struct, frozen=True):
    """An entry."""

    name: str
    scopes: list[str]
    queues: list[str]
    tasks: list[str]


class EntryName(Struct, frozen=True):
    """An entry that was changed."""

    name: str


class EntryFileEditor:
    """The file of `tokens` or `passwords` that the settings name; TarryError: they name none."""

    def __init__(self, call: CommandCall, noun: str, read: ReadEntries) -> None:
        kind = f"{noun}s"
        path: Path | None = getattr(call.setup.config.server, kind)
        if path is None:
            raise TarryError(f'there is no file of {kind}: set [server] {kind} = "run/{kind}.toml"')
        self.path, self._noun, self._read = path, noun, read

    def entries(self) -> Mapping[str, EntrySettings]:
        """What it has; TarryError."""
        return self._read(self.path)

    def records(self) -> list[EntryRecord]:
        """The rights of all entries."""
        return [
            EntryRecord(name, sorted(one.scopes), list(one.queues), list(one.tasks))
            for name, one in self.entries().items()
        ]

    def check_new(self, name: str, rights: NewRights) -> None:
        """RequestError, TarryError: no such entry can be added."""
        if not re.fullmatch(r"[\w-]+", name):
            raise RequestError("add takes names of letters, digits, - and _", "name", 422)
        if not rights.scope:
            said = f"what is the {self._noun} for? add --scope {' or --scope '.join(Scope)}"
            raise RequestError(said, "scope", 422)
        if self.path.exists() and name in self.entries():
            said = f"there is a {self._noun} {name} already; `tarry {self._noun}s remove {name}` revokes it"
            raise TarryError(said)

    def append(self, name: str, lines: Sequence[str], rights: NewRights, tasks: Sequence[str] = ()) -> EntryName:
        """Writes a section, with these rights, at the end of the file."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        lists = {"scopes": [str(one) for one in rights.scope], "queues": rights.queue, "tasks": tasks}
        allowed = (f"{kind} = {as_toml(list(some))}" for kind, some in lists.items() if some)
        written = "\n".join((f"[{self._noun}s.{name}]", *lines, *allowed)) + "\n"
        self._write(f"{text.rstrip()}\n\n{written}".lstrip())
        return EntryName(name)

    def check_known(self, name: str) -> None:
        """TarryError if it lacks this entry."""
        if name not in (entries := self.entries()):
            raise TarryError(f"no {self._noun} {name!r} in {self.path}{did_you_mean(name, list(entries))}")

    def change(self, name: str, change: Callable[[str], str]) -> EntryName:
        """Changes the section of an entry: comments of people above other sections stay. TarryError."""
        self.check_known(name)
        section = rf"(?ms)^\[{self._noun}s\.\"?{re.escape(name)}\"?\]\s*$.*?(?=^\[|\Z)"
        text = self.path.read_text(encoding="utf-8")
        changed = re.sub(section, lambda found: change(found[0]), text)
        if changed == text:
            said = f"is not written as a section [{self._noun}s.{name}]; change it by hand"
            raise TarryError(f"{self.path}: {name} {said}")
        self._write(changed)
        return EntryName(name)

    def _write(self, text: str) -> None:
        """Replaces the file as a whole: a server that reads it meanwhile sees the old or the new one."""
        files.make_directory(self.path.parent)
        files.replace(self.path, text.encode())


def print_entries(found: Sequence[EntryRecord], *more: str) -> None:
    """Prints the rights of all entries. more: names of further fields."""
    rows = [
        (
            one.name,
            *(" ".join(part) for part in (one.scopes, one.queues, one.tasks)),
            *(getattr(one, n) or "" for n in more),
        )
        for one in found
    ]
    print_table(("name", "scopes", "queues", "tasks", *more), rows)
