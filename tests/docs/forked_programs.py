"""`tarry` and `python` of the pages, forked from a process that has imported all of the wheel: that takes ten times as
long as what most commands do.

`tests/cli/forked.py` tells what differs from a process that Python has started. One with options for Python, or with
other variables that Python reads at its start, is a real one.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.forked import MODULES, READ_AT_START, ForkServer
from tests.docs import program

IMPORTED = (
    "_pytest.doctest _pytest.junitxml _pytest.legacypath _pytest.logging _pytest.pastebin _pytest.pytester"
    " _pytest.threadexception _pytest.unraisableexception anyio.pytest_plugin pytest pytest_asyncio.plugin"
    " unittest.mock"
)
"""What each pytest imports."""


class ForkedPrograms:
    """For the shells of many pages."""

    def __init__(self, place: Path, installed: Mapping[str, str], varied: Mapping[str, str]) -> None:
        """installed: variables of the wheel. varied: what the pages have besides."""
        self.environ = {**installed, **varied}
        self.bin, address = place / "bin", place / "line"
        self.bin.mkdir()
        lib = Path(installed["PYTHONPATH"])
        for name, real in (("tarry", [f"{lib}/bin/tarry"]), ("python", [sys.executable])):
            self._write(name, real, address)
        self._server = ForkServer(lib, self.environ | {MODULES: IMPORTED}, address)

    def _write(self, name: str, real: list[str], address: Path) -> None:
        variables = {name: text for name, text in self.environ.items() if name.startswith(READ_AT_START)}
        text = Path(program.__file__).read_text(encoding="utf-8")
        call = f"main({real!r}, {str(address)!r}, {variables!r}, {READ_AT_START!r})"
        (self.bin / name).write_text(f"#!{sys.executable} -IS\n{text}\n\n{call}\n", encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def close(self) -> None:
        """Ends the fork server."""
        self._server.close()
