"""Limits in an SQL database: what is set, how far each is used (its level), and which lanes are open.

A task with a limit for each key has open lanes: a claim looks at these only. A lane opens as soon as a job waits in it.
A claim that finds more than a few full ones closes them; one that takes or misses the last job of a lane removes it,
as does the keeper where the last job was taken away. A closed lane opens again when one of its attempts ends, when its
rate allows a start, and when its limit changes. So thousands of full lanes cost a claim nothing.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit
from tarry.store.rules.base import PlaceAnswer
from tarry.store.rules.kept_places import PREFIX, KeptPlace, job_keys
from tarry.store.rules.lanes import (
    EndedAttempt,
    JobKey,
    count_by_level,
    decode_limit,
    is_wrongly_closed,
    lane_level,
    lane_levels,
    limit_name,
    limit_of,
    taken_levels,
    wrong_levels,
)
from tarry.store.shared.rate_corrections import correct_levels, count_corrections
from tarry.store.sql.columns import name_text
from tarry.store.sql.lane_reader import Lane, levels_of
from tarry.store.sql.limit_shares import SqlLimitShares
from tarry.store.sql.prefix import prefix_end
from tarry.store.sql.transaction import SqlTransaction


class LimitSql(Struct, frozen=True, kw_only=True):
    """How one database writes the statements."""

    tables: str
    """The prefix of its tables' names."""
    limits: str
    """The table of limits."""
    put: str
    """name, value: sets a limit, whether it is there or not."""
    running: str
    """The jobs j that run: tables, and a condition."""
    closed: str
    """Task and lane of each closed lane, how many of it run, and when it opens; NULL: when an attempt ends."""
    next_open: str = ""
    """When the next lane opens; NULL: none does by itself."""
    move_into_lanes: Sequence[str] = ()
    """task: moves its jobs that are in no lane into the one without a name."""
    add_lanes: str
    """task: adds the lanes where its jobs are ready."""
    remove_lanes: str
    """task: removes all its lanes."""
    reopen_task: Sequence[str]
    """task: opens its closed lanes."""


