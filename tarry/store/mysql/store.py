"""MySQL and MariaDB: one server, workers on many hosts.

What makes it fast: narrow tables in the order of the claim, changes by primary key in sorted order, many statements a
packet, so that an exchange of a thousand jobs is three round trips and one commit.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from tarry import errors
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.base import Backlog, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.mysql import insert as inserting
from tarry.store.mysql import look, schema, sql
from tarry.store.mysql.address import Address, parsed
from tarry.store.mysql.bells import Bells, forget_news, news
from tarry.store.mysql.calls import Calls
from tarry.store.mysql.claim import Reader
from tarry.store.mysql.errors import Denied, Duplicate
from tarry.store.mysql.exchange import Asked, Done, Exchanging
from tarry.store.mysql.facts import facts, now
from tarry.store.mysql.finished import MysqlFinished
from tarry.store.mysql.guard import Guard, Missing
from tarry.store.mysql.halves import Half
from tarry.store.mysql.insert import apart, placed, statements
from tarry.store.mysql.lanes import all_limits, give_lane, is_miscounted, recount, set_limit, unlaned
from tarry.store.mysql.link import COMMIT, PASSES_BY_LOCKED, Link
from tarry.store.mysql.settings import FRESH, LIMITS, NUMBER, RAISE, Known, Settings, limits_of
from tarry.store.mysql.sql import raw, text
from tarry.store.mysql.swift import Mistaken
from tarry.store.mysql.within import through, where
from tarry.store.shared.bell import Bell
from tarry.store.shared.pruning import Pruning
from tarry.store.shared.uncertain import a_part_is_done

A = TypeVar("A")


class MysqlStore(Store):
    """Jobs in the database of that address. Makes its tables if there are none."""

    def __init__(self, address: Address | str) -> None:
        self.address = parsed(address) if isinstance(address, str) else address
        self.url = self.address.shown
        self._known = Known()
        calls = self._calls = Calls(self.address, self._known)
        self._call, self._write = calls.call, calls.write
        self._pruning = Pruning(MysqlFinished(calls))
        self._bells = Bells(self.address, self._connected)
        self._guard, self._missing = Guard(self._connected), Missing()
        self._guarding = threading.Lock()
        self._leases: dict[str, int] = {}
        self._only: Sequence[Half] = ()
        self._closed = False
        try:
            self._skip_locked = self._call(self._ready)
        except errors.TarryError as error:
            calls.close()
            if isinstance(error, Denied):
                raise errors.ConfigError(str(error)) from None
            raise

    def _ready(self, link: Link) -> bool:
        schema.ensure(link)
        kind, version = link.version
        return self.address.skip_locked and version >= PASSES_BY_LOCKED[kind]

    def _connected(self) -> Link:
        return Link(self.address, self.address.timeout)

    def _news(self, boards: frozenset[str], kinds: Sequence[str]) -> list[str]:
        if not kinds or not self._bells.elsewhere(boards):
            return []
        return [news(kinds)]

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if not jobs:
            return []
        hopeful = apart(jobs)

        def work(link: Link) -> list[bytes]:
            nonlocal hopeful
            settings = self._known.get(link, FRESH)
            told = self._news(settings.boards, ("work",))
            mine = placed(jobs, settings.limits)
            if hopeful:
                hopeful = False
                link.run("BEGIN", *statements(mine, settings.number), *told, COMMIT)
                return [job.id for job in jobs]
            link.run("BEGIN")
            lives = inserting.one_by_one(link.rows, mine, settings.number)
            link.run(*told, COMMIT)
            return lives

        lives = self._call(work, repeatable=True)
        self._bells.ring(("work",))
        return lives

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        run = through(connection, self.url, lambda: self._call(where))
        if not jobs:
            return []
        ((number,),) = run(NUMBER)
        mine = placed(jobs, limits_of(run(LIMITS)))
        lives = inserting.one_by_one(run, mine, int(number))
        # Whether and when they commit we are not told; who looks for news sees it then.
        run(news(("work",)))
        return lives

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self.exchange((), wants, limit, owner, lease, now).jobs if limit > 0 and wants else []

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self.exchange(changes, (), 0, "", 0, now).valid if changes else []

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        careful = False

        def work(link: Link) -> tuple[Done, Settings, bool]:
            nonlocal careful
            settings = self._known.get(link)
            prolongs = bool(owner) and self._lease_of(link, owner) < now + lease // 2
            statement = sql.LEASE.format(text(owner), now + lease) if prolongs else ""
            boards = settings.boards
            told = self._news(boards, _kinds(changes, settings)), self._news(boards, ("follow",))
            asked = Asked(changes, wants, limit, owner, now, statement, told, self._only, careful)
            try:
                return Exchanging(link, settings, self._reader(), asked).run(), settings, prolongs
            except (Mistaken, Duplicate):
                # Stale changes show so, at the latest where a finished job comes to the finished once more.
                careful = True
                raise

        done, settings, prolonged = self._call(work)
        if done.answer.jobs and prolonged:
            self._remember(owner, now + lease)
        self._after(done, changes, settings)
        return done.answer

    def _reader(self) -> Reader:
        return Reader(self._skip_locked, secrets.randbits(62) + 1)

    def _lease_of(self, link: Link, owner: str) -> int:
        """Until when the owner's lease runs. Nobody but us writes it, so it is read only once."""
        if owner not in self._leases:
            rows = link.rows(f"SELECT until FROM tarry_owner WHERE name = {text(owner)}")
            self._remember(owner, int(rows[0][0]) if rows else 0)
        return self._leases[owner]

    def _remember(self, owner: str, until: int) -> None:
        kept = {name: lease for name, lease in list(self._leases.items())[-100:] if name != owner}
        self._leases = {**kept, owner: until}

    def _after(self, done: Done, changes: Sequence[Change], settings: Settings) -> None:
        if done.answer.jobs:
            self._only = done.only
        if changes:
            self._bells.ring(_kinds(changes, settings))
        elif done.answer.jobs:
            self._bells.ring(("follow",))
        if done.strays:
            self._bells.ring(("work",))

    def next_due(self) -> int | None:
        rows = self._call(lambda link: link.rows(sql.NEXT_DUE))
        return int(rows[0][0]) if rows else None

    # Owning

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        def work(link: Link) -> set[tuple[bytes, int]]:
            if held and self._lease_of(link, owner) < now + lease // 2:
                link.run("BEGIN", sql.LEASE.format(text(owner), now + lease), COMMIT)
                self._remember(owner, now + lease)
            owned: set[tuple[bytes, int]] = set()
            ids = [id for id, _ in held]
            for start in range(0, len(ids), 1000):
                owned |= set(look.owned(link, owner, ids[start : start + 1000]))
            if held and self.address.guard:
                with self._guarding:
                    self._guard.watch_over(link, owner)
            return owned

        owned = self._call(work)
        return [id for id, epoch in held if (id, epoch) not in owned]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        def work(link: Link) -> list[Job]:
            if of is not None:
                return look.held_by(link, of, limit)
            gone = self._missing.gone(link, now) if self.address.guard else []
            return look.overdue(link, now, gone, limit)

        return self._call(work)

    def owners(self) -> list[str]:
        rows = self._call(lambda link: link.rows("SELECT DISTINCT owner FROM tarry_running"))
        return [owner.decode() for (owner,) in rows]

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        def work(link: Link) -> bool:
            held = look.hold(link, name, owner, until, now)
            link.run("BEGIN")
            forget_news(link, self._reader().skip)
            link.run(COMMIT)
            return held

        return self._call(work)

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        return self._call(lambda link: look.get(link, ids)) if ids else []

    def find(self, query: Query) -> list[Job]:
        return self._call(lambda link: look.find(link, query), slow=True)

    def counts(self) -> list[Tally]:
        return self._call(look.counts, slow=True)

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        return self._call(lambda link: look.leaving(link, start, end, limit))

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        # In several steps: whatever goes wrong, some may have been done.
        with a_part_is_done():
            return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    def queues(self) -> dict[str, bool]:
        return self._call(look.queues)

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        return self._call(lambda link: look.backlog(link, queues, now, most))

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        name = text(owner)
        changes = [sql.MARK.format(sql.given(told), raw(id), epoch, name) for id, epoch, told in sorted(marks)]
        self._tell(lambda link: link.run(*changes), ("follow",))

    # What people set

    def pause(self, queue: str, paused: bool) -> None:
        set_it = f"INSERT IGNORE INTO tarry_paused VALUES ({text(queue)})"
        change = set_it if paused else f"DELETE FROM tarry_paused WHERE queue = {text(queue)}"
        self._tell(lambda link: link.run(RAISE, change), ("work",))
        self._known.forget()

    def limit(self, name: str, limit: Limit | None) -> None:
        task = self._tell(lambda link: set_limit(link, name, limit), ("work",))
        self._known.forget()
        if task is not None:
            with a_part_is_done():
                self._give_lanes(task)
        self._bells.ring(("work",))

    def _give_lanes(self, task: str) -> None:
        """Those that wait move into their lanes, a thousand at a time; a claim moves those that it meets before."""
        after = b""
        while ids := self._call(lambda link: unlaned(link, task, after), slow=True):  # noqa: B023
            self._write(lambda link: give_lane(link, ids))
            after = ids[-1]

    def _tell(self, work: Callable[[Link], A], kinds: Sequence[str]) -> A:
        """Does it in a transaction of its own, and rings."""

        def told(link: Link) -> A:
            done = work(link)
            if more := self._news(self._known.boards(link), kinds):
                link.run(*more)
            return done

        done = self._write(told)
        self._bells.ring(kinds)
        return done

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        return self._call(all_limits)

    def recount(self, now: int) -> int:
        wrong = self._call(lambda link: is_miscounted(link, now))
        return self._tell(lambda link: recount(link, now), ("work",)) if wrong else 0

    def cells(self, prefix: str) -> dict[str, bytes]:
        return self._call(lambda link: look.cells(link, prefix))

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        return self._call(lambda link: look.write(link, name, value, was))

    # The rest

    def bell(self) -> Bell:
        return self._bells.bell()

    def ring_recall(self) -> None:
        self._tell(lambda link: None, ("recall",))

    def time(self) -> int:
        return self._call(now)

    def facts(self) -> list[Fact]:
        return self._call(lambda link: facts(link, self._skip_locked), slow=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._bells.close()
            self._guard.close()
            self._calls.close()


def opened(url: str, durable: bool) -> Store:
    """For `opening`. What is durable is the server's to say (`facts` tells)."""
    return MysqlStore(url)


def _kinds(changes: Sequence[Change], settings: Settings) -> tuple[str, ...]:
    """Who is to hear of these changes."""
    if not changes:
        return ()
    waiting = {State.READY, State.SCHEDULED}
    to = {change.to for change in changes}
    work = ("work",) if to & waiting or settings.limits else ()
    return (*work, "follow" if to <= waiting else "result")
