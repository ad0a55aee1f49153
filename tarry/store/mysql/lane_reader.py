"""What a claim under limits reads and writes in MySQL, in few round trips.

Each queue, task and key with a limit has a row that says how far the limit is used, its level. A claim raises it, and
the change that ends an attempt lowers it, in any process. A transaction that reads or writes levels has the turn
(`mysql.settings.TAKE_TURN`), so these transactions run one by one.
"""

from collections.abc import Iterable, Mapping, Sequence

from tarry.model.job import Job
from tarry.model.limit import EACH, Level, Limit
from tarry.model.overrides import cost_of
from tarry.store.mysql import open_lanes
from tarry.store.mysql.claim import Reader, Start, last_of_each
from tarry.store.mysql.distinct_scan import DistinctScan, scan_distinct
from tarry.store.mysql.limits import MysqlLimits, write_levels
from tarry.store.mysql.link.connection import MysqlConnection, StatementResult
from tarry.store.mysql.link.literals import LANE, bounded_statements, id_list, lane_table, text
from tarry.store.mysql.open_lanes import LatenessLine, exists, halves
from tarry.store.mysql.settings import StoreSettings
from tarry.store.rules.base import band
from tarry.store.rules.lanes import JobKey
from tarry.store.sql.columns import name_text
from tarry.store.sql.lane_reader import (
    Candidate,
    FoundLane,
    Lane,
    LaneRange,
    LaneReader,
    LaneState,
    LaneUse,
    Line,
    TaskLine,
    lane_state,
    levels_of,
)

# Levels of keys, of which there may be any number, begin with "each:"; ";" is the character after ":".
_NOT_EACH = "(name < 'each:' OR name >= 'each;')"
_LEVELS = f"SELECT name, running, next, turn FROM tarry_level WHERE {_NOT_EACH}"
_LINE = "queue = {} AND band = {}"
# One column, since the driver takes a microsecond for each column of each row.
_CANDIDATE = "CONCAT_WS(' ', HEX(id), claim_order, due, late)"
_LANE = f"""SELECT {_CANDIDATE} FROM tarry_laned FORCE INDEX (PRIMARY) WHERE queue = {{}}
    AND band = {{}} AND task = {{}} AND lane = {{}} ORDER BY claim_order, due, id LIMIT {{}} FOR UPDATE{{}}"""
_FIRSTS = f"""SELECT {LANE}, (SELECT {_CANDIDATE} FROM tarry_laned FORCE INDEX (PRIMARY) WHERE queue = {{}}
    AND band = {{}} AND task = {{}} AND lane = {LANE} ORDER BY claim_order, due, id LIMIT 1 FOR UPDATE{{}}) FROM {{}}"""
_WRITE_TURNS = "INSERT INTO tarry_level (name, turn) VALUES "
_SET_TURNS = " ON DUPLICATE KEY UPDATE turn = VALUES(turn)"
_ALL, _CLOSED = 10**6, 100
_NO_JOB = Job(b"", "", b"", "")


