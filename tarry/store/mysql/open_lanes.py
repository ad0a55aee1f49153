"""The open lanes of tasks with a limit for each key: a claim looks at these only.

A transaction that puts jobs into a lane always adds a row to `tarry_open`, under the id of one of them. A claim that
finds a lane full closes it: one row in `tarry_closed` replaces all its rows in `tarry_open`. A claim that takes its
last job removes them, as does the keeper where the last job was taken away. A lane opens when one of its attempts ends,
when its rate allows a start, and when its limit changes. All but adding rows needs the turn.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.model.job import Job, State
from tarry.model.limit import EACH
from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import LANE, bounded_statements, id_list, lane_table, raw, text
from tarry.store.mysql.settings import NUMBER, StoreSettings
from tarry.store.rules.base import BANDS, Want, band
from tarry.store.rules.lanes import UNTIL_AN_END
from tarry.store.sql.columns import name_text
from tarry.store.sql.lane_reader import Lane, Line, TaskLine

LatenessLine = tuple[str, int, bool]
"""Queue, band, and whether it has the late jobs. The jobs' order: priority, due, id."""
# The look of an idle worker has a condition for each limited task; with more than _FEW of them there is no look.
_MOST, _FEW = 1000, 50
_PLACE = "queue = {} AND band = {} AND task = {}"
_OPEN = "INSERT IGNORE INTO tarry_open (queue, band, task, lane, id) "
_CLOSED = "INSERT IGNORE INTO tarry_closed (task, lane, queue, band, again) VALUES "
# The id in rows that no insert added.
_NOBODY = "X'00000000000000000000000000000000'"
ADD_JOBS = f"""{_OPEN} SELECT queue, SIGN(claim_order), task, lane, MIN(id) FROM tarry_job FORCE INDEX (PRIMARY)
    WHERE id IN ({{}}) AND state = 1 AND lane IS NOT NULL GROUP BY queue, SIGN(claim_order), task, lane"""
"""Run it together with `sql.COME_LANED`."""
# Row by row, by the whole key: a range could contain a row of a transaction that is still open, and waiting for that
# transaction would block all claims.
_REMOVE = """DELETE p FROM JSON_TABLE('[{}]', '$[*]' COLUMNS (i VARCHAR(1500) PATH '$')) v STRAIGHT_JOIN tarry_open p
    FORCE INDEX (PRIMARY) ON p.queue = {} AND p.band = {} AND p.task = {}
    AND p.lane = UNHEX(SUBSTRING(v.i, 33)) AND p.id = UNHEX(LEFT(v.i, 32))"""
# A subquery with LIMIT looks once for each lane: an EXISTS the planner may turn into a read of all jobs of the task.
_EMPTY = f"""SELECT {LANE} FROM {{}} WHERE
    (SELECT 1 FROM tarry_laned WHERE {{}} AND lane = {LANE} LIMIT 1) IS NULL"""
OPEN_TASK = f"""{_OPEN} SELECT queue, band, task, lane, {_NOBODY} FROM tarry_closed WHERE task = {{}}"""
ALL_OF = f"""{_OPEN} SELECT queue, band, task, lane, {_NOBODY} FROM tarry_laned WHERE task = {{}}
    GROUP BY queue, band, task, lane"""
NONE_CLOSED = "DELETE FROM tarry_closed WHERE task = {}"
NEXT_TIME = f"SELECT MIN(again) FROM tarry_closed WHERE again < {UNTIL_AN_END}"


class NothingToClaim(Struct, frozen=True):
    """A claim would find nothing."""

    again: int | None
    """When it may find something: a job is due, or a rate allows a start."""


