"""What was counted is what the store has, also if a process or the server is killed at any moment."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tarry.model.change import DEAD, DONE, FAILED, PUT
from tarry.model.job import State
from tarry.store.opening import open_store
from tarry.store.rules.base import Query, Store
from tarry.store.rules.history.sums import LENGTH, decode
from tests.servers.redis import RedisServer

ALL = 10**6
KILLS = 12


@pytest.fixture
def aof_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Writes each command to its append-only file."""
    server = RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "everysec")
    server.start()
    yield server
    server.stop()


def start(url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.store.history_writer", url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def work(writer: subprocess.Popen[bytes], calls: int) -> None:
    """Waits until the writer has made so many calls."""
    assert writer.stdout is not None
    assert len(writer.stdout.read(calls)) == calls, "the writer failed by itself"


def end(writer: subprocess.Popen[bytes]) -> None:
    writer.kill()
    writer.wait(30)
    assert writer.stdout is not None
    writer.stdout.close()


def counted(store: Store, resolution: int) -> tuple[Counter[int], Counter[int]]:
    """How often each kind and each status was counted; sums up what is left."""
    for _ in range(10_000):
        if not store.history.sum_up(store.time()):
            break
    kinds, statuses = Counter[int](), Counter[int]()
    for cell in store.history.read(resolution, 0, 2**40).values():
        sums = decode(cell)
        kinds.update(sums.kinds)
        statuses.update(sums.statuses)
    return kinds, statuses


def check_counts(url: str) -> int:
    """Compares the history with the jobs; returns how many jobs there are."""
    with closing(open_store(url)) as store:
        jobs = store.find(Query(limit=ALL))
        states = Counter(job.state for job in jobs)
        failures = sum(job.failures for job in jobs)
        for resolution in LENGTH:
            kinds, statuses = counted(store, resolution)
            assert kinds[PUT] == len(jobs)
            assert (kinds[DONE], kinds[DEAD]) == (states[State.DONE], states[State.DEAD])
            assert kinds[FAILED] + kinds[DEAD] == failures == statuses[404] + statuses[500]
            assert sum(kinds.values()) == kinds[PUT] + kinds[DONE] + kinds[FAILED] + kinds[DEAD]
        assert store.history.unsummed(1) == []
        return len(jobs)


def kill_often(url: str, dice: random.Random) -> None:
    before = 0
    for _ in range(KILLS):
        writer = start(url)
        try:
            work(writer, dice.randrange(5, 40))
        finally:
            end(writer)
        found = check_counts(url)
        assert found > before, "nothing was put"
        before = found


def test_a_process_is_killed_that_uses_sqlite(tmp_path: Path) -> None:
    kill_often(f"sqlite:///{tmp_path}/jobs.db", random.Random(1))


def test_a_process_is_killed_that_uses_redis(aof_server: RedisServer) -> None:
    kill_often(aof_server.url, random.Random(2))


def test_the_redis_server_is_killed(aof_server: RedisServer) -> None:
    """It has its append-only file then."""
    dice, before = random.Random(3), 0
    for _ in range(KILLS // 2):
        writers = [start(aof_server.url) for _ in range(2)]
        try:
            for writer in writers:
                work(writer, dice.randrange(5, 40))
            aof_server.kill()
            aof_server.start()
        finally:
            for writer in writers:
                end(writer)
        found = check_counts(aof_server.url)
        assert found > before, "nothing was put"
        before = found


def test_two_processes_sum_up_while_a_third_is_killed(tmp_path: Path) -> None:
    """Each sums up what the others counted."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    writers = [start(url) for _ in range(2)]
    try:
        for calls in (20, 30, 40):
            third = start(url)
            try:
                work(third, calls)
            finally:
                end(third)
        for writer in writers:
            work(writer, 20)
    finally:
        for writer in writers:
            end(writer)
    assert check_counts(url) > 0
