"""`tarry init`: what it writes works as it is."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tarry
from tests.cli.project import Project, until


def test_init_writes_what_works_end_to_end(empty: Project) -> None:
    said = empty.said("init")
    assert "tarry start" in said
    assert "All is well." in empty.said("check")
    empty.serve()
    id = empty.enqueue("app.hello", '["Ann"]')
    until(lambda: empty.job(id).state == "done")
    assert '"Hello, Ann!"' in str(empty.job(id).note)
    assert empty.said("stop") == "stopped"


@pytest.mark.parametrize("name", ["app.py", "tarry.toml"])
def test_init_overwrites_nothing(empty: Project, name: str) -> None:
    empty.write(name, "# mine\n")
    before = set(empty.directory.iterdir())
    assert empty.refused("init") == f"already there: {name}; nothing was written"
    assert set(empty.directory.iterdir()) == before
    assert (empty.directory / name).read_text() == "# mine\n"


def ask(url: str, method: str = "GET") -> Any:
    """The JSON answer; None as long as nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
    except (urllib.error.URLError, ConnectionError):
        pass
    return None


def test_its_web_application_works_as_it_is(empty: Project) -> None:
    assert "uvicorn web:web" in empty.said("init", "--fastapi")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "web:web", "--port", str(port)]
    web = subprocess.Popen(command, cwd=empty.directory, env=empty.environ, stderr=subprocess.DEVNULL)
    here = f"http://127.0.0.1:{port}"
    try:
        id = until(lambda: ask(f"{here}/reports?name=Ann", "POST"))["id"]
        with urllib.request.urlopen(f"{here}/reports/{id}/events", timeout=60) as stream:
            told = stream.read().decode()
        assert '"progress":{"fraction":1.0,"message":"page 5 of 5"}' in told
        assert told.endswith("event: end\ndata: {}\n\n")
        assert ask(f"{here}/reports/{id}") == {"id": id, "state": "done", "result": "5 pages for Ann"}
        assert ask(f"{here}/reports/nonsense") is None
        web.send_signal(signal.SIGINT)
        web.wait(30)
    finally:
        web.kill()
        web.wait()
    assert "All is well." in empty.said("check")


def test_what_it_writes_passes_the_checks_of_a_strict_house(empty: Project) -> None:
    """An import too many, a name that is not there. Of types, `make lint` says whether they fit: it has those of all
    that is imported already, to find which takes a quarter of a minute. Here is all that it can write."""
    empty.said("init", "--fastapi")
    files = sorted(empty.directory.glob("*.py"))
    starters = Path(tarry.__file__).parent / "cli/project/starters/fastapi"
    assert [file.read_text() for file in files] == [file.read_text() for file in sorted(starters.glob("*.py"))]
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,B", *files],
        cwd=empty.directory, env=empty.environ, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_there_is_one_kind_of_project(empty: Project) -> None:
    ran = empty.tarry("init", "--plain", "--fastapi")
    assert (ran.status, "not allowed with argument --plain" in ran.err) == (2, True)


def test_init_speaks_json(empty: Project) -> None:
    assert empty.facts("init") == {"written": ["tarry.toml", "app.py"]}


def test_init_where_one_may_not_write(empty: Project) -> None:
    (empty.directory / "tarry.toml").symlink_to("/proc/tarry.toml")
    told = empty.refused("init")
    assert told.startswith(f"{empty.directory}/tarry.toml cannot be written (")
    assert told.endswith("): run it where you may write")
