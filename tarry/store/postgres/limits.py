"""Limits in PostgreSQL, and the open lanes.

A transaction that puts a job into a lane of a task with a limit for each key always adds a row to the table `lane`: if
it relied on a row that is there, it would have to wait for a transaction that removes that row. When a claim closes a
lane, one closed row replaces all open rows. No lane stays closed or is lost by mistake:

- Closing locks the row of the level and sees that it is still full. The end of an attempt locks the level before it
  opens lanes. If it comes first, there is room; if it comes second, it finds the closed row and opens it.
- The statement that removes a row sees that no job waits there. A row is committed together with its job, so a
  statement that does not see the job does not see its row either.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from tarry.errors import StoreBusy
from tarry.model.change import Change
from tarry.model.limit import EACH, QUEUE, TASK, KeyLimit, Level, Limit
from tarry.store.postgres import packing as pack
from tarry.store.postgres import sql
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import LONG_TIMEOUT, PostgresPool
from tarry.store.rules.base import ShareChange
from tarry.store.rules.kept_places import ended_by, followed_place, job_keys, name_for, name_of, places_to_keep
from tarry.store.rules.lanes import UNTIL_AN_END, EndedAttempt, JobKey, count_by_level, lane_level
from tarry.store.shared.backoff import jitter
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_reader import Lane, TaskLine, levels_of
from tarry.store.sql.limits import LimitSql, RoomSql, SqlLimits, SqlRooms
from tarry.store.sql.transaction import SqlTransaction

_OPEN = "again IS NULL AND queue = $1 AND band = $2::int AND task = $3"
# A level that another transaction has locked may change: its lane stays open, and a later claim closes it.
_LOCKED = "SELECT name, running, next FROM {s}.level WHERE name = ANY ($1) FOR UPDATE SKIP LOCKED"
# LIMIT keeps the planner from joining: it would read all lanes, or all jobs that wait, for each lane.
# Only while the task still has the limit by which the lanes are full: a change has opened its lanes already.
_CLOSE = f"""WITH full_ AS (SELECT * FROM unnest($4, $5) AS f (lane, again)
        WHERE EXISTS (SELECT FROM {{s}}.limits WHERE name = 'each:' || $3 AND value = $6)),
    gone AS (DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM {{s}}.lane o
        WHERE {_OPEN} AND lane IN (SELECT lane FROM full_) LIMIT 2000)))
    INSERT INTO {{s}}.lane (queue, band, task, lane, again) SELECT $1, $2::int, $3, f.lane, f.again FROM full_ f
    WHERE (SELECT true FROM {{s}}.lane c WHERE c.again IS NOT NULL AND c.task = $3 AND c.lane = f.lane
        AND c.queue = $1 AND c.band = $2::int LIMIT 1) IS NULL"""
_REMOVE = f"""DELETE FROM {{s}}.lane WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM unnest($4) AS n (name)
    CROSS JOIN LATERAL (SELECT ctid, lane FROM {{s}}.lane WHERE {_OPEN} AND lane = n.name LIMIT 2000) AS o
    WHERE (SELECT true FROM {{s}}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = $1
        AND (j.claim_order > 0)::int - (j.claim_order < 0)::int = -$2::int AND j.task = $3 AND j.lane = o.lane
        LIMIT 1) IS NULL
    LIMIT 2000))"""
_OPEN_THESE = """UPDATE {s}.lane c SET again = NULL FROM unnest($1, $2) AS o (task, lane)
    WHERE c.again IS NOT NULL AND c.task = o.task AND c.lane = o.lane"""


class PostgresTransaction(SqlTransaction):
    """A transaction of the connection."""

    def __init__(self, link: PostgresConnection, schema: str) -> None:
        self._link, self._schema = link, schema

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._link.rows(sql.for_schema(statement, self._schema), values)

    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.change(statement, row)

    def change(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs a statement; how many rows it was about."""
        return self._link.run(sql.for_schema(statement, self._schema), values)