class SqlLimits(SqlLimitShares):
    """The limits of one database, in a transaction of the caller."""

    sql: ClassVar[LimitSql]

    @property
    def _tables(self) -> str:
        return self.sql.tables

    @property
    def _limit_table(self) -> str:
        return self.sql.limits

    @abstractmethod
    def set_running(self, counts: Mapping[str, int]) -> None:
        """Sets how many run under these levels; the time of a rate stays."""

    # What is set

    def read(self) -> dict[str, Limit]:
        """The limits that are set."""
        rows = self.rows(f"SELECT name, value FROM {self.sql.limits}")
        return {name_text(name): decode_limit(value) for name, value in rows}

    def with_levels(self) -> dict[str, tuple[Limit, Level]]:
        """As `Store.limits`."""
        # A look for each name: a join might read the levels of all keys.
        level = f"FROM {self.sql.tables}level v WHERE v.name = {self.sql.limits}.name"
        columns = f"name, value, coalesce((SELECT running {level}), 0), coalesce((SELECT next {level}), 0)"
        rows = self.rows(f"SELECT {columns} FROM {self.sql.limits} ORDER BY name")
        return {name_text(name): (decode_limit(value), Level(*level)) for name, value, *level in rows}

    def levels(self, names: Sequence[str]) -> list[Level]:
        """As `Store.levels`."""
        found = levels_of(self.named_rows(f"name, running, next FROM {self.sql.tables}level", names))
        return [found.get(name, Level()) for name in names]

    def change_limit(self, name: str, limit: Limit) -> bool:
        """Changes a limit that is set; False if it is not set."""
        # Since it was set running jobs are counted and waiting jobs have lanes, so no pass over the jobs is needed.
        update = f"UPDATE {self.sql.limits} SET value = ?2 WHERE name = ?1"
        found = self.change(update, (name, msgspec.json.encode(self._kept(name, limit)))) > 0
        if found and name.startswith(EACH):
            self._reopen_task(name.removeprefix(EACH))
        return found

    def _reopen_task(self, task: str) -> None:
        """Opens the closed lanes of a task."""
        for statement in self.sql.reopen_task:
            self.change(statement, (task,))

    def _move_into_lanes(self, task: str) -> None:
        """Moves the jobs of a task that are in no lane into one."""
        for statement in self.sql.move_into_lanes:
            self.change(statement, (task,))

    def set_limit(self, name: str, limit: Limit | None) -> bool:
        """Sets or lifts a limit, and counts what runs under it; whether it was not set before."""
        limit = self._kept(name, limit)
        if limit is not None and self.change_limit(name, limit):
            return False
        if limit is None:
            self.change(f"DELETE FROM {self.sql.limits} WHERE name = ?1", (name,))
        else:
            self.change(self.sql.put, (name, msgspec.json.encode(limit)))
        # What an earlier limit has counted is not true any more. Only a lifted limit loses its rate's next start, too.
        unused = "running = 0" if limit is not None else "running = 0, next = 0"
        keys = lane_levels(name)
        of_it = "name = ?1 OR (name >= ?2 AND name < ?3)"
        self.change(f"UPDATE {self.sql.tables}level SET {unused} WHERE {of_it}", (name, keys, prefix_end(keys)))
        self._begin(name, limit)
        return limit is not None

    def _begin(self, name: str, limit: Limit | None) -> None:
        """What has come before a limit keeps to it."""
        kind, _, which = name.partition(":")
        # Lanes belong to tasks: a queue's limit holds for jobs in the open line too.
        is_of_queue = kind + ":" == QUEUE
        if limit is not None and not is_of_queue:
            self._move_into_lanes(which)
        if kind + ":" == EACH:
            # While there was no limit, jobs came without a lane here.
            self.change(self.sql.remove_lanes, (which,))
            if limit is not None:
                self.change(self.sql.add_lanes, (which,))
        if limit is not None:
            counted = self._counted(f" AND j.{'queue' if is_of_queue else 'task'} = ?1", (which,))
            if counts := count_by_level(counted, {name: limit}):
                self.set_running(counts)

    # What is used. A claim raises a level, and the end of an attempt lowers it. So a claim never has to count running
    # jobs, and what a dead worker took comes back with its jobs.

    def _counted(self, where: str = "", values: Sequence[Any] = ()) -> Counter[JobKey]:
        """What levels count: the running jobs for which that is true, and all kept places."""
        key = "j.queue, j.task, j.lane"
        jobs = self.rows(f"SELECT {key}, count(*) FROM {self.sql.running}{where} GROUP BY {key}", values)
        counted = Counter[JobKey]()
        for queue, task, lane, count in jobs:
            counted[name_text(queue), name_text(task), None if lane is None else name_text(lane)] += count
        kept = f"SELECT value FROM {self.sql.tables}cell WHERE name >= ?1 AND name < ?2"
        counted.update(job_keys(bytes(value) for (value,) in self.rows(kept, (PREFIX, prefix_end(PREFIX)))))
        return counted

    def wrong_levels(self) -> dict[str, int]:
        """The right count for each wrong level, by name."""
        limits = self.read()
        if not limits:
            return {}
        levels = self.rows(f"SELECT name, running FROM {self.sql.tables}level WHERE running <> 0")
        return wrong_levels(self._counted(), limits, {name_text(name): running for name, running in levels})

    def wrongly_closed(self, now: int) -> list[Lane]:
        """The lanes that are closed and need not be."""
        limits = self.read()
        own = self._all_key_limits(limits)
        closed = ((name_text(task), name_text(lane), *rest) for task, lane, *rest in self.rows(self.sql.closed))
        return [
            (task, lane)
            for task, lane, running, again in closed
            if is_wrongly_closed(limit_of(lane_level(task, lane), limits, own), running, again, now)
        ]

    def needs_recount(self, now: int) -> bool:
        """Whether a level or a closed lane may be wrong."""
        return bool(self.wrong_levels() or self.wrongly_closed(now))

    def recount(self, now: int) -> int:
        """Corrects levels and opens lanes that need not be closed; how many levels were wrong."""
        if wrong := self._locked_wrong_levels():
            self.set_running(wrong)
        if closed := self.wrongly_closed(now):
            self.reopen(closed)
        return len(wrong)

    def _locked_wrong_levels(self) -> dict[str, int]:
        """As `wrong_levels`; until the transaction ends nobody else changes these levels."""
        return self.wrong_levels()

    # Places outside of jobs

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        """As `Store.take_place`."""
        limits = self.read_some(key)
        own = self._key_limit_of(key, limits)
        levels = self.levels_to_raise(key, limits)
        if any(limit.share is not None for limit in limits.values()):
            # Now that the levels are locked: a part may just have become smaller.
            limits = self.read_some(key)
        # After the locks: an earlier call, whose answer was lost, may just have taken it.
        if self.rows(f"SELECT 1 FROM {self.sql.tables}cell WHERE name = ?1", (name,)):
            return PlaceAnswer(True)
        answer, raised = taken_levels(key, cost, limits, own, levels, now)
        if answer.is_taken:
            self.raise_levels(raised)
            self.change(f"INSERT INTO {self.sql.tables}cell VALUES (?1, ?2)", (name, KeptPlace(until, *key).encode()))
        return answer

    def read_some(self, key: JobKey) -> dict[str, Limit]:
        """Those limits that may count jobs with this key."""
        queue, task, _ = key
        names = (QUEUE + queue, TASK + task, EACH + task)
        rows = self.rows(f"SELECT name, value FROM {self.sql.limits} WHERE name IN (?1, ?2, ?3)", names)
        return {name_text(name): decode_limit(value) for name, value in rows}

    def levels_to_raise(self, key: JobKey, limits: Mapping[str, Limit]) -> dict[str, Level]:
        """The levels that are not unused, of these limits, for a claim of jobs with this key: until the transaction
        ends no other claim raises them."""
        queue, task, lane = key
        names = (QUEUE + queue, TASK + task, lane_level(task, lane or ""))
        look = f"SELECT name, running, next FROM {self.sql.tables}level WHERE name IN (?1, ?2, ?3)"
        return levels_of(self.rows(look, names))

    @abstractmethod
    def raise_levels(self, levels: Mapping[str, Level]) -> None:
        """One more runs under each of these levels, which are as they are after that."""

    def read_corrected(
        self, ended: Iterable[EndedAttempt], limits: Mapping[str, Limit], known: Mapping[str, Level], now: int
    ) -> dict[str, Level]:
        """The levels whose rates count more or fewer starts after these attempts, as they are after that. Until the
        transaction ends no claim must raise them. known: those that are not as in the database any more."""
        corrections = count_corrections(ended, limits)
        if not corrections:
            return {}
        names = sorted(corrections)
        levels = {**dict(zip(names, self.levels(names), strict=True)), **known}
        return correct_levels(corrections, limits, self.own_limits(limits, names), levels, now)

    def own_limits(self, limits: Mapping[str, Limit], levels: Iterable[str]) -> dict[str, Limit]:
        """The limits of single keys that hold for some of these levels, also of tasks and queues. limits: all that they
        need."""
        of_keys = [name for name in levels if name.startswith(EACH) and limits[limit_name(name)].has_key_limits]
        return self.key_limits(limits, of_keys) if of_keys else {}

    # Lanes that a rate has closed

    def reopen_due(self, now: int, most: int) -> int | None:
        """Opens up to so many lanes whose time has come; when the next opens, 0 if its time has come too."""
        first = self._next_open()
        # Most claims end here, without a write.
        if first is None or first > now:
            return first
        self.reopen_some_due(now, most)
        first = self._next_open()
        return 0 if first is not None and first <= now else first

    def _next_open(self) -> int | None:
        time: int | None = self.rows(self.sql.next_open)[0][0]
        return time

    def reopen_some_due(self, now: int, most: int) -> None:
        """Opens up to so many lanes whose time has come, if claims do that."""