def nothing_to_claim(
    link: MysqlConnection, settings: StoreSettings, wants: Iterable[Want], now: int
) -> NothingToClaim | None:
    """Looks without locks and without the turn. None: there may be something to claim."""
    # For tasks with a limit for each key only open lanes count; for all others each job in a lane does.
    limited = sorted(text(name.removeprefix(EACH)) for name in settings.limits if name.startswith(EACH))
    if len(limited) > _FEW:
        return None
    gaps = _gaps(limited)
    lines = list(dict.fromkeys((want.queue, want.band) for want in wants))
    open_line = map(exists, group_halves(half for line in lines for half in halves(*line)))
    found = " OR ".join([*open_line, *(_any_laned(text(queue), band, gaps) for queue, band in lines)])
    look = f"SELECT CONCAT_WS(' ', ({NUMBER}), IFNULL(({sql.NEXT_DUE}), -1), IFNULL(({NEXT_TIME}), -1), {found})"
    number, due, time, anything = map(int, link.rows(look)[0][0].split())
    # With other settings than ours the answer may be wrong: then the exchange itself has to look.
    again = min((moment for moment in (due, time) if moment >= 0), default=None)
    if anything or number != settings.number or (again is not None and again <= now):
        return None
    return NothingToClaim(again)


def _gaps(limited: Sequence[str]) -> str:
    """The names of tasks before, between and after these."""
    if not limited:
        return "TRUE"
    between = [f"task > {low} AND task < {high}" for low, high in itertools.pairwise(limited)]
    return " OR ".join([f"task < {limited[0]}", *between, f"task > {limited[-1]}"])


def _any_laned(queue: str, band: int, gaps: str) -> str:
    lane = f"queue = {queue} AND band = {-band}"
    return (
        f"EXISTS(SELECT 1 FROM tarry_open WHERE {lane})"
        f" OR EXISTS(SELECT 1 FROM tarry_laned FORCE INDEX (PRIMARY) WHERE {lane} AND ({gaps}))"
    )


def look_for_laned(wants: Iterable[Want]) -> str:
    """The statement that answers whether jobs wait in lanes of these queues and bands."""
    lines = dict.fromkeys((text(want.queue), -want.band) for want in wants)
    looks = [f"EXISTS(SELECT 1 FROM tarry_laned WHERE queue = {queue} AND band = {sign})" for queue, sign in lines]
    return f"SELECT {' OR '.join(looks)}"


def insert_statements(jobs: Iterable[Job]) -> Iterator[str]:
    """The statements that add the lanes of these new jobs, where they are ready."""
    places: dict[str, bytes] = {}
    for job in jobs:
        if job.lane is not None and job.state is State.READY:
            place = f"{text(job.queue)},{-band(job.priority)},{text(job.task)},{text(job.lane)}"
            places[place] = min(job.id, places.get(place, job.id))
    yield from bounded_statements(f"{_OPEN} VALUES ", (f"({place},{raw(id)})" for place, id in sorted(places.items())))


def close_and_remove(
    link: MysqlConnection, line: TaskLine, full: Mapping[str, int | None], empty: Collection[str]
) -> None:
    """Closes each full lane until its time; None: until an attempt ends. Removes those of `empty` without jobs."""
    queue, place = line[0], (text(line[0]), -line[1], text(line[2]))
    where = _PLACE.format(*place)
    lanes = id_list(lane.encode() for lane in {*empty, *full})
    # First read the rows, then look for jobs: a row that is visible was committed together with its job.
    looks = [_EMPTY.format(lane_table(empty), where)] if empty else []
    rows, *found = link.run(
        f"SELECT lane, id FROM tarry_open WHERE {where} AND lane IN ({lanes}) LIMIT {_MOST}", *looks
    )
    gone = {name_text(lane) for answer in found for (lane,) in answer.rows} | full.keys()
    closed = (
        f"({place[2]},{text(lane)},{text(queue)},{place[1]},{UNTIL_AN_END if again is None else again})"
        for lane, again in sorted(full.items())
    )
    going = [(lane, id) for lane, id in rows.rows if name_text(lane) in gone]
    if written := [*remove(place, going), *bounded_statements(_CLOSED, closed)]:
        link.run(*written)


