"""Files and functions stay small, names say something, and nothing is left for later."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import outline

PACKAGE = Path(__file__).resolve().parents[1] / "tarry"

MOST_LINES, MOST_FUNCTION_LINES = 600, 40
EMPTY_NAMES = frozenset({"util", "utils", "common", "helper", "helpers", "misc"})
_LATER = re.compile(r"\b(TODO|FIXME)\b")


def complaints(package: Path) -> list[str]:
    """A line for each file that is too long, has an empty name, or holds a function too long or a promise."""
    return [complaint for file in sorted(package.rglob("*")) for complaint in _of(file, package)]


def _of(file: Path, package: Path) -> Iterator[str]:
    name = file.relative_to(package.parent)
    if file.stem in EMPTY_NAMES:
        yield f"{name}: {file.stem} says nothing"
    if not file.is_file() or file.suffix in (".pyc", ".so"):
        return
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        yield f"{name}: {len(lines)} lines"
    yield from (f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if _LATER.search(line))
    if file.suffix == ".py":
        yield from (f"{name}:{function}" for function in _long_functions(file))


def _long_functions(file: Path) -> Iterator[str]:
    for node in outline(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {length} lines"


def test_all_is_small_named_and_finished() -> None:
    assert complaints(PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("long.py", "x = 1\n" * 601, "long.py: 601 lines"),
        ("long.sql", "--\n" * 601, "long.sql: 601 lines"),
        ("deep.py", "class A:\n    async def f(self):\n" + "        x = 1\n" * 40, "deep.py:2: f has 41 lines"),
        ("store/helpers.py", "", "store/helpers.py: helpers says nothing"),
        ("later.py", "x = 1  # TODO: y\n", "later.py:1: x = 1  # TODO: y"),
        ("later.py", "\n# FIXME\n", "later.py:2: # FIXME"),
    ],
)
def test_what_is_not_is_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    file = tmp_path / "tarry" / name
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    assert complaints(tmp_path / "tarry") == [f"tarry/{told}"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("short.py", "x = 1\n" * 600),
        ("flat.py", "def f():\n" + "    x = 1\n" * 39),
        ("common_words.py", "method = 'TODOS'\n"),
    ],
)
def test_what_just_fits_is_fine(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "tarry").mkdir()
    (tmp_path / "tarry" / name).write_text(text, encoding="utf-8")
    assert complaints(tmp_path / "tarry") == []
