"""What users import changes only together with CHANGELOG.md."""

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tarry
from tests.surface import COMMANDS, FILE, ROOT, commands, surface


@pytest.mark.parametrize(("file", "make"), [(FILE, surface), (COMMANDS, commands)], ids=["imports", "commands"])
def test_the_public_surface_is_as_it_was_written_down(file: Path, make: Callable[[], str]) -> None:
    was, now = file.read_text(encoding="utf-8"), make()
    changed = list(difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=0))[2:]
    assert not changed, "\n".join(
        [
            "What users import or run has changed. If that is meant: say it in CHANGELOG.md, and run `make surface`.",
            *changed,
        ]
    )


@pytest.mark.parametrize("name", sorted(tarry.__all__))
def test_every_name_is_in_it(name: str) -> None:
    written = FILE.read_text(encoding="utf-8").split()
    assert any(word.partition("(")[0].rstrip(":") == name for word in written)


def test_it_has_signatures_types_and_defaults() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert "class JobFailed(TarryError)" in lines
    assert any(line.startswith("App.task(") and "timeout" in line for line in lines)
    assert any(line.startswith("async ") for line in lines)
    assert [line for line in lines if re.match(r"(class |async )?[\w.]*\._(?!_init__)", line)] == []


def test_the_package_is_typed_and_says_so() -> None:
    assert (ROOT / "tarry/py.typed").exists()
    assert Path(tarry.__file__).parent == ROOT / "tarry"
