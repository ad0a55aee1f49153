"""The tables of the dashboard: their columns, which of them fit, and the order of the lines."""

from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Any

from msgspec import Struct

from tarry.cli.top.facts import HostRow, MasterFigures, QueueRow, child_key
from tarry.cli.top.text import number, p50, p99, rate, size, span
from tarry.runtime.board.layout import GONE, READY
from tarry.runtime.board.reader import SERVER, Board, BoardJob, ChildStatus
from tarry.runtime.master_report import connections
from tarry.store.queries.history_recent import RecentFigures

_FLOW = 6  # Cells of a rate.


class Column(Struct, frozen=True):
    """A column. right: align to the right, for numbers. width 0: it takes the remaining cells."""

    title: str
    width: int
    text: Callable[[Any], str]
    order: Callable[[Any], Any]
    right: bool = True
    rank: int = 0
    """Columns with a higher rank are removed first if there is too little room; rank 0 is never removed. From
    `layout.EXTRA` on a column is also removed to make room for long names."""
    style: Callable[[Any], str] = lambda fact: ""
    short: int = 0
    """Its width if there is too little room."""


class Table(Struct, frozen=True):
    """A kind of facts, and how to show them."""

    name: str
    columns: tuple[Column, ...]
    key: Callable[[Any], str]
    """The key of a line: it stays selected while its figures change."""
    words: Callable[[Any], Iterable[str]]
    """The texts that a filter searches."""
    sort: int = -1
    """The column by which it is sorted at first; -1: keep the order of the facts."""
    descending: bool = False


class WorkerLine(Struct, frozen=True):
    """A child of the master with one of its jobs. The first line has the longest running job."""

    child: ChildStatus
    job: BoardJob | None
    first: bool
    per_second: float | None


def worker_lines(seen: MasterFigures | None) -> list[WorkerLine]:
    """All children of the master, the workers first."""
    if seen is None or seen.board is None:
        return []
    children = sorted(
        seen.board.children, key=lambda child: (not child.pool, child.pool, child.role, child.number, child.started)
    )
    return [line for child in children for line in _lines(child, seen.rates.get(child_key(child)))]


def _lines(child: ChildStatus, per_second: float | None) -> list[WorkerLine]:
    running = sorted(child.running, key=lambda job: -job.seconds)
    jobs: Sequence[BoardJob | None] = running or (None,)
    return [WorkerLine(child, job, n == 0, per_second) for n, job in enumerate(jobs)]


def pools(board: Board) -> list[tuple[str, int, int]]:
    """The name of each pool, the number of its busy workers, and of its ready workers."""
    found: dict[str, tuple[int, int]] = {}
    for child in board.children:
        if child.pool:
            busy, ready = found.get(child.pool, (0, 0))
            found[child.pool] = (busy + bool(child.running), ready + (child.boot == READY))
    return [(name, busy, ready) for name, (busy, ready) in sorted(found.items())]


def _value_column(
    title: str, name: str, width: int, format: Callable[[Any], str], rank: int = 0, style: str = ""
) -> Column:
    def value(fact: Any) -> Any:
        return getattr(fact, name)

    return Column(
        title, width, lambda fact: format(value(fact)), value, rank=rank, style=lambda f: style * bool(value(f))
    )


def _count(n: int) -> str:
    return number(n) if n else "·"


def _flow(name: str) -> Callable[[QueueRow], str]:
    def text(queue: QueueRow) -> str:
        each_second = getattr(queue, name)
        text_shown = rate(each_second)
        if not each_second or not queue.least:
            return text_shown
        # The sign takes a cell, which a long number must give up.
        return f"≥{text_shown}" if len(text_shown) < _FLOW else f"≥{each_second / 1000:.0f}k"

    return text


def _recent(title: str, width: int, value: Callable[[RecentFigures], float | None], rank: int, times: bool) -> Column:
    """A column of what the history knows of the last minutes."""

    def order(queue: QueueRow) -> float | None:
        return None if queue.recent is None else value(queue.recent)

    return Column(title, width, lambda queue: (span if times else rate)(order(queue)), order, rank=rank)


def _queue_state(queue: QueueRow) -> str:
    return "paused" if queue.paused else ""


def _text_column(title: str, name: str) -> Column:
    return Column(title, 0, lambda fact: str(getattr(fact, name)), lambda fact: getattr(fact, name), right=False)


QUEUES = Table(
    "queues",
    (
        _text_column("queue", "queue"),
        Column("", 6, _queue_state, lambda queue: not queue.paused, right=False, style=lambda queue: "class:notice"),
        _value_column("ready", "ready", 6, _count),
        _value_column("sched", "scheduled", 6, _count, rank=4),
        _value_column("run", "running", 5, _count, rank=3),
        _value_column("dead", "dead", 6, _count, rank=1, style="class:bad"),
        _value_column("oldest", "oldest", 7, span, rank=1),
        Column("in/s", _FLOW, _flow("came"), lambda queue: queue.came, rank=2),
        Column("out/s", _FLOW, _flow("left"), lambda queue: queue.left, rank=2),
        _recent("fail/min", 8, lambda recent: recent.failed, 4, times=False),
        _value_column("wait", "wait", 7, span, rank=5),
        _recent("wait p99", 8, lambda recent: p99(recent.waited), 6, times=True),
        _recent("ran", 7, lambda recent: p50(recent.ran), 6, times=True),
        _recent("ran p99", 7, lambda recent: p99(recent.ran), 6, times=True),
        Column("dead/s", _FLOW, _flow("died"), lambda queue: queue.died, rank=8),
        _value_column("done", "done", 6, _count, rank=7),
        _value_column("cancelled", "cancelled", 9, _count, rank=9),
    ),
    key=lambda queue: str(queue.queue),
    words=lambda queue: (queue.queue, *queue.tasks),
)


