"""What is seen: of the master, of the queues, of the jobs that run, of other hosts."""

from msgspec import Struct
from msgspec.structs import replace

from tarry.cli.endpoints import EndpointHealth
from tarry.cli.top.rates import QueueRates
from tarry.model.job import State
from tarry.runtime.scoreboard import Board, ChildStatus


class QueueRow(Struct, frozen=True):
    """A queue. Times are seconds; None: there is none, or it is not known."""

    queue: str
    paused: bool = False
    scheduled: int = 0
    ready: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    oldest: float | None = None
    """For how long the first of the ready ones is due already."""
    wait: float | None = None
    """The median from due to start, of jobs that were seen running."""
    came: float | None = None
    """Jobs a second."""
    left: float | None = None
    died: float | None = None
    least: bool = False
    """The rates are a least: records were forgotten meanwhile."""
    tasks: tuple[str, ...] = ()


class RunningJob(Struct, frozen=True):
    """A job that runs, on whichever host. Times are seconds."""

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
    """A host as its master tells the store."""

    instance: str
    """Its master's name, unique for ever."""
    host: str
    state: str
    pid: int
    up: float | None
    workers: int
    busy: int
    processed: int
    failed: int
    pools: str
    """Busy and all workers of each."""
    heard: float
    """Seconds since its last sign of life."""
    here: bool


class JobCounts(Struct, frozen=True):
    """The look at all jobs, which may take long."""

    queues: dict[str, dict[State, int]]
    tasks: dict[str, set[str]]
    oldest: dict[str, float]
    flows: dict[str, QueueRates]
    waiting: dict[str, int] = {}
    """Jobs that are ready or scheduled, by task."""
    missing: str = ""
    """Which of several stores is not in it, and why."""


class Snapshot(Struct, frozen=True):
    """The look that is quick whatever the store holds."""

    url: str
    paused: dict[str, bool]
    jobs: list[RunningJob]
    waits: dict[str, float]
    hosts: list[HostRow]
    http: list[EndpointHealth] = []
    """The HTTP tasks."""
    more_jobs: bool = False
    """There run more than are listed."""
    missing: str = ""


class MasterFigures(Struct, frozen=True):
    """The scoreboard, with jobs a second by `seat`. None: no master runs here."""

    board: Board | None
    rates: dict[str, float]
    failing: float = 0.0
    """Failed attempts a second."""


def child_key(child: ChildStatus) -> str:
    """While a worker is replaced, two have its name."""
    return f"{child.name} {child.pid}"


def queues(counted: JobCounts | None, snapshot: Snapshot | None) -> list[QueueRow]:
    """What both looks tell of each queue, by name."""
    paused = snapshot.paused if snapshot else {}
    names = paused.keys() | (counted.queues.keys() if counted else set())
    waits = snapshot.waits if snapshot else {}
    return [_queue(name, paused.get(name, False), waits.get(name), counted) for name in sorted(names)]


def http(counted: JobCounts | None, snapshot: Snapshot | None) -> list[EndpointHealth]:
    """What both looks tell of each HTTP task."""
    known = snapshot.http if snapshot else []
    return known if counted is None else [replace(one, waiting=counted.waiting.get(one.task, 0)) for one in known]


def _queue(name: str, paused: bool, wait: float | None, counted: JobCounts | None) -> QueueRow:
    if counted is None:
        return QueueRow(name, paused, wait=wait)
    counts = counted.queues.get(name, {})
    flow = counted.flows.get(name, QueueRates())
    return QueueRow(
        name,
        paused,
        **{state.value: n for state, n in counts.items()},
        oldest=counted.oldest.get(name),
        wait=wait,
        came=flow.came,
        left=flow.left,
        died=flow.died,
        least=flow.least,
        tasks=tuple(sorted(counted.tasks.get(name, ()))),
    )
