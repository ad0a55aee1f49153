"""Claiming from the open line, and what every claim ends with: the jobs leave their places and run."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from tarry.model.job import Job
from tarry.model.limit import EACH, TASK
from tarry.store.base import PROMOTED_AT_ONCE, Want
from tarry.store.lanes import laned
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.link import Answer, Link
from tarry.store.mysql.settings import Settings
from tarry.store.mysql.sql import among, among_moments, listed, raw

Row = tuple[Any, ...]
Line = tuple[str, int]
"""A queue and a band."""
ID, GRADE, DUE = 0, 1, 2
"""Where these stand in a row of a line, of which often only the first is read."""
_LINE = """SELECT {what} FROM tarry_ready FORCE INDEX (PRIMARY) WHERE queue = {queue} AND {band}{more}
    ORDER BY grade, due, id LIMIT {most} FOR UPDATE{skip}"""
_AFTER = " AND grade >= {0} AND (grade > {0} OR due > {1} OR (due = {1} AND HEX(id) > HEX({2})))"
_AFTER_NORMAL = " AND due >= {1} AND (due > {1} OR HEX(id) > HEX({2}))"
"""HEX hides that part from the planner, which would look for both parts of the OR by themselves, and then sort."""
_TOKEN = """UPDATE tarry_ready SET token = {token} WHERE queue = {queue} AND {band}{more} AND token <> {token}
    ORDER BY grade, due, id LIMIT {most}"""
_WON = """SELECT {what} FROM tarry_ready FORCE INDEX (PRIMARY) WHERE queue = {queue} AND {band}{more}
    AND token = {token} ORDER BY grade, due, id LIMIT {most}"""
_ANY = "SELECT 1 FROM tarry_ready WHERE queue = {} AND {}"
_PROMOTABLE = """SELECT id FROM tarry_scheduled FORCE INDEX (PRIMARY) WHERE due <= {}
    ORDER BY due, id LIMIT {} FOR UPDATE{}"""


class Reader:
    """Writes the statements that read the front of a line and lock it.

    skip_locked: rows that another claim has locked are passed by. Where a server cannot do that, each claim writes its
    token into the first rows, which makes others wait, and reads back what it won.
    """

    def __init__(self, skip_locked: bool, token: int) -> None:
        self.skip = " SKIP LOCKED" if skip_locked else ""
        self._token = None if skip_locked else token

    def front(self, line: Line, most: int, last: Row | None = None, what: str = "id") -> list[str]:
        """The last of these statements answers the rows, `what` of each; those after the place of `last` only."""
        words = {"queue": sql.text(line[0]), "band": sql.BANDS[line[1]], "most": most, "skip": self.skip, "more": ""}
        words["what"] = what
        if last is not None:
            after = _AFTER if line[1] else _AFTER_NORMAL
            words["more"] = after.format(last[GRADE], last[DUE], raw(last[ID]))
        if self._token is None:
            return [_LINE.format(**words)]
        return [statement.format(**words, token=self._token) for statement in (_TOKEN, _WON)]

    def promotable(self, now: int) -> str:
        """The scheduled jobs whose time has come."""
        return _PROMOTABLE.format(now, PROMOTED_AT_ONCE, self.skip)


class Front:
    """What was read of one line, and whether there is more."""

    def __init__(self, asked: int) -> None:
        self.asked = asked
        self.rows: list[Row] = []
        self.last: Row | None = None
        self.ended = False

    def came(self, rows: Sequence[Row], asked: int) -> None:
        """These follow."""
        self.rows += rows
        self.ended = len(rows) < asked
        self.last = rows[-1] if rows else self.last

    def give(self, most: int) -> list[Row]:
        """The first ones, which are then no longer here."""
        given, self.rows = self.rows[: max(0, most)], self.rows[max(0, most) :]
        return given


class OpenLine:
    """What one claim takes from the open lines of its wants: first each want's count, then whatever there is.

    only: a line that alone gave jobs the last time. It is asked for all at once, and of the others only whether they
    have any.
    """

    def __init__(self, reader: Reader, wants: Sequence[Want], limit: int, only: Line | None) -> None:
        self._reader, self._wants, self._limit = reader, wants, limit
        counts: defaultdict[Line, int] = defaultdict(int)
        for want in wants:
            counts[want.queue, want.band] += max(0, want.count)
        self._fronts = {line: Front(limit if line == only else min(count, limit)) for line, count in counts.items()}
        self._given = dict.fromkeys(self._fronts, 0)

        asked = [line for line, front in self._fronts.items() if front.asked]
        self._read_first = [only] if only in asked else asked
        self._others = [line for line in asked if line not in self._read_first]

    def first(self) -> list[str]:
        """The statements that read the fronts of the lines."""
        return [statement for line in self._read_first for statement in self._front(line)]

    def others(self) -> list[str]:
        """Queries that find something if there is more to be read."""
        return [_ANY.format(sql.text(queue), sql.BANDS[band]) for queue, band in self._others]

    def came(self, found: Sequence[Answer]) -> None:
        """What `first` found."""
        self._came(self._read_first, found)

    def look_at(self, link: Link, exist: Sequence[bool]) -> None:
        """Reads those of the others that have jobs."""
        lines = [line for line, there in zip(self._others, exist, strict=True) if there]
        for line in self._others:
            self._fronts[line].ended = line not in lines
        if lines:
            self._came(lines, link.run(*(statement for line in lines for statement in self._front(line))))

    def _front(self, line: Line) -> list[str]:
        return self._reader.front(line, self._fronts[line].asked)

    def _came(self, lines: Sequence[Line], found: Sequence[Answer]) -> None:
        each = len(found) // len(lines) if lines else 1
        for line, answer in zip(lines, found[each - 1 :: each], strict=True):
            self._fronts[line].came(answer.rows, self._fronts[line].asked)

    def take(self, link: Link) -> list[bytes]:
        """The ids of what is claimed."""
        taken: list[bytes] = []
        for want in self._wants:
            taken += self._give((want.queue, want.band), min(want.count, self._limit - len(taken)))
        for want in self._wants:
            line = want.queue, want.band
            taken += self._give(line, self._limit - len(taken))
            if len(taken) < self._limit and not self._fronts[line].ended:
                self._read(link, line, self._limit - len(taken))
                taken += self._give(line, self._limit - len(taken))
        return taken

    def only(self) -> Line | None:
        """The line that alone gave jobs, if there is one."""
        gave = [line for line, count in self._given.items() if count]
        return gave[0] if len(gave) == 1 else None

    def _give(self, line: Line, most: int) -> list[bytes]:
        rows = self._fronts[line].give(most)
        self._given[line] += len(rows)
        return [row[ID] for row in rows]

    def _read(self, link: Link, line: Line, most: int) -> None:
        front = self._fronts[line]
        last = front.last and link.rows(f"SELECT id, grade, due FROM tarry_job WHERE id = {raw(front.last[ID])}")[0]
        front.came(link.run(*self._reader.front(line, most, last))[-1].rows, most)


def promote(link: Link, ids: Sequence[bytes], now: int) -> None:
    """Makes these scheduled jobs ready."""
    these = listed(ids)
    link.run(
        sql.LEAVE_SCHEDULED.format(among(ids)),
        f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET state = 1, since = {now} WHERE id IN ({these})",
        sql.COME_READY.format(these),
        sql.COME_LANED.format(these),
        open_lanes.COME.format(these),
    )


class Start:
    """Lets chosen jobs run: they leave their places, and what they bring is read."""

    def __init__(self, link: Link, owner: str, now: int, settings: Settings) -> None:
        self._link, self._owner, self._now, self._settings = link, owner, now, settings
        self.strays = False
        """Some waited in the open line although their task has a limit: they were put into its lane, and wait."""

    def read(self, ids: Sequence[bytes]) -> list[Job]:
        """The jobs as they are once they run; strays are put right and are not among them."""
        claimed = sql.claimed(self._owner, self._now)
        jobs: list[Job] = []
        for start in range(0, len(ids), 1000):
            jobs += map(claimed, self._link.rows(sql.PAYLOAD.format(listed(ids[start : start + 1000]))))
        limits = self._settings.limits
        suspects = [job for job in jobs if laned(job.task, job.lane, limits) != job.lane] if limits else []
        strays = self._strays(suspects) if suspects else set()
        if strays:
            self.strays = True
            into_lanes(self._link, list(strays))
        return [job for job in jobs if job.id not in strays] if strays else jobs

    def _strays(self, suspects: Sequence[Job]) -> set[bytes]:
        """Those that came by settings which did not have the limit yet."""
        since = {job.id: self._since(job.task) for job in suspects}
        rows = self._link.rows(f"SELECT id, settings FROM tarry_job WHERE id IN ({listed(since)})")
        return {id for id, settings in rows if settings < since[id]}

    def _since(self, task: str) -> int:
        since = self._settings.since
        return min(since[kind + task] for kind in (TASK, EACH) if kind + task in since)

    def statements(self, jobs: Sequence[Job]) -> list[str]:
        """What makes them run."""
        written: list[str] = []
        for start in range(0, len(jobs), 1000):
            written += self._some(jobs[start : start + 1000])
        return written

    def _some(self, jobs: Sequence[Job]) -> Iterator[str]:
        lane_ids = [job.id for job in jobs if job.lane is not None]
        lines: defaultdict[tuple[str, int], list[tuple[bytes, int]]] = defaultdict(list)
        for job in jobs:
            if job.lane is None:
                lines[job.queue, job.priority].append((job.id, job.due))
        for (queue, priority), front in lines.items():
            yield sql.LEAVE_FRONT.format(among_moments(front), sql.text(queue), -priority)
        if lane_ids:
            yield sql.LEAVE_LANED.format(among(lane_ids))
        ids, owner = listed(job.id for job in jobs), sql.text(self._owner)
        yield (
            f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET state = 2, epoch = epoch + 1, since = {self._now},"
            f" holds = IF(unique_for < 0, 0, holds) WHERE id IN ({ids})"
        )
        running = sorted((job.id, job.epoch) for job in jobs)
        yield sql.RUNNING + ",".join([f"({raw(id)},{owner},{epoch})" for id, epoch in running])
        if let_go := [sql.digest(job.task, job.key) for job in jobs if job.unique < 0 and job.key is not None]:
            yield f"{sql.DROP_KEYS.format(among(let_go))} AND p.id IN ({ids})"


def into_lanes(link: Link, ids: Sequence[bytes]) -> None:
    """Ready jobs of the open line that belong into the lane of their task."""
    these = listed(ids)
    link.run(
        sql.LEAVE_READY.format(among(ids)),
        f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({these})",
        sql.COME_LANED.format(these),
        open_lanes.COME.format(these),
    )
