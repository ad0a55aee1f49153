"""Makes changes in the embedded store, within the transaction of an exchange."""

from collections.abc import Sequence
from typing import Any

from tarry.model.change import Change
from tarry.model.job import State
from tarry.store.rules.kept_places import given_up
from tarry.store.shared.state_codes import CODE
from tarry.store.sqlite import sql
from tarry.store.sqlite.lanes import SqliteLanes
from tarry.store.sqlite.link.database import Database

GROUP_FROM = 4
"""The least number of changes, alike but for their job, that are made by one statement."""


class SomeInvalid(Exception):
    """Some changes of a group were not valid. To be rolled back, and made again with `ChangeGroups.telling`."""


class ChangeGroups:
    """Changes, in groups that one statement makes. To be made before the transaction that applies them.

    telling: whether each group tells which of its changes were valid. Else `SomeInvalid` is raised unless all were.
    """

    # Grouping takes a third as long as the statements, and other processes wait for the write lock.

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        # To tell costs a fifth of the change, and nearly always all are valid.
        self.telling = False
        self.alike: list[list[Change]] = []
        """Changes that differ only in their job."""
        self.rest: list[Change] = []
        self.in_order = len({change.id for change in changes}) < len(changes)
        """Several changes of one job depend on each other, so all are made one by one, in their order."""
        if not self.in_order:
            groups: dict[tuple[Any, ...], list[Change]] = {}
            for change in changes:
                groups.setdefault(change.effect, []).append(change)
            for alike in groups.values():
                if len(alike) < GROUP_FROM or alike[0].to is None or alike[0].seen_times:
                    self.rest += alike
                else:
                    self.alike.append(alike)
        self.only_end = not self.in_order and not self.rest and all(_only_ends(alike[0]) for alike in self.alike)
        """All end attempts, whose places become free, and nothing else follows from them."""


def _only_ends(change: Change) -> bool:
    is_end = change.was is State.RUNNING and change.to is not None and change.to.finished
    return is_end and not change.keeps_places and not change.rate_correction


def apply_changes(db: Database, lanes: SqliteLanes, groups: ChangeGroups, now: int) -> list[bool]:
    """Makes the valid changes and lowers the levels of limits for attempts that ended; answers which were valid.
    Raises SomeInvalid."""
    changes = groups.changes
    for change in changes:
        # A holder whose time is over must lose the key first, or the unique index would refuse the change.
        if change.key_held_until:
            db.execute(sql.OUTLIVED_BY, (now, change.id, CODE[change.was], change.epoch))
    if not lanes.limits:
        valid = _make(db, groups)
        # Also where nothing is limited: another job may wait for the end of such an attempt.
        if not all(valid):
            lanes.free_places(given_up(changes, valid), now)
        return valid
    if groups.only_end and not groups.telling:
        # All of them are valid, or the transaction is rolled back. So it is enough to know how many are of each lane.
        ended_keys = lanes.count_running(changes)
        valid = _make(db, groups)
        lanes.lower_by(ended_keys)
        return valid
    # Read before the changes: afterwards these jobs no longer run, and their queue may be another one.
    running = lanes.running_keys(changes)
    valid = _make(db, groups)
    made = [change for change, good in zip(changes, valid, strict=True) if good]
    ended = [change for change in made if change.was is State.RUNNING]
    lanes.lower_levels([(change, running[change.id]) for change in ended if not change.keeps_places], now)
    lanes.keep_places([(change, running[change.id]) for change in ended if change.keeps_places], now)
    lanes.free_places(given_up(changes, valid), now)
    # The limit may be younger than the job's end, so a finished job that comes back may have no lane yet.
    if revived := [change.id for change in made if change.was.finished]:
        db.execute(sql.INTO_LANES, (db.array(tuple(revived)),))
    lanes.open_lanes_of([change.id for change in made if change.to is State.READY])
    return valid


def _make(db: Database, groups: ChangeGroups) -> list[bool]:
    if groups.in_order:
        return [bool(_change_each(db, [change])) for change in groups.changes]
    made: set[bytes] = set()
    for alike in groups.alike:
        made |= _change_group(db, alike, groups.telling)
    made |= _change_each(db, groups.rest)
    return [change.id in made for change in groups.changes]


def _change_group(db: Database, alike: list[Change], telling: bool) -> set[bytes]:
    ids = [change.id for change in alike]
    values = (*new_values(alike[0]), db.array(tuple(ids)), *_fence(alike[0]))
    if telling:
        rows: list[Any] = db.execute(sql.CHANGE_GROUP_AND_TELL, values).fetchall()
        return {id for (id,) in rows}
    db.execute(sql.CHANGE_GROUP, values)
    if db.changes() < len(ids):
        raise SomeInvalid
    return set(ids)


def _change_each(db: Database, changes: list[Change]) -> set[bytes]:
    kept = [(*new_values(c), c.id, *_fence(c)) for c in changes if c.to is not None and not c.seen_times]
    gone = [(c.id, *_fence(c)) for c in changes if c.to is None and not c.seen_times]
    rows: list[Any] = db.executemany(sql.CHANGE, kept).fetchall() if kept else []
    rows += db.executemany(sql.FORGET, gone).fetchall() if gone else []
    # Few changes have these times, so each is a statement of its own.
    for change in changes:
        if change.seen_times:
            rows += _change_if_times(db, change, change.seen_times)
    return {id for (id,) in rows}


def _change_if_times(db: Database, change: Change, times: tuple[int, int]) -> list[Any]:
    if change.to is None:
        return db.execute(sql.FORGET_IF_TIMES, (change.id, *_fence(change), *times)).fetchall()
    values = (*new_values(change), change.id, *_fence(change), *times)
    return db.execute(sql.CHANGE_IF_TIMES, values).fetchall()


def new_values(change: Change) -> tuple[Any, ...]:
    """The values of `sql.SET`."""
    assert change.to is not None
    claim_order = None if change.priority is None else -change.priority
    return (
        CODE[change.to], change.state_since, change.due, change.failures, change.crashes, change.keep_until,
        change.note, change.queue, claim_order, change.expires, change.key_held_until, change.body, change.attempts,
    )  # fmt: skip


def _fence(change: Change) -> tuple[int, int, str | None]:
    """What the job must still be: the last values of a statement that changes it."""
    # A job that does not run has NULL as its owner.
    return CODE[change.was], change.epoch, change.owner or None
