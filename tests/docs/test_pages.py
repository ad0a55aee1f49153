"""Each page of the documentation is run as it stands; see the docstring of this package."""

import re
from pathlib import Path

import pytest

from tarry.config.config import load
from tests.docs.addresses import readdress
from tests.docs.blocks import MARK, Block, read_blocks
from tests.docs.forked_programs import ForkedPrograms
from tests.docs.page_run import PageRun, misnamed
from tests.docs.pages import HELD_ELSEWHERE, PAGES, ROOT, blocks_of, text_of

every_page = pytest.mark.parametrize("page", PAGES)
CONFIGURED = re.compile(r"^\[(?!tool\.tarry)(project|tool|build-system|contacts)\b", re.MULTILINE)
FEWEST = {"docs/tasks.md": 10, "docs/flows.md": 5}


def run_by_us(page: str) -> list[Block]:
    """What no test elsewhere runs."""
    return [block for block in blocks_of(page) if block.language not in HELD_ELSEWHERE.get(page, ())]


@pytest.mark.timeout(400)
@every_page
def test_what_a_page_shows_is_so(
    page: str, tmp_path: Path, programs: ForkedPrograms, request: pytest.FixtureRequest
) -> None:
    blocks = readdress(run_by_us(page), request.getfixturevalue)
    run = PageRun(tmp_path, programs, {"ORDER_SECRET": "a secret of tests"})
    try:
        run.run(blocks)
    finally:
        run.close()


@every_page
def test_no_import_is_too_many_and_every_name_is_there(page: str, tmp_path: Path) -> None:
    assert misnamed(tmp_path, run_by_us(page)) == ""


@every_page
def test_its_settings_load(page: str, tmp_path: Path) -> None:
    """Also each alternative that is commented out."""
    file = tmp_path / "tarry.toml"
    for block in blocks_of(page, "toml"):
        if block.file in ("", "tarry.toml") and not block.not_run and not CONFIGURED.search(block.text):
            for text in (block.text, *re.findall(r"^# (\w+ = .*)", block.text, re.MULTILINE)):
                file.write_text(text)
                load(file, {})


@every_page
def test_every_fence_and_every_mark_is_understood(page: str) -> None:
    text = text_of(page)
    blocks = read_blocks(text)
    assert len(blocks) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE))
    marks = re.findall(r"<!-- *not run.*", text)
    assert [mark for mark in marks if not MARK.fullmatch(mark.strip())] == []
    assert len(marks) == sum(bool(block.not_run) for block in blocks), "a mark stands on the line before its block"
    assert [
        block.line for block in blocks if not block.language and re.search(r"^(import|from|def) ", block.text)
    ] == []


@every_page
def test_every_list_begins_after_an_empty_line(page: str) -> None:
    """Else Python's Markdown takes it for a part of the paragraph, unlike GitHub's."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?![-*] |[#| ]|\d+\. |<!--)\S.*\n(- .*)", prose, re.MULTILINE) == []


def test_the_long_pages_are_read() -> None:
    assert {page: fewest for page, fewest in FEWEST.items() if len(blocks_of(page, "python")) < fewest} == {}


def test_every_section_about_tasks_has_an_example() -> None:
    _, *sections = re.split(r"^## ", text_of("docs/tasks.md"), flags=re.MULTILINE)
    assert [section.splitlines()[0] for section in sections if not re.search(r"^```python", section, re.M)] == []
    assert [block.line for block in blocks_of("docs/tasks.md", "python") if not block.is_test] == []


def test_the_table_names_what_is_there() -> None:
    for page, languages in HELD_ELSEWHERE.items():
        assert languages.keys() <= {block.language for block in blocks_of(page)}
        for reason in languages.values():
            files = re.findall(r"[\w/]+\.py", reason)
            assert files
            assert all((ROOT / file).exists() or (Path(__file__).parent / file).exists() for file in files)
