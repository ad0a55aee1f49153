"""What several stores as one cost: CPU a job over 1, 2, 4 and 8 shards, and how often they are called for it.

On two cores the sum of all is bounded by these, so rates say little. Redis: servers of its own, by `redis-server`."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis
from msgspec import Struct

from bench import machine
from bench.app import BODY, noop
from bench.limited_app import LIMITED
from bench.measure import Figure, measure
from bench.measures.draining import end_rate, wait_for
from bench.place import APP, Bench
from bench.slow_line import slowed
from tarry import Task

_SHARDS = tuple(int(count) for count in os.environ.get("BENCH_SHARDS", "1,2,4,8").split(","))
_JOBS, _ONE_BY_ONE = 60_000, 3_000
_TASKS: dict[str, tuple[Task[[int, str], None], str]] = {
    "no limit": (noop, APP),
    "1,000 keys, 10 at once of each": (LIMITED["1,000 keys, 10 at once of each"], "bench.limited_app:app"),
}


@measure("scale", limit=600)
def scale(bench: Bench) -> Iterator[Figure]:
    for name in _TASKS if bench.kind in ("sqlite", "redis") else ():
        for count in _SHARDS:
            yield from _scaled(bench, name, count)


def _scaled(bench: Bench, name: str, count: int) -> Iterator[Figure]:
    task, app = _TASKS[name]
    label = f"{name}, {count} shard{'s' if count > 1 else ''}"
    first = f"{name}, 1 shard"
    numbers, single = range(bench.scaled(_JOBS)), range(bench.scaled(_JOBS), bench.scaled(_JOBS + _ONE_BY_ONE))
    with _stores(bench, count) as (urls, servers), bench.place(app=app, shards=urls) as place:
        place.hold_back()
        with _measured(urls, servers) as used:
            for start in range(0, len(numbers), 1000):
                task.enqueue_many([(number, BODY) for number in numbers[start : start + 1000]])
        yield from used.figures(f"{label}: enqueue in bulk", f"{first}: enqueue in bulk", len(numbers))
        with _measured(urls, servers) as used:
            for number in single:
                task.enqueue(number, BODY)
        yield from used.figures(f"{label}: enqueue", f"{first}: enqueue", len(single))
        with place.workers(2) as crew:
            with _measured(urls, servers, crew.everybody) as used:
                place.let_go()
                every = range(single[-1] + 1)
                done = wait_for(every, len(every), 120)
            yield Figure(f"{label}: drain", end_rate(every), "/s")
            yield from used.figures(f"{label}: drain", f"{first}: drain", done)


@measure("scale-model", limit=300)
def scale_model(bench: Bench) -> Iterator[Figure]:
    """What docs/explain/scale.md computes from one store and from eight, and what is measured then."""
    if bench.kind != "redis":
        return
    one, eight = _drain(bench, 1), _drain(bench, 8)
    # How much of two cores a drain uses.
    busy = (one.rate * one.cpu + eight.rate * eight.cpu) / 2 / _CORES
    found = {
        "6 shards, 2 workers": (busy * _CORES / (one.cpu + (eight.cpu - one.cpu) * 5 / 7), _drain(bench, 6).rate),
        "1 shard, 3 workers, 1 ms more": (
            min(busy * _CORES / one.cpu, 3 / (one.worker_cpu + _MORE * one.calls)),
            _drain(bench, 1, 3, _MORE).rate,
        ),
    }
    for name, (foretold, measured) in found.items():
        yield Figure(f"{name}: by the model", foretold, "/s")
        yield Figure(f"{name}: measured", measured, "/s")
        yield Figure(f"{name}: the model is above by", (foretold / measured - 1) * 100, "%")


_CORES = 2
_MORE = 0.001
"""Seconds that each round trip takes more."""


class _Drain(Struct, frozen=True):
    """A drain: jobs a second; for each job, seconds of CPU, those of workers among them, and calls."""

    rate: float
    cpu: float
    worker_cpu: float
    calls: float


def _drain(bench: Bench, count: int, workers: int = 2, more: float = 0.0) -> _Drain:
    numbers = range(bench.scaled(_JOBS))
    with (
        _stores(bench, count) as (urls, servers),
        slowed(urls, more) as slow,
        bench.place(shards=slow) as place,
    ):
        place.hold_back()
        for start in range(0, len(numbers), 1000):
            noop.enqueue_many([(number, BODY) for number in numbers[start : start + 1000]])
        with place.workers(workers) as crew, _measured(urls, servers, crew.everybody) as used:
            place.let_go()
            wait_for(numbers, len(numbers), 120)
        work, stores, calls = used.each(len(numbers))
        return _Drain(end_rate(numbers), work + stores, work, calls)


class _Used:
    """What was used between two moments. pids: of the processes that do the work."""

    def __init__(self, urls: Sequence[str], servers: Sequence[int], pids: Sequence[int]) -> None:
        self._urls, self._servers, self._pids = urls, servers, pids
        self._before = self._now()

    def end(self) -> None:
        self._after = self._now()

    def each(self, jobs: int) -> tuple[float, float, float]:
        """Seconds of CPU of those that work, and of servers, and calls, for each job."""
        work, stores, calls = (new - old for old, new in zip(self._before, self._after, strict=True))
        return work / jobs, stores / jobs, calls / jobs

    def figures(self, name: str, first: str, jobs: int) -> Iterator[Figure]:
        """CPU and calls a job, as shares of those with one store."""
        work, stores, calls = self.each(jobs)
        found = {"CPU a job": (work + stores) * 1e6}
        if self._servers:
            found |= {"CPU a job, of servers": stores * 1e6, "calls a job": calls}
        for what, value in found.items():
            against = "" if name == first else f"{first}: {what}"
            yield Figure(f"{name}: {what}", value, "µs" if what.startswith("CPU") else "", against)

    def _now(self) -> tuple[float, float, float]:
        stores = sum(machine.cpu(pid) for pid in self._servers)
        calls = sum(_calls(url) for url in self._urls) if self._servers else 0
        # Last: this process is one of those that work.
        return sum(machine.cpu(pid) for pid in self._pids) if self._pids else time.process_time(), stores, calls


@contextlib.contextmanager
def _measured(urls: Sequence[str], servers: Sequence[int], pids: Sequence[int] = ()) -> Iterator[_Used]:
    used = _Used(urls, servers, pids)
    yield used
    used.end()


def _calls(url: str) -> int:
    """How many functions and scripts a server was asked for."""
    with redis.Redis.from_url(url) as connection:
        stats = connection.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("fcall", "evalsha"))


@contextlib.contextmanager
def _stores(bench: Bench, count: int) -> Iterator[tuple[list[str], list[int]]]:
    """URLs of so many empty stores, and the servers' processes."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as home, contextlib.ExitStack() as stack:
        if bench.kind == "sqlite":
            yield [f"sqlite:///{home}/{number}.db" for number in range(count)], []
        else:
            servers = [stack.enter_context(_server(Path(home), number)) for number in range(count)]
            yield [url for url, _ in servers], [pid for _, pid in servers]


@contextlib.contextmanager
def _server(home: Path, number: int) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    directory = home / str(number)
    directory.mkdir()
    words = ["--port", str(port), "--dir", str(directory), "--save", "", "--appendonly", "yes"]
    process = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        with redis.Redis.from_url(url, retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 50)) as connection:
            connection.ping()
        yield url, process.pid
    finally:
        process.kill()
        process.wait()
