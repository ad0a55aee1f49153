"""Makes changes within the transaction of an exchange.

Plain ends (`mysql.plain_ends`) are made at once. For other changes the jobs are locked and read first, and only those
that are still as they were seen are changed. One plan writes the statements of both ways.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import FINISHED, State
from tarry.model.limit import EACH, Level, waiting_lane
from tarry.store.mysql import open_lanes, sql
from tarry.store.mysql.limits import MysqlLimits
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import blob_or_null, bounded_statements, chunks, id_list, id_table, raw, text
from tarry.store.mysql.plain_ends import ChangePlan, is_plain_end, leave_running, lose_keys, lose_labels, write_ends
from tarry.store.mysql.settings import StoreSettings
from tarry.store.mysql.sql import ALREADY, DIFFERING, digest, note_literal
from tarry.store.rules.kept_places import ended_by, followed_place, given_up, places_to_keep
from tarry.store.rules.lanes import EndedAttempt, JobKey, count_by_level
from tarry.store.shared.state_codes import CODE, state_of
from tarry.store.sql.columns import name_text

RUNNING = State.RUNNING
WAITING = frozenset({State.READY, State.SCHEDULED})
_SET = "claim_order,due,failures,crashes,state_since,keep_until,key_held_until,state,epoch"


class JobAsSeen(Struct):
    """The part of a job that matters to changes, as it is now."""

    state: State
    epoch: int
    queue: bytes
    claim_order: int
    due: int
    expires: int
    task: bytes
    lane: bytes | None
    key_held_until: int
    key: bytes | None
    owner: bytes | None


# The row of a running job needs no lock of its own: a transaction that changes it has the lock of the job.
_LOOK = """j.id, j.state, j.epoch, j.queue, j.claim_order, j.due, j.expires, j.task, j.lane, j.key_held_until, j.key,
    (SELECT r.owner FROM tarry_running r WHERE r.id = j.id)"""


class ChangeApplier:
    """Makes changes within the transaction of a link."""

    def __init__(self, link: MysqlConnection, settings: StoreSettings, now: int) -> None:
        self._link, self._settings, self._now = link, settings, now
        self._seen: dict[bytes, JobAsSeen] = {}
        self._keys: dict[bytes, tuple[bytes, int]] = {}
        self._corrected: dict[str, Level] = {}
        """Levels by statements that are perhaps not run yet."""

    def apply(self, changes: Sequence[Change], before: Sequence[str]) -> tuple[list[bool], list[str]]:
        """Which changes are valid, and the statements that the caller still has to run. `before` is run at once."""
        # In sorted order, so that two transactions lock the same jobs in the same order.
        self._look(before, sorted({change.id for change in changes}))
        valid: list[bool] = []
        left: list[str] = []
        for batch in _batches(changes):
            # The statements of the last batch are left to the caller, who sends them with others in one packet.
            if left:
                self._link.run(*left)
            made = [change for change in batch if self._is_valid(change)]
            left = self.plan(made).statements
            for change in made:
                self._follow(change)
            ids = {change.id for change in made}
            good = [change.id in ids for change in batch]
            left += self._free_places(given_up(batch, good))
            valid += good
        return valid, left

    def _look(self, before: Sequence[str], ids: Sequence[bytes]) -> None:
        looks = [sql.LOCK_JOBS.format(_LOOK, id_table(part)) + " FOR UPDATE" for part in chunks(ids)]
        for answer in self._link.run(*before, *looks)[len(before) :]:
            for id, state, *rest in answer.rows:
                self._seen[id] = JobAsSeen(state_of(state), *rest)

    def _is_valid(self, change: Change) -> bool:
        seen = self._seen.get(change.id)
        if seen is None or (seen.state, seen.epoch, seen.owner or b"") != (
            change.was,
            change.epoch,
            change.owner.encode(),
        ):
            return False
        if change.seen_times not in (None, (seen.due, seen.expires)):
            return False
        return not change.key_held_until or seen.key is None or self._may_hold(change, _digest(seen))

    def _may_hold(self, change: Change, key: bytes) -> bool:
        """Whether no other job holds the key. A holder whose time is over loses it here."""
        if key not in self._keys:
            look = f"SELECT id, key_held_until FROM tarry_key WHERE digest = {raw(key)} FOR UPDATE"
            for id, until in self._link.rows(look):
                self._keys[key] = (id, until)
        holder, until = self._keys.get(key, (change.id, 0))
        if holder == change.id:
            return True
        if until > self._now:
            return False
        self._link.run(
            f"UPDATE tarry_job SET key_held_until = 0 WHERE id = {raw(holder)}",
            f"DELETE FROM tarry_key WHERE digest = {raw(key)}",
        )
        if holder in self._seen:
            self._seen[holder].key_held_until = 0
        del self._keys[key]
        return True

    def plan(self, changes: Sequence[Change], all_plain: bool = False) -> ChangePlan:
        """The statements for changes of different jobs. all_plain: plain ends that nobody looked at; else all are valid
        changes."""
        plan = ChangePlan()
        kept = [change for change in changes if change.to is not None]
        if all_plain:
            leave_running(changes, plan)
            lose_keys(changes, plan)
            write_ends(kept, plan)
        else:
            self._plan_all_kinds(changes, kept, plan)
        lose_labels(changes, plan)
        for ids in chunks([change.id for change in changes if change.to is None]):
            plan.add(sql.FORGET.format(id_table(ids)), len(ids))
        finished = kept if all_plain else [change for change in kept if change.to in FINISHED]
        for ids in chunks([change.id for change in finished]):
            plan.add((sql.END_ONCE if all_plain else sql.COME_FINISHED).format(id_list(ids)), len(ids))
        return plan

    def _plan_all_kinds(self, changes: Sequence[Change], kept: Sequence[Change], plan: ChangePlan) -> None:
        """All but the last two steps: deleting the forgotten jobs, and listing the finished ones."""
        # Jobs leave before their rows change, since the row says where a job is; they come to their new place after.
        ran = [change for change in changes if change.was is RUNNING]
        leave_running(ran, plan)
        # A blocked job has no place.
        self._leave_waiting([change for change in changes if change.was not in (RUNNING, State.BLOCKED)], plan)
        lose_keys(changes, plan)
        self._take_keys(kept, plan)
        write_ends([change for change in kept if is_plain_end(change)], plan)
        self._write([change for change in kept if not is_plain_end(change)], plan)
        self._lower([(change, self._job_key(change)) for change in ran if not change.keeps_places], plan)
        self._keep_places([change for change in ran if change.keeps_places], plan)
        self._come_to_wait([change for change in kept if change.to in WAITING], plan)

    def _leave_waiting(self, changes: Sequence[Change], plan: ChangePlan) -> None:
        for leave, ids in _group((_leave(self._seen[change.id]), change.id) for change in changes):
            for part in chunks(ids):
                plan.add(leave.format(id_table(part)))

    def _come_to_wait(self, changes: Sequence[Change], plan: ChangePlan) -> None:
        for come, ids in _group((self._place(change), change.id) for change in changes):
            for part in chunks(ids):
                plan.add(come.format(id_list(part)))
                # A lane with a waiting job must be open, or no claim would look at it.
                if come is sql.COME_LANED:
                    plan.add(open_lanes.ADD_JOBS.format(id_list(part)))

    def _place(self, change: Change) -> str:
        """The statement that puts the job where it waits."""
        if change.to is State.SCHEDULED:
            return sql.COME_SCHEDULED
        seen = self._seen[change.id]
        lane = _lane_anew(seen, self._settings) if change.was.finished else seen.lane
        return sql.COME_READY if lane is None else sql.COME_LANED

    def _take_keys(self, changes: Sequence[Change], plan: ChangePlan) -> None:
        for change in changes:
            if change.key_held_until and self._seen[change.id].key is not None:
                values = f"({raw(_digest(self._seen[change.id]))},{raw(change.id)},{change.key_held_until})"
                plan.add(f"{sql.KEYS}{values} ON DUPLICATE KEY UPDATE key_held_until = VALUES(key_held_until)")

    def _note_key(self, change: Change) -> None:
        seen = self._seen[change.id]
        if seen.key is None:
            return
        key = _digest(seen)
        if change.key_held_until and change.to is not None:
            self._keys[key] = (change.id, change.key_held_until)
        elif (change.key_held_until == 0 or change.to is None) and self._keys.get(key, (b"", 0))[0] == change.id:
            del self._keys[key]

    def _write(self, changes: Sequence[Change], plan: ChangePlan) -> None:
        """One statement for all changes of the same columns."""
        for columns, ids in _group((_columns(change), change.id) for change in changes):
            members = {change.id: change for change in changes}
            values = (_values(members[id], self._seen[id], self._settings) for id in sorted(ids))
            update = ", ".join(f"{name} = VALUES({name})" for name in columns.split(","))
            for statement in bounded_statements(DIFFERING.format(columns), values, ALREADY + update):
                plan.add(statement)

    def _follow(self, change: Change) -> None:
        """Notes the job and its key as they are after this change, for later changes of the same call."""
        self._note_key(change)
        if change.to is None:
            del self._seen[change.id]
            return
        seen = self._seen[change.id]
        seen.state, seen.owner = change.to, None
        seen.due = seen.due if change.due is None else change.due
        seen.expires = seen.expires if change.expires is None else change.expires
        seen.queue = seen.queue if change.queue is None else change.queue.encode()
        seen.claim_order = seen.claim_order if change.priority is None else -change.priority
        seen.key_held_until = seen.key_held_until if change.key_held_until is None else change.key_held_until
        if change.was.finished:
            seen.lane = _lane_anew(seen, self._settings)

    def _job_key(self, change: Change) -> JobKey:
        seen = self._seen[change.id]
        return name_text(seen.queue), name_text(seen.task), None if seen.lane is None else name_text(seen.lane)

    def _lower(self, ended: Sequence[EndedAttempt], plan: ChangePlan) -> None:
        """Lowers the levels of limits by these attempts, which have ended, corrects what their rates count, and opens
        their lanes."""
        limits = self._settings.limits
        if not limits:
            return
        jobs = [key for _, key in ended]
        by_count: defaultdict[int, list[str]] = defaultdict(list)
        for name, count in count_by_level(jobs, limits).items():
            by_count[count].append(name)
        for count, names in sorted(by_count.items()):
            where = f"WHERE name IN ({id_list(name.encode() for name in names)})"
            # A level that was too low stays at 0; `recount` corrects wrong ones.
            plan.add(f"UPDATE tarry_level FORCE INDEX (PRIMARY) SET running = GREATEST(0, running - {count}) {where}")
        corrected = MysqlLimits(self._link).read_corrected(ended, limits, self._corrected, self._now)
        self._corrected |= corrected
        for name, level in sorted(corrected.items()):
            plan.add(f"UPDATE tarry_level SET next = {level.next} WHERE name = {text(name)}")
        limited = ((task, lane) for _, task, lane in jobs if lane is not None and EACH + task in limits)
        for statement in open_lanes.reopen_statements(self._link, limited):
            plan.add(statement)

    def _keep_places(self, changes: Sequence[Change], plan: ChangePlan) -> None:
        """Keeps what levels count of these attempts, which go on."""
        ended = [(change, self._job_key(change)) for change in changes]
        for name, value in places_to_keep(ended, self._settings.limits, self._leased, self._now).items():
            plan.add(_keep(name, value))

    def keep_followed_place(self, change: Change) -> list[str]:
        """The statement that keeps the place of the attempt which a newer job is to follow, if this ends one."""
        if not change.keeps_places:
            return []
        return [_keep(*followed_place(change, self._leased(change.owner), self._now))]

    def _leased(self, owner: str) -> int | None:
        rows = self._link.rows(f"SELECT until FROM tarry_owner WHERE name = {text(owner)}")
        return int(rows[0][0]) if rows else None

    def _free_places(self, given_up: Mapping[str, Change]) -> list[str]:
        """The statements that remove the kept places of these names, as far as there are any, and lower the levels that
        count them."""
        # Under limits only the transaction that has the turn changes places, so nobody else frees these.
        if not given_up:
            return []
        where = f"WHERE name IN ({id_list(name.encode() for name in given_up)})"
        rows = self._link.rows(f"SELECT name, value FROM tarry_cell {where}")
        if not rows:
            return []
        plan = ChangePlan()
        plan.add(f"DELETE FROM tarry_cell {where}")
        self._lower(ended_by(given_up, ((name_text(name), bytes(value)) for name, value in rows)), plan)
        return plan.statements


def _keep(name: str, value: bytes) -> str:
    values = f"{text(name)}, {raw(value)}"
    return f"INSERT INTO tarry_cell VALUES ({values}) ON DUPLICATE KEY UPDATE value = VALUES(value)"


def _group(pairs: Iterable[tuple[str, bytes]]) -> Iterable[tuple[str, list[bytes]]]:
    groups: defaultdict[str, list[bytes]] = defaultdict(list)
    for name, id in pairs:
        groups[name].append(id)
    return groups.items()


def _batches(changes: Sequence[Change]) -> Iterable[list[Change]]:
    """The changes in their order, in batches where no job is twice."""
    # A change that takes a key starts a batch: whether it may depends on what the changes before it did to the key.
    batch: list[Change] = []
    ids: set[bytes] = set()
    for change in changes:
        if change.id in ids or (change.key_held_until and batch):
            yield batch
            batch, ids = [], set()
        batch.append(change)
        ids.add(change.id)
    if batch:
        yield batch


def _digest(seen: JobAsSeen) -> bytes:
    assert seen.key is not None
    return digest(name_text(seen.task), name_text(seen.key))


def _lane_anew(seen: JobAsSeen, settings: StoreSettings) -> bytes | None:
    """The lane of a finished job that waits again: as if it were new."""
    # The limit of its task may be younger than the job's end.
    if seen.lane is not None:
        return seen.lane
    lane = waiting_lane(name_text(seen.task), None, settings.limits)
    return None if lane is None else lane.encode()


def _leave(seen: JobAsSeen) -> str:
    if seen.state is State.READY:
        return sql.LEAVE_READY if seen.lane is None else sql.LEAVE_LANED
    if seen.state is State.SCHEDULED:
        return sql.LEAVE_SCHEDULED
    return sql.LEAVE_FINISHED


def _columns(change: Change) -> str:
    more = [",queue"] if change.queue is not None else []
    more += [",expires"] if change.expires is not None else []
    more += [",body"] if change.body is not None else []
    more += [",attempts"] if change.attempts is not None else []
    more += [",lane,settings"] if change.was.finished else []
    return _SET + ",note" + "".join(more)


def _values(change: Change, seen: JobAsSeen, settings: StoreSettings) -> str:
    assert change.to is not None
    values: list[Any] = [
        raw(change.id),
        seen.claim_order if change.priority is None else -change.priority,
        seen.due if change.due is None else change.due,
        change.failures, change.crashes, change.state_since,
        change.keep_until if change.to.finished else 0,
        seen.key_held_until if change.key_held_until is None else change.key_held_until,
        CODE[change.to], seen.epoch, note_literal(change.note, change.to),
    ]  # fmt: skip
    values += [] if change.queue is None else [text(change.queue)]
    values += [] if change.expires is None else [change.expires]
    values += [] if change.body is None else [blob_or_null(change.body)]
    values += [] if change.attempts is None else [blob_or_null(change.attempts)]
    if change.was.finished:
        lane = _lane_anew(seen, settings)
        values += ["NULL" if lane is None else raw(lane), settings.number]
    return f"({','.join(map(str, values))})"
