"""What tests of tasks cost: a pytest of their own, from its start to its end."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, below, measure
from bench.place import Bench

_TESTS = """
import pytest
from tarry import App

app = App()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@pytest.mark.parametrize("n", range({count}))
def test_add({fixtures}n):
    {body}
"""
_WITH = """job = add.enqueue(n, 1)
    jobs.assert_enqueued(add, n, 1)
    assert jobs.drain() == 1
    assert job.result() == n + 1"""


@measure("testkit", limit=60)
def testkit(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(1000)
    home = bench.directory / "testkit"
    home.mkdir(exist_ok=True)
    name = f"{count:,} tests"
    bare = _seconds(home, _TESTS.format(count=count, fixtures="", body="assert add(n, 1) == n + 1"))
    yield Figure(f"{name} without the fixture", bare, "s")
    yield Figure(
        f"{name} with `jobs`, one job each",
        _seconds(home, _TESTS.format(count=count, fixtures="jobs, ", body=_WITH)),
        "s",
        target=below(3),
    )


def _seconds(home: Path, tests: str) -> float:
    (home / "test_add.py").write_text(tests)
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(home), str(home)]
    ran = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"the tests failed: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    return time.perf_counter() - begin
