"""Claims under limits and from lanes: read in a few round trips, chosen by the arithmetic that all stores share.

Two who claim jobs of one task take turns: the task's level row is locked for as long as that takes. The ends of
attempts do not wait for it: they lower levels at any time. So a claim never writes back what it read: it adds what it
started.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from msgspec import Struct

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.base import Want
from tarry.store.postgres import open_lanes, sql
from tarry.store.postgres import rows as pack
from tarry.store.postgres.link import Link, Row
from tarry.store.postgres.open_lanes import Line
from tarry.store.shared.lanes import Levels, Place, counted, dealt, each, limit_in, limit_of, merged

EXAMINED, FULL = 1000, 100
"""At most so many lanes of a task are looked at in one claim, of which so many without room: those are closed, which
takes longer. So a claim has a bounded cost."""


class Placed(Struct, frozen=True, gc=False):
    """A job that may be chosen. rank: its priority's negative."""

    id: bytes
    rank: int
    due: int
    late: bool
    queue: str
    task: str
    lane: str | None

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.rank, self.due, self.late, self.id


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
        """As read, and with what started here; where another attempt ended since, less is used."""
        self._started: Counter[str] = Counter()
        self._turns: dict[str, str | None] = {}
        self._levels = Levels(self._limits, self._known, now)
        self._tasks: dict[Want, list[str]] = {}
        self._kept: dict[str, bytes] = {}
        """The limits as they are kept."""
        self._full: defaultdict[Line, set[str]] = defaultdict(set)
        self._empty: defaultdict[Line, set[str]] = defaultdict(set)

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
        self._kept = dict(self._rows(sql.LIMITS_OF, (pack.texts(sorted(names)),)))
        self._limits |= _decoded(self._kept.items())

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
        open_lines = self._open_lines(want, count)
        if not any(open_lines) and not self._tasks[want]:
            return []
        most = self._levels.room(QUEUE + want.queue, count)
        lines = [line[:most] for line in open_lines]
        lines += [self._dealt(want, task, most) for task in self._tasks[want]]
        chosen = merged([[(job.place, job) for job in line] for line in lines], most)
        if not chosen:
            return []
        ids = pack.uuids([job.id for job in chosen])
        rows = self._rows(sql.TAKE, (ids, self._owner, self._now))
        got = {row[0] for row in rows}
        self._start([job for job in chosen if job.id in got])
        return rows

    def _open_lines(self, want: Want, most: int) -> list[list[Placed]]:
        """The late ones, and those on time."""
        jobs = _placed(self._rows(sql.OPEN_LINES, (want.queue, -want.band, most)))
        return [[job for job in jobs if job.late is late] for late in (True, False)]

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
        line, vain = (want.queue, want.band, task), 0
        for number, (lane, waits) in enumerate(self._circle(want, task, most)):
            if number == EXAMINED or vain == FULL:
                # Not all were looked at, so it is worth coming again at once.
                self._levels.again = 0
                break
            room = self._levels.room(each(task, lane), most)
            if room and waits:
                found.append((lane, room))
            else:
                (self._full if waits else self._empty)[line].add(lane)
                vain += 1
            if len(found) == most:
                break
        return found

    def _circle(self, want: Want, task: str, most: int) -> Iterator[tuple[str, bool]]:
        """Lanes, and whether jobs wait there; of those that have limits only the open ones."""
        limited = EACH + task in self._limits
        after, start = (sql.OPEN_AFTER, sql.OPEN_FROM) if limited else (sql.LANES_AFTER, sql.LANES_FROM)
        turn = self._turns.get(task)
        if turn is not None:
            yield from self._series(want, task, (after, after), turn, most)
        for lane, waits in self._series(want, task, (start, after), "", most):
            if turn is not None and lane > turn:
                return
            yield lane, waits

    def _series(
        self, want: Want, task: str, statements: tuple[str, str], start: str, count: int
    ) -> Iterator[tuple[str, bool]]:
        """Lanes by name, read some at a time; with them what is known of their levels."""
        statement, after = statements
        while True:
            count = min(count, EXAMINED)
            rows = self._rows(statement, (want.queue, -want.band, task, start, count))
            for lane, running, following, waits in rows:
                self._known.setdefault(each(task, lane), Level(running, following))
                yield lane, waits
            if len(rows) < count:
                return
            statement, start, count = after, rows[-1][0], 4 * count

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
            self._started[name] += count
        for _, task, lane in starts:
            if lane is not None:
                self._turns[task] = lane

    def _save(self) -> None:
        if self._started:
            started = sorted(self._started)
            more, following = [self._started[name] for name in started], [self._known[name].next for name in started]
            self._run(sql.RAISE_LEVELS, (pack.texts(started), pack.big_ints(more), pack.big_ints(following)))
        if self._turns:
            names = pack.texts([TASK + task for task in self._turns])
            self._run(sql.SAVE_TURNS, (names, pack.texts(self._turns.values())))
        for line, lanes in self._empty.items():
            open_lanes.remove(self._link, self._schema, line, sorted(lanes))
        for line, lanes in self._full.items():
            name = EACH + line[-1]
            limit = self._limits[name], self._kept[name]
            open_lanes.close(self._link, self._schema, line, sorted(lanes), limit, self._now)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._link.rows(sql.at(statement, self._schema), values)

    def _run(self, statement: str, values: Sequence[Any]) -> None:
        self._link.run(sql.at(statement, self._schema), values)


