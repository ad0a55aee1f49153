"""`tarry completion` in real shells: words are typed, and the shell completes them."""

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.cli.main import COMMAND_MODULES
from tarry.cli.project.completion import SHELLS
from tests.cli.project import Project

LIMIT = 30.0
PREPARED = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u -D; "),
}
COMMANDS = sorted(name for names in COMMAND_MODULES.values() for name in names)


class TypedShell:
    """An interactive shell in which `tarry` only shows with what it was called."""

    def __init__(self, name: str, script: Path) -> None:
        command, before = PREPARED[name]
        self._ours, theirs = pty.openpty()
        environ = {"PATH": os.environ["PATH"], "HOME": str(script.parent), "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, cwd=script.parent, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.written = ""
        self.type(f"{before}eval \"$(cat {script})\"; tarry() {{ echo \"called: $*;\"; }}; echo 'rea''dy;'\n", "ready;")

    def type(self, text: str, answer: str) -> None:
        """Waits until the answer is to be seen."""
        os.write(self._ours, text.encode())
        end = time.monotonic() + LIMIT
        while answer not in self.written:
            left = end - time.monotonic()
            assert left > 0, f"no {answer!r} in {self.written!r}"
            if select.select([self._ours], [], [], left)[0]:
                self.written += os.read(self._ours, 65536).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture(params=sorted(PREPARED))
def shell(request: pytest.FixtureRequest, project: Project) -> Iterator[TypedShell]:
    if not shutil.which(request.param):
        pytest.skip(f"no {request.param} here")
    shell = TypedShell(request.param, project.write("completion", project.said("completion", request.param)))
    yield shell
    shell.close()


def test_a_shell_completes_commands_options_and_files(shell: TypedShell) -> None:
    shell.type("tarry migr\t\n", "called: migrate")
    shell.type("tarry jobs can\t\n", "called: jobs cancel")
    shell.type("tarry demo --qui\t\n", "called: demo --quiet")
    shell.type("tarry --config tarry.t\t\n", "called: --config tarry.toml")


def test_fish_completes_commands_and_options(project: Project) -> None:
    if not shutil.which("fish"):
        pytest.skip("no fish here")
    script = project.write("completion.fish", project.said("completion", "fish"))
    for typed, offered in (("tarry migr", "migrate"), ("tarry jobs can", "cancel"), ("tarry demo --qui", "--quiet")):
        ran = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete --do-complete '{typed}'"],
            cwd=project.directory, env=project.environ, capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
        assert [line.split("\t")[0] for line in ran.stdout.splitlines()] == [offered], ran


@pytest.mark.parametrize("name", SHELLS)
def test_every_command_is_in_the_script(project: Project, name: str) -> None:
    script = project.said("completion", name)
    assert [command for command in COMMANDS if command not in script] == []


def test_without_the_extra_it_says_what_to_install(project: Project, base_only: Path) -> None:
    ran = subprocess.run(
        [base_only / "tarry", "completion", "bash"],
        cwd=project.directory, env=project.environ, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "tarry: completion needs shtab: pip install 'tarry[completion]'\n"


def test_a_shell_that_is_none_is_a_wrong_call(project: Project) -> None:
    ran = project.tarry("completion", "bsh")
    assert ran.status == 2
    assert "did you mean bash?" in ran.err
