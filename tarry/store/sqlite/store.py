"""The embedded store: one SQLite file, many processes, one writer at a time.

What makes it fast: few statements for each batch, whole arrays as one bound value (carray), partial indexes so that
finished and scheduled jobs cost a claim nothing, and changes and claim in one transaction.
"""

import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tarry.errors import QueueFull, StoreFull
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.limit import KeyLimit, Level, Limit
from tarry.model.wake import WakeReason, wake_reasons
from tarry.store.rules.base import (
    NOTHING,
    Diagnostic,
    Exchange,
    PlaceAnswer,
    ShareChange,
    ValuesWithin,
    Want,
    gives_more,
)
from tarry.store.rules.history.journal import record_of_valid
from tarry.store.rules.lanes import JobKey, assign_lanes, earliest
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.admission import Admission, admit_all
from tarry.store.shared.bounded_room import RoomTable
from tarry.store.shared.wakeup.board import WakeupBoard, board_directory
from tarry.store.sql.columns import Row, claim_reader
from tarry.store.sql.pruning import Finished, Pruning
from tarry.store.sql.sql_store import ScanningSqlStore, SqlFinishedJobs
from tarry.store.sql.waiting import SqlWaiting
from tarry.store.sqlite import file as sqlite_file
from tarry.store.sqlite import sql
from tarry.store.sqlite.apply import ChangeGroups, SomeInvalid, apply_changes
from tarry.store.sqlite.file import T, call_again, diagnose, open_database, transaction, translate_errors
from tarry.store.sqlite.flows import SqliteFlows, settle_flows
from tarry.store.sqlite.history import SqliteHistory
from tarry.store.sqlite.insert import assume_all_new, insert_any, insert_jobs, insert_unlimited
from tarry.store.sqlite.lanes import SqliteLanes
from tarry.store.sqlite.limits import SqliteLimits, SqliteRooms
from tarry.store.sqlite.link import forked
from tarry.store.sqlite.link.connection import Statements
from tarry.store.sqlite.link.database import Database
from tarry.store.sqlite.link.guard import FileGuard
from tarry.store.sqlite.link.reserve import Reserve
from tarry.store.sqlite.open_line import choose, has_open_jobs
from tarry.store.sqlite.schema import SqliteSchema
from tarry.store.sqlite.sql import WAITING
from tarry.store.sqlite.transactional import caller_statements
from tarry.store.sqlite.watch import CommitWatch

_claimed_jobs = claim_reader("_, ")


