"""MySQL and MariaDB: one server, workers on many hosts.

What makes it fast: narrow tables in the order of the claim, changes by primary key in sorted order, and many statements
in one packet, so that an exchange of a thousand jobs takes three round trips and one commit.
"""

import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from tarry import errors
from tarry.errors import QueueFull
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.duration import DAY
from tarry.model.job import Job
from tarry.model.limit import EACH, QUEUE, KeyLimit, Level, Limit
from tarry.model.wake import WakeReason, wake_reasons
from tarry.store.mysql import insert as inserting
from tarry.store.mysql import sql
from tarry.store.mysql.claim import Reader
from tarry.store.mysql.diagnostics import diagnostics, now
from tarry.store.mysql.distinct_scan import DistinctScan, scan_distinct
from tarry.store.mysql.exchange import ExchangeRequest, ExchangeResult, MysqlExchange, supersede
from tarry.store.mysql.finished import MysqlFinished
from tarry.store.mysql.flows import MysqlFlows
from tarry.store.mysql.history import MysqlHistory
from tarry.store.mysql.insert import RunSql, apart, statements
from tarry.store.mysql.limits import MysqlLimits, MysqlRooms, jobs_without_lane, move_into_lanes
from tarry.store.mysql.link.address import Address, parse
from tarry.store.mysql.link.connection import COMMIT, PASSES_BY_LOCKED, MysqlConnection
from tarry.store.mysql.link.guard import LivenessConnection, LostOwners
from tarry.store.mysql.link.literals import bind, blob_or_null, chunks, id_list, raw, text
from tarry.store.mysql.link.mysql_errors import Denied, DuplicateKey, NotAsSeen
from tarry.store.mysql.open_lanes import LatenessLine
from tarry.store.mysql.retrying import Calls
from tarry.store.mysql.schema import MysqlSchema
from tarry.store.mysql.settings import FRESH, LIMITS, NUMBER, RAISE, SettingsCache, StoreSettings, limits_of
from tarry.store.mysql.sql import WAITING
from tarry.store.mysql.transactional import through, where
from tarry.store.mysql.wakeup import MysqlHub, prune_wake_rows, wake_row
from tarry.store.rules.base import (
    NOTHING,
    Diagnostic,
    Exchange,
    PlaceAnswer,
    ShareChange,
    Store,
    ValuesWithin,
    Want,
    drop_order,
    gives_more,
)
from tarry.store.rules.lanes import JobKey, assign_lanes
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.admission import Admission, admit_all
from tarry.store.shared.uncertain import a_part_is_done
from tarry.store.sql.columns import Row, name_text
from tarry.store.sql.flow_tables import touching_flows
from tarry.store.sql.pruning import Pruning
from tarry.store.sql.sql_store import ScanningSqlStore
from tarry.store.sql.waiting import SqlWaiting

A = TypeVar("A")


