"""Claims from the open line, and the last step of every claim: the jobs leave their places and run."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarry.model.job import MOST_EPOCH, Job
from tarry.model.limit import EACH, TASK, waiting_lane
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.link.connection import MysqlConnection, StatementResult
from tarry.store.mysql.link.literals import id_and_due_table, id_list, id_table, raw, text
from tarry.store.mysql.open_lanes import LatenessLine, exists, group_halves, halves
from tarry.store.mysql.settings import StoreSettings
from tarry.store.rules.base import PROMOTED_AT_ONCE, Want
from tarry.store.rules.lanes import Position, merge_lines
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import Line

ID, GRADE, DUE = 0, 1, 2
"""The places of these columns in a row of a line; often only the first is read."""
_HALF = "queue = {queue} AND late = {late} AND {band}{more}"
_LINE = f"""SELECT {{what}} FROM tarry_ready FORCE INDEX (PRIMARY) WHERE {_HALF}
    ORDER BY claim_order, due, id LIMIT {{most}} FOR UPDATE{{skip}}"""
# HEX hides its part from the planner, which would otherwise read both parts of the OR separately, and then sort.
_AFTER = " AND claim_order >= {0} AND (claim_order > {0} OR due > {1} OR (due = {1} AND HEX(id) > HEX({2})))"
_AFTER_NORMAL = " AND due >= {1} AND (due > {1} OR HEX(id) > HEX({2}))"
_TOKEN = f"""UPDATE tarry_ready SET token = {{token}} WHERE {_HALF} AND token <> {{token}}
    ORDER BY claim_order, due, id LIMIT {{most}}"""
_WON = f"""SELECT {{what}} FROM tarry_ready FORCE INDEX (PRIMARY) WHERE {_HALF}
    AND token = {{token}} ORDER BY claim_order, due, id LIMIT {{most}}"""
_PROMOTABLE = """SELECT id, due FROM tarry_scheduled FORCE INDEX (PRIMARY) WHERE due <= {}
    ORDER BY due, id LIMIT {} FOR UPDATE{}"""


class Reader:
    """Writes the statements that read the front of one half of a line and lock it.

    skip_locked: the statements skip rows that another claim has locked. Where a server cannot do that, each claim
    writes its token into the first rows, which makes other claims wait, and then reads the rows that it won.
    """

    def __init__(self, skip_locked: bool, token: int) -> None:
        self.skip = " SKIP LOCKED" if skip_locked else ""
        self._token = None if skip_locked else token

    def front(self, half: LatenessLine, most: int, last: Row | None = None, what: str = "id") -> list[str]:
        """The last of these statements answers the columns `what` of up to `most` rows, after the place of `last`."""
        queue, band, late = half
        words: dict[str, Any] = {
            "what": what,
            "queue": text(queue),
            "late": int(late),
            "band": sql.BANDS[band],
        }
        words |= {"more": "", "most": most, "skip": self.skip}
        if last is not None:
            # All jobs of the normal band have priority 0, so the condition needs no part for it.
            after = _AFTER if band else _AFTER_NORMAL
            words["more"] = after.format(last[GRADE], last[DUE], raw(last[ID]))
        if self._token is None:
            return [_LINE.format(**words)]
        return [statement.format(**words, token=self._token) for statement in (_TOKEN, _WON)]

    def promotable(self, now: int) -> str:
        """The scheduled jobs whose time has come."""
        return _PROMOTABLE.format(now, PROMOTED_AT_ONCE, self.skip)


class LineHead:
    """The rows read of one half of a line, and whether there are more."""

    def __init__(self, asked: int) -> None:
        self.asked = asked
        self.rows: list[Row] = []
        self.last: bytes | None = None
        self.ended = False

    def came(self, rows: Sequence[Row], asked: int) -> None:
        """Adds these rows. asked: how many were asked for."""
        self.rows += rows
        self.ended = len(rows) < asked
        self.last = rows[-1][ID] if rows else self.last

    def give(self, most: int) -> list[Row]:
        """Removes and answers the first rows."""
        given, self.rows = self.rows[:most], self.rows[most:]
        return given


class OpenLineClaim:
    """The jobs that one claim takes from the open lines of its wants: first each want's count, then whatever there is.

    only: the halves of the one line that gave all jobs the last time.
    """

    # A claim expects jobs where the last one found them: it asks the halves in `only` for the whole limit at once, and
    # the others only for whether they have any.

    def __init__(self, reader: Reader, wants: Sequence[Want], limit: int, only: Sequence[LatenessLine]) -> None:
        self._reader, self._wants, self._limit = reader, wants, limit
        counts: defaultdict[Line, int] = defaultdict(int)
        for want in wants:
            counts[want.queue, want.band] += max(0, want.count)
        self._fronts = {
            half: LineHead(limit if half in only else min(count, limit))
            for line, count in counts.items()
            for half in halves(*line)
        }
        self._gave: set[LatenessLine] = set()

        asked = [half for half, front in self._fronts.items() if front.asked]
        self._read_first = [half for half in asked if half in only] or asked
        self._others = list(group_halves(half for half in asked if half not in self._read_first))

    def first(self) -> list[str]:
        """The statements that read the fronts of the lines."""
        return self._statements(self._asked(self._read_first), {})

    def others(self) -> list[str]:
        """Expressions that are true if there is more to be read."""
        return [exists(group) for group in self._others]

    def came(self, found: Sequence[StatementResult]) -> None:
        """Takes the answers to the statements of `first`."""
        self._came(self._asked(self._read_first), found)

    def look_at(self, link: MysqlConnection, exist: Sequence[bool]) -> None:
        """Reads those other halves that have jobs. exist: the answers to `others`."""
        for group, found in zip(self._others, exist, strict=True):
            for half in group:
                self._fronts[half].ended = not found
        there = [half for group in self._others for half in group if not self._fronts[half].ended]
        if there:
            self._read(link, self._asked(there), {})

    def take(self, link: MysqlConnection) -> list[bytes]:
        """The ids of what is claimed."""
        taken: list[bytes] = []
        for want in self._wants:
            taken += self._give(want, min(want.count, self._limit - len(taken)))
        for want in self._wants:
            most = self._limit - len(taken)
            self._fill(link, want, most)
            taken += self._give(want, most)
        return taken

    def only(self) -> Sequence[LatenessLine]:
        """The halves of the line that gave all jobs; none if several lines gave jobs."""
        return tuple(self._gave) if len({(queue, band) for queue, band, _ in self._gave}) == 1 else ()

    def _give(self, want: Want, most: int) -> list[bytes]:
        """Up to so many ids from the want's line. Its halves take turns, anew for each want."""
        there = [half for half in halves(want.queue, want.band) if self._fronts[half].rows]
        if most <= 0 or not there:
            return []
        counts: Mapping[LatenessLine, int] = {there[0]: most}
        if len(there) > 1:
            counts = Counter(merge_lines([self._places(half, most) for half in there], most))
        self._gave |= counts.keys()
        return [row[ID] for half, count in counts.items() for row in self._fronts[half].give(count)]

    def _places(self, half: LatenessLine, most: int) -> list[tuple[Position, LatenessLine]]:
        """The positions of the half's first jobs."""
        _, band, late = half
        # 0 instead of the due time: it is compared only between lines of one lateness, and the halves differ in that.
        return [((row[GRADE] if band else 0, 0, late, row[ID]), half) for row in self._fronts[half].rows[:most]]

    def _fill(self, link: MysqlConnection, want: Want, most: int) -> None:
        """Reads on until each half has as many rows as the claim may take."""
        fronts = {half: self._fronts[half] for half in halves(want.queue, want.band)}
        asked = {half: most - len(front.rows) for half, front in fronts.items() if not front.ended}
        asked = {half: more for half, more in asked.items() if more > 0}
        if not asked:
            return
        # Fronts of the normal band are read without priority and due, so the place to go on from comes from the job.
        ends = [last for half in asked if (last := fronts[half].last) is not None]
        places = link.rows(f"SELECT id, claim_order, due FROM tarry_job WHERE id IN ({id_list(ends)})") if ends else ()
        self._read(link, asked, {row[ID]: row for row in places})

    def _read(self, link: MysqlConnection, asked: Mapping[LatenessLine, int], places: Mapping[bytes, Row]) -> None:
        self._came(asked, link.run(*self._statements(asked, places)))

    def _asked(self, some: Sequence[LatenessLine]) -> dict[LatenessLine, int]:
        return {half: self._fronts[half].asked for half in some}

    def _statements(self, asked: Mapping[LatenessLine, int], places: Mapping[bytes, Row]) -> list[str]:
        """The statements that read so many more rows of each half. places: of the last rows read before."""
        written: list[str] = []
        for half, most in asked.items():
            last = self._fronts[half].last
            place = None if last is None else places[last]
            written += self._reader.front(half, most, place, what="id, claim_order" if half[1] else "id")
        return written

    def _came(self, asked: Mapping[LatenessLine, int], found: Sequence[StatementResult]) -> None:
        for (half, most), answer in zip(asked.items(), last_of_each(found, len(asked)), strict=True):
            self._fronts[half].came(answer.rows, most)


