"""How fast waiting jobs are run: claimed, called, and their end on record."""

from collections.abc import Iterator

from bench import machine
from bench.app import BODY, anoop, noop, sleep10
from bench.board import BOARD
from bench.measure import NONE, Figure, Target, at_least, goal, measure, share
from bench.measures import raw
from bench.place import APP, Bench
from bench.waiting import until
from tarry import Task

_JOBS = 200_000


@measure("drain-sync-1", limit=120)
def sync_one(bench: Bench) -> Iterator[Figure]:
    yield from drained(bench, _name("sync", 1), noop, 1, raw.moved(1000, 1), goal(bench, sqlite=at_least(60_000)))


@measure("drain-sync-2", limit=120)
def sync_two(bench: Bench) -> Iterator[Figure]:
    rates = {"redis": at_least(80_000), "postgresql": at_least(30_000), "mysql": at_least(20_000)}
    target = goal(bench, sqlite=share(1.0), **rates)
    against = _name("sync", 1) if bench.kind == "sqlite" else raw.moved(1000, 2)
    yield from drained(bench, _name("sync", 2), noop, 2, against, target)


@measure("drain-async-1", limit=120)
def async_one(bench: Bench) -> Iterator[Figure]:
    yield from drained(bench, _name("async", 1), anoop, 1, raw.moved(1000, 1), goal(bench, sqlite=at_least(40_000)))


@measure("drain-async-2", limit=120)
def async_two(bench: Bench) -> Iterator[Figure]:
    yield from drained(bench, _name("async", 2), anoop, 2, _name("async", 1), share(1.0))


@measure("drain-sleep", limit=120)
def sleeping(bench: Bench) -> Iterator[Figure]:
    name = "drain, async tasks of 10 ms, async = 1000, 1 worker"
    yield from drained(bench, name, sleep10, 1, _name("async", 1), None, 50_000, 1000)


def _name(kind: str, workers: int) -> str:
    return f"drain, {kind} no-op, {workers} worker{'s' if workers > 1 else ''}"


def drained(
    bench: Bench,
    name: str,
    task: Task[[int, str], None],
    workers: int,
    against: str,
    target: Target | None,
    jobs: int = _JOBS,
    coroutines: int = 100,
    app: str = APP,
) -> Iterator[Figure]:
    """The rate from the first end to the last, the jobs lost and run twice, and the workers' memory after it."""
    numbers = range(bench.scaled(jobs))
    with bench.place(app=app) as place:
        place.hold_back()
        for start in range(0, len(numbers), 1000):
            task.enqueue_many([(number, BODY) for number in numbers[start : start + 1000]])
        with place.workers(workers, coroutines) as crew:
            used = _cpu(crew.everybody)
            place.let_go()
            done = wait_for(numbers, len(numbers), 60)
            used = _cpu(crew.everybody) - used
            yield Figure(name, end_rate(numbers), "/s", against, target)
            yield Figure(f"{name}: CPU a job, of all processes", used / max(done, 1) * 1e6, "µs")
            yield Figure(f"{name}: lost", len(numbers) - done, "jobs", target=NONE)
            yield Figure(f"{name}: run twice", BOARD.doubled(numbers), "jobs", target=NONE)
            yield Figure(f"{name}: RSS of a worker", most_memory(crew.pids), "MB")


def wait_for(numbers: range, enough: int, limit: float) -> int:
    """Waits until so many of them are done, as long as others follow; answers how many are."""
    until(lambda: BOARD.count(numbers) >= enough, limit, 0.02)
    return BOARD.count(numbers)


def end_rate(numbers: range, first: int | None = None) -> float:
    """Ends a second, from the first end to the last; or over the `first` so many."""
    ends = BOARD.ends(numbers)[:first]
    return (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0


def _cpu(pids: list[int]) -> float:
    return sum(machine.cpu(pid) for pid in pids)


def most_memory(pids: list[int]) -> float:
    """MB resident in the largest of them."""
    return max((machine.memory(pid)[0] for pid in pids), default=0) / 1e6
