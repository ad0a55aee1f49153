"""Limits and lanes: what `sqlite.lanes` does, in few round trips.

The queues, tasks and keys that have a limit each have a row that says how far it is used: it is raised by the claim and
lowered by the change that ends an attempt, whoever makes it. All that read or write these rows have the turn
(`mysql.settings.TAKE_TURN`), so they go one by one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarry.model.job import Job
from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.base import Want, band
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.claim import Reader, Start, into_lanes, last_of_each
from tarry.store.mysql.halves import Half, Line, exists, halves
from tarry.store.mysql.link import Answer, Link
from tarry.store.mysql.open_lanes import Line as OpenLine
from tarry.store.mysql.settings import LIMITS, NUMBER, RAISE, TAKE_TURN, limits_of
from tarry.store.mysql.sql import among, filled, listed, text
from tarry.store.mysql.steps import Walk, walked
from tarry.store.shared.lanes import Levels, Place, counted, dealt, each, earliest, limit_of, merged, miscounted

Row = tuple[Any, ...]
Lane = tuple[str, str]
"""A task and its lane."""
Candidate = tuple[Place, bytes]
"""Where a job stands, and its id."""
EXAMINED, FULL = 1000, 200
"""At most so many lanes of a task are looked at in one claim, of which so many without room: those are closed, which
takes longer. So a claim has a bounded cost."""
NOT_EACH = "(name < 'each:' OR name >= 'each;')"
_ALL_RUNNING = "SELECT j.queue, j.task, j.lane FROM tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id"
_LINE = "queue = {} AND band = {}"
_CANDIDATE = "CONCAT_WS(' ', HEX(id), grade, due, late)"
_LANE = f"""SELECT {_CANDIDATE} FROM tarry_laned FORCE INDEX (PRIMARY) WHERE queue = {{}}
    AND band = {{}} AND task = {{}} AND lane = {{}} ORDER BY grade, due, id LIMIT {{}} FOR UPDATE{{}}"""
_LEVELS = "INSERT INTO tarry_level (name, running, next) VALUES "
_SET_LEVELS = " ON DUPLICATE KEY UPDATE running = VALUES(running), next = VALUES(next)"
_TURNS = "INSERT INTO tarry_level (name, turn) VALUES "
_SET_TURNS = " ON DUPLICATE KEY UPDATE turn = VALUES(turn)"


class LaneClaim:
    """One claim, within a transaction that has the turn."""

    def __init__(self, link: Link, limits: dict[str, Limit], reader: Reader, start: Start, now: int) -> None:
        self._link, self._limits, self._reader, self._start, self._now = link, limits, reader, start, now
        self._levels: dict[str, Level] = {}
        self._turns: dict[str, str | None] = {}
        self._view = Levels(limits, self._levels, now)
        self._changed: set[str] = set()
        self._turned: set[str] = set()
        self._full: defaultdict[OpenLine, dict[str, int | None]] = defaultdict(dict)
        """Lanes without room, and when a rate gives them some."""
        self._empty: defaultdict[OpenLine, set[str]] = defaultdict(set)
        """Lanes where less waits than was asked for: perhaps nothing any more."""
        self._begun: set[OpenLine] = set()
        self._open: dict[Line, list[Half]] = {}
        """The halves of each open line that have any jobs."""

    def chosen(self, wants: Sequence[Want], limit: int) -> tuple[list[Job], int | None]:
        """Up to so many jobs, claimed; with none, when a rate lets start what it held back."""
        first = open_lanes.reopen_due(self._link, self._now) if self._limits else None
        lines = self._lines(wants)
        jobs: list[Job] = []
        for want, count in [(want, want.count) for want in wants] + [(want, limit) for want in wants]:
            line = want.queue, want.band
            most = min(count, limit - len(jobs))
            if line in lines and most > 0:
                jobs += self._begin(self._take(line, lines[line], most))
        self._save()
        self._tidy()
        return jobs, None if jobs else earliest(self._view.again, first)

    def _lines(self, wants: Sequence[Want]) -> dict[Line, list[str]]:
        """Those that have any jobs, and the tasks that have jobs with lanes there."""
        lines = list(dict.fromkeys((want.queue, want.band) for want in wants))
        look = "SELECT " + ", ".join(exists([half]) for line in lines for half in halves(*line))
        levels, ready = self._link.run(f"SELECT name, running, next, turn FROM tarry_level WHERE {NOT_EACH}", look)
        for name, running, following, turn in levels.rows:
            self._levels[name.decode()] = Level(running, following)
            self._turns[name.decode().removeprefix(TASK)] = None if turn is None else turn.decode()
        walks = [Walk("tarry_laned", "task", _LINE.format(text(q), -band), 10**6) for q, band in lines]
        tasks = [[task.decode() for task in found] for found in walked(self._link, walks)]
        there = iter(ready.rows[0])
        self._open = {line: [half for half in halves(*line) if next(there)] for line in lines}
        return {line: names for line, names in zip(lines, tasks, strict=True) if names or self._open[line]}

    def _take(self, line: Line, tasks: Sequence[str], count: int) -> list[bytes]:
        most = self._view.room(QUEUE + line[0], count)
        if not most:
            return []
        return merged([*self._fronts(line, most), *self._dealt(line, tasks, most)], most)

    def _fronts(self, line: Line, most: int) -> list[list[Candidate]]:
        """Of the jobs without a lane so many that are late, and as many on time."""
        fronts = [self._reader.front(half, most, what=_CANDIDATE) for half in self._open[line]]
        found = self._link.run(*(statement for front in fronts for statement in front)) if fronts else []
        return [_candidates(answer) for answer in last_of_each(found, len(fronts))]

    def _dealt(self, line: Line, tasks: Sequence[str], most: int) -> list[list[Candidate]]:
        rooms = {task: room for task in tasks if (room := self._view.room(TASK + task, most))}
        lanes = self._roomy(line, rooms)
        fair = {task: -(-rooms[task] // len(found)) for task, found in lanes.items() if found}
        asked = {(t, lane): min(room, fair[t]) for t, found in lanes.items() for lane, room in found}
        rows = self._read(line, asked)
        short = [t for t in fair if sum(len(rows[t, lane]) for lane, _ in lanes[t]) < rooms[t]]
        # Some gave less than their part: what they leave is the others'.
        again = {(t, lane): room for t in short for lane, room in lanes[t] if len(rows[t, lane]) == fair[t] < room}
        rows |= self._read(line, again)
        self._note_empty(line, rows, {**asked, **again})
        return [dealt([rows[t, lane] for lane, _ in lanes[t]], rooms[t]) for t in fair]

    def _note_empty(self, line: Line, rows: dict[Lane, list[Candidate]], asked: dict[Lane, int]) -> None:
        short = [place for place, most in asked.items() if len(rows[place]) < most and EACH + place[0] in self._limits]
        for task, lane in short:
            self._empty[*line, task].add(lane)
        if short and not any(rows.values()):
            # Others may come after these, which are out of the way by then.
            self._view.again = 0

    def _roomy(self, line: Line, rooms: dict[str, int]) -> dict[str, list[tuple[str, int]]]:
        """Of each task the lanes with room, and how much, beginning after the one served last."""
        circles = self._circles(line, {task: min(most, EXAMINED + 1) for task, most in rooms.items()})
        found = self._with_rooms(line, circles, rooms)
        # Where too many of those are full, one has to look at further ones.
        limited = [task for task in rooms if EACH + task in self._limits]
        more = [task for task in limited if len(found[task]) < rooms[task] <= len(circles[task])]
        if more:
            found |= self._with_rooms(line, self._circles(line, dict.fromkeys(more, EXAMINED + 1)), rooms)
        return found

    def _with_rooms(
        self, line: Line, circles: dict[str, list[str]], rooms: dict[str, int]
    ) -> dict[str, list[tuple[str, int]]]:
        limited = [task for task in circles if EACH + task in self._limits]
        self._look([each(task, lane) for task in limited for lane in circles[task]])
        return {task: self._with_room((*line, task), circle, rooms[task]) for task, circle in circles.items()}

    def _circles(self, line: Line, counts: dict[str, int]) -> dict[str, list[str]]:
        """At most so many lanes of each task, beginning after the one served last."""
        turns = {task: self._turns.get(task) for task in counts}
        found = self._walked(line, {task: ("", turn, counts[task]) for task, turn in turns.items()})
        wrap = {
            task: (f" AND lane <= {text(turn)}", None, counts[task] - len(found[task]))
            for task, turn in turns.items()
            if turn is not None and len(found[task]) < counts[task]
        }
        for task, lanes in self._walked(line, wrap).items():
            found[task] += lanes
        return found

    def _walked(self, line: Line, wanted: Mapping[str, tuple[str, str | None, int]]) -> dict[str, list[str]]:
        """Lanes of each task: on what condition, after which, and how many."""
        walks = [self._walk(line, task, *how) for task, how in wanted.items()]
        found = walked(self._link, walks)
        return {task: [lane.decode() for lane in lanes] for task, lanes in zip(wanted, found, strict=True)}

    def _walk(self, line: Line, task: str, condition: str, after: str | None, count: int) -> Walk:
        table = "tarry_open" if EACH + task in self._limits else "tarry_laned"
        where = f"{_LINE.format(text(line[0]), -line[1])} AND task = {text(task)}{condition}"
        return Walk(table, "lane", where, count, None if after is None else text(after))

    def _with_room(self, line: OpenLine, circle: Sequence[str], most: int) -> list[tuple[str, int]]:
        """Of these lanes those with room, and how much."""
        found: list[tuple[str, int]] = []
        task, full = line[-1], 0
        for number, lane in enumerate(circle):
            if number == EXAMINED or full == FULL:
                # Not all were looked at, so it is worth coming again at once.
                self._view.again = 0
                break
            name = each(task, lane)
            if room := self._view.room(name, most):
                found.append((lane, room))
            else:
                self._full[line][lane] = self._levels[name].again(self._limits[EACH + task], self._now)
                full += 1
            if len(found) == most:
                break
        return found

    def _read(self, line: Line, asked: dict[Lane, int]) -> dict[Lane, list[Candidate]]:
        look = [
            _LANE.format(text(line[0]), -line[1], text(task), text(lane), most, self._reader.skip)
            for (task, lane), most in asked.items()
        ]
        found = map(_candidates, self._link.run(*look))
        return dict(zip(asked, found, strict=True))

    def _look(self, names: Sequence[str]) -> None:
        """Reads how far the lanes' limits are used."""
        if names:
            wanted = listed(name.encode() for name in names)
            rows = self._link.rows(f"SELECT name, running, next FROM tarry_level WHERE name IN ({wanted})")
            kept = {name.decode(): Level(running, following) for name, running, following in rows}
            for name in names:
                if name not in self._changed:
                    self._levels[name] = kept.get(name, Level())

    def _begin(self, ids: Sequence[bytes]) -> list[Job]:
        """At once, so that the next want does not find them any more."""
        jobs = self._start.read(ids) if ids else []
        if jobs:
            self._link.run(*self._start.statements(jobs))
        for name, count in counted([(job.queue, job.task, job.lane) for job in jobs], self._limits).items():
            level = self._levels.get(name, Level())
            self._levels[name] = level.started(self._limits[limit_of(name)], count, self._now)
            self._changed.add(name)
        place = {id: number for number, id in enumerate(ids)}
        for job in sorted(jobs, key=lambda job: place[job.id]):
            if job.lane is not None:
                self._turns[job.task] = job.lane
                self._turned.add(job.task)
                self._begun.add((job.queue, band(job.priority), job.task))
        return jobs

    def _tidy(self) -> None:
        """No claim looks again at lanes that are full or empty, until they may give something."""
        for line in sorted({*self._empty, *self._full}):
            full = self._full[line]
            open_lanes.tidy(self._link, line, self._empty[line] - full.keys(), full)
        for line in sorted(self._begun):
            if EACH + line[-1] not in self._limits:
                open_lanes.remove_some(self._link, line)

    def _save(self) -> None:
        """Writes what has changed; a key that is as good as never used leaves nothing behind."""
        levels = [(name, self._levels[name]) for name in sorted(self._changed)]
        write = list(filled(_LEVELS, (f"({text(n)},{one.running},{one.next})" for n, one in levels), _SET_LEVELS))
        turns = [(TASK + task, self._turns[task] or "") for task in sorted(self._turned)]
        write += filled(_TURNS, (f"({text(name)},{text(turn)})" for name, turn in turns), _SET_TURNS)
        if write:
            self._link.run(*write)