class MysqlStore(ScanningSqlStore):
    """Jobs in the database at the address. Makes the tables if there are none."""

    _sql = sql.STATEMENTS
    is_pooled = True

    def __init__(self, address: Address | str) -> None:
        self.address = parse(address) if isinstance(address, str) else address
        self.url = self.address.shown
        self._known = SettingsCache()
        calls = self._calls = Calls(self.address, self._known)
        self._call, self._write = calls.call, calls.write
        self._pruning = Pruning(MysqlFinished(self, calls.write))
        self.history = MysqlHistory(self, calls.write)
        self.flows = MysqlFlows(self, self._known)
        self.waiting = SqlWaiting(WAITING, self._rows)
        self._hub = MysqlHub(self.address, self._connect)
        self._guard, self._missing = LivenessConnection(self._connect), LostOwners()
        self._guarding = threading.Lock()
        self._leases: dict[str, int] = {}
        self._only: Sequence[LatenessLine] = ()
        self._closed = False
        try:
            self._skip_locked = self._call(self._ready)
        except errors.TarryError as error:
            calls.close()
            # While a store is opened, a refused login is a mistake in the configuration, not a server that is away.
            if isinstance(error, Denied):
                raise errors.ConfigError(str(error)) from None
            raise
        calls.is_open = True

    def _ready(self, link: MysqlConnection) -> bool:
        MysqlSchema(link).ensure()
        kind, version = link.version
        return self.address.skip_locked and version >= PASSES_BY_LOCKED[kind]

    def _connect(self) -> MysqlConnection:
        return MysqlConnection(self.address, self.address.timeout)

    def _news(self, boards: frozenset[str], reasons: Collection[WakeReason]) -> list[str]:
        # Sleepers on this host hear by the board, so a single host writes no news at all.
        if not reasons or not self._hub.has_remote_sleepers(boards):
            return []
        return [wake_row(reasons)]

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if not jobs:
            return []
        hopeful = apart(jobs)

        def work(link: MysqlConnection) -> list[bytes]:
            nonlocal hopeful
            settings = self._known.get(link, FRESH)
            told = self._news(settings.boards, (WakeReason.WORK,))
            mine = assign_lanes(jobs, settings.limits)
            # The first try hopes that all is new. After DuplicateKey `call` comes here again, and looks first.
            if hopeful:
                hopeful = False
                link.run("BEGIN", *statements(mine, settings.number), *told, COMMIT)
                return [job.id for job in jobs]
            link.run("BEGIN")
            stored_ids = inserting.one_by_one(link.rows, mine, settings.number)
            link.run(*told, COMMIT)
            return stored_ids

        # Repeatable, since a second insert of the same ids finds them and changes nothing.
        stored_ids = self._call(work, repeatable=True)
        self._hub.notify(WakeReason.WORK)
        return stored_ids

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        def work(link: MysqlConnection) -> list[bytes | QueueFull]:
            settings = self._known.get(link, FRESH)
            link.run("BEGIN")
            admission = Admission(MysqlRooms(link), jobs, bounds, now, freed, key_bounds)
            answers = admission.insert(
                lambda mine: inserting.one_by_one(link.rows, assign_lanes(mine, settings.limits), settings.number)
            )
            link.run(*self._news(settings.boards, (WakeReason.WORK,)), COMMIT)
            return answers

        # Not repeatable: the jobs that were stored at first would be counted as if others had brought them.
        answers = self._call(work)
        self._hub.notify(WakeReason.WORK)
        return answers

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        def work(link: MysqlConnection) -> bool:
            settings = self._known.get(link)
            told = self._news(settings.boards, (WakeReason.WORK, *_reasons([change], settings)))
            return supersede(link, settings, change, assign_lanes([job], settings.limits)[0], now, told)

        done = self._call(work)
        if done:
            self._hub.notify(WakeReason.WORK, *wake_reasons([change], True))
        return done

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        rows = self._rows_of_all(sql.OLDEST_WAITING, (queue, max(0, limit)))
        return sorted(map(self._job, rows), key=drop_order)

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        run = self.caller(connection)
        if not jobs:
            return []
        # Not in the caller's transaction, which would keep all other producers waiting until it ends. If it rolls back,
        # the next count gives the room back.
        if bounds or key_bounds:
            self._write(lambda link: admit_all(MysqlRooms(link), jobs, bounds, now, key_bounds))
        ((number,),) = run(NUMBER)
        mine = assign_lanes(jobs, limits_of(run(LIMITS)))
        stored_ids = inserting.one_by_one(run, mine, int(number))
        # Nobody tells us whether and when the caller commits; processes that look for news see it then.
        run(wake_row((WakeReason.WORK,)))
        return stored_ids

    def kv_within(self, connection: Any) -> ValuesWithin:
        from tarry.store.sql.values_within import CallerValues  # noqa: PLC0415 - few put schedules so

        caller = self.caller(connection)

        def run(statement: str, values: Sequence[Any]) -> Sequence[Row]:
            numbers = count(1)
            return caller(bind(re.sub(r"\?", lambda _: f"?{next(numbers)}", statement), values))

        return CallerValues(run, f"{self._sql.tables}cell", "?", "?", self._sql.insert_new)

    def caller(self, connection: Any) -> RunSql:
        """A function that runs statements on the caller's connection."""
        return through(connection, self.url, lambda: self._call(where))

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        careful = False

        def work(link: MysqlConnection) -> tuple[ExchangeResult, StoreSettings, bool]:
            nonlocal careful
            settings = self._known.get(link)
            prolongs = bool(owner) and self._lease_of(link, owner) < now + lease // 2
            statement = sql.LEASE.format(text(owner), now + lease) if prolongs else ""
            boards = settings.boards
            told = self._news(boards, _reasons(changes, settings)), self._news(boards, (WakeReason.STEP,))
            asked = ExchangeRequest(changes, wants, limit, owner, now, statement, told, self._only, careful)
            try:
                return (
                    MysqlExchange(link, settings, self._reader(), asked).run(),
                    settings,
                    prolongs,
                )
            except (NotAsSeen, DuplicateKey):
                # A change was stale; a job that is finished already shows it as a duplicate in tarry_finished.
                # `call` tries again, and then looks first.
                careful = True
                raise

        done, settings, prolonged = self._call(work)
        # Without jobs the lease was not written.
        if done.answer.jobs and prolonged:
            self._remember(owner, now + lease)
        self._after(done, changes, settings)
        return done.answer

    def _reader(self) -> Reader:
        # A new token for each claim; never 0, which rows have before any claim.
        return Reader(self._skip_locked, secrets.randbits(62) + 1)

    def _lease_of(self, link: MysqlConnection, owner: str) -> int:
        """The end of the owner's lease."""
        # Only this process writes it, so it is read only once.
        if owner not in self._leases:
            rows = link.rows(f"SELECT until FROM tarry_owner WHERE name = {text(owner)}")
            self._remember(owner, int(rows[0][0]) if rows else 0)
        return self._leases[owner]

    def _remember(self, owner: str, until: int) -> None:
        # A new dict, not a change of the old one: other threads may be reading it.
        kept = {name: lease for name, lease in list(self._leases.items())[-100:] if name != owner}
        self._leases = {**kept, owner: until}

    def _after(self, done: ExchangeResult, changes: Sequence[Change], settings: StoreSettings) -> None:
        if done.answer.jobs:
            self._only = done.only
        if changes:
            self._hub.notify(*_reasons(changes, settings))
        elif done.answer.jobs:
            self._hub.notify(WakeReason.STEP)
        # Strays now wait in lanes, where another worker may claim them at once.
        if done.has_unlaned:
            self._hub.notify(WakeReason.WORK)

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._call(lambda link: link.rows(bind(statement, values)))

    def _rows_of_all(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._call(lambda link: link.rows(bind(statement, values)), slow=True)

    def _change_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        statements = [bind(statement, row) for row in rows]
        return self._write(lambda link: sum(answer.changed for answer in link.run(*statements)))

    def _job(self, row: Row) -> Job:
        return sql.job(row)

    def _jobs_by_id(self, ids: Collection[bytes]) -> Iterator[Job]:
        for part in chunks(sorted(set(ids))):
            yield from self._jobs(f"{self._sql.jobs} WHERE id IN ({id_list(part)})", ())

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        def work(link: MysqlConnection) -> set[tuple[bytes, int]]:
            if held and self._lease_of(link, owner) < now + lease // 2:
                link.run("BEGIN", sql.LEASE.format(text(owner), now + lease), COMMIT)
                self._remember(owner, now + lease)
            owned: set[tuple[bytes, int]] = set()
            ids = [id for id, _ in held]
            for start in range(0, len(ids), 1000):
                owned |= set(find_owned(link, owner, ids[start : start + 1000]))
            if held and self.address.guard:
                with self._guarding:
                    self._guard.watch_over(link, owner)
            return owned

        owned = self._call(work)
        return [id for id, epoch in held if (id, epoch) not in owned]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        if of is not None:
            return super().reclaim(now, of, limit)

        def work(link: MysqlConnection) -> list[Job]:
            gone = self._missing.gone(link, now) if self.address.guard else []
            return overdue(link, now, gone, limit)

        return self._call(work)

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        def work(link: MysqlConnection) -> bool:
            held = hold(link, name, owner, until, now)
            link.run("BEGIN")
            prune_wake_rows(link, self._reader().skip)
            link.run(COMMIT)
            return held

        return self._call(work)

    # For people

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        # Pruning has several steps: after any error some of them may be done.
        with a_part_is_done():
            return super().prune(now, most_bytes, limit, by_queue)

    def _ready_queues(self) -> list[str]:
        walks = [DistinctScan(table, "queue", "1", 10**6) for table in ("tarry_ready", "tarry_laned")]
        found = self._call(lambda link: scan_distinct(link, walks))
        return [name_text(queue) for queues in found for queue in queues]

    def _ready_dues(self, queue: str, most: int) -> list[int]:
        where = f"FORCE INDEX (PRIMARY) WHERE queue = {text(queue)}"
        lines = f"tarry_ready {where} AND late = 1", f"tarry_ready {where} AND late = 0", f"tarry_laned {where}"
        answers = self._call(lambda link: link.run(*(f"SELECT due FROM {line} LIMIT {most}" for line in lines)))
        return [due for answer in answers for (due,) in answer.rows][:most]

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        if not marks:
            return []
        name = text(owner)
        changes = [sql.MARK.format(blob_or_null(told), raw(id), epoch, name) for id, epoch, told in sorted(marks)]

        def work(link: MysqlConnection) -> set[tuple[bytes, int]]:
            link.run(*changes)
            # Asked in the same transaction: the count of changed rows leaves out a row that has this progress already.
            return set(find_owned(link, owner, [id for id, _, _ in marks]))

        owned = self.tell(work, (WakeReason.STEP,))
        return [(id, epoch) in owned for id, epoch, _ in marks]

    # What people set

    def pause(self, queue: str, paused: bool) -> None:
        set_it = f"INSERT IGNORE INTO tarry_paused VALUES ({text(queue)})"
        change = set_it if paused else f"DELETE FROM tarry_paused WHERE queue = {text(queue)}"
        self.tell(lambda link: link.run(RAISE, change), (WakeReason.WORK,))
        self._known.forget()

    def limit(self, name: str, limit: Limit | None) -> None:
        self._relimit(name, lambda link: MysqlLimits(link).set_limit(name, limit))

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        made = self._write(lambda link: MysqlLimits(link).change_shares(changes, now))
        self._known.forget()
        if gives_more(changes, made):
            self.tell(lambda link: None, (WakeReason.WORK,))
        return made

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        self._relimit(EACH + task, lambda link: MysqlLimits(link).limit_key(task, lane, limit))

    def _relimit(self, name: str, change: Callable[[MysqlConnection], bool]) -> None:
        """Makes this change; the answer to it says whether the limit of that name was not set before."""
        is_new = self.tell(change, (WakeReason.WORK,))
        self._known.forget()
        kind, _, task = name.partition(":")
        if is_new and f"{kind}:" != QUEUE:
            with a_part_is_done():
                self._give_lanes(task)
        self._hub.notify(WakeReason.WORK)

    def _give_lanes(self, task: str) -> None:
        """Moves the waiting jobs of the task into their lanes."""
        # A thousand at a time, so that no transaction holds many locks; a claim moves those that it meets before.
        after = b""
        while ids := self._call(lambda link: jobs_without_lane(link, task, after), slow=True):  # noqa: B023
            self._write(lambda link: move_into_lanes(link, ids))
            after = ids[-1]

    def tell(self, work: Callable[[MysqlConnection], A], reasons: Collection[WakeReason]) -> A:
        """Does the work in its own transaction, and wakes sleepers for these reasons."""

        def told(link: MysqlConnection) -> A:
            done = work(link)
            if more := self._news(self._known.boards(link), reasons):
                link.run(*more)
            return done

        done = self._write(told)
        self._hub.notify(*reasons)
        return done

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        return self._call(lambda link: MysqlLimits(link).with_levels())

    def levels(self, names: Sequence[str]) -> list[Level]:
        return self._call(lambda link: MysqlLimits(link).levels(names))

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        return self._write(lambda link: MysqlLimits(link).take_place(name, key, until, cost, now))

    def recount(self, now: int) -> int:
        # Without the turn, since that would hold up claims, and there is hardly ever anything wrong.
        if not self._call(lambda link: MysqlLimits(link).needs_recount(now)):
            return 0
        return self.tell(lambda link: MysqlLimits(link).recount(now), (WakeReason.WORK,))

    # The rest

    def wakeup(self) -> Wakeup:
        return self._hub.wakeup()

    def wake_for_recall(self) -> None:
        self.tell(lambda link: None, (WakeReason.RECALL,))

    def time(self) -> int:
        return self._call(now)

    def diagnostics(self) -> list[Diagnostic]:
        return self._call(lambda link: diagnostics(link, self._skip_locked), slow=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._hub.close()
            self._guard.close()
            self._calls.close()


def open_mysql(url: str, durable: bool) -> Store:
    """For `opening`. The server decides what is durable (`diagnostics` tells)."""
    return MysqlStore(url)


def _reasons(changes: Sequence[Change], settings: StoreSettings) -> tuple[WakeReason, ...]:
    # The end of a node may release others.
    return wake_reasons(changes, bool(settings.limits or touching_flows(changes))) if changes else ()


def find_owned(link: MysqlConnection, owner: str, ids: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """The ids and epochs of these jobs that the owner runs."""
    where = f"id IN ({id_list(ids)}) AND owner = {text(owner)}"
    rows = link.rows(f"SELECT id, epoch FROM tarry_running FORCE INDEX (PRIMARY) WHERE {where}")
    return [(id, epoch) for id, epoch in rows]


def overdue(link: MysqlConnection, now: int, gone: Sequence[str], limit: int) -> list[Job]:
    """Running jobs whose owner's lease ran out, or whose owner is known to be gone."""
    # The common case costs one short look at a small table.
    lapsed = link.rows(f"SELECT 1 FROM tarry_owner WHERE until <= {now} LIMIT 1")
    if not lapsed and not gone:
        return []
    also = f" OR owner IN ({id_list(name.encode() for name in gone)}) ORDER BY" if gone else " ORDER BY"
    statement = sql.STATEMENTS.overdue.replace(" ORDER BY", also, 1)
    return [sql.job(row) for row in link.rows(bind(statement, (now, max(0, limit))))]


def hold(link: MysqlConnection, name: str, owner: str, until: int, now: int) -> bool:
    """As `Store.hold`; also forgets owners whose lease ran out a minute ago and who hold nothing."""
    me, ours = text(owner), f"owner = {text(owner)}"
    # One statement decides: a look before it would lock nothing where there is no row yet. The columns are set from
    # left to right, so `until` follows what became of `owner`.
    take = (
        f"INSERT INTO tarry_hold (name, owner, until) VALUES ({text(name)}, {me}, {until}) ON DUPLICATE KEY UPDATE"
        f" owner = IF({ours} OR until <= {now} OR until > {now + DAY}, {me}, owner), until = IF({ours}, {until}, until)"
    )
    *_, holder, _ = link.run("BEGIN", take, f"SELECT {ours} FROM tarry_hold WHERE name = {text(name)}", COMMIT)
    _forget_owners(link, now - 60_000_000)
    return bool(holder.rows[0][0])


def _forget_owners(link: MysqlConnection, before: int) -> None:
    """Deletes owners whose lease ran out before that time and who hold nothing."""
    # One by one: a search under lock would wait for every transaction that prolongs a lease. The delete checks the time
    # again, since the owner may be back.
    idle = "AND name NOT IN (SELECT owner FROM tarry_running)"
    for (name,) in link.rows(f"SELECT name FROM tarry_owner WHERE until < {before} {idle} LIMIT 100"):
        link.run("BEGIN", f"DELETE FROM tarry_owner WHERE name = {raw(name)} AND until < {before}", COMMIT)
