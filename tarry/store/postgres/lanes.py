"""Claims under limits and from lanes: read in a few round trips, chosen by the arithmetic that all stores share.

Two who claim jobs of one task take turns: the task's level row is locked for as long as that takes, and those of its
lanes are changed only by who holds it, or after it. The end of an attempt lowers the levels in the database itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.base import HIGH, NORMAL, Want
from tarry.store.lanes import Levels, counted, dealt, each, limit_in, limit_of, merged
from tarry.store.postgres import rows as pack
from tarry.store.postgres import sql
from tarry.store.postgres.link import Link, Row

EXAMINED = 1000
"""At most so many lanes of a task are looked at in one claim, so that a claim has a bounded cost."""
_FAR = 2**62


class Placed(Struct, frozen=True, gc=False):
    """A job that may be chosen. rank: its priority's negative."""

    id: bytes
    rank: int
    due: int
    queue: str
    task: str
    lane: str | None


def limits_in(link: Link, schema: str) -> dict[str, Limit]:
    """The limits that are set."""
    return _decoded(link.rows(sql.at(sql.LIMITS, schema)))


def _decoded(rows: Iterable[Row]) -> dict[str, Limit]:
    return {name: limit_in(value) for name, value in rows}


class LaneClaim:
    """One claim, within a transaction of its own."""

    def __init__(self, link: Link, schema: str, owner: str, now: int) -> None:
        self._link, self._schema, self._owner, self._now = link, schema, owner, now
        self._limits: dict[str, Limit] = {}
        """Those that count here; there may be thousands of others."""
        self._known: dict[str, Level] = {}
        self._turns: dict[str, str | None] = {}
        self._levels = Levels(self._limits, self._known, now)
        self._tasks: dict[Want, list[str]] = {}

    def chosen(self, wants: Sequence[Want], limit: int) -> tuple[list[Row], int | None]:
        """Up to so many jobs, claimed; with none, when a rate lets start what it held back."""
        paused = {queue for (queue,) in self._rows(sql.PAUSED)}
        wants = [want for want in wants if want.queue not in paused]
        self._tasks = {want: self._tasks_of(want) for want in wants}
        self._read_limits(wants)
        self._lock(wants)
        rows: list[Row] = []
        ended: set[Want] = set()
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            most = min(count, limit - len(rows))
            if most > 0 and want not in ended:
                taken = self._take(want, most)
                rows += taken
                if not taken:
                    ended.add(want)
        self._save()
        return rows, None if rows else self._levels.again

    def _tasks_of(self, want: Want) -> list[str]:
        return [task for (task,) in self._rows(sql.TASKS, (want.queue, -want.band))]

    def _read_limits(self, wants: Sequence[Want]) -> None:
        names = {QUEUE + want.queue for want in wants}
        names |= {kind + task for tasks in self._tasks.values() for task in tasks for kind in (TASK, EACH)}
        self._limits |= _decoded(self._rows(sql.LIMITS_OF, (pack.texts(sorted(names)),)))

    def _lock(self, wants: Sequence[Want]) -> None:
        names = {TASK + task for tasks in self._tasks.values() for task in tasks}
        names |= {QUEUE + want.queue for want in wants if QUEUE + want.queue in self._limits}
        if not names:
            return
        packed = pack.texts(sorted(names))
        self._run(sql.LEVELS_THERE, (packed,))
        for name, running, following, turn in self._rows(sql.LEVELS, (packed,)):
            self._known[name] = Level(running, following)
            if name.startswith(TASK):
                self._turns[name.removeprefix(TASK)] = turn

    def _take(self, want: Want, count: int) -> list[Row]:
        open_line = self._open_line(want, count)
        if not open_line and not self._tasks[want]:
            return []
        most = self._levels.room(QUEUE + want.queue, count)
        lines = [open_line[:most], *(self._dealt(want, task, most) for task in self._tasks[want])]
        chosen = merged([[((job.rank, job.due), job) for job in line] for line in lines], most)
        if not chosen:
            return []
        ids = pack.uuids([job.id for job in chosen])
        rows = self._rows(sql.TAKE, (ids, self._owner, self._now))
        got = {row[0] for row in rows}
        self._start([job for job in chosen if job.id in got])
        return rows

    def _open_line(self, want: Want, most: int) -> list[Placed]:
        low, high = (-_FAR, -1) if want.band == HIGH else (0, 0) if want.band == NORMAL else (1, _FAR)
        return _placed(self._rows(sql.OPEN_LINE, (want.queue, -want.band, low, high, most)))

    def _dealt(self, want: Want, task: str, most: int) -> list[Placed]:
        most = self._levels.room(TASK + task, most)
        if not most:
            return []
        lanes = self._lanes(want, task, most)
        if not lanes:
            return []
        fair = -(-most // len(lanes))
        lines = self._lines(want, task, [(lane, min(room, fair)) for lane, room in lanes])
        if sum(map(len, lines)) < most:
            # Some gave less than their part: what they leave is the others'.
            more = [lane for line, lane in zip(lines, lanes, strict=True) if len(line) == fair]
            longer = dict(zip((lane for lane, _ in more), self._lines(want, task, more), strict=True)) if more else {}
            lines = [longer.get(lane, line) for line, (lane, _) in zip(lines, lanes, strict=True)]
        return dealt(lines, most)

    def _lanes(self, want: Want, task: str, most: int) -> list[tuple[str, int]]:
        """Lanes with room, and how much, beginning after the one served last."""
        found: list[tuple[str, int]] = []
        for number, lane in enumerate(self._circle(want, task, most)):
            if number == EXAMINED:
                # Not all were looked at, so it may be worth coming again at once; then the next ones have their turn.
                self._levels.again, self._turns[task] = 0, lane
                break
            if room := self._levels.room(each(task, lane), most):
                found.append((lane, room))
            if len(found) == most:
                break
        return found

    def _circle(self, want: Want, task: str, most: int) -> Iterator[str]:
        turn = self._turns.get(task)
        if turn is not None:
            yield from self._series(want, task, sql.LANES_AFTER, turn, most)
        for lane in self._series(want, task, sql.LANES_FROM, "", most):
            if turn is not None and lane > turn:
                return
            yield lane

    def _series(self, want: Want, task: str, statement: str, start: str, count: int) -> Iterator[str]:
        """Lanes by name, read some at a time; with them what is known of their levels."""
        while True:
            count = min(count, EXAMINED)
            rows = self._rows(statement, (want.queue, -want.band, task, start, count))
            for lane, running, following in rows:
                self._known.setdefault(each(task, lane), Level(running, following))
                yield lane
            if len(rows) < count:
                return
            statement, start, count = sql.LANES_AFTER, rows[-1][0], 4 * count

    def _lines(self, want: Want, task: str, lanes: Sequence[tuple[str, int]]) -> list[list[Placed]]:
        names, most = pack.texts([lane for lane, _ in lanes]), pack.big_ints([count for _, count in lanes])
        lines: dict[str | None, list[Placed]] = {lane: [] for lane, _ in lanes}
        for job in _placed(self._rows(sql.LINES, (want.queue, -want.band, task, names, most))):
            lines[job.lane].append(job)
        return list(lines.values())

    def _start(self, jobs: Sequence[Placed]) -> None:
        starts = [(job.queue, job.task, job.lane) for job in jobs]
        for name, count in counted(starts, self._limits).items():
            level = self._known.get(name, Level())
            self._known[name] = level.started(self._limits[limit_of(name)], count, self._now)
        for _, task, lane in starts:
            if lane is not None:
                self._turns[task] = lane

    def _save(self) -> None:
        """A key that is as good as never used leaves nothing behind."""
        limited = {name: level for name, level in self._known.items() if limit_of(name) in self._limits}
        idle = [name for name, level in limited.items() if name.startswith(EACH) and level.idle(self._now)]
        used = [(name, level) for name, level in sorted(limited.items()) if name not in set(idle)]
        if idle:
            self._run(sql.FORGET_LEVELS, (pack.texts(idle),))
        if used:
            numbers = [level.running for _, level in used], [level.next for _, level in used]
            self._run(sql.SAVE_LEVELS, (pack.texts([name for name, _ in used]), *map(pack.big_ints, numbers)))
        if self._turns:
            names = pack.texts([TASK + task for task in self._turns])
            self._run(sql.SAVE_TURNS, (names, pack.texts(self._turns.values())))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._link.rows(sql.at(statement, self._schema), values)

    def _run(self, statement: str, values: Sequence[Any]) -> None:
        self._link.run(sql.at(statement, self._schema), values)


def _placed(rows: Iterable[Row]) -> list[Placed]:
    return [Placed(*row) for row in rows]


def change_limit(link: Link, schema: str, name: str, limit: Limit) -> bool:
    """Gives one that is set another number; False if it is not. What runs is counted, and jobs have lanes, since it is
    there: nobody has to look through all of them, nor to wait."""
    return link.run(sql.at(sql.CHANGE_LIMIT, schema), (name, msgspec.json.encode(limit))) > 0


def set_limit(link: Link, schema: str, name: str, limit: Limit | None) -> None:
    """Sets or lifts one, and counts what runs now; within a transaction of its own."""
    link.run(sql.at(sql.NOBODY_ELSE, schema))
    if limit is None:
        link.run(sql.at(sql.LIFT_LIMIT, schema), (name,))
    else:
        link.run(sql.at(sql.SET_LIMIT, schema), (name, msgspec.json.encode(limit)))
    link.run(sql.at(sql.UNUSED, schema), (name, limit is None))
    if limit is None:
        return
    kind, _, which = name.partition(":")
    if kind + ":" != QUEUE:
        link.run(sql.at(sql.INTO_LANES, schema), (which,))
    running = link.rows(sql.at(sql.RUNNING_IN[kind + ":" == QUEUE], schema), (which,))
    levels = counted([(queue, task, lane) for queue, task, lane in running], {name: limit})
    if levels:
        link.run(sql.at(sql.RUNNING_NOW, schema), (pack.texts(levels), pack.big_ints(levels.values())))


def limits_and_levels(link: Link, schema: str) -> dict[str, tuple[Limit, Level]]:
    """Limits and levels, by name."""
    limits: Mapping[str, Limit] = limits_in(link, schema)
    seen = link.rows(sql.at(sql.LEVELS_SEEN, schema), (pack.texts(limits),))
    levels = {name: Level(running, following) for name, running, following in seen}
    return {name: (limit, levels.get(name, Level())) for name, limit in limits.items()}
