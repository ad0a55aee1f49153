"""The list of mutants, and what is wrong with it."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, convert

TREE = Path(__file__).resolve().parents[2]


class Mutant(Struct, frozen=True, forbid_unknown_fields=True):
    """One small mistake. tests: files that are to see it; k: which of their tests; empty: all."""

    name: str
    file: str
    find: str
    replace: str
    tests: list[str]
    k: str = ""

    def applied(self, text: str) -> str:
        """The file's text with the mistake."""
        return text.replace(self.find, self.replace)

    @property
    def selection(self) -> tuple[str, ...]:
        """The arguments of pytest."""
        return (*self.tests, *(["-k", self.k] if self.k else []))


class _List(Struct, frozen=True, forbid_unknown_fields=True):
    mutant: list[Mutant]


def mutants() -> list[Mutant]:
    """All of them, by file and in their order there."""
    found: list[Mutant] = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        found += convert(tomllib.loads(path.read_text()), _List).mutant
    return found


def complaints(listed: list[Mutant], tree: Path = TREE) -> Iterator[str]:
    """A line for each mutant that can no longer be what it says."""
    for name, count in Counter(mutant.name for mutant in listed).items():
        if count > 1:
            yield f"{name}: {count} have this name"
    for mutant in listed:
        yield from (f"{mutant.name}: {what}" for what in _wrong(mutant, tree))


def _wrong(mutant: Mutant, tree: Path) -> Iterator[str]:
    yield from (f"no test file {test}" for test in mutant.tests if not (tree / test).is_file())
    if not mutant.tests:
        yield "no tests are named"
    path = tree / mutant.file
    if not path.is_file():
        yield f"no file {mutant.file}"
        return
    text = path.read_text()
    if (count := text.count(mutant.find)) != 1:
        yield f"{mutant.file} has its text {count} times, not once"
    elif mutant.applied(text) == text:
        yield "it changes nothing"
    elif path.suffix == ".py":
        try:
            ast.parse(mutant.applied(text))
        except SyntaxError as error:
            yield f"{mutant.file} is no Python with it: {error}"
