"""What claims and changes do with limits and lanes in the embedded store, within the transaction of the call.

Each queue, task and key with a limit has a row that says how far the limit is used, its level. A claim raises it, and
the change that ends an attempt lowers it, in any process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import EACH, Level, Limit
from tarry.store.rules.base import PROMOTED_AT_ONCE, Want, band
from tarry.store.rules.kept_places import ended_by, followed_place, places_to_keep
from tarry.store.rules.lanes import (
    EndedAttempt,
    JobKey,
    assign_lanes,
    count_by_level,
    decode_limit,
)
from tarry.store.shared.rate_corrections import correct_levels, count_corrections
from tarry.store.sql.columns import Row
from tarry.store.sql.lane_claim import claim_in_lanes
from tarry.store.sqlite import sql
from tarry.store.sqlite.lane_reader import SqliteLaneReader
from tarry.store.sqlite.levels import LevelTable
from tarry.store.sqlite.limits import LazyLimits, SqliteLimits, SqliteTransaction
from tarry.store.sqlite.link.database import Database

_FEW = 20
"""So many limits are read at once, with their levels."""


class SqliteLanes(SqliteTransaction):
    """The limits and lanes of one connection; the caller holds the connection's lock."""

    def __init__(self, db: Database) -> None:
        self._db: Database = db
        self.limits: Mapping[str, Limit] = {}
        """As of the last `load_limits`."""
        self._levels = LevelTable(db, {})
        self._open = SqliteLimits(db)
        self.is_held_back = False
        """Of the last claim: it left jobs that start once others have ended."""

    def load_limits(self) -> Mapping[str, Limit]:
        """The limits as they are now; valid to the end of the transaction, as are the levels."""
        rows = self.rows(sql.FEW_LIMITS, (_FEW + 1,))
        few = rows if len(rows) <= _FEW else []
        # An empty dict lets a claim without limits take the short way, at the price of one look.
        self.limits = LazyLimits(self._db) if rows and not few else {name: decode_limit(row[0]) for name, *row in few}
        known = {name: (Level(*row[1:3]), row[3]) if row[1] is not None else None for name, *row in few}
        self._levels = LevelTable(self._db, known)
        return self.limits

    def has_jobs(self) -> bool:
        """Whether any ready job has a lane."""
        return bool(self._db.execute(sql.ANY_LANED).get)

    def _has_jobs_for(self, wants: Sequence[Want]) -> bool:
        lines = dict.fromkeys((want.queue, -want.band) for want in wants)
        return any(self._db.execute(sql.ANY_LANED_IN, line).get for line in lines)

    def assign_lanes(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """New jobs, each with the lane that it will wait in."""
        return assign_lanes(jobs, self.load_limits())

    # Claiming

    def claim(self, wants: Sequence[Want], limit: int, owner: str, now: int) -> tuple[list[Row], int | None]:
        """Claims up to so many jobs; if there are none, also answers when a rate allows a start."""
        reader = SqliteLaneReader(self._db, self.limits, self._levels, owner, now)
        again = claim_in_lanes(reader, wants, limit, now)
        self.is_held_back = len(reader.claimed) < limit and reader.waits_for_ends and self._has_jobs_for(wants)
        return reader.claimed, again

    # Coming to wait

    def promote(self, now: int) -> None:
        """Scheduled jobs that are due become ready."""
        # Without limits no lane has to be opened, so the rows need not come back.
        if not self.limits:
            self._db.execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
            return
        rows = self.rows(sql.PROMOTED, (now, PROMOTED_AT_ONCE))
        self._open.add((queue, band(-order), task, lane) for queue, order, task, lane in rows if lane is not None)

    def open_lanes_of(self, ids: Sequence[bytes]) -> None:
        """Adds the lanes of these jobs, which are ready after a change."""
        if ids:
            self._open.add_jobs(self._db.array(tuple(ids)))

    # How far the limits are used

    # A level is a row that a claim and an end keep up to date. So a claim never has to count running jobs, and what a
    # dead worker took comes back with its jobs.

    def running_keys(self, changes: Sequence[Change]) -> dict[bytes, JobKey]:
        """Queue, task and lane of the jobs that run, by id: what counts for the limits."""
        ids = tuple(change.id for change in changes if change.was is State.RUNNING)
        rows = self.rows(sql.COUNTED, (self._db.array(ids),)) if ids else []
        return {id: (queue, task, lane) for id, queue, task, lane in rows}

    def count_running(self, changes: Sequence[Change]) -> Counter[JobKey]:
        """How many of the jobs of these changes run, by queue, task and lane."""
        ids = self._db.array(tuple(change.id for change in changes))
        if any(name.startswith(EACH) for name in self.limits):
            # There may be as many lanes as jobs.
            return Counter(self.rows(sql.COUNTED_EACH, (ids,)))
        return Counter(
            {(queue, task, lane): count for queue, task, lane, count in self.rows(sql.COUNTED_ALIKE, (ids,))}
        )

    def lower_by(self, ended: Counter[JobKey]) -> None:
        """Lowers the levels by that many ended attempts of each queue, task and lane, and opens their lanes."""
        counts = count_by_level(ended, self.limits)
        levels = self._levels.levels(counts)
        self._levels.set_levels({name: levels[name].ended(count) for name, count in counts.items()})
        self._open.reopen({(task, lane) for _, task, lane in ended if lane is not None and EACH + task in self.limits})

    def lower_levels(self, ended: Sequence[EndedAttempt], now: int) -> None:
        """As `lower_by`, and corrects what the rates of these attempts count."""
        if corrections := count_corrections(ended, self.limits):
            own, levels = self._open.own_limits(self.limits, corrections), self._levels.levels(corrections)
            self._levels.set_levels(correct_levels(corrections, self.limits, own, levels, now))
        self.lower_by(Counter(key for _, key in ended))

    def keep_places(self, ended: Sequence[EndedAttempt], now: int) -> None:
        """Keeps what levels count of these attempts, which go on."""
        kept = places_to_keep(ended, self.limits, lambda owner: self._db.execute(sql.LEASED_UNTIL, (owner,)).get, now)
        if kept:
            self._db.executemany(sql.SET_CELL, list(kept.items()))

    def keep_followed_place(self, change: Change, now: int) -> None:
        """Keeps the place of the attempt that a newer job is to follow, if this ends one."""
        if change.keeps_places:
            until = self._db.execute(sql.LEASED_UNTIL, (change.owner,)).get
            self._db.execute(sql.SET_CELL, followed_place(change, until, now))

    def free_places(self, given_up: Mapping[str, Change], now: int) -> None:
        """Lowers the levels by kept places of these names, as far as there are any, and removes them."""
        if given_up:
            rows = self.rows(sql.REMOVE_CELLS, (msgspec.json.encode([*given_up]).decode(),))
            self.lower_levels(ended_by(given_up, ((name, value) for name, value in rows)), now)

    def save_levels(self, now: int) -> None:
        """Writes the levels that this transaction has changed."""
        self._levels.save(now)

    @property
    def has_made_room(self) -> bool:
        """Whether, under a limit, more jobs may start than before this transaction."""
        return self._levels.is_lower
