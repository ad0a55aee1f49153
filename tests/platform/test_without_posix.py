"""A program on Windows may enqueue and look. Here on Linux, in a process from which is taken what Python lacks there:
on Windows itself tarry was never run."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tarry import App
from tests.servers.redis import RedisServer

LIMIT = 120
PROGRAM = """
import tests.platform.foreign
import asyncio, datetime, sys
from tarry import App

app = App(sys.argv[1])

@app.task
def add(one: int, two: int) -> int:
    raise AssertionError("not here")

async def later():
    return await add.aenqueue(3, 4)

jobs = [add.enqueue(1, 2), asyncio.run(later()), *add.enqueue_many([(5, 6)])]
add.using(delay="1h", key="one").enqueue(0, 0)
print(*(job.id for job in jobs), flush=True)
sys.stdin.readline()
print(*(job.result(timeout=60) for job in jobs))
print(app.get(jobs[0].id).state.value, sum(1 for _ in app.jobs(state="scheduled")))
app.close()
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[[Sequence[str]], "subprocess.Popen[str]"]:
    return lambda words: subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def story(url: str, foreign: Callable[[Sequence[str]], "subprocess.Popen[str]"]) -> None:
    with foreign([url]) as program:
        assert program.stdout is not None
        ids = program.stdout.readline().split()
        app = App(url, closures=True)

        @app.task(name="__main__.add")
        def add(one: int, two: int) -> int:
            return one + two

        ran = app.drain()
        app.close()
        said, errors = program.communicate("\n", timeout=LIMIT)
        assert (program.returncode, errors) == (0, "")
        assert (len(ids), ran) == (3, 3)
        assert said.splitlines() == ["3 7 11", "done 1"]


def test_on_a_file(tmp_path: Path, foreign: Callable[[Sequence[str]], "subprocess.Popen[str]"]) -> None:
    story(f"sqlite:///{tmp_path}/jobs.db", foreign)


def test_on_redis(redis_server: RedisServer, foreign: Callable[[Sequence[str]], "subprocess.Popen[str]"]) -> None:
    redis_server.empty()
    story(redis_server.url, foreign)


def test_on_postgres(new_postgres_url: str, foreign: Callable[[Sequence[str]], "subprocess.Popen[str]"]) -> None:
    story(new_postgres_url, foreign)


def test_what_ci_runs_on_windows_itself(tmp_path: Path) -> None:
    code = "import tests.platform.foreign; from tests.platform import enqueues; enqueues.main()"
    environ = {**os.environ, "PYTHONPATH": os.getcwd(), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "4 jobs were stored and found\n", "")
