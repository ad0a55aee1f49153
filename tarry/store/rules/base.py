"""The verbs of a store and what each promises. Every verb takes and returns batches.

The promises hold for every store and are proved by `conformance`:

1. A job is given to one claimer at a time; a change with a stale (state, epoch, owner) never wins.
2. An `insert` that was acknowledged survives what the store's stated durability survives; the same insert sent
   twice is one job.
3. A crash between any two calls, and inside any of them, loses nothing: a call is done whole or not at all.
4. Never early: a job is not claimed before its `due`, by the `now` that the worker took from the store's clock.
5. Higher priority first, among the ready jobs of a queue and band. Within a priority, late jobs and jobs on time
   (`lifecycle.is_late`) take turns, each kind by due and then id; the ids decide which kind begins
   (`lanes.merge_lines`). So a million jobs that fall due at once do not delay the others. A claim makes at most
   `PROMOTED_AT_ONCE` due jobs ready, the earliest first.
6. The cost of a claim does not grow with the number of jobs that wait, are scheduled or are finished.
7. Any bytes survive in a body and a note.
8. Of a queue, a task or a key of a task no more jobs run at once, or start in any period, than its limit allows; what
   was cancelled counts until its attempt has ended. Jobs that a limit holds back do not delay other jobs, and each key
   of a task gets its turn.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from tarry.errors import OtherDatabase, PayloadUnavailable, QueueFull, StoreError
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.checks.unreadable import is_apart
from tarry.model.flow.wiring import split
from tarry.model.job import Job, JobLabel, State, has_labels
from tarry.model.limit import UNLIMITED, KeyLimit, Level, Limit
from tarry.store.rules.flows import NoFlows, StoreFlows
from tarry.store.rules.history.history import StoreHistory
from tarry.store.rules.ids import text, uuid7
from tarry.store.rules.name_pattern import fits
from tarry.store.rules.sleeper import Wakeup
from tarry.store.rules.waiting import WaitingCounts

# A bound, so that the cost of a claim is bounded too.
PROMOTED_AT_ONCE = 1000
"""How many scheduled jobs become ready in one claim at most."""

NOTHING: Mapping[Any, Any] = MappingProxyType({})
HIGH, NORMAL, LOW = 1, 0, -1
BANDS = (HIGH, NORMAL, LOW)


class Want(Struct, frozen=True, gc=False):
    """What a claimer asks for: up to `count` ready jobs of one queue and one band of priority, before later wants."""

    queue: str
    band: int
    count: int


class Exchange(Struct, frozen=True, gc=False):
    """The answer to `exchange`."""

    valid: list[bool]
    """For each change, whether it was still valid and is now made."""
    jobs: list[Job]
    """The claimed jobs, in the order to run them."""
    next_due: int | None
    """When to come again: the earliest time at which a scheduled job of any queue falls due, or a rate allows a start
    that it refused now; None: there is none. The time of a key's rate is part of it for claimers of all queues. 0, with
    no jobs: come again at once, since not all lanes were examined."""
    away: str = ""
    """Of several stores used as one: why some did not answer; see `missing` and `unanswered`. Empty: all did."""
    missing: Collection[int] = ()
    """Positions of changes whose store did not answer: they may or may not be made; send them again."""
    unanswered: bool = False
    """A store that did not answer may have given jobs that are not in this answer."""
    claimed_at: int = 0
    """Of `sleep_and_claim`: the store's time of the claim."""
    more_to_release: bool = False
    """A flow has more nodes to release: call `flows.release_more` until it answers False."""
    is_held_back: bool = False
    """The claim had room for jobs that wait until others of their limits have ended. A hint: a store may give none."""


class NextClaim(Struct, frozen=True):
    """What a worker that sleeps would claim when it wakes: as the arguments of `Store.claim`."""

    wants: Sequence[Want]
    limit: int
    owner: str
    lease: int


