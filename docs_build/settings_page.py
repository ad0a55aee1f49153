"""The reference of the settings, written from their types and from the comments of tarry/config/template.toml."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tarry.config.config import template

_TOP = """\
# Settings

They stand in `tarry.toml`, or in `[tool.tarry]` of pyproject.toml. `tarry init` writes a file with all of them. A
setting that is unknown or wrong is an error that names its line and the nearest right one. `tarry reload` reads them
again.

Each may also come from a variable, which then comes first. Relative paths start in the directory of the file. Durations
are seconds, or text such as `1h30m`; sizes are bytes, or text such as `64KB` or `1MiB`.
"""
_SETTING = re.compile(r"^#?(\w+) = (.+)$")
_SECTION = re.compile(r"^#?\[(.+)\]$")


class Setting(NamedTuple):
    """`shown`: the value that the template shows, in most cases the default."""

    name: str
    shown: str
    about: str


def write() -> str:
    """The page: each section with its settings."""
    return "\n\n".join([_TOP, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    section, about = "", ""
    rows: list[str] = []
    for name, told, setting in _read():
        if setting is None:
            yield _table(section, about, rows)
            section, about, rows = name, told, []
        else:
            # A comment in the template is about all settings below it, until the next one.
            rows.append(_row(section, setting._replace(about=setting.about or ("With the one above." if rows else ""))))
    yield _table(section, about, rows)


def _read() -> Iterator[tuple[str, str, Setting | None]]:
    """Each section, as its name and the comment above it, and each setting with the comment above it."""
    comment: list[str] = []
    first = True
    for line in template().splitlines():
        if found := _SECTION.match(line):
            yield found[1], " ".join(comment), None
            comment = []
        elif found := _SETTING.match(line):
            yield "", "", Setting(found[1], found[2], " ".join(comment))
            comment = []
        elif line.startswith("# "):
            comment.append(line.removeprefix("# "))
        elif first:
            # The remarks about the whole file.
            comment, first = [], False


def _table(section: str, about: str, rows: list[str]) -> str:
    title = f"## [{section}]" if section else "## The whole"
    return "\n\n".join(
        filter(None, [title, about, "| setting, and its default or an example | |\n|---|---|\n" + "\n".join(rows)])
    )


def _row(section: str, setting: Setting) -> str:
    told = f"{_cell(setting.about)} {_variable(section, setting.name)}"
    return f"| `{setting.name}`<br>{_code(setting.shown)} | {told.strip()} |"


def _variable(section: str, name: str) -> str:
    """The variable that sets it; none for the table of a task, whose name may have any letters."""
    if section.startswith("tasks."):
        return ""
    words = [word for word in (*section.split("."), name) if word]
    return f"`TARRY_{'__'.join(words).upper()}`{{ .variable }}"


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
