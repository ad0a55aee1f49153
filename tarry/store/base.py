"""The verbs of a store and what each promises. Every verb takes and returns batches.

The promises hold for every store and are proved by `conformance`:

1. A job is given to one claimer at a time; a change with a stale (state, epoch, owner) never wins.
2. An `insert` that was acknowledged survives what the store's stated durability survives; the same insert sent
   twice is one job.
3. A crash between any two calls, and inside any of them, loses nothing: a call is done whole or not at all.
4. Never early: a job is not claimed before its `due`, by the `now` that the worker took from the store's clock.
5. Higher priority first, among those of a queue and band that are ready. Of one priority, late jobs and those on time
   (`lifecycle.is_late`) take turns, each by due and then id; who begins is drawn (`lanes.merged`). So a million jobs
   that fall due at once hold up nobody. A claim makes at most `PROMOTED_AT_ONCE` due jobs ready, the earliest first: of
   more than that the others are not ready yet.
6. The cost of a claim does not grow with the number of jobs that wait, are scheduled or are finished.
7. Any bytes survive in a body and a note.
8. At most as many jobs of a queue, a task or a key of a task run at once, and start in any period, as its limit says;
   what a limit holds back stands in nobody's way, and among the keys of a task each gets its turn.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.errors import OtherDatabase, StoreError
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.ids import uuid7
from tarry.store.shared.bell import Bell

PROMOTED_AT_ONCE = 1000
"""At most so many scheduled jobs become ready in one claim, so that a claim has a bounded cost."""

HIGH, NORMAL, LOW = 1, 0, -1
BANDS = (HIGH, NORMAL, LOW)


class Want(Struct, frozen=True, gc=False):
    """A claimer's wish: up to `count` ready jobs of one queue and one band of priority, before any wish after it."""

    queue: str
    band: int
    count: int


class Exchange(Struct, frozen=True, gc=False):
    """The answer to `exchange`."""

    valid: list[bool]
    """For each change, whether it was still valid and is now made."""
    jobs: list[Job]
    """What was claimed, in the order to run it."""
    next_due: int | None
    """When to come again: the earliest time at which a scheduled job of any queue falls due, or a rate lets start what
    it held back now; None: there is none. That of a key's rate is told to whoever asks, also for other queues. 0, with
    no jobs: at once, since not all that may be there was looked at."""
    away: str = ""
    """Of several stores as one, some did not answer: why. What follows says what that means for the rest."""
    missing: Collection[int] = ()
    """Positions of changes whose store did not answer: whether they are made is not known; send them again."""
    unheard: bool = False
    """A store that did not answer may have given jobs that are not among these."""