class Query(Struct, frozen=True):
    """Which jobs a person wants to see; a field left out matches all. The answer is in the order of ids."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    before: int | None = None
    """In their present state since before this time."""
    after: bytes = b""
    """Only ids greater than this one: the last of the page before."""
    limit: int = 100
    until: bytes = b""
    """Only ids up to this one; empty: all."""
    queues: tuple[str, ...] = ()
    """Only of queues that fit one of these patterns (`shop-*`); empty: of all. What a caller may see."""
    tasks: tuple[str, ...] = ()
    """Only of tasks whose names fit one of these patterns (`shop.*`); empty: of all."""
    labels: tuple[JobLabel, ...] = ()
    """With all of these labels. Looked up in an index: the cost goes with the jobs that have the first of them."""

    def matches(self, job: Job) -> bool:
        """Whether the query finds this job."""
        return (
            job.id > self.after
            and (not self.until or job.id <= self.until)
            and (not self.states or job.state in self.states)
            and self.queue in (None, job.queue)
            and (not self.queues or fits(self.queues, job.queue))
            and self.task in (None, job.task)
            and (not self.tasks or fits(self.tasks, job.task))
            and self.key in (None, job.key)
            and (self.before is None or job.state_since < self.before)
            and (not self.labels or has_labels(job.headers, self.labels))
        )


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


class PlaceAnswer(Struct, frozen=True):
    """The answer to `Store.take_place`."""

    is_taken: bool
    again: int | None = None
    """If not taken: when the rates will allow it; None: an attempt has to end before."""
    most: int = UNLIMITED
    """The highest cost that the rates here ever allow."""
    is_limited: bool = True
    """False: no limit counts such a place, so none is taken."""


class ShareChange(Struct, frozen=True):
    """A change of one limit, for `Store.change_shares`."""

    name: str
    was: Limit
    limit: Limit
    used: int = 0
    """So many starts the rate counts from now on as if they had just been."""

    @property
    def gives_more(self) -> bool:
        """Whether more may start than before."""
        was, limit = self.was, self.limit
        has_more = UNLIMITED if limit.most is None else limit.most
        return has_more > (UNLIMITED if was.most is None else was.most) or limit.count > was.count


def gives_more(changes: Sequence[ShareChange], made: Sequence[bool]) -> bool:
    """Whether one of the changes that were made lets more start than before."""
    return any(is_made and change.gives_more for change, is_made in zip(changes, made, strict=True))


class Diagnostic(Struct, frozen=True):
    """One line of `tarry check`: a fact, and advice if it is not as it should be."""

    name: str
    value: str
    advice: str = ""
    number: float = 0.0
    """The value as a number: a count, or the used share of a bound, from 0 to 1; 0 if it is neither."""


ValueChange = tuple[str, bytes | None, bytes | None]
"""A named value: its name, what it becomes, and what it was; None: absent."""


class ValuesWithin(Protocol):
    """Named values in a caller's transaction."""

    def kv_get(self, name: str) -> bytes | None:
        """As `Store.kv_get`, as the transaction sees it."""

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """As `Store.kv_cas`; also True if the value was as asked for before."""