def last_of_each(found: Sequence[StatementResult], fronts: int) -> Sequence[StatementResult]:
    """The answers that have the rows, out of the answers to the statements of so many fronts."""
    # With a token each front takes two statements, and the second has the rows.
    each = len(found) // fronts if fronts else 1
    return found[each - 1 :: each]


def promote(link: MysqlConnection, places: Sequence[tuple[bytes, int]], now: int) -> None:
    """Makes scheduled jobs ready, each given with the due time of its place: the job's row may have another one by now,
    or another state, if somebody has changed it by hand. Then only the place goes."""
    these = id_list(id for id, _ in places)
    link.run(
        sql.LEAVE_DUE.format(id_and_due_table(places)),
        f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET state = 1, state_since = {now}"
        f" WHERE state = 0 AND id IN ({these})",
        sql.COME_READY.format(these),
        sql.COME_LANED.format(these),
        open_lanes.ADD_JOBS.format(these),
    )


class Start:
    """Reads the chosen jobs and lets them run: they leave their places."""

    def __init__(self, link: MysqlConnection, owner: str, now: int, settings: StoreSettings, anyway: str = "") -> None:
        """anyway: `sql.RUNNING_ANYWAY` after a try in whose way a row was."""
        self._link, self._owner, self._now, self._settings = link, owner, now, settings
        self._anyway = anyway
        self._late: set[bytes] = set()
        self.has_unlaned = False
        """Some jobs waited in the open line although their task has a limit: they moved into its lane, and wait."""

    def read(self, ids: Sequence[bytes]) -> list[Job]:
        """The jobs as they are once they run, without those that are in no lane yet: these move into their lanes."""
        claimed = sql.claimed(self._owner, self._now, self._late)
        jobs: list[Job] = []
        for start in range(0, len(ids), 1000):
            jobs += map(claimed, self._link.rows(sql.PAYLOAD.format(id_list(ids[start : start + 1000]))))
        limits = self._settings.limits
        suspects = [job for job in jobs if waiting_lane(job.task, job.lane, limits) != job.lane] if limits else []
        unlaned_jobs = self._find_unlaned(suspects) if suspects else set()
        if unlaned_jobs:
            self.has_unlaned = True
            into_lanes(self._link, list(unlaned_jobs))
        return [job for job in jobs if job.id not in unlaned_jobs] if unlaned_jobs else jobs

    def _find_unlaned(self, suspects: Sequence[Job]) -> set[bytes]:
        """The jobs whose inserting process did not know the limit yet."""
        since = {job.id: self._since(job.task) for job in suspects}
        rows = self._link.rows(f"SELECT id, settings FROM tarry_job WHERE id IN ({id_list(since)})")
        return {id for id, settings in rows if settings < since[id]}

    def _since(self, task: str) -> int:
        since = self._settings.since
        return min(since[kind + task] for kind in (TASK, EACH) if kind + task in since)

    def statements(self, jobs: Sequence[Job]) -> list[str]:
        """The statements that make the jobs run."""
        written: list[str] = []
        for start in range(0, len(jobs), 1000):
            written += self._some(jobs[start : start + 1000])
        return written

    def _some(self, jobs: Sequence[Job]) -> Iterator[str]:
        lane_ids = [job.id for job in jobs if job.lane is not None]
        fronts: defaultdict[tuple[str, bool, int], list[tuple[bytes, int]]] = defaultdict(list)
        for job in jobs:
            if job.lane is None:
                fronts[job.queue, job.id in self._late, -job.priority].append((job.id, job.due))
        for (queue, late, claim_order), front in fronts.items():
            yield sql.LEAVE_FRONT.format(id_and_due_table(front), text(queue), int(late), claim_order)
        if lane_ids:
            yield sql.LEAVE_LANED.format(id_table(lane_ids))
        ids, owner = id_list(job.id for job in jobs), text(self._owner)
        yield (
            f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET state = 2, epoch = LEAST(epoch, {MOST_EPOCH - 1}) + 1,"
            f" state_since = {self._now}, key_held_until = IF(key_ttl < 0, 0, key_held_until) WHERE id IN ({ids})"
        )
        # In sorted order: concurrent transactions lock the rows in the same order.
        running = sorted((job.id, job.epoch) for job in jobs)
        yield sql.RUNNING + ",".join([f"({raw(id)},{owner},{epoch})" for id, epoch in running]) + self._anyway
        if let_go := [sql.digest(job.task, job.key) for job in jobs if job.key_ttl < 0 and job.key is not None]:
            yield f"{sql.DROP_KEYS.format(id_table(let_go))} AND p.id IN ({ids})"


def into_lanes(link: MysqlConnection, ids: Sequence[bytes]) -> None:
    """Moves ready jobs from the open line into the lane of their task."""
    these = id_list(ids)
    link.run(
        sql.LEAVE_READY.format(id_table(ids)),
        f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET lane = '' WHERE id IN ({these})",
        sql.COME_LANED.format(these),
        open_lanes.ADD_JOBS.format(these),
    )
