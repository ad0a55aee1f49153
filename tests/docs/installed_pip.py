"""The `pip` of a page: it downloads nothing, and looks whether what the page installs is here."""

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def write(directory: Path) -> None:
    """Makes the program `pip` there."""
    directory.mkdir()
    program = directory / "pip"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)


def missing(words: list[str]) -> list[str]:
    """Of the requirements of `pip install`, those that are not here, or have no such extra."""
    return [word for word in words if not word.startswith("-") and not _is_here(Requirement(word))]


def _is_here(wanted: Requirement) -> bool:
    try:
        found = metadata.metadata(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.extras <= set(found.get_all("Provides-Extra") or ())


def main(words: list[str]) -> int:
    """The exit status."""
    if words[:1] != ["install"]:
        print(f"pip {' '.join(words)}: pages only install", file=sys.stderr)
        return 1
    absent = missing(words[1:])
    if absent:
        print(f"not in the tests' environment: {', '.join(absent)}", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
