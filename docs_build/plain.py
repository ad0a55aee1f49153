"""The site for programs that read: the Markdown of each page beside it, and `llms.txt`, which lists them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

from docs_build.python_pages import PAGES

_LINK = re.compile(r"(\]\()([^)#\s:]+\.md)(#[^)\s]*)?\)")
_ABOUT = 200
"""Characters of a page's first paragraph that llms.txt shows, at most."""


def plain_text(text: str, path: str) -> str:
    """The Markdown of a page of that path, its links changed to the Markdown of these pages."""
    if path in PAGES:
        text = PAGES[path].write_plain()
    here = PurePosixPath(address(path)).parent

    def relink(link: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(path).parent / link[2])
        return f"{link[1]}{os.path.relpath(address(target), here)}{link[3] or ''})"

    return _LINK.sub(relink, text)


def address(path: str) -> str:
    """Where the site has the Markdown of a page: beside its HTML."""
    page = PurePosixPath(path)
    return str(page if page.name == "index.md" else page.with_suffix("") / "index.md")


def link(path: str) -> str:
    """What the head of a page's HTML, which stands beside it, says of its Markdown."""
    named = f'<link rel="alternate" type="text/markdown" href="{PurePosixPath(address(path)).name}">'
    # The theme's script takes each alternate for a language, and would ask for a sitemap that is not there.
    return f"<noscript>{named}</noscript>"


def write(site: Path, nav: Navigation, description: str, texts: Mapping[str, str]) -> None:
    """Writes all of them. texts: the Markdown of each page by its path."""
    for path, text in texts.items():
        file = site / address(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    listed = "\n".join(_lines(nav.items, texts))
    (site / "llms.txt").write_text(f"# tarry\n\n> {description}\n\n{listed}\n", encoding="utf-8")


def _lines(items: list[object], texts: Mapping[str, str]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Section):
            yield f"\n## {item.title}\n"
            yield from _lines(list(item.children), texts)
        elif isinstance(item, Page) and item.file.src_uri in texts:
            path = item.file.src_uri
            yield f"- [{item.title}]({address(path)}): {_about(texts[path])}"


def _about(text: str) -> str:
    """The first paragraph of prose, without its marks."""
    paragraphs = (one for one in re.split(r"\n{2,}", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)))
    prose = next((one for one in paragraphs if re.match(r"\s*[*`\[]*[A-Z]", one)), "")
    words = re.sub(r"\[([^]]*)\]\([^)]*\)|[*]{2}", r"\1", " ".join(prose.split()))
    return words if len(words) <= _ABOUT else words[:_ABOUT].rpartition(" ")[0] + " ..."
