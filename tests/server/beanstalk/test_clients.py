"""Clients that others wrote, in their own words and languages."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import greenstalk
import pystalk  # type: ignore[import-untyped]
import pytest

from tarry import App
from tests.docs.pages import ROOT
from tests.server.beanstalk.serving import ServedDoor, serving
from tests.servers import npm
from tests.servers.install import LIBRARIES
from tests.servers.server import Missing

PAGE = ROOT / "docs/beanstalk.md"
FOREIGN = sorted((Path(__file__).parent / "foreign").iterdir())
LANGUAGES = {".js": "node", ".php": "php", ".rb": "ruby"}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[ServedDoor]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    with serving(app) as door:
        yield door
    app.close()


def test_greenstalk(door: ServedDoor) -> None:
    address = ("127.0.0.1", door.port)
    with greenstalk.Client(address, use="mail", watch="mail") as client, greenstalk.Client(address) as other:
        first = client.put("hello", priority=10, ttr=30)
        second = client.put("later", delay=60)
        job = client.reserve(timeout=5)
        assert (job.id, job.body) == (first, "hello")
        client.touch(job)
        assert client.stats_job(job)["state"] == "reserved"
        client.release(job, priority=5, delay=0)
        job = client.reserve_job(first)
        client.bury(job)
        assert client.peek_buried().id == first
        assert client.kick(10) == 1
        client.kick_job(second)
        assert [client.reserve(timeout=5).id for _ in range(2)] == [first, second]
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)
        with pytest.raises(greenstalk.NotFoundError):
            other.delete(first)
        for id in (first, second):
            client.delete(id)
        with pytest.raises(greenstalk.NotFoundError):
            client.peek(first)
        assert set(client.tubes()) == {"default", "mail"}
        assert (client.using(), client.watching()) == ("mail", ["mail"])
        stats = client.stats_tube("mail")
        assert (stats["total-jobs"], stats["cmd-delete"], stats["current-jobs-ready"]) == (2, 2, 0)
        assert client.stats()["current-connections"] == 2
        client.pause_tube("mail", 60)
        assert client.stats_tube("mail")["pause"] == 60
        with pytest.raises(greenstalk.JobTooBigError):
            client.put("x" * 65536)


def test_pystalk(door: ServedDoor) -> None:
    client = pystalk.BeanstalkClient("127.0.0.1", door.port, auto_decode=True)
    client.put_job_into("mail", "one", pri=5)
    client.put_job_into("mail", "two", pri=4)
    client.watch("mail")
    bodies = []
    for job in client.reserve_iter():
        bodies.append(job.job_data)
        client.delete_job(job)
    assert bodies == ["two", "one"]
    client.use("mail")
    client.put_job("three", delay=100)
    assert next(iter(client.peek_delayed_iter())).job_data == "three"
    client.pause_tube("mail", 30)
    client.unpause_tube("mail")
    assert client.stats_tube("mail")["pause-time-left"] == 0
    with pytest.raises(pystalk.BeanstalkError):
        client.delete_job(123)
    client.close()


def test_the_example_of_the_page(door: ServedDoor, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "11300" in program
    (tmp_path / "example.py").write_text(program.replace("11300", str(door.port)))
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", FOREIGN, ids=lambda program: program.name)
def test_clients_of_other_languages(door: ServedDoor, program: Path) -> None:
    """Each puts a job, reserves, touches, releases, buries, kicks and deletes it; its numbers are not rounded."""
    language = LANGUAGES[program.suffix]
    library = [file for package, file in LIBRARIES.items() if program.stem in package]
    if not shutil.which(language) or not all(file.exists() for file in library):
        pytest.skip(f"{language} or its client is not installed: make servers")
    try:
        environment = npm.environment() if language == "node" else None
    except Missing as missing:
        pytest.skip(str(missing))
    command = [language, str(program), str(door.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert b"current-jobs-ready: 0\n" in door.client().ask("stats\r\n")
