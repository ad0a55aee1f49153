"""Programs of an earlier build and of this one on one store at the same time: what one writes the other reads."""

import io
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.once import made_once
from tests.runtime.master_harness import until
from tests.system.test_rolling_upgrade import Host, have_ended, lines
from tests.wheel import ROOT

EARLIER = "9d02e387b0"
"""The build before this one that it runs beside, as long as there is no release; then the last tag is."""
KINDS = ("plain", "retried", "stepped", "chained", "scheduled")
"""What is put again and again, by both."""
EACH = 8
"""How often each version has to put all kinds, and how many jobs it has to run."""
APP = """
import os
from tarry import App, Retry, current_job, sleep, step

app = App()

def note(kind, number):
    with open("ran", "a") as file:
        file.write(f"{os.environ['VERSION']} {kind} {number}\\n")

@app.task
def plain(number: int) -> int:
    assert current_job().labels["n"] == str(number)
    current_job().progress(0.5, "half")
    note("plain", number)
    return number

@app.task(retry=Retry(3, base=0.01))
def retried(number: int) -> None:
    if current_job().attempt == 1:
        raise ValueError("the first one fails")
    note("retried", number)

@app.task
def stepped(number: int) -> None:
    assert step(str, number) == str(number)
    sleep("1s")
    note("stepped", number)

@app.task
def chained(number: int) -> None:
    note("chained", number)

@app.task
def scheduled(number: int) -> None:
    note("scheduled", number)
"""
PRODUCE = """
import datetime, os, sys
from app import app, chained, plain, retried, scheduled, stepped

for number in range(int(sys.argv[1]), 10**9, 2):
    if os.path.exists("enough"):
        break
    labelled = plain.using(labels={"n": str(number)})
    labelled.enqueue(number)
    retried.enqueue(number)
    stepped.enqueue(number)
    app.chain(labelled.call(number), chained.call())
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    app.schedules.put(f"once:{number}", scheduled.call(number), at=soon)
    with open("put", "a") as file:
        file.write(f"{os.environ['VERSION']} {number}\\n")
"""
SETTINGS = """
app = "app:app"
store = "{url}"
[master]
pid_file = "{version}.pid"
log_level = "warning"
"""


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout


def _earlier() -> str:
    """The commit of the last release, or of EARLIER. Skips where the history is not here."""
    try:
        tags = _git("tag", "--merged", "HEAD~1", "--sort", "-v:refname", "v*").decode().split()
        if not tags and sys.version_info >= (3, 14):
            pytest.skip("the commands of the earlier build do not run on this Python")
        return _git("rev-parse", "--verify", "--quiet", f"{(tags or [EARLIER])[0]}^{{commit}}").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no history of an earlier build here")


def _extract(commit: str, to: Path) -> None:
    # A wheel would have the same modules, and take longer.
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, "tarry"))) as tree:
        tree.extractall(to, filter="data")


SERVERS = ("redis", "new_postgres_url", "new_mariadb_url")


@pytest.fixture(params=["sqlite", *(pytest.param(one, marks=pytest.mark.deep) for one in SERVERS)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/x.db"
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        server.empty()
        return str(server.url)
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def host(
    store_url: str, installed: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Host]:
    """A host of the build `earlier` or of the one `now`."""
    commit = _earlier()
    earlier = made_once(tmp_path_factory, "earlier", lambda to: _extract(commit, to))
    for name, text in (("app.py", APP), ("produce.py", PRODUCE)):
        (tmp_path / name).write_text(text)
    # Producers have no file of their own.
    for name in ("earlier", "now", "tarry"):
        (tmp_path / f"{name}.toml").write_text(SETTINGS.format(url=store_url, version=name))
    libraries = {"earlier": earlier, "now": Path(installed["PYTHONPATH"])}
    return lambda version: Host(version, libraries[version], installed, tmp_path)


def test_an_earlier_build_and_this_one_read_each_other(host: Callable[[str], Host], tmp_path: Path) -> None:
    hosts = {version: host(version) for version in ("earlier", "now")}
    put, enough = tmp_path / "put", tmp_path / "enough"
    with ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []
        for number, (version, one) in enumerate(hosts.items()):
            for words in (("produce.py", str(number)), ("-m", "tarry", "-c", f"{version}.toml", "start")):
                running.append(stack.enter_context(one.start(*words)))
                stack.callback(running[-1].kill)
            # The earlier one makes the tables.
            until(lambda one=one: min(one.count("put"), one.count("ran")) > 0)  # type: ignore[misc]
        until(lambda: min(one.count(file) for one in hosts.values() for file in ("put", "ran")) >= EACH)
        enough.touch()
        until(lambda: have_ended(running, "produce.py"))
        numbers = {line.split()[1] for line in lines(put)}
        until(lambda: _ran(tmp_path) >= {(kind, number) for kind in KINDS for number in numbers}, 120)
        for version, one in hosts.items():
            for command in ("jobs", "schedules", "status"):
                assert one.run("-c", f"{version}.toml", "--json", command) == (0, "")
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in running] == [0] * len(running)
    assert [line for line in lines(tmp_path / "said") if " failed, dead: " in line or "Traceback" in line] == []


def _ran(directory: Path) -> set[tuple[str, str]]:
    """The kinds and numbers that have run."""
    return {(kind, number) for _, kind, number in map(str.split, lines(directory / "ran"))}
