"""The page about the lifecycle is what the lifecycle does, and is missed when it is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tarry.model.flow_row import Phase
from tarry.model.job import State
from tests import flow_phases_page
from tests.lifecycle_page import PAGE, main, page, ways


def test_the_page_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.lifecycle_page", "--check"],
        cwd=PAGE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_it_is_written_and_then_current(tmp_path: Path) -> None:
    there = tmp_path / "docs" / "lifecycle.md"
    assert main(["--page", str(there)]) == 0
    assert main(["--check", "--page", str(there)]) == 0
    assert there.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("text", [None, "", "running --> ready : by magic"])
def test_a_stale_or_missing_page_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    there = tmp_path / "lifecycle.md"
    if text is not None:
        there.write_text(text, encoding="utf-8")
    assert main(["--check", "--page", str(there)]) == 1
    assert capsys.readouterr().err == "lifecycle.md is not what tarry/model/lifecycle.py does: run `make docs`\n"
    assert there.exists() == (text is not None)


@pytest.mark.parametrize("state", State)
def test_the_page_shows_a_way_into_and_out_of_every_state(state: State) -> None:
    text = page()
    assert any(f"--> {state} :" in line for line in text.splitlines())
    assert any(line.strip().startswith(f"{state} -->") for line in text.splitlines())


def test_every_arrow_of_the_diagram_is_in_the_table() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ")]
    for way in ways():
        assert any(row.startswith(f"| {way.event} | {way.when} |") for row in rows)


def test_a_flow_comes_out_of_every_phase() -> None:
    assert {phase for _, phase, _ in flow_phases_page.ways()} == set(Phase)
    assert {to for _, _, to in flow_phases_page.ways()} == {"running", "cancelling", "undoing", "ended", "gone"}
