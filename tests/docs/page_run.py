"""Runs a page as a reader goes through it, from top to bottom, in a folder of its own."""

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.docs import installed_pip
from tests.docs.blocks import Block
from tests.docs.forked_programs import ForkedPrograms
from tests.docs.shell import Shell
from tests.docs.transcript import read_steps

INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
# Of the plugins that are here, those that no page needs: they take a quarter of the CPU of a small run.
UNUSED = (
    "cacheprovider", "schemathesis", "faker", "hypothesispytest", "platformdirs", "pyreqwest", "timeout", "xdist",
    "xdist.looponfail",
)  # fmt: skip
VARIABLES = {
    "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100", "PYTHONUNBUFFERED": "1",
    # Tarry is imported before pytest, which would rewrite it: there are no asserts in it.
    "PYTEST_ADDOPTS": " ".join([*(f"-p no:{name}" for name in UNUSED), "-W ignore::pytest.PytestAssertRewriteWarning"]),
}  # fmt: skip
"""Which a page has besides those of the wheel."""
PYTEST = ("python", "-m", "pytest", "-q", "--tb=short")


class PageRun:
    """`place` is an empty directory; the page's folder is in it."""

    def __init__(self, place: Path, programs: ForkedPrograms, environ: Mapping[str, str] | None = None) -> None:
        self.folder = place / "page"
        (place / "outputs").mkdir()
        self.folder.mkdir()
        bin = place / "bin"
        installed_pip.write(bin)
        self._environ = {**programs.environ, **(environ or {})}
        self._environ["PATH"] = f"{bin}:{programs.bin}:{self._environ['PATH']}"
        self._shell = Shell(self.folder, self._environ, place / "outputs")
        self._tests: list[str] = []
        self._count = 0

    def run(self, blocks: Iterable[Block]) -> None:
        """All blocks that are not marked, in their order."""
        wanted = [block for block in blocks if not block.not_run]
        typed = "".join(block.text for block in wanted if block.language == "console")
        for block in wanted:
            self._run_block(block)
            if re.match(r"test_.*\.py", Path(block.file).name) and not re.search(r"pytest|manage\.py test", typed):
                self._tests = list(dict.fromkeys([*self._tests, block.file]))
        self._run_tests()

    def close(self) -> None:
        self._shell.close()

    def _run_block(self, block: Block) -> None:
        if block.title:
            self._write(block)
        elif block.is_test:
            self._count += 1
            self._tests.append(f"test_example_{self._count}.py")
            (self.folder / self._tests[-1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self._run_script(block)
        elif block.language == "console":
            self._run_tests()
            for step in read_steps(block.text):
                self._shell.run(step)

    def _write(self, block: Block) -> None:
        file = self.folder / block.file
        assert file.resolve().is_relative_to(self.folder.resolve()), f"{block.title}: outside of the page's folder"
        if file.exists() and not block.continues:
            self._run_tests()  # those of the file as it was
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a" if block.continues else "w", encoding="utf-8") as out:
            out.write(f"\n\n{block.text}" if block.continues else block.text)

    def _run_script(self, block: Block) -> None:
        (self.folder / "example.py").write_text(block.text, encoding="utf-8")
        ran = self._call("python", "example.py")
        assert (ran.returncode, ran.stderr) == (0, ""), f"line {block.line}: {ran.stdout}{ran.stderr}"

    def _run_tests(self) -> None:
        """Those that were written since the last time: one pytest for all of them."""
        if not self._tests:
            return
        if not any((self.folder / name).exists() for name in ("pytest.ini", "pyproject.toml")):
            (self.folder / "pytest.ini").write_text(INI, encoding="utf-8")
        ran = self._call(*PYTEST, *self._tests)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        self._tests = []

    def _call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.folder, env=self._environ, capture_output=True, text=True, timeout=250, check=False
        )


def misnamed(folder: Path, blocks: Iterable[Block]) -> str:
    """What ruff says of names that are not there and of imports too many in blocks of Python."""
    for number, block in enumerate(block for block in blocks if block.language == "python"):
        if not block.continues:
            (folder / f"example_{number}.py").write_text(block.text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", str(folder)],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    return ran.stdout if ran.returncode else ""