class MysqlLaneReader(LaneReader[bytes]):
    """For one claim, within a transaction that has the turn. Its items are ids; `claimed` gets the jobs."""

    def __init__(self, link: MysqlConnection, settings: StoreSettings, reader: Reader, start: Start, now: int) -> None:
        self._link, self._limits, self._reader, self._start, self._now = link, settings.limits, reader, start, now
        self._open: dict[Line, list[LatenessLine]] = {}
        """The halves of each open line that have any jobs."""
        self._tasks: dict[Line, list[str]] = {}
        self._served: set[TaskLine] = set()
        self._found: dict[bytes, Job] = {}
        self._was_read: set[bytes] = set()
        self.claimed: list[Job] = []
        self.waits_for_ends = False
        """As in `LaneUse`."""

    def look(self, lines: Sequence[Line]) -> LaneState:
        """Also opens lanes whose time has come."""
        next_open = MysqlLimits(self._link).reopen_due(self._now, _CLOSED) if self._limits else None
        # All lines at once: one round trip, where SQLite reads each line when the claim comes to it.
        look = "SELECT " + ", ".join(exists([half]) for line in lines for half in halves(*line))
        rows, ready = self._link.run(_LEVELS, look)
        has_jobs = iter(ready.rows[0])
        self._open = {line: [half for half in halves(*line) if next(has_jobs)] for line in lines}
        scans = [DistinctScan("tarry_laned", "task", _LINE.format(text(q), -band), _ALL) for q, band in lines]
        tasks = zip(lines, scan_distinct(self._link, scans), strict=True)
        self._tasks = {line: list(map(name_text, found)) for line, found in tasks if found or self._open[line]}
        return lane_state(self._limits, rows.rows, next_open)

    def tasks(self, line: Line) -> list[str] | None:
        return self._tasks.get(line)

    def has_open_jobs(self, line: Line) -> bool:
        return bool(self._open[line])

    def open_fronts(self, line: Line, most: int) -> list[list[Candidate[bytes]]]:
        fronts = [self._reader.front(half, most, what=_CANDIDATE) for half in self._open[line]]
        found = self._link.run(*(statement for front in fronts for statement in front)) if fronts else []
        return [_candidates(answer) for answer in last_of_each(found, len(fronts))]

    def lanes(self, line: Line, stretches: Mapping[str, LaneRange]) -> dict[str, list[FoundLane]]:
        found = scan_distinct(self._link, [self._scan(line, task, stretch) for task, stretch in stretches.items()])
        lanes = {task: list(map(name_text, names)) for task, names in zip(stretches, found, strict=True)}
        empty = open_lanes.find_empty(self._link, line, {t: lanes[t] for t in lanes if EACH + t in self._limits})
        return {task: [FoundLane(lane, (task, lane) not in empty) for lane in names] for task, names in lanes.items()}

    def _scan(self, line: Line, task: str, stretch: LaneRange) -> DistinctScan:
        # Without a limit for each key no lane is ever full, so all lanes with jobs count.
        table = "tarry_open" if EACH + task in self._limits else "tarry_laned"
        where = f"{_LINE.format(text(line[0]), -line[1])} AND task = {text(task)}"
        if stretch.last is not None:
            where += f" AND lane <= {text(stretch.last)}"
        return DistinctScan(table, "lane", where, stretch.count, None if stretch.after is None else text(stretch.after))

    def lane_levels(self, names: Sequence[str]) -> dict[str, Level]:
        wanted = id_list(name.encode() for name in names)
        return levels_of(self._link.rows(f"SELECT name, running, next FROM tarry_level WHERE name IN ({wanted})"))

    def key_limits(self, names: Sequence[str]) -> dict[str, Limit]:
        return MysqlLimits(self._link).key_limits(self._limits, names)

    def weights(self, task: str) -> Mapping[str, int]:
        return MysqlLimits(self._link).weights(task)

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> Sequence[FoundLane]:
        found = open_lanes.find_open(self._link, (*line, task), lanes)
        empty = open_lanes.find_empty(self._link, line, {task: found})
        return [FoundLane(lane, (task, lane) not in empty) for lane in found]

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[bytes]]]:
        # Of many lanes mostly one job each is asked for.
        of_one: dict[str, list[str]] = {}
        for (task, lane), most in counts.items():
            if most == 1:
                of_one.setdefault(task, []).append(lane)
        more = {lane: most for lane, most in counts.items() if most > 1}
        place, skip = (text(line[0]), -line[1]), self._reader.skip
        looks = [_FIRSTS.format(*place, text(task), skip, lane_table(lanes)) for task, lanes in of_one.items()]
        looks += [_LANE.format(*place, text(task), text(lane), most, skip) for (task, lane), most in more.items()]
        answers = self._link.run(*looks)
        fronts: dict[Lane, Sequence[Candidate[bytes]]] = dict.fromkeys(counts, ())
        for task, answer in zip(of_one, answers, strict=False):
            fronts |= {(task, name_text(lane)): [_candidate(first)] for lane, first in answer.rows if first is not None}
        fronts |= dict(zip(more, map(_candidates, answers[len(of_one) :]), strict=True))
        return fronts

    def costs(self, items: Sequence[bytes]) -> list[int]:
        self._read(items)
        return [cost_of(self._found[id].headers) if id in self._found else 1 for id in items]

    def job_key(self, item: bytes) -> JobKey:
        # What moves into a lane only now does not start.
        job = self._found.get(item, _NO_JOB)
        return job.queue, job.task, job.lane

    def _read(self, items: Sequence[bytes]) -> None:
        self._found |= {job.id: job for job in self._start.read([id for id in items if id not in self._was_read])}
        self._was_read.update(items)

    def start(self, items: Sequence[bytes]) -> list[bytes]:
        self._read(items)
        jobs = [self._found[id] for id in items if id in self._found]
        if jobs:
            self._link.run(*self._start.statements(jobs))
        self._served |= {(job.queue, band(job.priority), job.task) for job in jobs if job.lane is not None}
        self.claimed += jobs
        return [id for id in items if id in self._found]

    def save(self, use: LaneUse) -> None:
        """Writes levels and turns, closes full lanes, and removes empty ones."""
        self.waits_for_ends = use.waits_for_ends
        turns = (f"({text(name)},{text(turn)})" for name, turn in sorted(use.turns.items()))
        self._run(
            [
                *write_levels(use.levels),
                *bounded_statements(_WRITE_TURNS, turns, _SET_TURNS),
            ]
        )
        for line in sorted({*use.drained, *use.empty, *use.full}):
            full = use.full.get(line, {})
            # A lane that gave all that was read of it may be empty, or its jobs are locked: `close_and_remove` looks.
            perhaps = use.drained.get(line, set()) | use.empty.get(line, set())
            open_lanes.close_and_remove(self._link, line, full, perhaps - full.keys())
        # Inserts always add rows to tarry_open, also for tasks that never need them.
        for line in sorted(self._served):
            if EACH + line[-1] not in self._limits:
                open_lanes.remove_unneeded(self._link, line)

    def _run(self, statements: Iterable[str]) -> None:
        if statements := list(statements):
            self._link.run(*statements)


def _candidates(answer: StatementResult) -> list[Candidate[bytes]]:
    return [_candidate(text) for (text,) in answer.rows]


def _candidate(text: str) -> Candidate[bytes]:
    digits, claim_order, due, late = text.split()
    id = bytes.fromhex(digits)
    return (int(claim_order), int(due), late == "1", id), id
