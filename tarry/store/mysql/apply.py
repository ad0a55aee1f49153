"""Making changes with a look: the jobs are locked, and those that are as they were seen are changed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import State
from tarry.model.limit import EACH
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.link import Link
from tarry.store.mysql.settings import Settings
from tarry.store.mysql.sql import (
    ALREADY,
    CODE,
    DIFFERING,
    STATES,
    among,
    digest,
    filled,
    given,
    listed,
    noted,
    raw,
    some,
)
from tarry.store.shared.lanes import counted, laned

RUNNING = State.RUNNING
_SET = "grade,due,failures,losses,since,until,holds,state,epoch"


class Seen(Struct):
    """A job as it is now, as far as changes care."""

    state: State
    epoch: int
    queue: bytes
    grade: int
    due: int
    task: bytes
    lane: bytes | None
    holds: int
    key: bytes | None
    owner: bytes | None


_LOOK = """j.id, j.state, j.epoch, j.queue, j.grade, j.due, j.task, j.lane, j.holds, j.job_key,
    (SELECT r.owner FROM tarry_running r WHERE r.id = j.id)"""
"""The row of a running job is not locked: whoever changes it has the job's lock."""


class Applying:
    """Makes changes within the transaction of a link."""

    def __init__(self, link: Link, settings: Settings, now: int) -> None:
        self._link, self._settings, self._now = link, settings, now
        self._seen: dict[bytes, Seen] = {}
        self._keys: dict[bytes, tuple[bytes, int]] = {}

    def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Which were valid, and are made."""
        for part in some(sorted({change.id for change in changes})):
            self._look(part)
        valid: list[bool] = []
        for batch in _batches(changes):
            made = [change for change in batch if self._is_valid(change)]
            self._make(made)
            ids = {change.id for change in made}
            valid += [change.id in ids for change in batch]
        return valid

    def _look(self, ids: Sequence[bytes]) -> None:
        for id, state, *rest in self._link.rows(sql.LOCK_JOBS.format(_LOOK, among(ids)) + " FOR UPDATE"):
            self._seen[id] = Seen(STATES[state], *rest)

    def _is_valid(self, change: Change) -> bool:
        seen = self._seen.get(change.id)
        if seen is None or (seen.state, seen.epoch, seen.owner or b"") != (
            change.was,
            change.epoch,
            change.owner.encode(),
        ):
            return False
        return not change.holds or seen.key is None or self._may_hold(change, _digest(seen))

    def _may_hold(self, change: Change, key: bytes) -> bool:
        """Nobody else holds the key; one whose time with it is over loses it here."""
        if key not in self._keys:
            for id, holds in self._link.rows(f"SELECT id, holds FROM tarry_key WHERE digest = {raw(key)} FOR UPDATE"):
                self._keys[key] = (id, holds)
        holder, holds = self._keys.get(key, (change.id, 0))
        if holder == change.id:
            return True
        if holds > self._now:
            return False
        self._link.run(
            f"UPDATE tarry_job SET holds = 0 WHERE id = {raw(holder)}",
            f"DELETE FROM tarry_key WHERE digest = {raw(key)}",
        )
        if holder in self._seen:
            self._seen[holder].holds = 0
        del self._keys[key]
        return True

    def _make(self, changes: Sequence[Change]) -> None:
        """They are valid, and of different jobs."""
        statements = list(self._leaving(changes))
        for one in changes:
            self._note_key(one)
        statements += self._keys_of(changes)
        kept = [change for change in changes if change.to is not None]
        statements += self._setting(kept)
        gone = [change.id for change in changes if change.to is None]
        statements += [sql.FORGET.format(among(ids)) for ids in some(gone)]
        statements += self._lower([change.id for change in changes if change.was is RUNNING])
        for change in changes:
            self._follow(change)
        statements += self._coming(kept)
        if statements:
            self._link.run(*statements)

    def _leaving(self, changes: Sequence[Change]) -> Iterable[str]:
        by_place: defaultdict[str, list[bytes]] = defaultdict(list)
        for change in changes:
            by_place[_leave(self._seen[change.id])].append(change.id)
        for leave, ids in by_place.items():
            for part in some(ids):
                yield leave.format(among(part))

    def _coming(self, changes: Sequence[Change]) -> Iterable[str]:
        by_place: defaultdict[str, list[bytes]] = defaultdict(list)
        for change in changes:
            by_place[_come(self._seen[change.id])].append(change.id)
        for come, ids in by_place.items():
            for part in some(ids):
                yield come.format(listed(part))
                if come is sql.COME_LANED:
                    yield open_lanes.COME.format(listed(part))

    def _keys_of(self, changes: Sequence[Change]) -> Iterable[str]:
        for change in changes:
            seen = self._seen[change.id]
            if seen.key is None or (change.holds is None and change.to is not None):
                continue
            key, id = raw(_digest(seen)), raw(change.id)
            if change.holds and change.to is not None:
                values = f"({key},{id},{change.holds})"
                yield f"{sql.KEYS}{values} ON DUPLICATE KEY UPDATE holds = VALUES(holds)"
            elif seen.holds:
                yield f"DELETE FROM tarry_key WHERE digest = {key} AND id = {id}"

    def _note_key(self, change: Change) -> None:
        """For the changes that come after it."""
        seen = self._seen[change.id]
        if seen.key is None:
            return
        key = _digest(seen)
        if change.holds and change.to is not None:
            self._keys[key] = (change.id, change.holds)
        elif (change.holds == 0 or change.to is None) and self._keys.get(key, (b"", 0))[0] == change.id:
            del self._keys[key]

    def _setting(self, changes: Sequence[Change]) -> Iterable[str]:
        """One statement for all that change the same columns."""
        kinds: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            kinds[_columns(change)].append(change)
        for columns, members in kinds.items():
            values = (
                _values(change, self._seen[change.id], self._settings) for change in sorted(members, key=lambda c: c.id)
            )
            update = ", ".join(f"{name} = VALUES({name})" for name in columns.split(","))
            yield from filled(DIFFERING.format(columns), values, ALREADY + update)

    def _follow(self, change: Change) -> None:
        """The job as it is from now on, for the changes that come after it."""
        if change.to is None:
            del self._seen[change.id]
            return
        seen = self._seen[change.id]
        seen.state, seen.owner = change.to, None
        seen.due = seen.due if change.due is None else change.due
        seen.queue = seen.queue if change.queue is None else change.queue.encode()
        seen.grade = seen.grade if change.priority is None else -change.priority
        seen.holds = seen.holds if change.holds is None else change.holds
        if change.was.finished:
            seen.lane = _lane_anew(seen, self._settings)

    def _lower(self, ids: Sequence[bytes]) -> Iterable[str]:
        if not self._settings.limits:
            return
        ended = [self._seen[id] for id in ids]
        jobs = [
            (one.queue.decode(), one.task.decode(), None if one.lane is None else one.lane.decode()) for one in ended
        ]
        for name, count in sorted(counted(jobs, self._settings.limits).items()):
            where = f"WHERE name = {sql.text(name)}"
            yield f"UPDATE tarry_level SET running = GREATEST(0, running - {count}) {where}"
        limited = ((task, lane) for _, task, lane in jobs if lane is not None and EACH + task in self._settings.limits)
        yield from open_lanes.reopened(self._link, limited)


def _batches(changes: Sequence[Change]) -> Iterable[list[Change]]:
    """In their order, no job twice in one; one with a key to take is alone, since others may depend on it."""
    batch: list[Change] = []
    ids: set[bytes] = set()
    for change in changes:
        if change.id in ids or (change.holds and batch):
            yield batch
            batch, ids = [], set()
        batch.append(change)
        ids.add(change.id)
    if batch:
        yield batch


def _digest(seen: Seen) -> bytes:
    assert seen.key is not None
    return digest(seen.task.decode(), seen.key.decode())


def _lane_anew(seen: Seen, settings: Settings) -> bytes | None:
    """Where a job waits that had ended: as if it were new."""
    if seen.lane is not None:
        return seen.lane
    lane = laned(seen.task.decode(), None, settings.limits)
    return None if lane is None else lane.encode()


def _leave(seen: Seen) -> str:
    if seen.state is State.READY:
        return sql.LEAVE_READY if seen.lane is None else sql.LEAVE_LANED
    if seen.state is State.SCHEDULED:
        return sql.LEAVE_SCHEDULED
    return sql.LEAVE_RUNNING if seen.state is RUNNING else sql.LEAVE_FINISHED


def _come(seen: Seen) -> str:
    if seen.state is State.READY:
        return sql.COME_READY if seen.lane is None else sql.COME_LANED
    return sql.COME_SCHEDULED if seen.state is State.SCHEDULED else sql.COME_FINISHED


def _columns(change: Change) -> str:
    more = [",queue"] if change.queue is not None else []
    more += [",expires"] if change.expires is not None else []
    more += [",body"] if change.body is not None else []
    more += [",lane,settings"] if change.was.finished else []
    return _SET + ",note" + "".join(more)


def _values(change: Change, seen: Seen, settings: Settings) -> str:
    assert change.to is not None
    values: list[Any] = [
        raw(change.id),
        seen.grade if change.priority is None else -change.priority,
        seen.due if change.due is None else change.due,
        change.failures, change.losses, change.since,
        change.until if change.to.finished else 0,
        seen.holds if change.holds is None else change.holds,
        CODE[change.to], seen.epoch, noted(change.note, change.to),
    ]  # fmt: skip
    values += [] if change.queue is None else [sql.text(change.queue)]
    values += [] if change.expires is None else [change.expires]
    values += [] if change.body is None else [given(change.body)]
    if change.was.finished:
        lane = _lane_anew(seen, settings)
        values += ["NULL" if lane is None else raw(lane), settings.number]
    return f"({','.join(map(str, values))})"
