"""What a store answers about the jobs that wait. Each count has a bound, so it is cheap, however many jobs wait."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from tarry.model.job import Job, State
from tarry.model.lifecycle import is_late


class CappedCount(Struct, frozen=True):
    """A count that ends at a bound."""

    count: int
    at_least: bool = False
    """The bound was reached: there may be more."""


class ReadyBefore(Struct, frozen=True):
    """Of the ready jobs of a queue, how many are in which place to one of them. Each number is at most the bound."""

    higher: int
    """Jobs without a lane, of a higher priority."""
    earlier: tuple[int, int]
    """Of its priority and without a lane, due before it (or at that time, with a smaller id): on time, and late."""
    same: tuple[int, int]
    """All of its priority and without a lane: on time, and late."""
    in_lanes: int
    """Jobs in lanes, of a higher priority or of its own and due before it."""
    examined: int
    """How many jobs in lanes were looked at."""


class WaitingLane(Struct, frozen=True):
    """The jobs of a lane that are ready in one queue."""

    count: CappedCount = CappedCount(0)
    oldest: int | None = None
    """The earliest `due` of those counted; None: none waits."""


class WaitingCounts(ABC):
    """The waiting jobs of a store. Each verb looks at up to `most` jobs for each number that it counts."""

    @abstractmethod
    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        """How many scheduled jobs come due before the first of these times, from each to before the next, and from the
        last on. bounds: growing, at most 100. queues: only the jobs of these; None: of all.

        Looks at the earliest `most` jobs of each part, of whatever queues: so with `queues` a count may be 0 with
        `at_least`, where other queues have many jobs in that part."""
        # No store has an index of scheduled jobs by queue, which would make every put dearer.

    @abstractmethod
    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        """How many jobs of the queue are ready in each band (`base.BANDS`). Those that a limit holds back count."""

    @abstractmethod
    def lane(self, queue: str, task: str, lane: str, most: int) -> WaitingLane:
        """The jobs of a lane of a task that are ready in this queue. Those that a limit holds back count."""

    @abstractmethod
    def tasks(self, queue: str, after: str, most: int) -> list[str]:
        """The first limited tasks by name, of those after this one, of which jobs are ready in this queue. Those that a
        limit holds back count."""

    def before(self, job: Job, most: int) -> CappedCount:
        """How many ready jobs of its queue are to run before this one, in the order of promise 5 of `rules.base`.

        job: ready, or scheduled and due. Higher bands count as before it, although bands share starts. Late jobs and
        jobs on time of its priority take turns. Jobs in lanes count by priority, due and id, although lanes take turns.
        Of several stores, it is the sum over all of them: workers claim from each."""
        found = self._before(job, most)
        count = found.higher + found.in_lanes
        if job.lane is not None:
            count += sum(found.earlier)
        else:
            late = job.state is not State.READY or is_late(job.due, job.state_since)
            # One of the other kind for each of its own; which kind begins is as good as drawn.
            count += found.earlier[late] + min(found.earlier[late], found.same[not late])
        return CappedCount(min(count, most), count >= most or found.examined >= most)

    @abstractmethod
    def _before(self, job: Job, most: int) -> ReadyBefore:
        """What `before` counts with."""


def merge_lanes(parts: Iterable[WaitingLane], most: int) -> WaitingLane:
    """Several parts of a lane as one."""
    parts = list(parts)
    count = sum(part.count.count for part in parts)
    oldest = min((part.oldest for part in parts if part.oldest is not None), default=None)
    return WaitingLane(
        CappedCount(min(count, most), count >= most or any(part.count.at_least for part in parts)), oldest
    )


def merge_tasks(parts: Iterable[Iterable[str]], most: int) -> list[str]:
    """The first of the tasks of several parts, each of which has its first `most`."""
    return sorted({task for part in parts for task in part})[:most]


def capped(count: int, most: int) -> CappedCount:
    """A count that ended at `most` if it reached that."""
    return CappedCount(min(count, most), count >= most)