def _placed(rows: Iterable[Row]) -> list[Placed]:
    return [Placed(*row) for row in rows]


def change_limit(link: Link, schema: str, name: str, limit: Limit) -> bool:
    """Gives one that is set another number; False if it is not. What runs is counted, and jobs have lanes, since it is
    there: nobody has to look through all of them, nor to wait. Within a transaction of its own."""
    changed = link.run(sql.at(sql.CHANGE_LIMIT, schema), (name, msgspec.json.encode(limit))) > 0
    if changed:
        open_lanes.limit_changed(link, schema, name)
    return changed


class NotAlone(Exception):
    """Somebody's transaction that has enqueued, claimed or settled is still open."""


def set_limit(link: Link, schema: str, name: str, limit: Limit | None) -> None:
    """Sets or lifts one, and counts what runs now; within a transaction of its own. NotAlone: not now."""
    try:
        link.run(sql.at(sql.NOBODY_ELSE, schema))
    except psycopg.errors.LockNotAvailable:
        raise NotAlone from None
    if limit is None:
        link.run(sql.at(sql.LIFT_LIMIT, schema), (name,))
    else:
        link.run(sql.at(sql.SET_LIMIT, schema), (name, msgspec.json.encode(limit)))
    link.run(sql.at(sql.UNUSED, schema), (name, limit is None))
    kind, _, which = name.partition(":")
    if limit is not None and kind + ":" != QUEUE:
        link.run(sql.at(sql.INTO_LANES, schema), (which,))
    open_lanes.limit_set(link, schema, name, limit)
    if limit is None:
        return
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


def recount(link: Link, schema: str, names: Sequence[str]) -> int:
    """Lets these levels say how many jobs run; within a transaction. Answers how many did not."""
    packed = pack.texts(names)
    link.run(sql.at(sql.LEVELS_THERE, schema), (packed,))
    link.run(sql.at(sql.LOCK_LEVELS, schema), (packed,))
    # Whoever had raised or lowered them has committed by now, and whoever comes adds to what is written here.
    return link.run(sql.at(sql.RECOUNT, schema), (packed,))


def open_wrongly_closed(link: Link, schema: str, now: int) -> int:
    """Opens lanes that need not be closed; answers how many."""
    lanes = open_lanes.wrongly_closed(link, schema, limits_in(link, schema), now)
    if lanes:
        open_lanes.open_these(link, schema, lanes)
    return len(lanes)
