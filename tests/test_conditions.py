"""A condition is entered by its lock: `with self._lock`, not `with self._changed`.

`threading.Condition` enters its lock in Python. An exception from a signal's handler may come between the lock and the
block, and then the lock is held for ever.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import PACKAGE


def complaints(package: Path) -> list[str]:
    """A line for each condition that has its own lock, and for each `with` that enters a condition."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))}
    names = {name for text in texts.values() if "Condition(" in text for name in _conditions(ast.parse(text))}
    # To walk all trees takes seconds.
    told_of = re.compile(rf"Condition\(|\.({'|'.join(names) or 'no one'})\b")
    trees = {file: ast.parse(text) for file, text in texts.items() if told_of.search(text)}
    return [
        f"{file.relative_to(package.parent)}:{line}"
        for file, tree in trees.items()
        for line in (*_without_lock(tree), *_entered(tree, names))
    ]


def _is_condition(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="threading"), attr="Condition")):
            return True
        case ast.Call(func=ast.Name(id="FairCondition")):
            return True
    return False


def _conditions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_condition(node.value):
            yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))


def _without_lock(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_condition(node) and not node.args:
            yield node.lineno


def _entered(tree: ast.Module, names: set[str]) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if isinstance(item.context_expr, ast.Attribute) and item.context_expr.attr in names:
                    yield node.lineno


def test_conditions_are_entered_by_their_locks() -> None:
    assert complaints(PACKAGE) == []


_MADE = "class A:\n    def f(self):\n        self.changed = threading.Condition({})\n"
_USED = """
    def g(self):
        with self.hub.changed:
            pass
        with self.lock:
            pass
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (_MADE.format(""), ["tarry/a.py:3"]),
        (_MADE.format("self.lock") + _USED, ["tarry/a.py:6"]),
    ],
)
def test_what_is_not_is_told(tmp_path: Path, text: str, told: list[str]) -> None:
    (tmp_path / "tarry").mkdir()
    (tmp_path / "tarry" / "a.py").write_text(text, encoding="utf-8")
    assert complaints(tmp_path / "tarry") == told
