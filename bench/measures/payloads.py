"""What large arguments and results cost in the store, and beside it."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.measure import Figure, measure
from bench.place import Bench
from tarry import App
from tarry.config.config import Config, PayloadsConfig

_MB = 2**20
_COUNTS = {1: 20, 64: 2}
"""How many jobs of so many megabytes."""


def _echo(text: str) -> str:
    return text


@measure("payloads", limit=240)
def payloads(bench: Bench) -> Iterator[Figure]:
    for size, count in ({1: 5} if bench.quick else _COUNTS).items():
        for where in ("the store", "a directory"):
            rounds = [_round(bench, where, size * _MB, count) for _ in range(3)]
            for at, what in enumerate(("enqueue", "run", "result()")):
                yield Figure(f"{what}, {size} MB, SQLite, in {where}", median(one[at] for one in rounds) * 1e3, "ms")
            stored = max(one[3] for one in rounds) / _MB
            yield Figure(f"the store has, after {count} of {size} MB in {where}", stored, "MB")
    count = bench.scaled(10_000)
    small = {where: [_small(bench, where, count) for _ in range(3)] for where in ("the store", "a directory")}
    for where, taken in small.items():
        yield Figure(f"enqueue and run of a job of 60 bytes, with the place in {where}", median(taken), "µs a job")


def _app(home: Path, where: str, most: int) -> App:
    app = App(f"sqlite:///{home}/bench.db", closures=True)
    place = home / "place"
    place.mkdir(mode=0o700)
    if where == "the store":
        app.configure(Config(max_body=most))
    else:
        app.configure(Config(payloads=PayloadsConfig(to=f"file://{place}", most=most)))
    return app


def _round(bench: Bench, where: str, size: int, count: int) -> tuple[float, float, float, int]:
    """Seconds a job for its enqueue, its run by a worker in this process and its result; the bytes of the store."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as directory:
        home = Path(directory)
        app = _app(home, where, size + 100)
        echo, text = app.task(name="echo")(_echo), "x" * size
        begin = time.perf_counter()
        jobs = [echo.enqueue(text) for _ in range(count)]
        put = time.perf_counter()
        assert app.drain() == count
        ran = time.perf_counter()
        assert {len(job.result(timeout=0)) for job in jobs} == {size}
        end = time.perf_counter()
        stored = sum(file.stat().st_size for file in home.glob("bench.db*") if file.is_file())
        app.close()
    return (put - begin) / count, (ran - put) / count, (end - ran) / count, stored


def _small(bench: Bench, where: str, count: int) -> float:
    """Microseconds."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as directory:
        app = _app(Path(directory), where, 2**26)
        echo = app.task(name="echo")(_echo)
        begin = time.perf_counter()
        echo.enqueue_many([("x" * 60,) for _ in range(count)])
        assert app.drain() == count
        spent = time.perf_counter() - begin
        app.close()
    return spent / count * 1e6
