"""The examples of the docs run, as they stand: each block of Python is a test file of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "docs/tasks.md",
    "docs/flows.md",
    "docs/from/celery.md",
    *(f"docs/from/{name}.md" for name in ("rq", "dramatiq", "huey")),
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_every_section_has_an_example_and_every_example_a_test() -> None:
    _, *sections = re.split(r"^## ", (ROOT / "docs/tasks.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    without = [section.splitlines()[0] for section in sections if not BLOCK.search(section)]
    assert without == []
    assert [block for page in PAGES for block in blocks(page) if "def test_" not in block] == []


@pytest.mark.parametrize(("page", "fewest"), [(PAGES[0], 10), (PAGES[1], 5), *((page, 1) for page in PAGES[2:])])
def test_the_examples_of_the_docs_run(page: str, fewest: int, tmp_path: Path, installed: dict[str, str]) -> None:
    found = blocks(page)
    assert len(found) >= fewest
    for number, block in enumerate(found):
        (tmp_path / f"test_example_{number}.py").write_text(block, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        ["python", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=installed,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_have_no_import_too_many_and_name_nothing_that_is_not_there(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page)):
        file = tmp_path / f"example_{number}.py"
        file.write_text(block, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
