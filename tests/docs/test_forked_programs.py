"""What a page's shell starts is as if Python had started it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.project import MARK, marked, until
from tests.docs.forked_programs import ForkedPrograms

TELLING = """
import os, sys, tarry
print(sys.argv, sys.orig_argv[1:], sys.path, os.getcwd(), os.environ["MINE"], __name__, __file__, tarry.__file__)
print(sys.flags.optimize, sys.stdout.encoding, sys.stdin.isatty(), sys.warnoptions, "tests" in sys.modules)
sys.exit(int(sys.argv[1]))
"""


def environ_of(programs: ForkedPrograms, directory: Path, *, is_forked: bool = True) -> dict[str, str]:
    own = {"MINE": "sch\u00f6n \u201e\U0001f600\u201c\n", MARK: str(directory), "SPT_NOENV": "1"}
    path = f"{programs.bin}:{programs.environ['PATH']}" if is_forked else programs.environ["PATH"]
    return programs.environ | own | {"PATH": path}


@pytest.mark.parametrize(
    "words",
    [
        ("python", "inner/telling.py", "3"),
        ("python", "-m", "telling", "4"),
        ("python", "-O", "inner/telling.py", "0"),
        ("tarry", "jobs", "show"),
        ("tarry", "--version"),
    ],
)
def test_it_says_and_answers_the_same(programs: ForkedPrograms, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "inner").mkdir()
    for file in (tmp_path / "telling.py", tmp_path / "inner/telling.py"):
        file.write_text(TELLING)
    forked, real = (
        subprocess.run(
            words, cwd=tmp_path, env=environ_of(programs, tmp_path, is_forked=is_forked),
            capture_output=True, text=True, timeout=60, check=False, input="",
        )
        for is_forked in (True, False)
    )  # fmt: skip
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


def test_variables_that_python_reads_at_its_start_count(programs: ForkedPrograms, tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(TELLING)
    env = environ_of(programs, tmp_path) | {"PYTHONOPTIMIZE": "1"}
    said = subprocess.run(
        ["python", "telling.py", "0"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[-1].startswith("1 ")


def test_who_ends_the_program_ends_what_is_forked(programs: ForkedPrograms, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text("import time\nprint('waits', flush=True)\ntime.sleep(1000)\n")
    program = subprocess.Popen(
        ["python", "waiting.py"], cwd=tmp_path, env=environ_of(programs, tmp_path), stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    with program.stdout as said:
        assert said.readline() == b"waits\n"
        (forked,) = set(marked(str(tmp_path))) - {program.pid}
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(30) == -signal.SIGTERM
    until(lambda: forked not in marked(str(tmp_path)))
