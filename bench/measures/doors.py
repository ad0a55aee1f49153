"""Puts by HTTP: how many a second, how long each takes, and what happens when more come than can be held.

One server process, beside a worker whose queue is paused; the sender is a process of its own on the same two cores.
Each put is acknowledged after its commit; at the end every acknowledged one is looked for in the store.
"""

import contextlib
from collections.abc import Iterator

import msgspec

from bench import machine
from bench.app import app
from bench.load import Load, LoadResult, send
from bench.measure import NONE, Figure, at_least, below, goal, measure
from bench.place import Bench
from bench.waiting import answers, free_port, until

_CONNECTIONS, _MANY, _SECONDS = 50, 100, 5.0
_CALL = {"task": "bench.app.noop", "args": [0, "x" * 58]}
_STORED, _BUSY = "201", "503"
_STEPS = (0.5, 1.0, 2.0, 3.0)
"""Load offered, as a share of what one closed loop of connections holds."""
_CROWD = 1000
"""Connections of an open loop: so many people who wait."""


class Door:
    """A server of a master, and what was put through it."""

    def __init__(self, bench: Bench, port: int, pid: int) -> None:
        self._bench, self._port = bench, port
        self.pid = pid
        self.stored = 0

    def load(self, jobs: int = 1, rate: float = 0.0, connections: int = _CONNECTIONS) -> LoadResult:
        """Puts of so many jobs each, for some seconds."""
        body = msgspec.json.encode(_CALL if jobs == 1 else [_CALL] * jobs)
        head = (
            "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        seconds = _SECONDS / 5 if self._bench.quick else _SECONDS
        load = Load(("127.0.0.1", self._port), [head.encode() + body], "http", connections, seconds, rate=rate)
        # Those of the warming-up are not counted in the answers, but they are in the store.
        load.warm = 0.0
        found = send(load)
        self.stored += found.answers.get(_STORED, 0) * jobs
        return found


@contextlib.contextmanager
def door(bench: Bench) -> Iterator[Door]:
    """A server that serves; its jobs wait, since their queue is paused."""
    port = free_port()
    # All come from one address here.
    settings = f'[server]\nhttp = "127.0.0.1:{port}"\nmax_connections_per_address = 0\n'
    with bench.place(settings) as place, place.workers(1):
        place.hold_back()
        until(lambda: answers(port), 10)
        (pid,) = place.pids("server")
        yield Door(bench, port, pid)


@measure("http", limit=120)
def puts(bench: Bench) -> Iterator[Figure]:
    """A closed loop: each connection sends its next put when the one before is answered."""
    with door(bench) as there:
        name = f"http, puts of 64 bytes, {_CONNECTIONS} connections"
        one = there.load()
        target = goal(bench, sqlite=at_least(5000), redis=at_least(8000))
        yield Figure(name, one.rate(_STORED), "/s", target=target)
        rates = {"half of what it holds": one.rate(_STORED) / 2}
        if target is not None:
            rates["half of the goal"] = target.value / 2
        for what, rate in rates.items():
            _, p99, _ = there.load(rate=rate, connections=_CROWD).latency[_STORED]
            bound = goal(bench, sqlite=below(20), redis=below(10))
            yield Figure(f"{name}, p99 at {what}", p99, "ms", target=bound)
        many = there.load(_MANY)
        yield Figure(f"http, puts of {_MANY} jobs", many.rate(_STORED) * _MANY, "jobs/s", target=at_least(60_000))
        yield _lost(there, "http")


@measure("http-overload", limit=180)
def overload(bench: Bench) -> Iterator[Figure]:
    """An open loop: puts come at their moments, whether earlier ones are answered or not."""
    with door(bench) as there:
        held = there.load(connections=_CONNECTIONS).rate(_STORED)
        yield Figure("http-overload, held by a closed loop", held, "/s")
        before, _ = machine.memory(there.pid)
        for step in _STEPS:
            yield from _offered(there, step, held)
        after, _ = machine.memory(there.pid)
        yield Figure("http-overload, memory grown", (after - before) / 2**20, "MB")
        yield _lost(there, "http-overload")


def _offered(there: Door, step: float, held: float) -> Iterator[Figure]:
    found = there.load(rate=step * held, connections=_CROWD)
    name = f"http-overload, {step:g} x offered"
    yield Figure(f"{name}: stored", found.rate(_STORED), "/s", "http-overload, held by a closed loop")
    yield Figure(f"{name}: told busy", found.rate(_BUSY), "/s")
    yield Figure(f"{name}: nobody free to send", found.unsent / found.seconds, "/s")
    yield Figure(f"{name}: stored, p99", found.latency.get(_STORED, (0, 0, 0))[1], "ms")
    if _BUSY in found.latency:
        yield Figure(f"{name}: told busy, p99", found.latency[_BUSY][1], "ms", target=below(100))


def _lost(there: Door, name: str) -> Figure:
    kept = sum(tally.count for tally in app.client.store.counts() if tally.task == "bench.app.noop")
    return Figure(f"{name}, acknowledged and not stored", max(0, there.stored - kept), "jobs", target=NONE)