def _worker(
    title: str, width: int, text: Callable[[WorkerLine], str], order: Callable[[WorkerLine], Any], rank: int = 0
) -> Column:
    # The figures are those of the process, not of each job, so only its first line has them.
    return Column(title, width, lambda line: text(line) if line.first else "", order, rank=rank)


def _up(line: WorkerLine) -> float | None:
    return None if line.child.boot == GONE else max(0.0, time() - line.child.started)


def _seconds(line: WorkerLine) -> float | None:
    return line.job.seconds if line.job else None


def _running_text(line: WorkerLine) -> str:
    if line.job is not None:
        return line.job.task
    if line.child.role == SERVER:
        return connections(line.child)
    return line.child.last_exit or "·"


def _failed_text(line: WorkerLine) -> str:
    return "" if line.child.role == SERVER else _count(line.child.failed)


def _worker_name(line: WorkerLine) -> str:
    child = line.child
    return f"{child.pool}.{child.number}" if child.pool else child.name


def _worker_style(line: WorkerLine) -> str:
    return "" if line.child.boot == READY else "class:notice"


WORKERS = Table(
    "workers",
    (
        Column("worker", 24, _worker_name, _worker_name, False, short=12),
        _worker("pid", 7, lambda line: str(line.child.pid or "-"), lambda line: line.child.pid, 3),
        Column(
            "state", 8, lambda line: line.child.boot if line.first else "", lambda line: line.child.boot, False,
            style=_worker_style,
        ),
        _worker("memory", 7, lambda line: size(line.child.rss), lambda line: line.child.rss, 5),
        _worker("done", 6, lambda line: number(line.child.processed), lambda line: line.child.processed, 2),
        _worker("fail", 6, _failed_text, lambda line: line.child.failed, 2),
        _worker("/s", 6, lambda line: rate(line.per_second), lambda line: line.per_second, 6),
        _worker("up", 7, lambda line: span(_up(line)), _up, 7),
        _worker("gen", 4, lambda line: str(line.child.generation), lambda line: line.child.generation, 8),
        Column("for", 7, lambda line: span(_seconds(line)) if line.job else "", _seconds, rank=1),
        Column("job", 0, _running_text, lambda line: line.job.task if line.job else None, right=False),
    ),
    key=lambda line: child_key(line.child) if line.first else f"{child_key(line.child)} {line.job.id}",
    words=lambda line: (line.child.name, line.job.task if line.job else "", line.job.id if line.job else ""),
)  # fmt: skip

JOBS = Table(
    "jobs",
    (
        _text_column("running job", "task"),
        Column("id", 36, lambda job: job.id, lambda job: job.id, False, rank=6),
        Column("queue", 12, lambda job: job.queue, lambda job: job.queue, False, 1, short=10),
        _value_column("try", "attempt", 3, str, rank=2),
        _value_column("for", "seconds", 7, span),
        _value_column("waited", "waited", 7, span, rank=5),
        Column(
            "", 4, lambda job: "" if job.progress is None else f"{job.progress:.0%}", lambda job: job.progress, rank=3
        ),
        Column("host", 20, lambda job: f"{job.host}:{job.pid}", lambda job: (job.host, job.pid), False, 4, short=16),
        Column("key", 20, lambda job: job.key or "", lambda job: job.key, False, rank=7),
    ),
    key=lambda job: str(job.id),
    words=lambda job: (job.task, job.queue, job.id, job.host, job.key or ""),
    sort=4,
    descending=True,
)


def _host_style(host: HostRow) -> str:
    return "" if host.state == "serving" else "class:bad"


HOSTS = Table(
    "hosts",
    (
        Column(
            "host", 0, lambda host: f"{host.host} (here)" if host.here else host.host, lambda host: host.host, False
        ),
        Column("state", 8, lambda host: host.state, lambda host: host.state, False, style=_host_style),
        _value_column("master", "pid", 7, str, rank=3),
        _value_column("workers", "workers", 7, _count, rank=1),
        _value_column("busy", "busy", 5, _count, rank=1),
        _value_column("done", "processed", 6, _count, rank=5),
        _value_column("fail", "failed", 6, _count, rank=6),
        _value_column("up", "up", 7, span, rank=2),
        _value_column("heard", "heard", 7, span),
        Column("pools", 40, lambda host: host.pools, lambda host: host.pools, False, rank=7),
    ),
    key=lambda host: str(host.instance),
    words=lambda host: (host.host, host.pools),
)


HTTP = Table(
    "http",
    (
        _text_column("http task", "task"),
        Column("to", 40, lambda one: one.to, lambda one: one.to, False, 5, short=16),
        _value_column("at once", "at_once", 7, lambda n: "-" if n is None else str(n)),
        _value_column("in flight", "in_flight", 9, _count),
        _value_column("waiting", "waiting", 7, lambda n: "-" if n is None else _count(n)),
        Column(
            "", 20, lambda one: one.problem, lambda one: one.problem or None, False, 1, lambda _: "class:bad", short=14
        ),
        Column("last trouble", 60, lambda one: one.trouble, lambda one: one.trouble or None, False, 4, short=20),
    ),
    key=lambda one: str(one.task),
    words=lambda one: (one.task, one.to, one.problem, one.trouble),
)  # fmt: skip