class PostgresLimits(PostgresTransaction, SqlLimits):
    """The limits and open lanes of one schema."""

    sql = LimitSql(
        tables="{s}.",
        limits="{s}.limits",
        put="INSERT INTO {s}.limits VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        running="{s}.job j WHERE j.state = 2",
        closed=f"""SELECT DISTINCT c.task, c.lane, coalesce(l.running, 0), nullif(c.again, {UNTIL_AN_END})
            FROM {{s}}.lane c LEFT JOIN {{s}}.level l ON l.name = 'each:' || c.task || chr(31) || c.lane
            WHERE c.again IS NOT NULL""",
        move_into_lanes=("UPDATE {s}.job SET lane = '' WHERE lane IS NULL AND state BETWEEN 0 AND 2 AND task = ?1",),
        add_lanes="""INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT queue, (claim_order < 0)::int - (claim_order > 0)::int, task, lane FROM {s}.job
            WHERE state = 1 AND lane IS NOT NULL AND task = ?1""",
        remove_lanes="DELETE FROM {s}.lane WHERE task = ?1",
        reopen_task=("UPDATE {s}.lane SET again = NULL WHERE again IS NOT NULL AND task = ?1",),
    )

    def named_rows(self, source: str, names: Sequence[str]) -> Sequence[Row]:
        return self.rows(f"SELECT {source} WHERE name = ANY ($1)", (pack.texts(names),))

    def set_running(self, counts: Mapping[str, int]) -> None:
        self.change(sql.RUNNING_NOW, (pack.texts(counts), pack.big_ints(counts.values())))

    def _reopen_task(self, task: str) -> None:
        # A claim that still uses the old limit could close lanes after this.
        self._wait_for_claims(TASK + task)
        super()._reopen_task(task)

    def _reopen_lane(self, task: str, lane: str) -> None:
        # As above. Claims read what keys have with the lock held, so those that follow know of this.
        self._wait_for_claims(TASK + task)
        super()._reopen_lane(task, lane)

    def _wait_for_claims(self, level: str) -> None:
        """Takes the lock that claims of the task or queue have which has this level."""
        turn = (pack.texts([level]),)
        self.change(sql.LEVELS_THERE, turn)
        self.rows(sql.LEVELS, turn)

    def levels_to_raise(self, key: JobKey, limits: Mapping[str, Limit]) -> dict[str, Level]:
        self._lock_as_claims([key], limits)
        return super().levels_to_raise(key, limits)

    def _lock_as_claims(self, keys: Collection[JobKey], limits: Mapping[str, Limit]) -> None:
        # The locks of a claim, in its order. Those of lanes need none, since claims of a task take turns; an attempt
        # that ends meanwhile lowers them.
        own = {QUEUE + queue for queue, _, _ in keys}.intersection(limits)
        own |= {TASK + task for _, task, lane in keys if lane is not None}
        locked = pack.texts(sorted(own))
        self.change(sql.LEVELS_THERE, (locked,))
        self.rows(sql.LEVELS, (locked,))

    def set_next(self, levels: Mapping[str, Level]) -> None:
        self.change(sql.SET_NEXT, (pack.texts(levels), pack.big_ints(level.next for level in levels.values())))

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        # With the lock that claims have: those that follow read the limits after they have it.
        locked = (pack.texts(sorted(change.name for change in changes)),)
        self.change(sql.LEVELS_THERE, locked)
        self.rows(sql.LEVELS, locked)
        return super().change_shares(changes, now)

    def raise_levels(self, levels: Mapping[str, Level]) -> None:
        names = sorted(levels)
        following = pack.big_ints(levels[name].next for name in names)
        self.change(sql.RAISE_LEVELS, (pack.texts(names), pack.big_ints(1 for _ in names), following))

    def reopen(self, lanes: Collection[Lane]) -> None:
        tasks, names = zip(*lanes, strict=True)
        self.change(_OPEN_THESE, (pack.texts(tasks), pack.texts(names)))

    def close(self, line: TaskLine, lanes: Mapping[str, Limit], stored: bytes, now: int) -> None:
        """Closes the lanes that are full under these limits. stored: the task's limit for each key, as it is stored.

        To be called only at the end of a claim: after it the claim must not wait for any lock.
        """
        names = {lane_level(line[-1], lane): lane for lane in sorted(lanes)}
        # Locked and read again: an attempt may have ended since the claim saw the lane full, and then there is room.
        locked = self.rows(_LOCKED, (pack.texts(names),))
        # Where nothing may start there may be no row of a level: the lane is full without one.
        levels = {name: Level() for name, lane in names.items() if lanes[lane].most == 0} | levels_of(locked)
        found = {names[name]: (level, lanes[names[name]]) for name, level in levels.items()}
        full = {lane: level.again(limit, now) for lane, (level, limit) in found.items() if not level.room(limit, now)}
        if full:
            again = pack.big_ints(UNTIL_AN_END if time is None else time for time in full.values())
            self.change(_CLOSE, (*line, pack.texts(full), again, stored))

    def remove(self, line: TaskLine, lanes: Iterable[str]) -> None:
        """Removes the lanes where no job waits."""
        self.change(_REMOVE, (*line, pack.texts(lanes)))

    def remove_between_claims(self, line: TaskLine, lanes: Iterable[str]) -> None:
        """As `remove`, in a transaction of its own."""
        with self._link.transaction_with():
            # Two that remove rows at once may wait for each other.
            self._wait_for_claims(TASK + line[-1])
            self.remove(line, lanes)

    def set_limit(self, name: str, limit: Limit | None) -> bool:
        """As in other stores. NotAlone: try again."""
        try:
            self.change(sql.NOBODY_ELSE)
        except psycopg.errors.LockNotAvailable:
            raise NotAlone from None
        return super().set_limit(name, limit)

    def change_limit(self, name: str, limit: Limit) -> bool:
        self.change(sql.TURN_TO_LIMIT)
        is_changed = super().change_limit(name, limit)
        if is_changed and not name.startswith(EACH):
            self._wait_for_claims(name)
        return is_changed

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> bool:
        self.change(sql.TURN_TO_LIMIT)
        return super().limit_key(task, lane, limit)

    def needs_recount(self, now: int) -> bool:
        # So it sees levels, jobs and lanes as of one moment, and needs no lock.
        self.change("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return super().needs_recount(now)

    def _locked_wrong_levels(self) -> dict[str, int]:
        # Here each statement sees what is committed by then, so this may name right ones, too.
        names = self.wrong_levels()
        self.change(sql.LEVELS_THERE, (pack.texts(names),))
        self.rows(sql.LOCK_LEVELS, (pack.texts(names),))
        # With the locks held, all earlier changes of these levels are committed, and later ones add to this count.
        return {name: count for name, count in self.wrong_levels().items() if name in names}

    def keep_places(self, changes: Sequence[Change], now: int) -> None:
        """Counts the attempts that go on after these changes a second time, which their ends take back; in a
        transaction with the changes."""
        if not any(change.keeps_places for change in changes):
            return
        # Of several changes of one attempt the first one is made: if that ends it, nothing goes on.
        first = {name_for(change): change for change in reversed(changes)}
        going_on = {name: change for name, change in first.items() if change.keeps_places}
        if not going_on:
            return
        found = self.rows(sql.LOCK_RUNNING, (pack.uuids([change.id for change in changes]),))
        running: dict[str, tuple[JobKey, int | None]] = {
            name_of(owner, id, epoch): ((queue, task, lane), until)
            for id, epoch, owner, queue, task, lane, until in found
        }
        limits, names = self.read(), [name for name in running if name in going_on]
        leases = {going_on[name].owner: running[name][1] for name in names}
        kept = places_to_keep([(going_on[name], running[name][0]) for name in names], limits, leases.get, now)
        if counts := count_by_level(job_keys(kept.values()), limits):
            self.change(sql.KEEP, (pack.texts(kept), pack.blobs(kept.values())))
            self.change(sql.ADD_RUNNING, (pack.texts(counts), pack.big_ints(counts.values())))

    def keep_followed_place(self, change: Change, now: int) -> None:
        """Keeps the place of the attempt that a newer job is to follow, if this ends one."""
        if not change.keeps_places:
            return
        leases = self.rows(sql.LEASED_UNTIL, (change.owner,))
        name, value = followed_place(change, leases[0][0] if leases else None, now)
        self.change(sql.KEEP, (pack.texts([name]), pack.blobs([value])))

    def free_places(self, given_up: Mapping[str, Change], now: int, limited: bool) -> None:
        """Removes the kept places of these names, as far as there are any, and lowers the levels that count them.
        limited: whether there may be such levels; else it takes one round trip."""
        if not limited:
            self.rows(sql.FREE, (pack.texts(given_up),))
            return
        with self._link.transaction_with():
            rows = self.rows(sql.FREE, (pack.texts(given_up),))
            ended = ended_by(given_up, ((name, bytes(value)) for name, value in rows))
            if ended:
                limits = self._lock_to_correct(ended)
                queues, tasks, lanes = map(pack.texts, zip(*(key for _, key in ended), strict=True))
                # Any ids: each tells apart one attempt that has ended.
                ids = pack.uuids([number.to_bytes(16, "big") for number in range(len(ended))])
                self.rows(sql.ENDED, (ids, queues, tasks, lanes, now))
                self._correct(ended, limits, now)

    # What rates count. A claim sets the time of a rate to one that follows from what it has read, so a correction takes
    # the locks of a claim.

    def lock_to_correct(self, changes: Sequence[Change]) -> "LockedAttempts":
        """The attempts that these changes are to end, if one of them corrects rates. In a transaction with the changes,
        before anything else that locks levels."""
        if not any(change.rate_correction for change in changes):
            return LockedAttempts({}, {})
        # All of them: what ends beside those that correct locks levels, too, and there is one order.
        found = self.rows(sql.LOCK_RUNNING, (pack.uuids([change.id for change in changes]),))
        keys = {name_of(owner, id, epoch): (queue, task, lane) for id, epoch, owner, queue, task, lane, _ in found}
        ended = [(change, keys[name]) for change in changes if (name := name_for(change)) in keys]
        return LockedAttempts(keys, self._lock_to_correct(ended))

    def correct(self, locked: "LockedAttempts", made: Iterable[Change], now: int) -> None:
        """Corrects what rates count after these changes."""
        ended = [(change, locked.keys[name]) for change in made if (name := name_for(change)) in locked.keys]
        self._correct(ended, locked.limits, now)

    def _lock_to_correct(self, ended: Sequence[EndedAttempt]) -> dict[str, Limit]:
        """The limits; none, if nothing is to be corrected."""
        limits = self.read() if any(change.rate_correction for change, _ in ended) else {}
        if limits:
            self._lock_as_claims({key for _, key in ended}, limits)
        return limits

    def _correct(self, ended: Sequence[EndedAttempt], limits: Mapping[str, Limit], now: int) -> None:
        if levels := self.read_corrected(ended, limits, {}, now):
            self.set_next(levels)


class LockedAttempts(NamedTuple):
    """Running attempts, by the names of their places, whose ends may correct what rates count. limits: those that are
    set."""

    keys: Mapping[str, JobKey]
    limits: Mapping[str, Limit]


class NotAlone(Exception):
    """Another transaction that inserted, claimed or changed jobs is still open."""


def set_limit(pool: PostgresPool, schema: str, name: str, limit: Limit | None) -> None:
    """Sets or lifts a limit. StoreBusy: a transaction that enqueued stays open for too long."""
    # One that is set already is changed without stopping all others.
    if limit is not None and pool.call_long(lambda link: PostgresLimits(link, schema).change_limit(name, limit)):
        return
    _repeat_until_alone(pool, name, lambda link: PostgresLimits(link, schema).set_limit(name, limit))


def limit_key(pool: PostgresPool, schema: str, task: str, lane: str, limit: KeyLimit | None) -> None:
    """As `Store.limit_key`. StoreBusy: as of `set_limit`."""
    name = lane_level(task, lane)
    _repeat_until_alone(pool, name, lambda link: PostgresLimits(link, schema).limit_key(task, lane, limit))


def _repeat_until_alone(pool: PostgresPool, name: str, change: Callable[[PostgresConnection], object]) -> None:
    until = time.monotonic() + LONG_TIMEOUT
    while time.monotonic() < until:
        try:
            pool.call_long(change)
            return
        except NotAlone:
            time.sleep(jitter(0.3))  # meanwhile the others go on
    raise StoreBusy(
        f"{pool.url.shown}: the limit {name} is not set: a transaction that enqueued has been open for over"
        f" {LONG_TIMEOUT} s; see pg_stat_activity, end it, and set the limit again"
    )


class PostgresRooms(PostgresTransaction, SqlRooms):
    """The rooms of queues with a bound."""

    rooms = RoomSql(
        make=sql.CELL_THERE, lock=sql.LOCK_CELL, save=sql.SAVE_CELL, count=sql.COUNT_WAITING, count_key=sql.COUNT_KEY
    )

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        return [bytes(id) for (id,) in self.rows(sql.STORED_IDS, (pack.uuids(ids),))]
