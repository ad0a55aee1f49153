"""README.md holds what it says; docs/push.md begins as a reader types it; every command of the pages is one."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.cli.main import parser
from tests.docs.pages import PAGES, ROOT, blocks_of, text_of


def run(directory: Path, environ: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, cwd=directory, env=environ, capture_output=True, text=True, timeout=250, check=False
    )  # fmt: skip


def test_the_first_example_prints_what_the_task_returned(tmp_path: Path, installed: dict[str, str]) -> None:
    (tmp_path / "hello.py").write_text(blocks_of("README.md", "python")[0].text)
    ran = run(tmp_path, installed, "python", "hello.py")
    assert re.fullmatch(r"[0-9a-f-]{36} sent to Ann\n", ran.stdout), ran
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".db-wal")[0] == "hello.py"


FIGURE = re.compile(r"^\|.*\| ([\d.,]+(?: ms)?) \|$", re.MULTILINE)


def test_the_readme_is_one_screen_and_its_make_commands_are_there() -> None:
    text = text_of("README.md")
    assert len(text.splitlines()) <= 60
    (block,) = blocks_of("README.md", "sh")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    typed = [line.split()[:2] for line in block.text.splitlines()]
    assert typed == [["make", "demo"], ["make", "test"]]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for _, target in typed)


def test_an_older_python_is_told_so_before_anything_is_made(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    older = tmp_path / "python3"
    older.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 4); exec(sys.argv[1])' \"$2\"\n"
    )
    older.chmod(0o755)
    words = ("make", "-f", str(ROOT / "Makefile"), f"PYTHON={older}", "demo")
    ran = run(tmp_path, dict(os.environ), *words)
    told = f"tarry needs Python {project['requires-python'].removeprefix('>=')} or newer, and {older} is 3.10: "
    assert told in ran.stderr, ran
    assert ran.returncode
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_four_figures_are_those_that_were_measured(page: str) -> None:
    measured = re.sub(r"\*\*", "", text_of("docs/performance.md"))
    figures = FIGURE.findall(text_of(page))
    assert len(figures) == 4
    rows = [row for row in measured.splitlines() if "SQLite" in row]
    assert [figure for figure in figures if not any(f"| {figure} |" in row for row in rows)] == []


def commands() -> list[tuple[str, str]]:
    """What is typed at a shell: pages, and lines that call tarry."""
    return [
        (page, line.removeprefix("$ "))
        for page in PAGES
        for block in blocks_of(page)
        if block.language in ("sh", "")
        for line in block.text.splitlines()
        if line.removeprefix("$ ").startswith("tarry ")
    ]


def test_every_command_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = commands()
    assert len(found) >= 15
    for page, line in found:
        try:
            parser().parse_args(shlex.split(line, comments=True)[1:])
        except SystemExit:
            pytest.fail(f"{page}: {line}: {capsys.readouterr().err}")


class Shell:
    """A directory in which commands are typed; what was started is stopped at the end."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.directory, self.environ = directory, dict(environ)
        self.said = ""

    def type(self, line: str) -> None:
        line = line.replace(" ID", f" {self.said}")
        if line.startswith("export "):
            name, _, text = line.removeprefix("export ").partition("=")
            self.environ[name] = run(self.directory, self.environ, "sh", "-c", f"printf %s {text}").stdout
        else:
            ran = run(self.directory, self.environ, "sh", "-c", line)
            assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
            self.said = ran.stdout.strip()

    def close(self) -> None:
        run(self.directory, self.environ, "tarry", "quit")


@pytest.fixture
def shell(tmp_path: Path, installed: dict[str, str]) -> Iterator[Shell]:
    shell = Shell(tmp_path, installed)
    yield shell
    shell.close()


def lines(page: str, first: str) -> list[str]:
    """The commands of the block of a page that begins so, without their remarks."""
    (block,) = [block for block in blocks_of(page, "sh") if block.text.startswith(first)]
    found = [re.sub(r"\s+#.*", "", line).strip() for line in block.text.splitlines()]
    return [line for line in found if line and not line.startswith(("pip ", "#"))]


def test_the_start_in_the_page_of_push(shell: Shell) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    for line in lines("docs/push.md", "pip install"):
        shell.type(line)
    settings = [block.text for block in blocks_of("docs/push.md", "toml")]
    with (shell.directory / "tarry.toml").open("a") as file:
        file.write(settings[0])
    for line in lines("docs/push.md", "export"):
        shell.type(line)
    assert "order.timeout" in shell.said
    assert os.listdir(shell.directory / "run")