def find_open(link: MysqlConnection, line: TaskLine, lanes: Sequence[str]) -> list[str]:
    """Those of these lanes that are open."""
    # One look each: a lane may have very many rows.
    place = _PLACE.format(text(line[0]), -line[1], text(line[2]))
    asked = [f"SELECT EXISTS(SELECT 1 FROM tarry_open WHERE {place} AND lane = {text(lane)})" for lane in lanes]
    answers = link.run(*asked) if asked else []
    return [lane for lane, answer in zip(lanes, answers, strict=True) if answer.rows[0][0]]


def find_empty(link: MysqlConnection, line: Line, lanes: Mapping[str, Sequence[str]]) -> set[Lane]:
    """Those of these lanes of tasks in which no job waits."""
    tasks = [task for task, names in lanes.items() if names]
    places = [_PLACE.format(text(line[0]), -line[1], text(task)) for task in tasks]
    asked = [_EMPTY.format(lane_table(lanes[task]), place) for task, place in zip(tasks, places, strict=True)]
    answers = link.run(*asked) if asked else []
    return {(task, name_text(lane)) for task, answer in zip(tasks, answers, strict=True) for (lane,) in answer.rows}


def remove(place: tuple[str, int, str], rows: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """The statements that remove rows by lane and id. place: queue, band and task as SQL literals."""
    listed = '"' + '","'.join(id.hex() + lane.hex() for lane, id in sorted(rows)) + '"'
    return [_REMOVE.format(listed, *place)] if rows else []


def remove_unneeded(link: MysqlConnection, line: TaskLine) -> None:
    """Removes rows of a task without a limit for each key, which needs none."""
    place = (text(line[0]), -line[1], text(line[2]))
    rows = link.rows(f"SELECT lane, id FROM tarry_open WHERE {_PLACE.format(*place)} LIMIT {_MOST}")
    if written := remove(place, [(lane, id) for lane, id in rows]):
        link.run(*written)


def reopen_statements(link: MysqlConnection, lanes: Iterable[Lane]) -> list[str]:
    """The statements that open these lanes, where they are closed."""
    # Reads before it writes: if none of them is closed, nothing has to be written.
    tasks: defaultdict[str, set[str]] = defaultdict(set)
    for task, lane in lanes:
        tasks[task].add(lane)
    asked = [
        f"SELECT DISTINCT task, lane FROM tarry_closed WHERE task = {text(task)}"
        f" AND lane IN ({id_list(lane.encode() for lane in names)})"
        for task, names in sorted(tasks.items())
    ]
    answers = link.run(*asked) if asked else []
    return [statement for answer in answers for row in answer.rows for statement in reopen_lane(row)]


def reopen_lane(row: Sequence[Any]) -> Iterator[str]:
    """The statements that open a lane. row: its task and its name, as they are stored."""
    where = f"{raw(row[0])} AND lane = {raw(row[1])}"
    yield OPEN_TASK.format(where)
    yield NONE_CLOSED.format(where)


def halves(queue: str, which: int) -> tuple[LatenessLine, LatenessLine]:
    """The halves of the open line of a queue and band: late jobs, jobs on time. They take turns, so a claim reads the
    first jobs of both."""
    return (queue, which, True), (queue, which, False)


def exists(halves: Sequence[LatenessLine]) -> str:
    """A SQL expression: whether there are any jobs. halves: one half, or the halves of all bands of a queue, either all
    late or all on time."""
    queue, which, late = halves[0]
    where = f"queue = {text(queue)} AND late = {late:d}"
    one_band = f" AND {sql.BANDS[which]}" if len(halves) < len(BANDS) else ""
    return f"EXISTS(SELECT 1 FROM tarry_ready WHERE {where}{one_band})"


def group_halves(halves: Iterable[LatenessLine]) -> Iterator[Sequence[LatenessLine]]:
    """The halves in as few groups as `exists` can take."""
    # Two bands of three in one group are not cheap: the planner might read all jobs of the third.
    groups: defaultdict[tuple[str, bool], dict[LatenessLine, None]] = defaultdict(dict)
    for half in halves:
        queue, _, late = half
        groups[queue, late][half] = None
    for group in map(tuple, groups.values()):
        yield from [group] if len(group) == len(BANDS) else [(half,) for half in group]
