"""Which pages there are, and which of their blocks have a test of their own."""

from pathlib import Path

from tests.docs.blocks import Block, read_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "README.md", ROOT / "deploy/README.md", *(ROOT / "docs").rglob("*.md"))
)

HELD_ELSEWHERE = {
    "docs/doors.md": {"python": "test_doors_page.py, tests/server/test_asgi.py", "sh": "test_doors_page.py"},
    "docs/push.md": {"sh": "test_push_page.py: its commands run against its settings"},
    "docs/beanstalk.md": {"python": "tests/server/beanstalk/test_clients.py: against a server of its own"},
}
"""The languages of a page that the runner leaves alone, with what runs them. A new page needs no line here."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str = "") -> list[Block]:
    """Those of a language, or all."""
    return [block for block in read_blocks(text_of(page)) if language in ("", block.language)]
