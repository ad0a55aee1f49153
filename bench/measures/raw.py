"""The raw limit of the store: the least that could keep jobs and move them, with nothing of tarry around it."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any, cast

from bench.measure import Figure, measure, percentile, rate
from bench.place import Bench
from bench.raw import limit
from bench.waiting import until

ONE, HUNDRED, THOUSAND = "raw: insert, one by one", "raw: insert by 100", "raw: insert by 1000"
HANDED = "raw: hand-over on an idle system, p50"
_JOBS = 200_000


def moved(size: int, processes: int) -> str:
    """The name of that figure."""
    return f"raw: claim and finish by {size}, {processes} process{'es' if processes > 1 else ''}"


@measure("raw-insert", limit=60)
def inserting(bench: Bench) -> Iterator[Figure]:
    for name, size, count in ((ONE, 1, 10_000), (HUNDRED, 100, 100_000), (THOUSAND, 1000, _JOBS)):
        with _place(bench) as target, contextlib.closing(limit.opened(bench.kind, target, True)) as raw:
            batches = [raw.batch(size) for _ in range(bench.scaled(count) // size)]
            yield rate(name, size * len(batches), lambda: _insert(raw, batches))  # noqa: B023


@measure("raw-move", limit=120)
def moving(bench: Bench) -> Iterator[Figure]:
    for size in (100, 1000):
        for processes in (1, 2):
            with _place(bench) as target:
                with contextlib.closing(limit.opened(bench.kind, target, False)) as raw:
                    _insert(raw, [raw.batch(1000) for _ in range(bench.scaled(_JOBS) // 1000)])
                yield Figure(moved(size, processes), _move_rate(bench.kind, target, size, processes), "/s")


@measure("raw-hand-over", limit=60)
def handed_over(bench: Bench) -> Iterator[Figure]:
    """From before the insert, in one process, to the end of the claim in another that waits; for servers that wake."""
    if bench.kind not in ("redis", "postgresql"):
        return
    context = get_context("spawn")
    answers: SimpleQueue[float] = context.SimpleQueue()
    count = bench.scaled(200)
    with _place(bench) as target, contextlib.closing(limit.opened(bench.kind, target, True)) as raw:
        waiter = context.Process(target=_waiter, args=(bench.kind, target, answers, count))
        waiter.start()
        try:
            ready = answers.get()
            waited = [_handed_over(cast("limit.Waited", raw), answers) for _ in range(count)] if ready else []
        finally:
            waiter.kill()
            waiter.join()
    yield Figure(HANDED, percentile(waited, 0.5), "ms")
    yield Figure("raw: hand-over on an idle system, p99", percentile(waited, 0.99), "ms")


def _handed_over(raw: "limit.Waited", answers: "SimpleQueue[float]") -> float:
    time.sleep(0.05)
    begin = time.monotonic()
    raw.hand_over()
    return (answers.get() - begin) * 1e3


def _waiter(kind: str, target: str, answers: "SimpleQueue[float]", count: int) -> None:
    raw = cast("limit.Waited", limit.opened(kind, target, False))
    raw.wait(0.1)
    answers.put(time.monotonic())
    for _ in range(count):
        if not raw.wait(10):
            raise RuntimeError("no job came")
        answers.put(time.monotonic())


@contextlib.contextmanager
def _place(bench: Bench) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=bench.directory) as home:
        target = f"{home}/raw.db" if bench.kind == "sqlite" else bench.url
        limit.emptied(bench.kind, target)
        yield target
        limit.removed(bench.kind, target)


def _insert(raw: limit.Raw, batches: Sequence[Any]) -> None:
    for batch in batches:
        raw.insert(batch)


def _move_rate(kind: str, target: str, size: int, processes: int) -> float:
    """Jobs over the time from the first claim to the last commit."""
    context = get_context("spawn")
    start, answers = context.Barrier(processes), context.SimpleQueue()
    movers = [context.Process(target=_mover, args=(kind, target, size, start, answers)) for _ in range(processes)]
    try:
        for mover in movers:
            mover.start()
        until(lambda: None not in _statuses(movers) or any(_statuses(movers)), 60)
        if _statuses(movers) != [0] * processes:
            raise RuntimeError(f"the processes ended with {_statuses(movers)}: see above")
        told = [answers.get() for _ in movers]
    finally:
        for mover in movers:
            mover.kill()
            mover.join()
    counts, begins, ends = zip(*told, strict=True)
    return float(sum(counts) / (max(ends) - min(begins)))


def _statuses(processes: Sequence[BaseProcess]) -> list[int | None]:
    return [process.exitcode for process in processes]


def _mover(kind: str, target: str, size: int, start: Barrier, answers: "SimpleQueue[tuple[int, float, float]]") -> None:
    raw = limit.opened(kind, target, False)
    start.wait(30)
    begin, count = time.monotonic(), 0
    claimed: list[Any] = []
    while claimed := raw.exchange(claimed, size):
        count += len(claimed)
    answers.put((count, begin, time.monotonic()))