class Store(ABC):
    """One place where jobs are kept. Safe to use from several threads; must be opened anew after a fork."""

    url: str
    """Where it is, without passwords: for logs and errors."""
    history: StoreHistory
    """What was put, done and so on. `insert` counts the jobs that were not there, `apply` and `exchange` the changes
    that are made, as `model.history.counting` says, whole or not at all with the call."""
    waiting: WaitingCounts
    """How many jobs wait, up to a bound: by the time at which they come due, by band, and before a job."""
    flows: StoreFlows = NoFlows()
    """Flows and signals. `apply` and `exchange` also do what a change does to its flow (`Change.node`, `awaits`)."""
    keeps_apart_over: float = math.inf
    """Arguments and results of more bytes are kept outside of the store."""
    most_apart: int = 0
    """Bytes of the largest that are kept there; 0: none are."""
    opened_by: str | Sequence[str] = ""
    """The URLs that `open_store` got, with passwords: never show them. Empty if it was opened otherwise."""

    @property
    def can_confirm(self) -> bool:
        """Whether it has replicas that `confirm` can ask."""
        return False

    @property
    def is_pooled(self) -> bool:
        """Whether threads need not wait for each other's calls: it has several connections."""
        return False

    @property
    def topology_version(self) -> int:
        """How often one of several stores came, or came back. If it grew, settings must be made again."""
        # A store that was away has missed what was set on the others.
        return 0

    @abstractmethod
    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """Stores new jobs in the state that they have, ready or scheduled; returns for each the id of the stored job.

        That is the job's own id, also if it was inserted before. If a job of the same task holds the key at the new
        job's `state_since`, it is that job's id, and nothing is stored.
        """

    @abstractmethod
    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        """`insert`; of jobs of a queue with a bound only the first ones for which there is room, and QueueFull in the
        place of each other. At no moment do more of the jobs that were inserted so wait than the bound allows. That
        jobs have left is seen later, at the next count.

        freed: the queues of which the caller has just deleted jobs to make room: those jobs are counted at once.
        key_bounds: the same for the jobs of one key, in each queue apart; TenantFull. A count sees those of its jobs
        that are ready, and not the scheduled ones.
        """

    @abstractmethod
    def supersede(self, change: Change, job: Job, now: int) -> bool:
        """Ends the job that holds a key, and stores the new job that takes the key, in one step: both, or nothing and
        False, if the change is not valid, or another job holds the key.

        change: `lifecycle.make_way`. The attempt of a job that runs goes on until its worker has heard of it, and keeps
        its place (`rules/kept_places.py`) also where no limit counts it.
        """

    @abstractmethod
    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        """Jobs of a queue that wait: the ready ones first, of the lowest band first and in it by `due`; then the
        scheduled ones by `due`. May look at all that wait in the queue, and at all that are scheduled."""

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        """`insert` through the caller's own connection: the jobs are stored if, and only if, the caller commits.
        QueueFull if one of the bounds leaves no room for all of them; then none is.

        Errors of the connection are raised as they are. OtherDatabase if the connection is to another database;
        StoreError or TypeError if it cannot be used for this. Then nothing was stored.
        """
        raise OtherDatabase(f"{self.url} cannot take part in a transaction of yours")

    def confirm(self, jobs: Sequence[Job]) -> None:
        """Returns once these jobs, which an `insert` stored before, are safe on a replica too. StoreUnavailable if no
        replica confirms in time: then they are stored, but only on this server."""
        raise StoreError(f"{self.url} has no replica that could confirm: leave out durable=")

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        """Makes due jobs ready, then gives up to `limit` ready ones to `owner`, running, epoch one more.

        First up to `count` of each want in turn, then whatever the wants still match, in turn, up to `limit`. Paused
        queues give nothing, nor do limits that are reached. If jobs were claimed, the owner's lease runs until at least
        `now + lease / 2`, at most `now + lease`. If the queues of all wants are paused, no job becomes ready.
        """
        # With nothing to ask for, spare the server the call.
        return self.exchange((), wants, limit, owner, lease, now).jobs if wants and limit > 0 else []

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        """Makes each change whose job still has (was, epoch, owner), each whole; returns for each whether it was made.

        Changes of one job are made in their order; changes of different jobs in any order.
        A change that would let two jobs of a task hold the same key is not made. A change with `keeps_places` leaves
        what limits count, until an outcome of the same attempt comes, which is not valid (`rules/kept_places.py`).
        """
        # Also without changes: `tarry top` asks so whether the store is still there.
        return self.exchange(changes, (), 0, "", 0, now).valid

    @abstractmethod
    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        """Applies, then claims, then says when to come again."""
        # One verb, since this is the hot path: a store that can do it needs one round trip for all.

    @abstractmethod
    def next_due(self) -> int | None:
        """When the earliest scheduled job falls due."""

    @abstractmethod
    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        """Prolongs the owner's lease on all its jobs, to at least `now + lease / 2`; returns the ids of those (id,
        epoch) that it does not own any more."""

    @abstractmethod
    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        """Running jobs whose owner's lease ran out; with `of`, all running jobs of that owner. Changes nothing."""
        # A store knows no rules: the keeper computes what becomes of them, and of two keepers the first wins.

    @abstractmethod
    def owners(self) -> list[str]:
        """The owners of running jobs."""

    @abstractmethod
    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        """Takes or prolongs a named lease of a day at most; False while another owner holds it. What is held for longer
        than a day from now was taken while a clock was ahead, and counts as free."""

    @abstractmethod
    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs with these ids, in that order; None for an id without a job."""

    @abstractmethod
    def find(self, query: Query) -> list[Job]:
        """The jobs that match, in the order of ids. For people: may read much."""

    def id_behind(self, after: bytes, count: int, label: JobLabel | None = None) -> bytes | None:
        """The id of a job behind `after`, with at most `count` jobs, or some dozens, after `after` and up to it; None:
        no more than these are left. Cheap: so whoever looks for few among very many jobs can stop on the way.

        label: only the jobs that have it count.
        """
        # For a store in memory. Others have a way without reading the jobs.
        jobs = self.find(Query(after=after, limit=count + 1, labels=() if label is None else (label,)))
        return jobs[count - 1].id if len(jobs) > count else None

    @abstractmethod
    def counts(self) -> list[Tally]:
        """How many jobs there are, by queue, task and state. For people: may read all."""

    @abstractmethod
    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        """Finished jobs whose `keep_until` is from `start` to before `end`, by that and id, at most `limit`. Cheap,
        however many jobs are kept."""
        # A rule says how long each job is kept, so this also tells which jobs have finished lately.

    @abstractmethod
    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        """Deletes finished jobs whose `keep_until` has come, and, in a queue whose finished jobs take more than
        `most_bytes` (or its value in `by_queue`), those with the earliest `keep_until`. At most `limit` in a call;
        returns how many."""

    @abstractmethod
    def pause(self, queue: str, paused: bool) -> None:
        """Pauses or resumes a queue. A paused queue takes new jobs, but none of its jobs is claimed, also by a claim
        that was under way when this returned (PostgreSQL waits for such a one for at most 1 s)."""

    @abstractmethod
    def queues(self) -> dict[str, bool]:
        """For each queue that has ready jobs or is paused: whether it is paused. Cheap, however many jobs wait."""

    @abstractmethod
    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        """The jobs of these queues (None: of all) that could run now if there were workers: those that are ready, or
        scheduled and due, in queues that are not paused. Jobs that a limit holds back count. Counts up to `most`, and
        of due jobs only among the first `most`; `oldest` is the earliest `due` of those counted, `now` if there are
        none. Cheap, however many jobs wait."""

    @abstractmethod
    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        """Stores the progress of jobs as (id, epoch, progress); answers for each whether this owner runs it in that
        epoch. Those that it does not run any more are left alone."""

    @abstractmethod
    def limit(self, name: str, limit: Limit | None) -> None:
        """Sets the limit of that name (`model.limit` has the names); None lifts it. Counts what runs at that moment."""

    @abstractmethod
    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        """Changes limits of tasks and queues, each if it is set and still as it was; answers for each whether it did.
        Nothing is counted anew, and nobody is woken unless more may start than before."""
        # A part of a limit is prolonged every few seconds: that must cost next to nothing.

    def shares_of(self, id: bytes) -> dict[str, tuple[Limit, Level]]:
        """Of several stores: the shares of limits, by their names, that the one has where this job is, and how far each
        is used there. Of one store: nothing."""
        return {}

    def move_shares(self, owner: str, now: int, lease: int) -> bool:
        """Of several stores: moves the shares of limits to where jobs wait, unless another owner does; whether more may
        start somewhere than before. To be called every second. lease: how long a worker keeps its jobs without a sign
        of life; 0: this owner moves no more."""
        return False

    @abstractmethod
    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        """Sets what one key of a task has instead of the limit for each key; None: it has nothing of its own any more.
        `rules.key_limits` reads it. If the task has no limit for each key, one without bounds is set, which goes with
        the last key that has its own. What runs counts at once."""

    @abstractmethod
    def limits(self) -> dict[str, tuple[Limit, Level]]:
        """The limits by name, and how far each is used; for a limit for each key, the level is empty."""
        # Such a limit has one level for each key, and there may be many.

    @abstractmethod
    def levels(self, names: Sequence[str]) -> list[Level]:
        """The levels of these names, of lanes (`rules.lanes.lane_level`), queues and tasks; empty for one that is not
        used, or has no limit."""

    @abstractmethod
    def take_place(self, name: str, key: tuple[str, str, str | None], until: int, cost: int, now: int) -> PlaceAnswer:
        """Takes a place under all limits that would count a running job of this queue, task and lane, if each has room;
        a rate counts it as `cost` starts. The place is kept until that time under the name, which `kept_places.name_of`
        makes; an outcome of that attempt gives it back before. If that name has a place already, it is taken, and
        nothing changes: so a call whose answer was lost may be made again."""

    @abstractmethod
    def recount(self, now: int) -> int:
        """Counts anew, from running jobs and kept places, how far each limit is used; returns how many levels were
        wrong. The times of rates stay, unless the clock was set back: then jobs must not wait until the old time comes
        again."""
        # Without this, a level that is wrong for whatever reason would hold back jobs for ever.

    @abstractmethod
    def kv_list(self, prefix: str) -> dict[str, bytes]:
        """The named values whose names begin with the prefix. Its cost goes with these, not with the others."""

    def kv_get(self, name: str) -> bytes | None:
        """The named value with exactly this name; None: absent. Cheap, however many there are."""
        return self.kv_list(name).get(name)

    @abstractmethod
    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """Sets a named value (None: removes it) if it is still `was` (None: absent); returns whether it did."""

    def kv_page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        """The first `limit` behind the name `after`, in the order of names, of the named values whose names begin with
        the prefix. Cheap, however many there are."""
        # For a store of somebody's own. Others do not read all of them.
        found = ((name, value) for name, value in sorted(self.kv_list(prefix).items()) if name > after)
        return dict(islice(found, max(0, limit)))

    def kv_count(self, prefix: str) -> int:
        """How many named values have names that begin with the prefix. Reads none of the values, so that many thousands
        may be counted now and then."""
        # For a store of somebody's own.
        return len(self.kv_list(prefix))

    def kv_read(self, names: Sequence[str]) -> list[bytes | None]:
        """The named values with these names, in that order; None: absent."""
        return [self.kv_get(name) for name in names]

    def kv_write(self, changes: Sequence[ValueChange]) -> list[bool]:
        """`kv_cas` for each; answers for each whether the value is now as asked for: set by this call, or so before.
        Each is whole, all together are not. Of one name, at most one. May be sent again."""
        is_set = [self.kv_cas(name, value, was) for name, value, was in changes]
        left = [name for (name, *_), one in zip(changes, is_set, strict=True) if not one]
        now_there = dict(zip(left, self.kv_read(left), strict=True))
        pairs = zip(changes, is_set, strict=True)
        return [one or now_there[name] == value for (name, value, _), one in pairs]

    def kv_within(self, connection: Any) -> ValuesWithin:
        """Named values through the caller's own connection: what is set is set if, and only if, the caller commits.
        Errors as of `insert_within`."""
        raise OtherDatabase(f"{self.url} cannot take part in a transaction of yours")

    def seal_value(self, name: str, value: bytes, task: str) -> bytes:
        """What is to be stored of the arguments of a task within the named value `name`: sealed, where there is a key.
        What is sealed stays so."""
        return value

    def open_value(self, name: str, value: bytes) -> bytes:
        """What `seal_value` was given; sealed, if it cannot be opened here."""
        return value

    def keep_result(self, job: Job, result: bytes) -> bytes:
        """What is to stand in the record of a job for its result, to be called before the change that says so: a large
        one is kept outside of the store (`[payloads]`). May take long; PayloadUnavailable."""
        return result

    def load_arguments(self, job: Job) -> Job:
        """The job with its arguments, also if they are kept outside of the store. May take long; PayloadUnavailable,
        PayloadLost."""
        _refuse_apart(job, "arguments", split(job.id, job.body)[1])
        return job

    def load_result(self, job: Job) -> Job:
        """The same for the result of a job that is done."""
        _refuse_apart(job, "result", job.note)
        return job

    @abstractmethod
    def wakeup(self) -> Wakeup:
        """A sleeper, which the store wakes when something happens. A hint: nothing may depend on it."""

    def worker_wakeup(self) -> Wakeup:
        """A sleeper for `sleep_and_claim`."""
        return self.wakeup()

    def sleep_and_claim(self, wakeup: Wakeup, seconds: float, also: Sequence[int], claim: NextClaim) -> Exchange | None:
        """`wakeup.sleep(seconds, also)`. At its end a store may claim, which spares the worker the way to the store:
        then it returns what an `exchange` without changes would. None: nothing was claimed. StoreError: jobs may have
        been claimed that nobody knows of."""
        wakeup.sleep(seconds, also)
        return None

    @abstractmethod
    def wake_for_recall(self) -> None:
        """Wakes workers, so that they check whether their jobs are still wanted."""

    @abstractmethod
    def time(self) -> int:
        """The store's clock: microseconds since the epoch."""

    @abstractmethod
    def diagnostics(self) -> list[Diagnostic]:
        """What an operator should know, such as version, durability and size."""

    @abstractmethod
    def close(self) -> None:
        """Releases connections and files. May be called twice."""

    def new_id(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """An id for a new job. A store of several shards makes one that belongs to the shard of the key or lane."""
        return uuid7()

    def reroute(self, job: Job) -> bytes | None:
        """Another id for a job that is surely not stored, of a shard that can take it; None if there is none."""
        return None

    def belongs(self, job: Job) -> bool:
        """Whether the job's id fits its key and lane: `new_id` made it for the present shards."""
        return True


def _refuse_apart(job: Job, what: str, value: bytes) -> None:
    """PayloadUnavailable if the value stands for one that is kept outside of the store."""
    if is_apart(value):
        from tarry.store.rules.payload_reference import describe_apart  # noqa: PLC0415 - most processes meet none

        where = f"the {what} of {job.task} {text(job.id)} is kept outside of the store, {describe_apart(value)}"
        raise PayloadUnavailable(f"{where}: this process has no [payloads] to, so give it that of the others")


def band(priority: int) -> int:
    """Which of the three bands a priority belongs to."""
    return (priority > 0) - (priority < 0)


def drop_order(job: Job) -> tuple[int, int, bytes]:
    """The order of `Store.oldest_waiting`."""
    return 2 if job.state is State.SCHEDULED else band(job.priority), job.due, job.id
