"""README and docs, as a reader goes by them: with tarry installed from its wheel, in a directory that is empty."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.cli.main import parser
from tarry.config import load
from tests.cli.project import until
from tests.test_docs import ROOT

PAGES = ["README.md", "deploy/README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OTHERS_HOLD = {
    "docs/tasks.md": {"python"},
    "docs/push.md": {"python", "toml", "js", "php", "go"},
    "docs/doors.md": {"python", "toml", "sh", "json", "js", "php", "ruby", "go"},
    "docs/beanstalk.md": {"python"},
}
"""Which blocks of a page have a test of their own: tests/test_docs.py, test_push_page.py, test_doors_page.py,
door/beanstalk/test_clients.py."""
NOT_RUN = {"mermaid", "js", "php", "ruby", "go", "json"}


class Block(NamedTuple):
    page: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}-{self.number}"


def blocks(*languages: str, own: bool = True) -> list[Block]:
    """Those of these languages; own: without those that have tests elsewhere."""
    found = [
        Block(page, number, language, text)
        for page in PAGES
        for number, (language, text) in enumerate(_FENCED.findall((ROOT / page).read_text(encoding="utf-8")))
    ]
    return [
        block
        for block in found
        if block.language in languages and not (own and block.language in OTHERS_HOLD.get(block.page, ()))
    ]


def every(*languages: str) -> pytest.MarkDecorator:
    found = blocks(*languages)
    return pytest.mark.parametrize("block", found, ids=[block.name for block in found])


def run(directory: Path, environ: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, cwd=directory, env=environ, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


def test_every_block_is_of_a_language_that_is_looked_at() -> None:
    known = {"python", "toml", "sh", ""} | NOT_RUN
    found = {language for page in PAGES for language, _ in _FENCED.findall((ROOT / page).read_text(encoding="utf-8"))}
    assert found <= known
    assert [block.name for block in blocks("", own=False) if re.search(r"^(import|from|app\.|def) ", block.text)] == []


@every("python")
def test_its_python_is_a_script_that_runs(block: Block, tmp_path: Path, installed: dict[str, str]) -> None:
    settings = [other.text for other in blocks("toml") if other.page == block.page == "README.md"]
    if "reads tarry.toml" in block.text:
        (tmp_path / "tarry.toml").write_text("".join(settings))
    (tmp_path / "hello.py").write_text(block.text)
    ran = run(tmp_path, installed | {"ORDER_SECRET": "a secret of tests"}, "python", "hello.py")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_first_example_prints_what_the_task_returned(tmp_path: Path, installed: dict[str, str]) -> None:
    (tmp_path / "hello.py").write_text(blocks("python")[0].text)
    ran = run(tmp_path, installed, "python", "hello.py")
    assert re.fullmatch(r"[0-9a-f-]{36} sent to Ann\n", ran.stdout), ran
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".db-wal")[0] == "hello.py"


@every("toml")
def test_its_settings_load(block: Block, tmp_path: Path) -> None:
    """Also each alternative that is commented out."""
    file = tmp_path / "tarry.toml"
    for text in (block.text, *re.findall(r"^# (\w+ = .*)", block.text, re.MULTILINE)):
        file.write_text(text)
        load(file, {})


def commands() -> list[tuple[str, str]]:
    """What is typed at a shell: pages, and lines that call tarry."""
    return [
        (block.page, line.removeprefix("$ "))
        for block in blocks("sh", "", own=False)
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
        self.masters: list[subprocess.Popen[bytes]] = []
        self.said = ""

    def type(self, line: str) -> None:
        line = line.replace(" ID", f" {self.said}")
        if line == "tarry start":
            self._start()
        elif line.startswith("export "):
            name, _, text = line.removeprefix("export ").partition("=")
            self.environ[name] = run(self.directory, self.environ, "sh", "-c", f"printf %s {text}").stdout
        else:
            ran = run(self.directory, self.environ, "sh", "-c", line)
            assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
            self.said = ran.stdout.strip()

    def _start(self) -> None:
        self.masters.append(
            subprocess.Popen(
                ["tarry", "start"], cwd=self.directory, env=self.environ, stderr=subprocess.DEVNULL
            )
        )  # fmt: skip
        until(lambda: run(self.directory, self.environ, "tarry", "status").returncode == 0)

    def finished(self, id: str) -> None:
        """Waits for the end of a job."""
        until(lambda: "done" in run(self.directory, self.environ, "tarry", "jobs", "show", id).stdout)

    def close(self) -> None:
        run(self.directory, self.environ, "tarry", "quit")
        for master in self.masters:
            master.send_signal(signal.SIGKILL)
            master.wait(30)


@pytest.fixture
def shell(tmp_path: Path, installed: dict[str, str]) -> Iterator[Shell]:
    shell = Shell(tmp_path, installed)
    yield shell
    shell.close()


def lines(page: str, first: str) -> list[str]:
    """The commands of the block of a page that begins so, without their remarks."""
    (block,) = [block for block in blocks("sh", own=False) if block.page == page and block.text.startswith(first)]
    found = [re.sub(r"\s+#.*", "", line).strip() for line in block.text.splitlines()]
    return [line for line in found if line and not line.startswith(("pip ", "#"))]


def test_the_start_in_readme(shell: Shell) -> None:
    typed = lines("README.md", "pip install")
    assert [line.split()[1] for line in typed] == ["init", "start", "enqueue", "status", "stop"]
    for line in typed:
        shell.type(line)
        if line.startswith("tarry enqueue"):
            shell.finished(shell.said)
    assert shell.masters[0].wait(30) == 0


def test_the_start_in_the_page_of_push(shell: Shell) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    for line in lines("docs/push.md", "pip install"):
        shell.type(line)
    settings = [block.text for block in blocks("toml", own=False) if block.page == "docs/push.md"]
    with (shell.directory / "tarry.toml").open("a") as file:
        file.write(settings[0])
    for line in lines("docs/push.md", "export"):
        shell.type(line)
    assert "order.timeout" in shell.said
    assert os.listdir(shell.directory / "run")