def _candidates(answer: Answer) -> list[Candidate]:
    """Of rows of _CANDIDATE, which is one column since the driver takes a microsecond for each."""
    return [_candidate(text) for (text,) in answer.rows]


def _candidate(text: str) -> Candidate:
    digits, grade, due, late = text.split()
    id = bytes.fromhex(digits)
    return (int(grade), int(due), late == "1", id), id


# Setting limits


def change_limit(link: Link, name: str, limit: Limit) -> bool:
    """Gives one that is set another number, within a transaction; False if it is not. What runs is counted, and jobs
    have lanes, since it is there: nobody has to look through all of them."""
    value = f"UPDATE tarry_limit SET value = {sql.raw(msgspec.json.encode(limit))} WHERE name = {text(name)}"
    *_, found = link.run(RAISE, value)
    if found.changed > 0:
        open_lanes.limit_changed(link, name)
    return found.changed > 0


def set_limit(link: Link, name: str, limit: Limit | None) -> str | None:
    """Sets or lifts one, and counts what runs now; within a transaction. Answers the task of which jobs that wait may
    have no lane yet."""
    if limit is not None and change_limit(link, name, limit):
        return None
    which = f"name = {text(name)} OR (name >= {text(name + chr(31))} AND name < {text(name + chr(32))})"
    change = f"DELETE FROM tarry_limit WHERE name = {text(name)}"
    if limit is not None:
        value = f"{text(name)}, {sql.raw(msgspec.json.encode(limit))}, ({NUMBER})"
        change = f"INSERT INTO tarry_limit VALUES ({value}) ON DUPLICATE KEY UPDATE value = VALUES(value)"
    unused = f"UPDATE tarry_level SET running = 0{', next = 0' if limit is None else ''} WHERE {which}"
    link.run(RAISE, TAKE_TURN, change, unused)
    open_lanes.limit_set(link, name, limit)
    if limit is None:
        return None
    kind, _, task = name.partition(":")
    of_task = f"{kind}:" != QUEUE
    if of_task:
        _lane_running(link, task)
    _count(link, name, limit)
    return task if of_task else None


