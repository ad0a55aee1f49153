"""Mypy and pyright over calls that are right and calls that are wrong: both must say exactly which are which.

pyright runs as basedpyright in its "standard" mode: the same engine, and its wheels bring their own node.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BAD = sorted(file.name for file in (HERE / "bad").glob("[a-z]*.py"))

_SAID = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<what>.*)$", re.MULTILINE)


class Said:
    """All that one checker said, by file."""

    def __init__(self, errors: Iterator[tuple[Path, int, str]]) -> None:
        self._errors = list(errors)

    def lines(self, file: Path) -> dict[int, str]:
        return {line: what for where, line, what in self._errors if where.resolve() == file}


def _mypy(cache: Path) -> Said:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.11", "--no-pretty"]
    command += ["--follow-imports=silent", f"--cache-dir={cache}", "tests/typing/good.py"]
    command += [f"tests/typing/bad/{name}" for name in BAD]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return Said((ROOT / found["file"], int(found["line"]), found["what"]) for found in _SAID.finditer(done.stdout))


def _pyright() -> Said:
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    errors = [one for one in told if one["severity"] == "error"]
    return Said((Path(one["file"]), one["range"]["start"]["line"] + 1, one["message"]) for one in errors)


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Said:
    return _mypy(tmp_path_factory.mktemp("mypy")) if request.param == "mypy" else _pyright()


@pytest.mark.timeout(300)
def test_right_calls_are_right(said: Said) -> None:
    assert said.lines(HERE / "good.py") == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BAD)
def test_wrong_calls_are_found_and_no_others(said: Said, name: str) -> None:
    file = HERE / "bad" / name
    expected = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("  # error")}
    assert expected
    found = said.lines(file)
    assert found.keys() - expected == set(), {line: found[line] for line in found.keys() - expected}
    assert expected - found.keys() == set(), "these lines should be wrong"
