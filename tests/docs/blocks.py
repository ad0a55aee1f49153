"""The code blocks of a page, as they stand in its Markdown."""

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

_FENCED = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<mark>[^\n]*?) -->\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>[\w-]*)(?P<rest>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_CONTINUED = " (continued)"
MARK = re.compile(r"<!-- not run: \S.* -->")


class Block(NamedTuple):
    """A block of a page; `line` is that of its text, counted from 1."""

    language: str
    title: str
    text: str
    line: int
    not_run: str

    @property
    def file(self) -> str:
        """The file that its title names; empty without one."""
        return self.title.removesuffix(_CONTINUED)

    @property
    def continues(self) -> bool:
        """Its text comes after what the file has."""
        return self.title.endswith(_CONTINUED)

    @property
    def is_test(self) -> bool:
        return self.language == "python" and not self.title and "def test_" in self.text


def read_blocks(page: str) -> list[Block]:
    """All blocks of a page's text, in its order."""
    return list(_read(page))


def _read(page: str) -> Iterator[Block]:
    for found in _FENCED.finditer(page):
        title = _TITLE.search(found["rest"])
        yield Block(
            found["language"],
            title[1] if title else "",
            textwrap.dedent(found["text"]),
            page.count("\n", 0, found.start("text")) + 1,
            found["mark"] or "",
        )
