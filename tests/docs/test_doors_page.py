"""docs/doors.md is true: each of its commands and programs is run against a server under a master."""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import Project, until
from tests.docs.pages import blocks_of
from tests.servers.server import free_port

ADDRESS = "localhost:7800"
# Fails where the status says so, with the body; the page's own way is shorter.
CURL = 'set -e\ncurl() { command curl --fail-with-body -sS --max-time 60 "$@"; }\n'


def blocks(language: str) -> list[str]:
    return [block.text for block in blocks_of("docs/doors.md", language)]


def script(block: str) -> str:
    """The block, with a check after each command: it fails if, and only if, its comment says so."""
    lines = []
    for line in block.splitlines():
        command, _, status = line.partition("      # ")
        if status:
            lines.append(f"answer=$({command} -w ' %{{http_code}}' || true); echo \"$answer\"")
            lines.append(f'[[ "$answer" == *" {status}" ]]')
        else:
            lines.append(command)
            lines.append("echo")
    return CURL + "\n".join(lines)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Project]:
    place = Project(tmp_path)
    yield place
    place.close()


def _serve(place: Project) -> int:
    """Starts a master with the settings of the page; returns the port once its server is ready."""
    port = free_port()
    (settings,) = blocks("toml")
    place.settings(settings.replace("7800", str(port)))
    place.serve()

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    until(is_ready)
    return port


def _make_a_flow(place: Project) -> None:
    """The one that the page looks at."""
    lines = ("from app import add, app", "with app.flow('order', key='7') as flow:", "    flow.add(add.call(1))")
    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=place.directory, env=place.environ, check=True)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="no curl or no jq here")
def test_its_commands_work(place: Project) -> None:
    port = _serve(place)
    _make_a_flow(place)
    found = blocks("sh")
    assert len(found) >= 9
    for block in found:
        text = script(block).replace(ADDRESS, f"127.0.0.1:{port}")
        done = subprocess.run(
            ["bash", "-c", text], cwd=place.directory, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        if "soon" in block:
            assert done.stdout.rpartition(" ")[0].replace(" ", "") == _shown_problem()


LANGUAGES = {
    "python": ("program.py", (sys.executable, "program.py")),
    "js": ("program.mjs", ("node", "program.mjs")),
    "php": ("program.php", ("php", "program.php")),
    "ruby": ("program.rb", ("ruby", "program.rb")),
    "go": ("program.go", ("go", "run", "program.go")),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_its_program_works(place: Project, language: str) -> None:
    file, command = LANGUAGES[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    port = _serve(place)
    # The others run in tests of their own, here and in tests/server/test_asgi.py.
    (program,) = [block for block in blocks(language) if "def test_" not in block and "django" not in block]
    (place.directory / file).write_text(program.replace(ADDRESS, f"127.0.0.1:{port}"))
    # Go compiles its library anew where it has no cache.
    environ = {**os.environ, "GOCACHE": str(place.directory / "cache"), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        command, cwd=place.directory, env=environ, capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stdout) == (0, "14\n"), done.stderr


def _shown_problem() -> str:
    (shown,) = blocks("json")
    return re.sub(r"\s", "", shown)


def test_its_python_runs(tmp_path: Path, installed: dict[str, str]) -> None:
    (block,) = [block for block in blocks("python") if "def test_" in block]
    (tmp_path / "test_example.py").write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    done = subprocess.run(
        command, cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
