"""What a claim under limits reads and writes in the embedded store."""

from array import array
from collections.abc import Mapping, Sequence

import msgspec

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.model.overrides import cost_of
from tarry.store.rules.lanes import JobKey, turn_name
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import Candidate, FoundLane, Lane, LaneRange, LaneReader, LaneState, LaneUse, Line
from tarry.store.sql.lane_scan import FULL
from tarry.store.sqlite import sql
from tarry.store.sqlite.levels import LevelTable
from tarry.store.sqlite.limits import SqliteLimits, SqliteTransaction
from tarry.store.sqlite.link.database import Database
from tarry.store.sqlite.open_line import DUE, ID, PRIORITY, OpenLine

TASK_OF, QUEUE_OF, LANE, HEADERS = (sql.PLACE[field] for field in ("task", "queue", "lane", "headers"))
"""The places of these columns in a row of `sqlite.sql.CLAIMED`."""


def _in_lane(candidate: Candidate[Row]) -> tuple[int, int, bytes]:
    """Where it stands in its lane, whether it is late or not."""
    priority, due, _, id = candidate[0]
    return priority, due, id


def _candidate(row: Row) -> Candidate[Row]:
    """Of a row that ends with whether the job is late."""
    return (-row[PRIORITY], row[DUE], row[-1] == 1, row[ID]), row[:-1]


class SqliteLaneReader(SqliteTransaction, LaneReader[Row]):
    """For one claim of this owner. Its items are rows of `sqlite.sql.CLAIMED`; `claimed` gets the claimed ones."""

    def __init__(self, db: Database, limits: Mapping[str, Limit], levels: LevelTable, owner: str, now: int) -> None:
        self._db: Database = db
        self._limits, self._levels, self._owner, self._now = limits, levels, owner, now
        self._open = SqliteLimits(db)
        self._state = LaneState(limits, {}, {})
        self._tasks: dict[Line, list[str] | None] = {}
        self._waiting: dict[str, dict[int, tuple[bool, bool]]] = {}
        self.claimed: list[Row] = []
        self.waits_for_ends = False
        """As in `LaneUse`."""

    def look(self, lines: Sequence[Line]) -> LaneState:
        """Also opens lanes whose time has come."""
        next_open = self._open.reopen_due(self._now, FULL)
        # Lines are read only when the claim comes to them: a statement costs little here, since there is no server.
        levels = self._levels.levels({name for queue, _ in lines if (name := QUEUE + queue) in self._limits})
        self._state = LaneState(self._limits, levels, {}, next_open)
        return self._state

    def tasks(self, line: Line) -> list[str] | None:
        if line not in self._tasks:
            has_open_jobs, has_lanes = self._look_at(line)
            found = [task for (task,) in self.rows(sql.TASKS, (line[0], -line[1]))] if has_lanes else []
            self._tasks[line] = found if found or has_open_jobs else None
            if not found:
                return self._tasks[line]
            turns = [turn_name(*line, task) for task in found]
            # In one statement, as far as they are not known yet.
            levels = self._levels.levels([*turns, *(TASK + task for task in found)])
            self._state.turns.update((name, self._levels.turn(name)) for name in turns)
            new = {TASK + task for task in found} & self._limits.keys() - self._state.levels.keys()
            self._state.levels |= {name: levels[name] for name in new}
        return self._tasks[line]

    def _look_at(self, line: Line) -> tuple[bool, bool]:
        """Whether jobs without a lane waited in the line when the claim began, and whether jobs in lanes did."""
        queue, band = line
        # All bands in one statement: under few limits a claim has few jobs, and its statements are most of its cost.
        if queue not in self._waiting:
            ((*found,),) = self.rows(sql.LOOK, (queue,))
            pairs = zip(map(bool, found[::2]), map(bool, found[1::2]), strict=True)
            self._waiting[queue] = dict(zip(sql.LOOKED_AT, pairs, strict=True))
        return self._waiting[queue][band]

    def has_open_jobs(self, line: Line) -> bool:
        return self._look_at(line)[0]

    def open_fronts(self, line: Line, most: int) -> Sequence[Sequence[Candidate[Row]]]:
        return OpenLine(self._db, line).fronts(most) if self.has_open_jobs(line) else ()

    def lanes(self, line: Line, stretches: Mapping[str, LaneRange]) -> Mapping[str, Sequence[FoundLane]]:
        return {
            task: (self._open.open_lanes if EACH + task in self._limits else self._read_lanes)((*line, task), stretch)
            for task, stretch in stretches.items()
        }

    def _read_lanes(self, place: tuple[str, int, str], stretch: LaneRange) -> list[FoundLane]:
        """Lanes of a task without a limit for each key."""
        queue, band, task = place
        statement, after = (sql.LANES_FROM, "") if stretch.after is None else (sql.LANES_AFTER, stretch.after)
        rows = self.rows(statement, (queue, -band, task, after, stretch.count, stretch.last))
        return [FoundLane(lane) for (lane,) in rows]

    def lane_levels(self, names: Sequence[str]) -> dict[str, Level]:
        return self._levels.levels(names)

    def key_limits(self, names: Sequence[str]) -> dict[str, Limit]:
        return self._open.key_limits(self._limits, names)

    def weights(self, task: str) -> Mapping[str, int]:
        return self._open.weights(task)

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> Sequence[FoundLane]:
        return self._open.named_lanes((*line, task), lanes)

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[Row]]]:
        fronts: dict[Lane, list[Candidate[Row]]] = {lane: [] for lane in counts}
        alike: dict[tuple[str, int], list[str]] = {}
        for (task, lane), most in counts.items():
            if (task, most) not in alike:
                alike[task, most] = []
            alike[task, most].append(lane)
        # One statement for all that differ only in their lanes: of many, few jobs each are read.
        for (task, most), lanes in alike.items():
            if len(lanes) == 1:
                fronts[task, lanes[0]] = self._lane_front(line, task, lanes[0], most)
                continue
            names = msgspec.json.encode(lanes).decode()
            for row in self.rows(sql.LANE_FRONTS, (line[0], -line[1], task, names, most)):
                fronts[task, row[LANE]].append(_candidate(row))
        for front in fronts.values():
            if len(front) > 1:
                front.sort(key=_in_lane)
        return {**fronts}

    def _lane_front(self, line: Line, task: str, lane: str, most: int) -> list[Candidate[Row]]:
        rows = self.rows(sql.LANE_FRONT, (line[0], -line[1], task, lane, most))
        return [_candidate(row) for row in rows]

    def costs(self, items: Sequence[Row]) -> list[int]:
        # Few jobs have headers at all.
        return [cost_of(row[HEADERS]) if row[HEADERS] else 1 for row in items]

    def job_key(self, item: Row) -> JobKey:
        return item[QUEUE_OF], item[TASK_OF], item[LANE]

    def start(self, items: Sequence[Row]) -> Sequence[Row]:
        self._db.execute(sql.CLAIM, (self._owner, self._now, self._db.array(array("q", [row[0] for row in items]))))
        self.claimed += items
        return items

    def save(self, use: LaneUse) -> None:
        self.waits_for_ends = use.waits_for_ends
        self._levels.set_levels(use.levels)
        self._levels.set_turns(use.turns)
        for place, full in use.full.items():
            self._open.close(place, full)
        for place in {**use.empty, **use.drained}:
            self._open.remove(place, use.empty.get(place, set()) | use.drained.get(place, set()))