class SqliteStore(ScanningSqlStore):
    """Jobs in the file at `path`.

    durable: for producers and people: an acknowledged job survives a power cut. A worker opens the file with
    durable=False: a power cut may undo outcomes, and those jobs run again.

    shared: the other program that uses the file (`sqlite.database.SHARED`); tarry's tables are beside that program's.

    fsync: False: nothing is fsynced, whatever `durable` says. What is acknowledged survives the end of any process, but
    a power cut may take the last of it.
    """

    _sql = sql.STATEMENTS

    def __init__(self, path: str | Path, durable: bool = True, shared: str = "", fsync: bool = True) -> None:
        self.path = Path(path).absolute()
        options = [f"shared={shared}"] * bool(shared) + ["fsync=no"] * (not fsync)
        self.url = f"sqlite:///{self.path}" + ("?" + "&".join(options) if options else "")
        self._lock: threading.Lock | forked.OpenAgain = threading.Lock()
        self._shared, self._fsync = shared, fsync
        self._db = open_database(self.path, durable, shared, fsync)
        self._guard = FileGuard(self.path)
        self._errors = translate_errors(self.path, self._guard)
        self._board = WakeupBoard(board_directory(self.path))
        self._commits = CommitWatch(self.path, shared)
        self._lanes, self._limits = SqliteLanes(self._db), SqliteLimits(self._db)
        self._pruning = Pruning(SqliteFinished(self))
        self.history = SqliteHistory(self)
        self.flows = SqliteFlows(self)
        self._has_released = False
        """The last exchange released jobs that it did not claim itself."""
        self.waiting = SqlWaiting(WAITING, self._rows)
        self._durable = durable
        self._reserve = Reserve(self.path)
        # Only workers keep the reserve: it is for settling what runs.
        if not durable:
            self._reserve.keep(sqlite_file.free_bytes(self._db))
        self._closed = False
        forked.watch(self)

    def after_fork(self) -> None:
        """In a forked child: the store opens the file anew at its first use."""
        again = self.path, self._durable, self._shared, self._fsync
        self._lock = forked.OpenAgain(self, lambda: SqliteStore.__init__(self, *again))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        with self._lock, self._errors:
            return call_again(lambda: self._rows_locked(statement, values), self.path)

    def _rows_locked(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows that a statement finds; the caller has the lock."""
        return self._db.execute(statement, tuple(values)).fetchall()

    @contextmanager
    def lend(self) -> Iterator[Database]:
        """The connection, for nobody else meanwhile."""
        with self._lock, self._errors:
            yield self._db

    @contextmanager
    def lend_to_insert(self) -> Iterator[Database]:
        """As `lend`. StoreFull or StoreUnavailable if nothing more may be stored."""
        self._check_insert()
        with self.lend() as db:
            yield db
        self._guard.check_file()

    def _change_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        with self._lock, self._errors, transaction(self._db):
            return len(self._db.executemany(f"{statement} RETURNING 1", [tuple(row) for row in rows]).fetchall())

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        self._check_insert()
        return self._insert(partial(self._insert_any, jobs))

    def _insert(self, insert: Callable[[], T]) -> T:
        with self._lock, self._errors:
            answer = call_again(insert, self.path)
            self._board.wake(WakeReason.WORK)
        # What was stored in a file that was replaced meanwhile, nobody finds.
        self._guard.check_file()
        return answer

    def _insert_any(self, jobs: Sequence[Job]) -> list[bytes]:
        if len(jobs) == 1 and insert_unlimited(self._db, jobs[0], self._lanes.limits):
            return [jobs[0].id]
        return assume_all_new(partial(self._insert_all, jobs))

    def _insert_all(self, jobs: Sequence[Job], hoping: bool) -> list[bytes]:
        with transaction(self._db):
            return insert_jobs(self._db, self._lanes.assign_lanes(jobs), hoping)

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        caller_db = self.caller_statements(connection)
        admit_all(SqliteRooms(caller_db), jobs, bounds, now, key_bounds)
        stored_ids = insert_any(caller_db, assign_lanes(jobs, SqliteLimits(caller_db).read()))
        self.expect({job.id for job in jobs}.intersection(stored_ids))
        return stored_ids

    def kv_within(self, connection: Any) -> ValuesWithin:
        from tarry.store.sql.values_within import CallerValues  # noqa: PLC0415 - few put schedules so

        caller_db = self.caller_statements(connection)

        def run(statement: str, values: Sequence[Any]) -> Sequence[Row]:
            return caller_db.execute(statement, tuple(values)).fetchall()

        return CallerValues(run, f"{self._sql.tables}cell", "?", "?", self._sql.insert_new)

    def caller_statements(self, connection: Any) -> Statements:
        """A caller's connection, once it is fit for inserts and has the write lock."""
        self._check_insert()
        caller_db = caller_statements(connection, self.path, self._shared)
        # Before the limits are read: in a snapshot from before the lock they could be outdated.
        caller_db.execute(sql.TAKE_LOCK)
        return caller_db

    def expect(self, ids: Collection[bytes]) -> None:
        """Wakes workers once these jobs are there."""
        # Nobody tells the store of the caller's commit, so a thread watches for them.
        self._commits.expect(ids)

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        self._check_insert()
        admit = partial(Admission, jobs=jobs, bounds=bounds, now=now, freed=freed, key_bounds=key_bounds)
        return self._insert(partial(assume_all_new, partial(self._insert_admitted, admit)))

    def _insert_admitted(self, admit: Callable[[RoomTable], Admission], hoping: bool) -> list[bytes | QueueFull]:
        with transaction(self._db):
            admission = admit(SqliteRooms(self._db))
            return admission.insert(lambda jobs: insert_jobs(self._db, self._lanes.assign_lanes(jobs), hoping))

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        self._check_insert()
        with self._lock, self._errors:
            done = call_again(partial(self._supersede_locked, change, job, now), self.path)
            if done:
                self._board.wake(WakeReason.WORK, *wake_reasons([change], self._lanes.has_made_room))
        self._guard.check_file()
        return done

    def _supersede_locked(self, change: Change, job: Job, now: int) -> bool:
        with transaction(self._db):
            self._lanes.load_limits()
            self._db.execute(sql.OUTLIVED, (now, job.task, job.key))
            is_free = self._db.execute(sql.HOLDER, (job.task, job.key)).get in (None, change.id)
            if not is_free or not apply_changes(self._db, self._lanes, ChangeGroups([change]), now)[0]:
                return False
            self._lanes.keep_followed_place(change, now)
            insert_any(self._db, self._lanes.assign_lanes([job]))
            if record := record_of_valid([change], [True]):
                self._db.execute(sql.TO_JOURNAL, (record,))
            self._lanes.save_levels(now)
        return True

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        return self._jobs(sql.OLDEST_WAITING, (queue, max(0, limit)))

    def _check_insert(self) -> None:
        self._guard.check_insert()
        if self._reserve.spent:
            raise StoreFull(f"{self.path}: the disk is full; free some space, and within 10 s jobs are taken again")

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        self._guard.check()
        with self._lock, self._errors:
            exchange = partial(self._exchange_locked, changes, wants, limit, owner, lease, now)
            return call_again(exchange, self.path, self._make_room)

    def _make_room(self) -> bool:
        has_room = self._reserve.spend()
        # The next transaction uses the room of the log again.
        return sqlite_file.merge_log(self._db) or has_room

    def _exchange_locked(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        wants = self._open(wants)
        # An idle worker looks without the write lock, so that it does not stand in a producer's way.
        if not changes and not self._worth_claiming(wants, limit, now):
            return Exchange([], [], self._next_due())
        answer = self._exchange(changes, wants, limit, owner, lease, now)
        has_work = self._lanes.has_made_room or self._has_released
        reasons = wake_reasons(changes, has_work) if changes or answer.jobs else ()
        # An insert of many jobs wakes one worker, which may take only a part of them.
        if len(answer.jobs) >= limit > 0 and has_open_jobs(self._db, wants):
            reasons = (*reasons, WakeReason.WORK)
        self._board.wake(*reasons)
        return answer

    def _exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        # Only what needs the write lock is done while other processes wait for it.
        groups = ChangeGroups(changes)
        try:
            return self._exchange_groups(groups, wants, limit, owner, lease, now)
        except SomeInvalid:
            # Rolled back. It is made anew, so that each group tells which of its changes are valid.
            groups.telling = True
            return self._exchange_groups(groups, wants, limit, owner, lease, now)

    def _exchange_groups(
        self, groups: ChangeGroups, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        rows: list[Row] = []
        again: int | None = None
        self._lanes.is_held_back = False
        with transaction(self._db):
            # Under the write lock no other process can change the limits any more.
            self._lanes.load_limits()
            # Changes first: what ends here makes room under limits for the claim.
            valid = apply_changes(self._db, self._lanes, groups, now) if groups.changes else []
            if record := record_of_valid(groups.changes, valid):
                self._db.execute(sql.TO_JOURNAL, (record,))
            settled, released = settle_flows(self._db, groups.changes, valid, now)
            due = self._next_due()
            if wants and limit > 0:
                if due is not None and due <= now:
                    self._lanes.promote(now)
                    due = self._next_due()
                rows, again = self._claim(wants, limit, owner, lease, now)
            # After both, since a claim often takes what the changes gave back.
            self._lanes.save_levels(now)
        self._has_released = bool(released) and not {row[sql.PLACE["id"]] for row in rows}.issuperset(released)
        return Exchange(
            valid,
            _claimed_jobs(rows, owner, now),
            earliest(due, again),
            more_to_release=settled.more_to_release,
            is_held_back=self._lanes.is_held_back,
        )

    def _open(self, wants: Sequence[Want]) -> Sequence[Want]:
        paused = {queue for (queue,) in self._rows_locked("SELECT queue FROM tarry_paused")}
        return [want for want in wants if want.queue not in paused] if paused else wants

    def _worth_claiming(self, wants: Sequence[Want], limit: int, now: int) -> bool:
        """Whether a claim may find jobs; reads only."""
        if limit <= 0 or not wants:
            return False
        due = self._next_due()
        if due is not None and due <= now:
            return True
        return self._lanes.has_jobs() or has_open_jobs(self._db, wants)

    def _claim(
        self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> tuple[list[Row], int | None]:
        """The rows of the jobs; if there are none, also when a rate allows a start."""
        # Jobs may have lanes without any limit, and lanes take turns.
        if self._lanes.limits or self._lanes.has_jobs():
            rows, again = self._lanes.claim(wants, limit, owner, now)
        else:
            rows, again = choose(self._db, wants, limit), None
            if rows:
                self._db.execute(sql.CLAIM, (owner, now, self._db.array(array("q", [row[0] for row in rows]))))
        if not rows:
            return [], again
        if keyed := [row[0] for row in rows if row[sql.PLACE["key"]] is not None]:
            self._db.execute(sql.LET_GO, (self._db.array(array("q", keyed)),))
        # Written only once half of the lease is over, not with each claim.
        self._db.execute(sql.LEASE, (owner, now + lease, now + lease // 2))
        return rows, None

    def _next_due(self) -> int | None:
        due: int | None = self._db.execute(sql.NEXT_DUE).get
        return due

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        with self._lock, self._errors:
            until = self._db.execute("SELECT until FROM tarry_owner WHERE name = ?", (owner,)).get
            # The write lock is taken only if the lease has to be prolonged.
            if held and (until is None or until < now + lease // 2):
                with transaction(self._db):
                    self._db.execute(sql.LEASE, (owner, now + lease, now + lease))
            owned = set(self._rows_locked(sql.HELD, (owner,)))
        return [id for id, epoch in held if (id, epoch) not in owned]

    def _jobs_by_id(self, ids: Collection[bytes]) -> list[Job]:
        ids_of = self._db.array(tuple(ids))
        return self._jobs(f"{self._sql.jobs} WHERE id IN (SELECT value FROM carray(?))", (ids_of,))

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        with self._lock, self._errors:
            # Pruning comes often enough for the 10 s that the error of `_check_insert` promises.
            if not self._durable:
                self._reserve.keep(sqlite_file.free_bytes(self._db))
        return super().prune(now, most_bytes, limit, by_queue)

    def pause(self, queue: str, paused: bool) -> None:
        super().pause(queue, paused)
        self.wake(WakeReason.WORK)

    def _ready_queues(self) -> list[str]:
        return [queue for (queue,) in (*self._rows(sql.READY_QUEUES), *self._rows(sql.LANED_QUEUES))]

    def _ready_dues(self, queue: str, most: int) -> list[int]:
        dues: list[int] = []
        for statement in sql.FIRST_READY:
            if len(dues) < most:
                dues += [due for (due,) in self._rows(statement, (queue, most - len(dues)))]
        return dues

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        with self._lock, self._errors:
            with transaction(self._db):
                owned = [bool(list(self._db.execute(sql.MARK, (told, id, at, owner)))) for id, at, told in marks]
            self._board.wake(WakeReason.STEP)
            return owned

    def limit(self, name: str, limit: Limit | None) -> None:
        with self._lock, self._errors:
            with transaction(self._db):
                self._limits.set_limit(name, limit)
                self._lanes.load_limits()
            self._board.wake(WakeReason.WORK)

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        with self._lock, self._errors:
            with transaction(self._db):
                made = self._limits.change_shares(changes, now)
            if gives_more(changes, made):
                self._board.wake(WakeReason.WORK)
            return made

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        with self._lock, self._errors:
            with transaction(self._db):
                self._limits.limit_key(task, lane, limit)
                self._lanes.load_limits()
            self._board.wake(WakeReason.WORK)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        with self._lock, self._errors:
            return self._limits.with_levels()

    def levels(self, names: Sequence[str]) -> list[Level]:
        with self._lock, self._errors:
            return self._limits.levels(names)

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        with self._lock, self._errors, transaction(self._db):
            return self._limits.take_place(name, key, until, cost, now)

    def recount(self, now: int) -> int:
        with self._lock, self._errors:
            # A look without the write lock comes first: there is hardly ever anything wrong.
            with transaction(self._db, "BEGIN"):
                if not self._limits.needs_recount(now):
                    return 0
            with transaction(self._db):
                wrong = self._limits.recount(now)
            self._board.wake(WakeReason.WORK)
            return wrong

    def wake(self, *reasons: WakeReason) -> None:
        """Wakes sleepers."""
        with self._lock:
            self._board.wake(*reasons)

    def wakeup(self) -> Wakeup:
        return self._board.wakeup()

    def wake_for_recall(self) -> None:
        self._board.wake(WakeReason.RECALL)

    def time(self) -> int:
        return time.time_ns() // 1000

    def diagnostics(self) -> list[Diagnostic]:
        with self.lend() as db:
            with transaction(db, "BEGIN"):
                version = SqliteSchema(db, self.path, bool(self._shared)).version()
            return [*diagnose(db, self.path, version), self._reserve.describe()]

    def close(self) -> None:
        # In a forked child that never used the store everything is the parent's: nothing here is to be closed.
        if isinstance(self._lock, forked.OpenAgain):
            return
        self._commits.close()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._board.close()
                self._db.close(True)


class SqliteFinished(SqlFinishedJobs):
    """The finished jobs of one file."""

    # Pruning reads without the write lock, which a worker or a producer may need. So each delete names id and time.

    def bound(self) -> int:
        if not self._rows(sql.ANY_FINISHED):
            return 0
        pages, free, size = (
            self._rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def forget(self, jobs: Sequence[Finished]) -> int:
        return self._change_each(sql.FORGET_FINISHED, [(job.id, job.until) for job in jobs])
