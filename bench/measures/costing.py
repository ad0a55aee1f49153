"""What tarry itself takes, store aside: microseconds of Python for each job, and the time to import an App."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from msgspec.structs import replace

from bench.measure import Figure, below, measure
from bench.place import Bench
from tarry import App, CurrentJob
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Exchange, Want
from tarry.worker.pump import Pump
from tarry.worker.run.context import MAX_RESULT, AttemptContext, never_final
from tarry.worker.run.loop import LoopRunner
from tarry.worker.run.status_reporter import NullReporter
from tarry.worker.run.threads import ThreadRunner

_ROUNDS = 7
_BATCH = 200


class Nothing(MemoryStore):
    """Keeps nothing: takes every job, gives the one that it was told as often as asked, believes every outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.gives: list[Job] = []

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        return [job.id for job in jobs]

    def queues(self) -> dict[str, bool]:
        return {"default": False}

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        given, self.gives = self.gives[:limit], self.gives[limit:]
        return Exchange([True] * len(changes), given, None)


def _send(to: str, name: str = "") -> None: ...


def _through(job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
    return call_next(job)


@measure("cost", limit=120)
def cost(bench: Bench) -> Iterator[Figure]:
    app = App(Nothing())
    send = app.task(name="send")(_send)
    count = bench.scaled(20_000)
    codec = send.codec
    calls = [("ann@example.org", "Ann")] * 1000
    by_name = [send.call("ann@example.org", name="Ann")] * 1000

    def enqueue() -> None:
        for _ in range(count):
            send.enqueue("ann@example.org", name="Ann")

    def encode() -> None:
        for _ in range(count):
            codec.encode(("ann@example.org",), {"name": "Ann"})

    yield _micros("cost of encoding the arguments of a call", count, encode)
    yield _micros("cost of one enqueue, store aside", count, enqueue, 12)
    yield _micros("cost of a job of enqueue_many, tuples", 1000, lambda: send.enqueue_many(calls), 3)
    yield _micros("cost of a job of enqueue_many, calls by name", 1000, lambda: send.enqueue_many(by_name), 3)
    yield from _running()


@measure("import", limit=60)
def importing(bench: Bench) -> Iterator[Figure]:
    program = "import time; a = time.perf_counter(); from tarry import App; print(time.perf_counter() - a)"
    with tempfile.TemporaryDirectory(dir=bench.directory) as home:
        # As installed: with the bytecode on the disk.
        kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": home}
        command = [sys.executable, "-c", program]
        runs = [
            float(subprocess.run(command, env=os.environ | kept, check=True, capture_output=True).stdout)
            for _ in range(11)
        ]
    yield Figure("from tarry import App, in a fresh process", median(runs[1:]) * 1000, "ms", target=below(80))


def _running() -> Iterator[Figure]:
    """The whole way of a job through a worker: handed out, run, its outcome decided on."""
    name = "cost of one run of a sync no-op, store aside"
    plain = _cost_of_run(0)
    yield Figure(name, plain, "µs", target=below(6))
    first = _cost_of_run(1)
    yield Figure("cost of the first middleware of a run", first - plain, "µs")
    yield Figure("cost of each further one", (_cost_of_run(5) - first) / 4, "µs", target=below(1))


def _cost_of_run(middleware: int) -> float:
    store = Nothing()
    app = App(store)
    send = app.task(name="send")(_send)
    for _ in range(middleware):
        app.middleware("run")(_through)
    body = send.codec.encode(("ann@example.org",), {"name": "Ann"})
    made = [app.client.make_job("send", body) for _ in range(50 * _BATCH)]
    jobs = [replace(job, state=State.RUNNING, epoch=1, owner="bench") for job in made]
    try:
        return min(_worked(store, app, jobs) for _ in range(_ROUNDS)) / len(jobs) * 1e6
    finally:
        app.close()


def _worked(store: Nothing, app: App, jobs: list[Job]) -> float:
    """Seconds that a worker takes for the jobs, its pump and its thread taking turns in this one."""
    pump = Pump(store, app.tasks, owner="bench")
    terms = partial(AttemptContext, MAX_RESULT, never_final, NullReporter())
    sync = ThreadRunner(1, pump.outcomes, terms)
    pump.attach(sync, LoopRunner(0, pump.outcomes, terms, 1))
    store.gives = jobs
    begin = time.perf_counter()
    while store.gives or pump.held_count:
        pump.step()
        sync.stop()  # once what is in line has been run
        sync.serve()
    spent = time.perf_counter() - begin
    pump.wakeup.close()
    assert (pump.events.processed, pump.events.failed) == (len(jobs), 0)
    return spent


def _micros(name: str, count: int, work: Callable[[], object], target: float | None = None) -> Figure:
    """The best of several rounds, of so many jobs each: what it costs when nobody else is about."""
    work()
    best = min(_seconds(work) for _ in range(_ROUNDS))
    return Figure(name, best / count * 1e6, "µs", target=below(target) if target else None)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
