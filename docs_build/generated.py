"""The pages of the site that are written from the code while it is built: by path, what writes each."""

from collections.abc import Callable

from docs_build import command_pages, http_page, python_pages, settings_page

INDEX = """\
# Reference

Written from the code each time the site is built.

| | |
|---|---|
| [The command line](command-line.md) | each command, its words and options |
| [Settings](settings.md) | `tarry.toml`: each setting, its default, its variable |
| [The HTTP API](http-api.md) | each method and each object |
"""


def _index() -> str:
    rows = (f"| [{page.title}]({path.removeprefix('reference/')}) | {page.about} |" for path, page in _PYTHON.items())
    return INDEX + "\n".join(rows) + "\n"


_PYTHON = python_pages.PAGES

PAGES: dict[str, Callable[[], str]] = {
    "reference/index.md": _index,
    "reference/command-line.md": command_pages.write,
    "reference/settings.md": settings_page.write,
    "reference/http-api.md": http_page.write,
    **{path: page.write for path, page in _PYTHON.items()},
}
