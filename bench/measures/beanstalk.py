"""The beanstalk door beside beanstalkd itself, which keeps its jobs in memory: the same load, sent in the same way.

One server process, one sender, on the same cores. Each put of tarry's is acknowledged after its commit.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

from bench.load import Load, LoadResult, send
from bench.measure import NONE, Figure, at_least, below, goal, measure
from bench.place import Bench
from bench.waiting import answers, free_port, until

_CONNECTIONS, _DEPTH, _SECONDS = 50, 100, 4.0
_PUT = b"put 1024 0 60 64\r\n" + b"x" * 64 + b"\r\n"
# Not the tube that the worker serves.
_HELLO = b"use bench\r\nwatch bench\r\nignore default\r\n"

Send = Callable[..., LoadResult]


@measure("beanstalk", limit=180)
def beanstalk(bench: Bench) -> Iterator[Figure]:
    """Puts one by one, puts in pipelines, and jobs reserved and deleted."""
    targets = {
        "puts": goal(bench, sqlite=at_least(10_000), redis=at_least(15_000)),
        "pipelined puts": at_least(40_000),
        "reserve and delete": goal(bench, sqlite=at_least(8_000), redis=at_least(10_000)),
    }
    program = shutil.which("beanstalkd", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if program is not None:
        with _beanstalkd(program) as real:
            for name, rate in _rates(_sender(bench, real)):
                yield Figure(f"beanstalkd, {name}", rate, "/s")
    port = free_port()
    with bench.place(f'queues = ["warm"]\n[server]\nbeanstalk = "127.0.0.1:{port}"\n') as place, place.workers(1):
        until(lambda: answers(port), 10)
        ask = _sender(bench, port)
        for name, rate in _rates(ask):
            yield Figure(f"beanstalk, {name}", rate, "/s", f"beanstalkd, {name}", targets[name])
        one = ask(_PUT).rate("INSERTED")
        paced = ask(_PUT, rate=one / 2)
        target = goal(bench, sqlite=below(20), redis=below(10))
        yield Figure("beanstalk, puts, p99 at half of that load", paced.latency["INSERTED"][1], "ms", target=target)
        yield Figure("beanstalk, puts that were refused", paced.answers.get("OUT_OF_MEMORY", 0), "jobs", target=NONE)


def _rates(ask: Send) -> Iterator[tuple[str, float]]:
    yield "puts", ask(_PUT).rate("INSERTED")
    yield "pipelined puts", ask(_PUT, depth=_DEPTH).rate("INSERTED")
    yield "reserve and delete", ask(b"reserve\r\n").rate("DELETED")


def _sender(bench: Bench, port: int) -> Send:
    seconds = _SECONDS / 4 if bench.quick else _SECONDS

    def ask(request: bytes, depth: int = 1, rate: float = 0.0) -> LoadResult:
        address = ("127.0.0.1", port)
        return send(Load(address, [request], "beanstalk", _CONNECTIONS, seconds, depth, rate, hello=_HELLO))

    return ask


@contextlib.contextmanager
def _beanstalkd(program: str) -> Iterator[int]:
    port = free_port()
    real = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(port), 10)
        yield port
    finally:
        real.kill()
        real.wait()
