"""Reads and writes for a claim under limits in PostgreSQL, in few round trips.

For those that `functions/claim_in_lanes.sql` leaves: keys have numbers of their own, jobs a cost, or many lanes are
full.

Two claims of jobs of one task take turns: a claim locks the task's level row. The ends of attempts do not wait for it:
they lower levels at any time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.model.overrides import cost_of
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.limits import PostgresLimits, PostgresTransaction
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.rules.lanes import JobKey, decode_limit, lane_level, turn_name
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import (
    Candidate,
    FoundLane,
    Lane,
    LaneRange,
    LaneReader,
    LaneState,
    LaneUse,
    Line,
    lane_state,
)


class WaitingJob(Struct, frozen=True, gc=False):
    """A job that may be claimed. priority: minus its priority."""

    id: bytes
    claim_order: int
    due: int
    late: bool
    queue: str
    task: str
    lane: str | None
    headers: bytes | None = None
    """Only of a job with a cost."""


class PostgresLaneReader(PostgresTransaction, LaneReader[WaitingJob]):
    """Reads and writes for one claim of this owner, in its own transaction. `claimed` gets the rows of `sql.TAKE`."""

    def __init__(self, link: PostgresConnection, schema: str, owner: str, now: int) -> None:
        super().__init__(link, schema)
        self._lanes, self._owner, self._now = PostgresLimits(link, schema), owner, now
        self._limits: dict[str, Limit] = {}
        """The limits that count here."""
        self._stored_limits: dict[str, bytes] = {}
        """The same limits as they are stored: closing a lane compares them (`PostgresLimits.close`)."""
        self._tasks: dict[Line, list[str]] = {}
        self._open_lines = set[Line]()
        """Where jobs without a lane wait."""
        self._lane_levels: dict[str, Level] = {}
        self._key_limits: dict[str, Limit] = {}
        self.claimed: list[Row] = []

    def look(self, lines: Sequence[Line]) -> LaneState:
        """What a claim of these lines begins with, without paused queues. Locks the levels of queues and tasks."""
        tasks = self._find_tasks(lines)
        all_tasks = sorted({task for names in tasks.values() for task in names})
        queues = {QUEUE + queue for queue, _ in tasks}
        # Only these: there may be thousands of other limits.
        names = {*queues, *(kind + task for task in all_tasks for kind in (TASK, EACH))}
        self._read_limits(names)  # which levels to lock
        turns = {turn_name(*line, task) for line, names in tasks.items() for task in names}
        rows = self._lock_levels({*(TASK + task for task in all_tasks), *queues.intersection(self._limits), *turns})
        if self._limits:
            # Now that the levels are locked: those of before do not count any more.
            self._read_limits(names)
        self._tasks = tasks
        return lane_state(self._limits, rows)

    def _read_limits(self, names: Collection[str]) -> None:
        self._stored_limits = dict(self.rows(sql.LIMITS_OF, (pack.texts(sorted(names)),)))
        self._limits = {name: decode_limit(value) for name, value in self._stored_limits.items()}

    def _find_tasks(self, lines: Sequence[Line]) -> dict[Line, list[str]]:
        """Of each line that is not paused."""
        queues, bands = pack.texts(queue for queue, _ in lines), pack.big_ints(band for _, band in lines)
        found: dict[Line, list[str]] = {}
        for queue, band, task, has_open_jobs in self.rows(sql.TASKS, (queues, bands)):
            line = queue, band
            if has_open_jobs:
                self._open_lines.add(line)
            if has_open_jobs or task is not None:
                found.setdefault(line, []).extend([] if task is None else [task])
        return found

    def _lock_levels(self, names: set[str]) -> Sequence[Row]:
        packed = pack.texts(sorted(names))
        if not names:
            return []
        # A row that is not there cannot be locked. All lock in the order of names, so that claims do not deadlock.
        self.change(sql.LEVELS_THERE, (packed,))
        return self.rows(sql.LEVELS, (packed,))

    def tasks(self, line: Line) -> list[str] | None:
        return self._tasks.get(line)

    def has_open_jobs(self, line: Line) -> bool:
        return line in self._open_lines

    def open_fronts(self, line: Line, most: int) -> list[list[Candidate[WaitingJob]]]:
        if line not in self._open_lines:
            return []
        queue, band = line
        jobs = _candidates(self.rows(sql.OPEN_LINES, (queue, -band, most)))
        return [[job for job in jobs if job[1].late is late] for late in (True, False)]

    def lanes(self, line: Line, stretches: Mapping[str, LaneRange]) -> dict[str, list[FoundLane]]:
        return {task: self._read_lanes(line, task, stretch) for task, stretch in stretches.items()}

    def _read_lanes(self, line: Line, task: str, stretch: LaneRange) -> list[FoundLane]:
        """The lanes of one task. One statement brings their levels, too, for `lane_levels`."""
        # With a limit for each key only open lanes are read, however many are full.
        first, after = (
            (sql.OPEN_FROM, sql.OPEN_AFTER) if EACH + task in self._limits else (sql.LANES_FROM, sql.LANES_AFTER)
        )
        statement, start = (first, "") if stretch.after is None else (after, stretch.after)
        rows = self.rows(statement, (line[0], -line[1], task, start, stretch.count))
        rows = [row for row in rows if stretch.last is None or row[0] <= stretch.last]
        return self._found(task, rows)

    def lane_levels(self, names: Sequence[str]) -> dict[str, Level]:
        return self._lane_levels

    def key_limits(self, names: Sequence[str]) -> dict[str, Limit]:
        found = self._lanes.key_limits(self._limits, names)
        self._key_limits |= found
        return found

    def weights(self, task: str) -> Mapping[str, int]:
        return self._lanes.weights(task)

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> Sequence[FoundLane]:
        return self._found(task, self.rows(sql.OPEN_NAMED, (line[0], -line[1], task, pack.texts(lanes))))

    def _found(self, task: str, rows: Sequence[Row]) -> list[FoundLane]:
        self._lane_levels |= {lane_level(task, lane): Level(running, next) for lane, running, next, _ in rows}
        return [FoundLane(lane, has_jobs) for lane, _, _, has_jobs in rows]

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[WaitingJob]]]:
        fronts: dict[Lane, list[Candidate[WaitingJob]]] = {lane: [] for lane in counts}
        for task in dict.fromkeys(task for task, _ in counts):
            lanes = {lane: count for (of, lane), count in counts.items() if of == task}
            names, most = pack.texts(lanes), pack.big_ints(lanes.values())
            for job in _candidates(self.rows(sql.LINES, (line[0], -line[1], task, names, most))):
                fronts[task, job[1].lane or ""].append(job)
        return {**fronts}

    def costs(self, items: Sequence[WaitingJob]) -> list[int]:
        return [1 if job.headers is None else cost_of(bytes(job.headers)) for job in items]

    def job_key(self, item: WaitingJob) -> JobKey:
        return item.queue, item.task, item.lane

    def start(self, items: Sequence[WaitingJob]) -> list[WaitingJob]:
        # A job that another claim has locked or taken is skipped: only what comes back is ours.
        rows = self.rows(sql.TAKE, (pack.uuids([job.id for job in items]), self._owner, self._now))
        self.claimed += rows
        got = {row[0] for row in rows}
        return [job for job in items if job.id in got]

    def save(self, use: LaneUse) -> None:
        if use.started:
            # Starts are added: ends of attempts may have lowered the levels since they were read. Sorted, so that
            # claims lock rows in one order.
            names = sorted(use.started)
            counts, following = [use.started[name] for name in names], [use.levels[name].next for name in names]
            self.change(sql.RAISE_LEVELS, (pack.texts(names), pack.big_ints(counts), pack.big_ints(following)))
        if use.turns:
            self.change(sql.SAVE_TURNS, (pack.texts(use.turns), pack.texts(use.turns.values())))
        for line in sorted({*use.empty, *use.drained}):
            lanes = use.empty.get(line, set()) | use.drained.get(line, set())
            self._lanes.remove(line, sorted(lanes))
        # Last: after closing lanes a claim must not wait for any lock (`PostgresLimits.close`).
        for line, full in use.full.items():
            task = line[-1]
            each = self._limits[EACH + task]
            limits = {lane: self._key_limits.get(lane_level(task, lane), each) for lane in full}
            self._lanes.close(line, limits, self._stored_limits[EACH + task], self._now)


def _candidates(rows: Iterable[Row]) -> list[Candidate[WaitingJob]]:
    return [((job.claim_order, job.due, job.late, job.id), job) for job in (WaitingJob(*row) for row in rows)]