class Query(Struct, frozen=True):
    """Which jobs people want to see; a field left out does not narrow. The answer is in the order of ids."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    before: int | None = None
    """In their present state since before this time."""
    after: bytes = b""
    """Only ids greater than this one: where the page before ended."""
    limit: int = 100


class Tally(Struct, frozen=True):
    """How many jobs of a queue and task are in a state, the earliest `due` among them, and their bytes."""

    queue: str
    task: str
    state: State
    count: int
    oldest: int
    bytes: int


class Backlog(Struct, frozen=True):
    """How many jobs could run now, and the earliest `due` among them."""

    count: int
    oldest: int


class Fact(Struct, frozen=True):
    """One line of `tarry check`: what is so, and what to change where it is not as it should be."""

    name: str
    value: str
    advice: str = ""
    number: float = 0.0
    """What the value counts, or how much of a bound is used, as a share of 1; 0: neither."""


class Store(ABC):
    """One place where jobs are kept. Safe to use from several threads; must be opened anew after a fork."""

    url: str
    """Where it is, fit to be shown."""
    opened_by: str | Sequence[str] = ""
    """The URLs that `open_store` was given, passwords included: not to be shown. Empty if it was opened otherwise."""

    @property
    def confirms(self) -> bool:
        """Whether it has replicas that `confirm` could ask."""
        return False

    @property
    def joins(self) -> int:
        """How often one of several stores came, or came back: what is set on all of them may not be set there."""
        return 0

    @abstractmethod
    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """Keeps new jobs, as ready or scheduled as they say; answers the id under which each call lives.

        That is the job's own id, also when the same job was inserted before; or, if a job of the same task holds the
        key at the new one's `since`, the id of that one, and nothing is stored.
        """

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        """`insert` through the caller's own connection: what it stores is there if, and only if, the caller commits.

        Errors of the connection are raised as they are. OtherDatabase unless it is to the database that is this store;
        StoreError or TypeError if it cannot be used for this; then nothing was stored.
        """
        raise OtherDatabase(f"{self.url} cannot take part in a transaction of yours")

    def confirm(self, jobs: Sequence[Job]) -> None:
        """Returns once what an `insert` before stored of these is safe on a replica too. StoreUnavailable if none says
        so in time: then it is stored, yet by this server alone."""
        raise StoreError(f"{self.url} has no replica that could confirm: leave out durable=")

    @abstractmethod
    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        """Makes due jobs ready, then gives up to `limit` ready ones to `owner`, running, epoch one more.

        First up to `count` of each want in turn, then whatever the wants still match, in turn, up to `limit`. Paused
        queues give nothing, and a limit that is reached holds back what falls under it. If it gave any, the owner's
        lease runs until at least `now + lease / 2`, at most `now + lease`. Wants that are all paused promote nothing.
        """

    @abstractmethod
    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        """Makes each change whose job is still (was, epoch, owner), whole; answers which. The answer is the truth.

        Changes of one job are made in their order; among those of different jobs no order is promised.
        A change that would let two jobs of a task hold a key is not valid.
        """

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        """Apply, then claim, then tell when next to come: the hot path, one round trip where a store can."""
        valid = self.apply(changes, now) if changes else []
        jobs = self.claim(wants, limit, owner, lease, now) if limit > 0 else []
        return Exchange(valid, jobs, self.next_due())

    @abstractmethod
    def next_due(self) -> int | None:
        """When the earliest scheduled job falls due."""

    @abstractmethod
    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        """Prolongs the owner's lease on all that it holds, to at least `now + lease / 2`; answers which of (id, epoch)
        it does not own any more."""

    @abstractmethod
    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        """Running jobs whose owner's lease ran out, or, with `of`, all those of that owner. Changes nothing:
        what becomes of them is for the keeper to say, and of two that say it the first wins."""

    @abstractmethod
    def owners(self) -> list[str]:
        """Who holds running jobs."""

    @abstractmethod
    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        """Takes or prolongs a named lease; False while another owner's has not run out."""

    @abstractmethod
    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs by id, in that order; None where there is none."""

    @abstractmethod
    def find(self, query: Query) -> list[Job]:
        """The jobs that match, by id. For people: may read much."""

    @abstractmethod
    def counts(self) -> list[Tally]:
        """How many jobs there are, by queue, task and state. For people: may read all."""

    @abstractmethod
    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        """Finished jobs whose `until` lies from `start` to before `end`, by that and id, at most `limit`. Since a rule
        says how long each is kept, it tells what has finished lately. Cheap, whatever else is kept."""

    @abstractmethod
    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        """Forgets finished jobs whose `until` has come, and, in a queue whose finished jobs take more than
        `most_bytes` (or what `by_queue` says for it), those that are the earliest to be forgotten. At most `limit` a
        call; answers how many."""

    @abstractmethod
    def pause(self, queue: str, paused: bool) -> None:
        """While paused, a queue takes jobs and gives none."""

    @abstractmethod
    def queues(self) -> dict[str, bool]:
        """Every queue that has ready jobs, or is paused: whether it is paused. Cheap, whatever waits in them."""

    @abstractmethod
    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        """What of these queues (None: of all) could run now, were there a worker for it: what is ready, or scheduled
        and due, where no queue is paused; what a limit holds back is part of it. Counted up to `most`, those that are
        due among the first so many; `oldest` is that of those counted, `now` without any. Cheap, whatever waits."""

    @abstractmethod
    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Keeps the progress of jobs that this owner runs, as (id, epoch, progress); of one that is not so any more,
        nothing."""

    @abstractmethod
    def limit(self, name: str, limit: Limit | None) -> None:
        """Sets the limit of that name (`model.limit` has the names), or lifts it. Counts what runs at that moment."""

    @abstractmethod
    def limits(self) -> dict[str, tuple[Limit, Level]]:
        """The limits by name, and how far each is used; of those for each key of a task, nothing is told of use."""

    @abstractmethod
    def recount(self, now: int) -> int:
        """Counts anew, from the jobs that run, how far each limit is used: a level that is wrong, for whatever reason,
        would hold back work for ever. Answers how many levels were. What a rate remembers stays as it is; but where the
        clock was set back, nothing is held back until the old time comes again."""

    @abstractmethod
    def cells(self, prefix: str) -> dict[str, bytes]:
        """The named values whose names begin so."""

    def cell(self, name: str) -> bytes | None:
        """The named value of just that name; None: absent. Cheap, however many there are."""
        return self.cells(name).get(name)

    @abstractmethod
    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """Sets a named value, or removes it (None), if it is still as it was seen (None: absent)."""

    @abstractmethod
    def bell(self) -> Bell:
        """A hint that something came; never needed for correctness."""

    @abstractmethod
    def ring_recall(self) -> None:
        """Wakes workers to look whether what they run is still wanted."""

    @abstractmethod
    def time(self) -> int:
        """The store's clock: microseconds since the epoch."""

    @abstractmethod
    def facts(self) -> list[Fact]:
        """What an operator should know: version, durability, size."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds. Closing twice is fine."""

    def mint(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """An id for a new job; a store of several shards draws until it falls on the right one."""
        return uuid7()

    def elsewhere(self, job: Job) -> bytes | None:
        """Another id for a job that is surely not stored, of a shard that takes it; None where there is none."""
        return None

    def fits(self, job: Job) -> bool:
        """Whether a job of that key and lane may have that id: `mint` made it, for the shards that there are now."""
        return True


def band(priority: int) -> int:
    """Which of the three bands a priority belongs to."""
    return (priority > 0) - (priority < 0)
