"""Stopping while the store is away: over within the grace, whatever a worker is at, and it says what it waited for."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry.store.opening import open_store
from tests.away.proxy import Proxy
from tests.cli.project import Project, until
from tests.servers.redis import RedisServer

GRACE = 8.0
SLACK = 2.5
"""Seconds: of the grace, and what the machine may add."""
APP = """
import pathlib, time
from tarry import App
app = App()

@app.task
def wait() -> None:
    pathlib.Path("began").write_text("")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    pathlib.Path("ended").write_text("")
"""


class Far(Project):
    """A place whose store is behind a proxy."""

    def __init__(self, directory: Path, server: RedisServer) -> None:
        self.proxy = Proxy(server.port)
        super().__init__(directory, APP, f'store = "redis://127.0.0.1:{self.proxy.port}/0"\n[master]\nterm_grace = 8\n')

    def work(self) -> "subprocess.Popen[bytes]":
        """`tarry worker`, once it runs jobs."""
        with self.log_file.open("ab") as log:
            command = [sys.executable, "-m", "tarry", "worker"]
            worker = subprocess.Popen(command, cwd=self.directory, env=self.environ, stdout=log, stderr=log)
        self._masters.append(worker)
        until(lambda: "runs jobs" in self.log())
        return worker

    def is_there(self, name: str) -> bool:
        return (self.directory / name).exists()

    def seconds(self, end: Callable[[], object], gone: Callable[[], bool]) -> float:
        began = time.monotonic()
        end()
        until(gone, 40)
        return time.monotonic() - began


@pytest.fixture
def far(tmp_path: Path, redis_server: RedisServer) -> Iterator[Far]:
    redis_server.empty()
    far = Far(tmp_path, redis_server)
    yield far
    far.proxy.passes()
    far.close()
    far.proxy.close()


OUTAGES = {"refusing": Proxy.refuses, "silent": Proxy.is_silent}


def ended_in_vain(far: Far, outage: str, after: float) -> None:
    """A job has ended, and the store has been away for so many seconds."""
    far.tarry("enqueue", "app.wait")
    until(lambda: far.is_there("began"))
    OUTAGES[outage](far.proxy)
    far.write("go", "")
    until(lambda: far.is_there("ended"))
    time.sleep(after)


@pytest.mark.parametrize(
    ("after", "number", "outage"),
    [  # each with each of the others
        pytest.param(0.2, signal.SIGINT, "refusing", id="just now-int-refusing"),
        pytest.param(0.2, signal.SIGTERM, "silent", id="just now-term-silent"),
        pytest.param(7.0, signal.SIGINT, "silent", id="for long-int-silent"),
        pytest.param(7.0, signal.SIGTERM, "refusing", id="for long-term-refusing"),
    ],
)
def test_a_master_ends_within_its_grace(far: Far, outage: str, number: int, after: float) -> None:
    """Also with an outcome that could not be settled, which the log names."""
    master = far.serve()
    ended_in_vain(far, outage, after)
    took = far.seconds(lambda: master.send_signal(number), lambda: master.poll() is not None)
    assert took < GRACE + SLACK, far.log()
    assert "ends without the store (" in far.log()
    assert "what became of 1 job is not stored; to be run again: app.wait " in far.log()


@pytest.mark.parametrize(("number", "outage"), [(signal.SIGINT, "refusing"), (signal.SIGTERM, "silent")])
def test_a_worker_without_a_master_ends_within_its_grace(far: Far, outage: str, number: int) -> None:
    worker = far.work()
    ended_in_vain(far, outage, 0.2)
    took = far.seconds(lambda: worker.send_signal(number), lambda: worker.poll() is not None)
    assert took < GRACE + SLACK, far.log()
    assert "what became of 1 job is not stored; to be run again: app.wait " in far.log()


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_master_with_nothing_to_do_ends_soon(far: Far, outage: str) -> None:
    master = far.serve()
    OUTAGES[outage](far.proxy)
    # The master waits less for a keeper of which it knows that it cannot reach the store.
    until(lambda: "trying again" in far.log() and far.board().notice.away)
    took = far.seconds(lambda: master.send_signal(signal.SIGTERM), lambda: master.poll() is not None)
    assert took < GRACE + SLACK, far.log()


def test_stop_says_that_it_waits_for_the_store(far: Far) -> None:
    far.serve()
    ended_in_vain(far, "refusing", 0)
    until(lambda: far.board().notice.away)
    said = far.tarry("stop")
    assert said.status == 0
    assert "waiting for the store, which is away: 127.0.0.1:" in said.err
    assert "stopping while the store is away, which is waited for: 127.0.0.1:" in far.log()


def test_what_comes_back_in_time_is_settled(far: Far, redis_server: RedisServer) -> None:
    master = far.serve()
    ended_in_vain(far, "refusing", 1)
    master.send_signal(signal.SIGINT)
    until(lambda: "waits for the store to settle 1 job: " in far.log())
    far.proxy.passes()
    assert master.wait(30) == 0
    assert "not stored" not in far.log()
    store = open_store(redis_server.url)
    try:
        assert [tally.state for tally in store.counts()] == ["done"]
    finally:
        store.close()
