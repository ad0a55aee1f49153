"""What is to go is announced two minor versions before."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import tarry

ROOT = Path(tarry.__file__).parent


def _announced() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text) if "TarryDeprecated(" in text else ast.Module([], [])
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("TarryDeprecated"):
                yield path.relative_to(ROOT).as_posix(), call


def test_a_warning_says_what_goes_when_and_what_to_take_instead() -> None:
    with pytest.warns(tarry.TarryDeprecated, match=r"^App\(old=\) goes in tarry 0\.6: write App\(new=\)$"):
        warnings.warn(tarry.TarryDeprecated("App(old=)", "0.6", "write App(new=)"), stacklevel=1)
    assert issubclass(tarry.TarryDeprecated, DeprecationWarning)


def test_each_is_in_the_changelog() -> None:
    changelog = (ROOT.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    for place, call in _announced():
        what, goes_in = (ast.literal_eval(argument) for argument in call.args[:2])
        assert f"{what} goes in {goes_in}" in changelog, f"{place}: under Deprecated, with the version in which it goes"
