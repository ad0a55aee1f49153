"""Whoever forks in tarry has no other thread: its child could wait for a lock without end, and Python warns of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tarry
from tests.cli.project import Project, until

ROOT = Path(tarry.__file__).parent
FORKING = {"runtime/child_process.py", "runtime/daemon.py", "runtime/upgrades.py"}
"""All of the master. Workers, keepers and servers, which have threads, fork nothing."""
NOTE_FORKS = """
import os, sys

def note(event, args):
    if event == "os.fork":
        threads, code = len(os.listdir("/proc/self/task")), sys._getframe(1).f_code
        with open(os.environ["FORKS"], "a") as file:
            file.write(f"{threads} {os.path.basename(code.co_filename)}\\n")

sys.addaudithook(note)
"""
SETTINGS = """
store = "sqlite:///tarry.db"
[master]
log_format = "json"
[pools.default]
workers = { min = 1, max = 3 }
[server]
http = "unix:tarry.sock"
"""


@pytest.fixture
def forks(project: Project) -> Path:
    """The file in which each fork of a process of the project is noted."""
    (project.directory / "site").mkdir()
    project.write("site/sitecustomize.py", NOTE_FORKS)
    project.settings(SETTINGS)
    return project.directory / "forks"


def run(project: Project, forks: Path, *words: str) -> None:
    environ = project.environ | {"FORKS": str(forks), "PYTHONPATH": str(project.directory / "site")}
    ran = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-m", "tarry", *words],
        cwd=project.directory, env=environ, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr + project.log()


def test_the_master_has_one_thread_whenever_it_forks(project: Project, forks: Path) -> None:
    run(project, forks, "start", "-d")
    run(project, forks, "reload")
    (worker,) = project.pids()
    os.kill(worker, 9)
    until(lambda: project.pids() not in ([], [worker]))
    run(project, forks, "scale", "default", "2")
    until(lambda: len(project.pids()) == 2)
    run(project, forks, "upgrade")
    run(project, forks, "stop")
    noted = [line.split() for line in forks.read_text().splitlines()]
    assert {file for _, file in noted} == {Path(name).name for name in FORKING}
    assert {threads for threads, _ in noted} == {"1"}


def test_nobody_else_forks() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if "os.fork(" in path.read_text()}
    assert found == FORKING
    assert [path for path in ROOT.rglob("*.py") if "multiprocessing.get_context" in path.read_text()] == []
