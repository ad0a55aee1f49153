"""A forked command is what a real one is."""

import signal
import subprocess
import sys

import pytest

from tests.cli.forked import TarryProcess
from tests.cli.project import Project, alive, marked, until

TELLING = """
import os, sys
print(os.getcwd(), sys.path[0], sys.argv[1:], sys.orig_argv[1:], sys.modules["__main__"].__spec__.name,
      os.environ["MINE"], sys.stdout.encoding, sys.stdout.isatty(), sys.stdin.isatty(), sys.warnoptions)
print(os.listdir("/proc/self/fd"))
from app import app
"""


@pytest.mark.parametrize("words", [("-a", "telling", "jobs"), ("jobs", "show"), ("--version",), ("nonsense",)])
def test_it_says_and_answers_the_same(project: Project, words: tuple[str, ...]) -> None:
    project.write("telling.py", TELLING)
    env = project.environ | {"MINE": "yes"}
    command = [sys.executable, "-m", "tarry", *words]
    real = subprocess.run(
        command, cwd=project.directory, env=env, capture_output=True, text=True, input="", check=False
    )
    assert project.tarry(*words, MINE="yes") == (real.returncode, real.stdout, real.stderr)


def test_it_closes_its_database(project: Project) -> None:
    project.enqueue("app.add", "1")
    assert [file.name for file in project.directory.glob("tarry.db*") if file.suffix != ".lock"] == ["tarry.db"]


def test_variables_that_python_reads_at_its_start_count(project: Project) -> None:
    project.write("app.py", "import sys\nprint(sys.flags.optimize)\nfrom tarry import App\napp = App()\n")
    assert project.said("check").startswith("0\n")
    assert project.said("check", PYTHONOPTIMIZE="1").startswith("1\n")


def test_who_kills_it_is_told_and_what_it_leaves_is_found(project: Project) -> None:
    master = project.serve()
    assert isinstance(master, TarryProcess)
    assert set(marked(str(project.directory))) == {master.pid, *project.pids(), *project.pids("keeper")}
    with pytest.raises(subprocess.TimeoutExpired):
        master.wait(0.01)
    master.kill()
    assert master.wait() == master.poll() == -signal.SIGKILL
    until(lambda: not any(map(alive, marked(str(project.directory)))))