class RoomSql(Struct, frozen=True, kw_only=True):
    """How one database writes the statements about rooms."""

    make: str = ""
    """name: makes the cell unless it is there, where a row must be there to be locked."""
    lock: str
    """name: the value of a cell, locked."""
    save: str
    """name, value: sets it."""
    count: str
    """queue, most: how many jobs of a queue wait."""
    count_key: str
    """queue, task, lane, most: how many jobs of a lane are ready in a queue."""


class SqlRooms(SqlTransaction):
    """The rooms of queues with a bound (`bounded_room.RoomTable`)."""

    rooms: ClassVar[RoomSql]

    def lock(self, name: str) -> bytes | None:
        """The value of a cell, locked; empty or None if there was none."""
        rows: Sequence[tuple[Any, ...]] = ()
        while not rows:
            if self.rooms.make:
                self.each(self.rooms.make, [(name,)])
            rows = self.rows(self.rooms.lock, (name,))
            if not self.rooms.make:
                break
            # Else an old one was removed in between: it is made again.
        return bytes(rows[0][0]) if rows else None

    def save(self, name: str, value: bytes) -> None:
        """Sets the value of a cell that is locked."""
        self.each(self.rooms.save, [(name, value)])

    def count(self, queue: str, most: int) -> int:
        """How many jobs of a queue wait; at most `most`."""
        # After the lock: it sees what others committed before that.
        return int(self.rows(self.rooms.count, (queue, most))[0][0])

    def count_key(self, queue: str, task: str, lane: str, most: int) -> int:
        """How many jobs of a lane are ready in a queue; at most `most`."""
        return int(self.rows(self.rooms.count_key, (queue, task, lane, most))[0][0])

    @abstractmethod
    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Those of these ids under which a job is there."""
