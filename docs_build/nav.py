"""The navigation of mkdocs.yml, with its patterns filled in."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Any


def expand(nav: list[Any], pages: Iterable[str]) -> list[Any]:
    """A pattern (`howto/*.md`) becomes the pages of that folder that the navigation does not name; a page that is not
    there is left out, and so is a section without pages."""
    there = set(pages)
    rest = sorted(there - set(_named(nav)))
    return _expand(nav, there, rest)


def _named(nav: Iterable[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            ((_, value),) = entry.items()
            yield from _named(value) if isinstance(value, list) else [value]


def _expand(nav: Iterable[Any], there: set[str], rest: list[str]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str):
            found += _matching(entry, there, rest)
        else:
            ((title, value),) = entry.items()
            kept = _expand(value, there, rest) if isinstance(value, list) else value if value in there else None
            found += [{title: kept}] if kept else []
    return found


def _matching(entry: str, there: set[str], rest: list[str]) -> list[str]:
    if "*" not in entry:
        return [entry] if entry in there else []
    # A `*` is within one folder.
    return [page for page in rest if fnmatch(page, entry) and page.count("/") == entry.count("/")]