def _lane_running(link: Link, task: str) -> None:
    rows = link.rows(
        "SELECT r.id FROM tarry_running r STRAIGHT_JOIN tarry_job j ON j.id = r.id"
        f" WHERE j.lane IS NULL AND j.task = {text(task)}"
    )
    if rows:
        ids = listed(id for (id,) in rows)
        link.run(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({ids})")


def _count(link: Link, name: str, limit: Limit) -> None:
    kind, _, which = name.partition(":")
    column = "queue" if f"{kind}:" == QUEUE else "task"
    rows = link.rows(f"{_ALL_RUNNING} WHERE j.{column} = {text(which)}")
    _write_running(link, counted(map(_counting, rows), {name: limit}))


def _counting(row: Row) -> tuple[str, str, str | None]:
    queue, task, lane = row
    return queue.decode(), task.decode(), None if lane is None else lane.decode()


def _write_running(link: Link, counts: Mapping[str, int]) -> None:
    values = (f"({text(name)},{count})" for name, count in sorted(counts.items()))
    link.run(*filled("INSERT INTO tarry_level (name, running) VALUES ", values,
                     " ON DUPLICATE KEY UPDATE running = VALUES(running)"))  # fmt: skip


def miscounted_levels(link: Link) -> dict[str, int]:
    """The levels that are wrong, and what they have to say. Without the turn, some that it answers may not be."""
    limits = limits_of(link.rows(LIMITS))
    if not limits:
        return {}
    levels, running = link.run("SELECT name, running FROM tarry_level", _ALL_RUNNING)
    return miscounted(map(_counting, running.rows), limits, {name.decode(): count for name, count in levels.rows})


def is_miscounted(link: Link, now: int) -> bool:
    """Whether anything may be to be put right."""
    return bool(miscounted_levels(link) or open_lanes.wrongly_closed(link, limits_of(link.rows(LIMITS)), now))


def recount(link: Link, now: int) -> int:
    """Puts right levels, and lanes that need not be closed; within a transaction. Answers how many levels were
    wrong."""
    link.run(TAKE_TURN)
    wrong = miscounted_levels(link)
    _write_running(link, wrong)
    closed = open_lanes.wrongly_closed(link, limits_of(link.rows(LIMITS)), now)
    link.run(*open_lanes.reopened(link, closed))
    return len(wrong)


def unlaned(link: Link, task: str, after: bytes) -> list[bytes]:
    """Ids of jobs of this task that wait and have no lane yet; a thousand at a time, from an id on."""
    rows = link.rows(
        f"SELECT id FROM tarry_job WHERE id > {sql.raw(after)} AND task = {text(task)}"
        " AND lane IS NULL AND state < 2 ORDER BY id LIMIT 1000"
    )
    return [id for (id,) in rows]


def give_lane(link: Link, ids: Sequence[bytes]) -> None:
    """Those of these that still wait move into the lane of their task."""
    looked = link.rows(
        f"{sql.LOCK_JOBS.format('j.id, j.state', among(ids))} AND j.state < 2 AND j.lane IS NULL FOR UPDATE"
    )
    ready = [id for id, state in looked if state == 1]
    if ready:
        into_lanes(link, ready)
    if rest := [id for id, state in looked if state == 0]:
        link.run(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({listed(rest)})")


def all_limits(link: Link) -> dict[str, tuple[Limit, Level]]:
    """Limits and levels, by name."""
    limits, levels = link.run(LIMITS, "SELECT name, running, next FROM tarry_level"
                              f" WHERE {NOT_EACH}")  # fmt: skip
    used = {name.decode(): Level(running, following) for name, running, following in levels.rows}
    found = limits_of(limits.rows)
    return {name: (limit, used.get(name, Level())) for name, limit in sorted(found.items())}
