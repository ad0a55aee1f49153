"""The data of the dashboard: master, queues, running jobs, hosts."""

from itertools import filterfalse
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.cli.top.rates import QueueRates
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import State
from tarry.push.health import EndpointHealth
from tarry.runtime.board.reader import Board, ChildStatus
from tarry.store.queries.history_recent import RecentFigures, RecentHistory


class QueueRow(Struct, frozen=True):
    """A queue. Times are in seconds; None: none, or not known."""

    queue: str
    paused: bool = False
    scheduled: int = 0
    ready: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    oldest: float | None = None
    """For how long the oldest ready job has been due."""
    wait: float | None = None
    """The median wait from due to start: of the attempts that ended in the last minutes, by the history; else of jobs
    that were seen running."""
    came: float | None = None
    """Jobs that came in per second; `left` and `died` are per second, too."""
    left: float | None = None
    died: float | None = None
    least: bool = False
    """The rates are lower bounds: records were deleted meanwhile."""
    tasks: tuple[str, ...] = ()
    recent: RecentFigures | None = None
    """The last minutes by the history; None: no keeper sums it up."""


class RunningJob(Struct, frozen=True):
    """A running job on any host. Times are in seconds."""

    id: str
    task: str
    queue: str
    attempt: int
    seconds: float
    waited: float
    host: str
    pid: int
    key: str | None = None
    progress: float | None = None


class HostRow(Struct, frozen=True):
    """A host, as its master reports it to the store."""

    instance: str
    """The name of its master; it is never used again."""
    host: str
    state: str
    pid: int
    up: float | None
    workers: int
    busy: int
    processed: int
    failed: int
    pools: str
    """Busy workers and all workers of each pool, as text."""
    heard: float
    """Seconds since its last heartbeat."""
    here: bool


class JobCounts(Struct, frozen=True):
    """Counts over all jobs; reading them may take long."""

    queues: dict[str, dict[State, int]]
    tasks: dict[str, set[str]]
    oldest: dict[str, float]
    flows: dict[str, QueueRates]
    waiting: dict[str, int] = {}
    """Jobs that are ready or scheduled, by task."""
    missing: str = ""
    """Which shards are missing, and why."""


class Snapshot(Struct, frozen=True):
    """The data that is quick to read whatever the size of the store."""

    url: str
    paused: dict[str, bool]
    jobs: list[RunningJob]
    waits: dict[str, float]
    hosts: list[HostRow]
    http: list[EndpointHealth] = []
    """The HTTP tasks."""
    more_jobs: bool = False
    """More jobs run than are listed."""
    missing: str = ""


class HistoryFigures(Struct, frozen=True):
    """The last minutes by the history. recent None: no keeper sums it up."""

    recent: RecentHistory | None
    missing: str = ""


class MasterFigures(Struct, frozen=True):
    """The scoreboard of the master, and jobs per second by `child_key`. board None: no master runs here."""

    board: Board | None
    rates: dict[str, float]
    failing: float = 0.0
    """Failed attempts per second."""


def child_key(child: ChildStatus) -> str:
    """A key that is unique among the children."""
    # While a worker is being replaced, two processes have its name.
    return f"{child.name} {child.pid}"


def queues(
    counted: JobCounts | None, snapshot: Snapshot | None, history: HistoryFigures | None = None
) -> list[QueueRow]:
    """The rows of all queues by name, from counts, snapshot and history."""
    recent = history.recent if history else None
    paused = snapshot.paused if snapshot else {}
    names = paused.keys() | (counted.queues.keys() if counted else set()) | (recent.queues.keys() if recent else set())
    waits = snapshot.waits if snapshot else {}
    shown = sorted(filterfalse(is_own_queue, names))
    rows = [_queue(name, paused.get(name, False), waits.get(name), counted) for name in shown]
    return rows if recent is None else [_with_history(row, recent.queues.get(row.queue, _QUIET)) for row in rows]


_QUIET = RecentFigures()


def _with_history(row: QueueRow, recent: RecentFigures) -> QueueRow:
    """The row with what the history knows better."""
    if recent.waited is not None:
        # All attempts that ended, and not only those that were seen while they ran.
        row = replace(row, wait=recent.waited.p50)
    if row.came is None or row.least:
        row = replace(row, came=recent.put / 60, left=recent.ended / 60, least=False)
    return replace(row, recent=recent)


def http(counted: JobCounts | None, snapshot: Snapshot | None) -> list[EndpointHealth]:
    """The health of all HTTP tasks, from counts and snapshot."""
    known = snapshot.http if snapshot else []
    return known if counted is None else [replace(one, waiting=counted.waiting.get(one.task, 0)) for one in known]


def _queue(name: str, paused: bool, wait: float | None, counted: JobCounts | None) -> QueueRow:
    if counted is None:
        return QueueRow(name, paused, wait=wait)
    counts: dict[str, Any] = {state.value: n for state, n in counted.queues.get(name, {}).items()}
    flow = counted.flows.get(name, QueueRates())
    return QueueRow(
        name,
        paused,
        **counts,
        oldest=counted.oldest.get(name),
        wait=wait,
        came=flow.came,
        left=flow.left,
        died=flow.died,
        least=flow.least,
        tasks=tuple(sorted(counted.tasks.get(name, ()))),
    )
