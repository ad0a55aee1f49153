"""Random histories, in which a store must answer every call as the reference does, and keep what it keeps."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change, with_correction
from tarry.model.duration import SECOND
from tarry.model.job import HELD, UNFINISHED, WAITING, Job, State
from tarry.model.lifecycle import DEFAULT, NotPossible, Rules
from tarry.model.limit import EACH, KeyLimit, Level, Limit
from tarry.model.outcome import (
    Cancelled,
    Expired,
    HeldBack,
    Lost,
    Outcome,
    Quarantined,
    Raised,
    Released,
    Returned,
    Snoozed,
    TimedOut,
    Unknown,
)
from tarry.model.retry import Retry
from tarry.store.memory.store import MemoryStore
from tarry.store.opening import open_store
from tarry.store.rules import kept_places
from tarry.store.rules.base import BANDS, Exchange, Query, Store, Want
from tarry.store.rules.history.sums import LENGTH, Place, Sums, decode
from tarry.store.rules.lanes import lane_level
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tarry.tasks.arguments.options import with_cost
from tests.servers.kept_tables import remove_board
from tests.servers.mariadb import MariadbServer

NOW = 1_800_000_000 * SECOND
TICK = 5 * SECOND
"""All times are multiples of it, so that *just now* and *at the same time* are common."""
LEASE = 6 * TICK
ALL = 10_000
"""More than a history has. Not many more: where keys have weights a claim deals as many starts as it asks for, and a
million take a second in which a server may end its transaction."""
RULES = [
    DEFAULT,
    Rules(retry=Retry(2, base=5), keep_done=2 * TICK, keep_dead=3 * TICK),
    Rules(retry=Retry(2, base=5), keep_done=TICK, keep_dead=TICK),
    Rules(keep_done=0),
]
OUTCOMES: list[Outcome] = [
    Returned(b'"good"'),
    Raised(b'"bad"', ("ValueError",)),
    Raised(b'"bad"', final=True),
    Raised(b'"bad"', status=500),
    Returned(b'"good"', status=200),
    Raised(b'"bad"', after=TICK),
    TimedOut(b'"late"'),
    Lost(),
    Lost(on=True),
    Released(),
    Snoozed(0),
    Snoozed(2 * TICK),
    Cancelled("gone"),
    Expired(),
    Unknown(),
    Quarantined(),
    HeldBack(),
]
Decision = Callable[[Job, Rules, int], Change]
DECISIONS: list[Decision] = [
    lambda job, rules, now: lifecycle.run_now(job, now),
    lambda job, rules, now: lifecycle.cancel(job, rules, now, "no"),
    lambda job, rules, now: lifecycle.move(job, now, due=now + TICK, priority=-2),
    lambda job, rules, now: lifecycle.move(job, now, due=now - TICK, queue="slow"),
    lambda job, rules, now: lifecycle.move(job, now, priority=3),
    lambda job, rules, now: lifecycle.edit(job, b"edited", now),
    lambda job, rules, now: lifecycle.edit(job, b"edited and run", now, run=True),
    lambda job, rules, now: lifecycle.forget(job),
    lambda job, rules, now: lifecycle.replace_call(job, replace(job, body=b"new", due=now + TICK, priority=1), now),
    lambda job, rules, now: lifecycle.postpone(job, replace(job, due=now + 2 * TICK), now),
    lambda job, rules, now: lifecycle.postpone(job, replace(job, due=now - TICK, expires=now + 3 * TICK), now),
]
LIMITS = [None, Limit(0), Limit(1), Limit(3), Limit(12), Limit(90), Limit(None, 2, 3 * TICK), Limit(2, 40, 4 * TICK)]
LIMITS += [Limit(5, weight=4), Limit(None, 90, 9 * TICK), Limit(None, 12, 3 * TICK), Limit(40, 12, TICK)]
LIMITED = ["queue:default"] * 3 + ["queue:slow", "task:mail", "each:mail", "each:fetch"]
KEY_LIMITS = [None, None, KeyLimit(1), KeyLimit(5), KeyLimit(is_paused=True), KeyLimit(None, 2, 3 * TICK)]
KEY_LIMITS += [KeyLimit(weight=3), KeyLimit(2, weight=1000)]
KEY_BOUNDS = st.sampled_from([{}, {("mail", "x"): 1}, {("mail", "x"): 2, ("fetch", ""): 0, ("fetch", "y"): 30}])


class New(NamedTuple):
    """A job to insert; `again`: not a new one, but the one sent so long ago."""

    again: int | None
    task: str
    queue: str
    priority: int
    delay: int
    key: str | None
    body: bytes
    unique: int
    lane: str | None
    cost: int


class Said(NamedTuple):
    """What somebody says of the job as it was seen so long ago: of a running one, how its attempt ended, and how many
    starts more rates are to count."""

    back: int
    outcome: Outcome
    correction: int
    decision: Decision | None
    rules: Rules


BACK = st.integers(0, 30) | st.integers(0, 3)
QUEUES, OWNERS = st.sampled_from(["default", "slow"]), st.sampled_from(["ann", "bob"])
NEW = st.builds(
    New,
    st.none() | st.none() | BACK,
    st.sampled_from(["mail", "fetch"]),
    QUEUES,
    st.sampled_from([-9, -1, 0, 0, 0, 1, 9]),
    st.sampled_from([-2 * TICK, -TICK, 0, 1, TICK, 2 * TICK, 4 * TICK]),
    st.sampled_from([None, None, "a", "b"]),
    st.binary(max_size=20),
    st.sampled_from([UNFINISHED, UNFINISHED, WAITING, TICK, 4 * TICK]),
    st.sampled_from([None, None, "", "x", "y", "z"]),
    st.sampled_from([1, 1, 1, 2, 7]),
)
CORRECTIONS = st.sampled_from([0, 0, 0, -1, 3])
SAID = st.builds(
    Said, BACK, st.sampled_from(OUTCOMES), CORRECTIONS, st.none() | st.sampled_from(DECISIONS), st.sampled_from(RULES)
)
WANTS = st.lists(st.builds(Want, QUEUES, st.sampled_from(BANDS), st.integers(0, 4)), max_size=7)
LEASES = st.sampled_from([LEASE, 2 * TICK])
MANY = st.sampled_from([4, 7, 30, 100])
"""Jobs at once: stores take other ways from 4 on, and a busy worker settles by the hundred."""
PLAIN = st.builds(
    New,
    st.none(),
    st.sampled_from(["mail", "fetch"]),
    st.sampled_from(["default", "default", "slow"]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 0, 0, TICK]),
    st.none(),
    st.binary(max_size=20),
    st.just(UNFINISHED),
    st.none(),
    st.just(1),
)
"""Jobs as most are: under a queue's limit at most."""
STEPS = st.sampled_from([0, 0, 1, TICK, 2 * TICK, LEASE // 2])


class Histories(RuleBasedStateMachine):
    """Drives both. A subclass says what is under test, and, for shards, leaves out what differs by design."""

    limits = st.integers(0, 6)
    sizes = st.sampled_from([0, 15, 40, ALL])
    one_lease = True

    def opened(self) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store, self.reference = self.opened(), MemoryStore()
        self.now, self.made = NOW, 0
        self.sent: list[Job] = []
        self.seen: list[Job] = []

    def teardown(self) -> None:
        try:
            self.everything_is_the_same()
            self.all_is_counted()
        finally:
            self.store.close()
            self.folder.cleanup()

    def fits(self, id: bytes, task: str, key: str | None) -> bool:
        """Whether a job of that task and key may have the id."""
        return True

    def minted(self, task: str, key: str | None) -> bytes:
        """By counting: a history that failed can be run again just so."""
        while True:
            self.made += 1
            if self.fits(id := self.made.to_bytes(16, "big"), task, key):
                return id

    def saw(self, *jobs: Job | None) -> None:
        self.seen += [job for job in jobs if job is not None]

    @initialize(
        news=st.lists(NEW, min_size=8, max_size=12),
        count=MANY,
        kind=PLAIN,
        name=st.sampled_from(LIMITED),
        limit=st.sampled_from(LIMITS),
    )
    def begin(self, news: list[New], count: int, kind: New, name: str, limit: Limit | None) -> None:
        if self.one_lease:
            self.limit(name, limit)
        self.insert(news)
        self.insert_many(count, kind)
        self.claim_all(0, "ann")

    @rule(news=st.lists(NEW, min_size=1, max_size=6))
    def insert(self, news: list[New]) -> None:
        jobs = [self.job(new) for new in news]
        ids = self.reference.insert(jobs)
        assert self.store.insert(jobs) == ids
        self.saw(*self.reference.get(ids))

    @rule(count=MANY, kind=PLAIN)
    def insert_many(self, count: int, kind: New) -> None:
        self.insert([kind] * count)

    @precondition(lambda self: self.one_lease)
    @rule(news=st.lists(NEW, min_size=1, max_size=6), most=st.sampled_from([0, 1, 3, 40]), keys=KEY_BOUNDS)
    def insert_bounded(self, news: list[New], most: int, keys: KeyBounds) -> None:
        """Counted each time, since how old a count may be depends on how long it took. New jobs without a key, since a
        store may or may not take room for a job that turns out to be there."""
        bounds = {"default": Bound(most), "slow": Bound(2 * most)}
        jobs = [self.job(new._replace(again=None, key=None)) for new in news]
        ids = self.reference.insert_bounded(jobs, bounds, self.now, [*bounds], keys)
        answers = self.store.insert_bounded(jobs, bounds, self.now, [*bounds], keys)
        assert [isinstance(id, bytes) and id for id in answers] == [isinstance(id, bytes) and id for id in ids]
        self.saw(*self.reference.get([id for id in ids if isinstance(id, bytes)]))

    @precondition(lambda self: self.seen)
    @rule(back=BACK, new=NEW, rules=st.sampled_from(RULES), owner=st.none() | st.none() | OWNERS)
    def supersede(self, back: int, new: New, rules: Rules, owner: str | None) -> None:
        """A job makes way for a newer one of its key, by what was seen of it, of its owner or another."""
        old = self.back(back)
        if old.state.finished or old.key is None:
            return
        change = lifecycle.make_way(replace(old, owner=old.owner and (owner or old.owner)), rules, self.now)
        job = self.job(new._replace(again=None, task=old.task, key=old.key))
        done = self.reference.supersede(change, job, self.now)
        assert self.store.supersede(change, job, self.now) == done
        self.saw(*self.reference.get([old.id, job.id]))

    @rule(queue=QUEUES, limit=st.sampled_from([0, 1, 5, 1000]))
    def oldest_waiting(self, queue: str, limit: int) -> None:
        oldest = self.reference.oldest_waiting(queue, limit)
        found = self.store.oldest_waiting(queue, limit)
        # Redis looks at some of the jobs whose priorities differ, so it may give others where it is asked for few.
        assert found == oldest if limit == 1000 else len(found) == len(oldest)

    @rule(queues=st.none() | st.lists(QUEUES), bounds=st.lists(STEPS, unique=True).map(sorted))
    def count_due(self, queues: list[str] | None, bounds: list[int]) -> None:
        times = [self.now + bound for bound in bounds]
        assert self.store.waiting.due(times, queues, ALL) == self.reference.waiting.due(times, queues, ALL)

    @rule(queue=QUEUES, back=BACK)
    def count_ready(self, queue: str, back: int) -> None:
        assert self.store.waiting.bands(queue, ALL) == self.reference.waiting.bands(queue, ALL)
        job = self.seen[-1 - back % len(self.seen)] if self.seen else None
        # Several stores add up what each of them counts.
        if job is not None and self.one_lease:
            assert self.store.waiting.before(job, ALL) == self.reference.waiting.before(job, ALL)

    def job(self, new: New) -> Job:
        if new.again is not None and self.sent:
            return self.sent[-1 - new.again % len(self.sent)]
        id, due = self.minted(new.task, new.key), self.now + new.delay
        job = Job(id, new.task, new.body, new.queue, new.priority, due, state_since=self.now, key=new.key)
        lane = new.lane if self.one_lease else None
        job = replace(job, key_held_until=0 if new.key is None else HELD, key_ttl=new.unique, lane=lane)
        job = replace(job, headers=with_cost(job.task, job.headers, new.cost) if new.cost > 1 else job.headers)
        self.sent.append(replace(job, state=lifecycle.initial_state(job.due, self.now)))
        return self.sent[-1]

    def back(self, number: int) -> Job:
        return self.seen[-1 - number % len(self.seen)]

    @rule(data=st.data(), step=STEPS, wants=WANTS, owner=OWNERS, lease=LEASES)
    def claim(self, data: st.DataObject, step: int, wants: list[Want], owner: str, lease: int) -> None:
        self.now += step
        limit = data.draw(self.limits)
        jobs = self.reference.claim(wants, limit, owner, lease, self.now)
        assert self.store.claim(wants, limit, owner, lease, self.now) == jobs
        self.saw(*jobs)

    @rule(step=STEPS, owner=OWNERS)
    def claim_all(self, step: int, owner: str) -> None:
        self.now += step
        wants = [Want(queue, band, 1) for queue in ("default", "slow") for band in BANDS]
        jobs = self.reference.claim(wants, ALL, owner, LEASE, self.now)
        assert self.store.claim(wants, ALL, owner, LEASE, self.now) == jobs
        self.saw(*jobs)

    @precondition(lambda self: self.seen)
    @rule(said=st.lists(SAID, min_size=1, max_size=8))
    def apply(self, said: list[Said]) -> None:
        self.made_of_all(self.changes(said))

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), said=st.lists(SAID, max_size=5), wants=WANTS, owner=OWNERS)
    def exchange(self, data: st.DataObject, said: list[Said], wants: list[Want], owner: str) -> None:
        limit, changes = data.draw(self.limits), self.changes(said)
        answer = self.reference.exchange(changes, wants, limit, owner, LEASE, self.now)
        self.is_alike(self.store.exchange(changes, wants, limit, owner, LEASE, self.now), answer)
        self.saw(*self.reference.get([change.id for change in changes]), *answer.jobs)

    def is_alike(self, answer: Exchange, expected: Exchange) -> None:
        """All but this: what the rate of a key holds back may be told to whoever asks, also for other queues; and no
        store must say that limits hold jobs back."""
        limits = self.reference.limits().items()
        if any(name.startswith(EACH) and limit.count for name, (limit, _) in limits) and answer.next_due is not None:
            assert expected.next_due is None or answer.next_due <= expected.next_due
            answer = replace(answer, next_due=expected.next_due)
        assert replace(answer, is_held_back=False) == expected

    @rule(outcome=st.sampled_from(OUTCOMES), rules=st.sampled_from(RULES), most=st.integers(1, 18) | MANY)
    def apply_alike(self, outcome: Outcome, rules: Rules, most: int) -> None:
        """Many jobs that end the same way at once, as a busy worker reports them."""
        self.made_of_all(self.ends([outcome], rules, most))

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=2, max_size=4), rules=st.sampled_from(RULES), most=MANY)
    def apply_many(self, outcomes: list[Outcome], rules: Rules, most: int) -> None:
        """Many that end in some ways, with late ones among them, and each sent twice."""
        changes = self.ends(outcomes, rules, most)
        changes += self.late(outcomes[0], most)
        self.made_of_all(changes)
        self.made_of_all(changes)

    @rule(
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3),
        rules=st.sampled_from(RULES),
        most=MANY,
        owner=OWNERS,
        step=STEPS,
    )
    def exchange_many(self, outcomes: list[Outcome], rules: Rules, most: int, owner: str, step: int) -> None:
        """A busy worker's round trip: all that ended, and whatever there is to run."""
        self.now += step
        changes = self.ends(outcomes, rules, most)
        wants = [Want(queue, band, most) for queue in ("default", "slow") for band in BANDS]
        answer = self.reference.exchange(changes, wants, ALL, owner, LEASE, self.now)
        self.is_alike(self.store.exchange(changes, wants, ALL, owner, LEASE, self.now), answer)
        self.saw(*self.reference.get([change.id for change in changes]), *answer.jobs)

    @rule(outcome=st.sampled_from(OUTCOMES), most=st.integers(1, 4) | MANY)
    def apply_of_another(self, outcome: Outcome, most: int) -> None:
        """What they who do not run the jobs say of them, although the epochs are right, is stale."""
        running = self.reference.find(Query(states=(State.RUNNING,), limit=most))
        others = [replace(job, owner=f"not {job.owner}") for job in running]
        stale = [lifecycle.after(job, outcome, DEFAULT, self.now) for job in others]
        assert self.store.apply(stale, self.now) == [False] * len(stale)

    @rule(outcome=st.sampled_from(OUTCOMES))
    def apply_late(self, outcome: Outcome) -> None:
        """A worker that slept reports all that it once ran."""
        late = self.late(outcome, ALL)
        # The reference, too: they free the places that their attempts had kept.
        assert self.reference.apply(late, self.now) == [False] * len(late)
        assert self.store.apply(late, self.now) == [False] * len(late)

    def late(self, outcome: Outcome, most: int) -> list[Change]:
        ran = {(job.id, job.epoch): job for job in self.seen if job.state is State.RUNNING}
        runs = {(job.id, job.epoch) for job in self.reference.find(Query(states=(State.RUNNING,), limit=ALL))}
        gone = sorted(ran.keys() - runs)[:most]
        return [lifecycle.after(ran[old], outcome, DEFAULT, self.now) for old in gone]

    def ends(self, outcomes: list[Outcome], rules: Rules, most: int) -> list[Change]:
        """Of so many jobs that run, these outcomes in turn."""
        running = self.reference.find(Query(states=(State.RUNNING,), limit=most))
        pairs = zip(running, itertools.cycle(outcomes), strict=False)
        return self.apart([lifecycle.after(job, outcome, rules, self.now) for job, outcome in pairs])

    def made_of_all(self, changes: list[Change]) -> None:
        valid = self.reference.apply(changes, self.now)
        assert self.store.apply(changes, self.now) == valid
        self.saw(*self.reference.get([change.id for change in changes]))

    def changes(self, said: list[Said]) -> list[Change]:
        changes = []
        for back, outcome, correction, decision, rules in said:
            job = self.back(back)
            try:
                if decision is not None:
                    changes.append(decision(job, rules, self.now))
                elif job.state is State.RUNNING:
                    changes.append(with_correction(lifecycle.after(job, outcome, rules, self.now), correction))
            except NotPossible:
                continue
        return self.apart(changes)

    def apart(self, changes: list[Change]) -> list[Change]:
        """No two jobs with one key: in which order the changes of a batch are made is not promised."""
        keys = {job.id: (job.task, job.key) for job in self.seen if job.key is not None}
        first: dict[tuple[str, str | None], bytes] = {}
        return [c for c in changes if c.id not in keys or first.setdefault(keys[c.id], c.id) == c.id]

    @precondition(lambda self: self.seen)
    @rule(owner=OWNERS, backs=st.lists(BACK, max_size=6), lease=LEASES)
    def extend(self, owner: str, backs: list[int], lease: int) -> None:
        held = {(job.id, job.epoch) for job in map(self.back, backs)}
        lost = self.reference.extend(owner, held, lease, self.now)
        assert sorted(self.store.extend(owner, held, lease, self.now)) == sorted(lost)

    @rule(step=STEPS, of=st.none() | st.none() | OWNERS)
    def reclaim(self, step: int, of: str | None) -> None:
        self.now += step
        jobs = self.reference.reclaim(self.now, of)
        if of is not None or self.one_lease:
            assert by_id(self.store.reclaim(self.now, of)) == jobs
        self.saw(*jobs)

    @rule(name=st.sampled_from(["chores", "cron"]), owner=OWNERS, length=st.sampled_from([0, TICK, LEASE]))
    def hold(self, name: str, owner: str, length: int) -> None:
        held = self.reference.hold(name, owner, self.now + length, self.now)
        assert self.store.hold(name, owner, self.now + length, self.now) == held

    @rule(queue=QUEUES, paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        self.reference.pause(queue, paused)
        self.store.pause(queue, paused)

    @rule(data=st.data(), step=STEPS)
    def prune(self, data: st.DataObject, step: int) -> None:
        self.now += step
        size = data.draw(self.sizes)
        assert self.store.prune(self.now, size) == self.reference.prune(self.now, size)

    @rule(limit=st.integers(0, 3))
    def prune_some(self, limit: int) -> None:
        """As many; of shards, not the same ones: so all that is due goes then."""
        assert self.store.prune(self.now, ALL, limit) == self.reference.prune(self.now, ALL, limit)
        if not self.one_lease:
            assert self.store.prune(self.now, ALL) == self.reference.prune(self.now, ALL)

    @precondition(lambda self: self.one_lease)
    @rule(
        name=st.sampled_from(LIMITED),
        limit=st.sampled_from(LIMITS),
    )
    def limit(self, name: str, limit: Limit | None) -> None:
        """Of shards each keeps its own part, so they choose otherwise than one store."""
        self.reference.limit(name, limit)
        self.store.limit(name, limit)

    @precondition(lambda self: self.one_lease)
    @rule(
        task=st.sampled_from(["mail", "mail", "fetch"]),
        lane=st.sampled_from(["", "x", "y"]),
        limit=st.sampled_from(KEY_LIMITS),
    )
    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        """A tenant's own numbers."""
        self.reference.limit_key(task, lane, limit)
        self.store.limit_key(task, lane, limit)

    @precondition(lambda self: self.seen)
    @rule(back=BACK, progress=st.sampled_from([b'[0.5,"half"]', b'[1,""]']), owner=st.none() | OWNERS)
    def mark(self, back: int, progress: bytes, owner: str | None) -> None:
        """By the owner that it had when it was seen, or by any."""
        job = self.back(back)
        answers = [
            store.save_progress(owner or job.owner, [(job.id, job.epoch, progress)])
            for store in (self.reference, self.store)
        ]
        assert answers[0] == answers[1]

    @rule(limit=st.sampled_from([1, 2, 5, 1000]))
    def sum_up(self, limit: int) -> None:
        """The reference is summed up only to be compared."""
        self.store.history.sum_up(self.now, limit)

    @rule()
    def all_is_counted(self) -> None:
        for resolution in LENGTH:
            assert sums(self.store, resolution, self.now) == sums(self.reference, resolution, self.now)

    @rule(
        name=st.sampled_from(["a:x", "a:y", "b"]),
        value=st.sampled_from([None, b"", b"1"]),
        was=st.sampled_from([None, b"", b"1"]),
    )
    def write(self, name: str, value: bytes | None, was: bytes | None) -> None:
        assert self.store.kv_cas(name, value, was) == self.reference.kv_cas(name, value, was)

    @rule(
        states=st.lists(st.sampled_from(State), max_size=3, unique=True),
        queue=st.none() | QUEUES,
        task=st.sampled_from([None, "mail"]),
        key=st.sampled_from([None, "a"]),
        ago=st.none() | st.sampled_from([0, TICK, LEASE]),
        after=st.integers(0, 20),
        limit=st.integers(0, 9),
        until=st.sampled_from([0, 3, 12]),
    )
    def find(
        self,
        states: list[State],
        queue: str | None,
        task: str | None,
        key: str | None,
        ago: int | None,
        after: int,
        limit: int,
        until: int,
    ) -> None:
        before = None if ago is None else self.now - ago
        last = until.to_bytes(16, "big") if until else b""
        query = Query(tuple(states), queue, task, key, before, after.to_bytes(16, "big"), limit, last)
        assert self.store.find(query) == self.reference.find(query)

    @invariant()
    def everything_is_the_same(self) -> None:
        jobs = self.reference.find(Query(limit=ALL))
        assert self.store.find(Query(limit=ALL)) == jobs
        assert self.store.next_due() == self.reference.next_due()

    @invariant()
    def what_people_see_is_the_same(self) -> None:
        ids = [number.to_bytes(16, "big") for number in range(self.made + 2)]
        assert self.store.get(ids) == self.reference.get(ids)
        assert sorted(self.store.owners()) == self.reference.owners()
        assert self.store.queues() == self.reference.queues()
        tallies = sorted(self.store.counts(), key=lambda tally: (tally.queue, tally.task, tally.state))
        assert tallies == self.reference.counts()
        assert self.store.kv_list("a:") == self.reference.kv_list("a:")
        if self.one_lease:
            assert self.store.limits() == self.reference.limits()
            assert self.levels_of_keys(self.store) == self.levels_of_keys(self.reference)
            assert self.store.kv_list(kept_places.PREFIX) == self.reference.kv_list(kept_places.PREFIX)

    def levels_of_keys(self, store: Store) -> list[Level]:
        """A store may forget a level under which nothing runs, once its rate holds nothing back."""
        levels = store.levels([lane_level(task, lane) for task in ("mail", "fetch") for lane in ("", "x", "y", "z")])
        return [level if level.next > self.now else Level(level.running) for level in levels]


def by_id(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.id)


def sums(store: Store, resolution: int, now: int) -> dict[Place, Sums]:
    """All that the store has counted."""
    # Bounded: more records than a history has steps would be records that stay.
    for _ in range(1000):
        if not store.history.sum_up(now):
            cells = store.history.read(resolution, 0, 2**40)
            return {place: decode(cell) for place, cell in cells.items()}
    raise AssertionError("the journal has no end")


@pytest.fixture(autouse=True)
def every_claim_asks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy worker asks some of several stores only now and then."""
    monkeypatch.setattr("tarry.store.shards.exchange.BUSY_AFTER", 10**9)


class SqliteHistories(Histories):
    def opened(self) -> Store:
        return SqliteStore(Path(self.folder.name) / "jobs.db", durable=False)


class MariadbHistories(Histories):
    """Each in an empty database."""

    server: ClassVar[MariadbServer]
    numbers: ClassVar[Iterator[int]] = itertools.count()

    def opened(self) -> Store:
        self.database = f"histories{next(self.numbers)}"
        self.server.call(f"CREATE DATABASE {self.database}")
        self.url = self.server.url.replace("/tarry", f"/{self.database}")
        return open_store(self.url)

    def teardown(self) -> None:
        super().teardown()
        self.server.call(f"DROP DATABASE {self.database}")
        remove_board(self.url)


class ShardHistories(Histories):
    """Who gets only some of the jobs may get others than from one store; leases and bytes are each shard's own."""

    limits = st.sampled_from([0, ALL])
    sizes = st.sampled_from([0, ALL])
    one_lease = False

    def opened(self) -> Store:
        self.shards = ShardedStore([MemoryStore(name=name) for name in "abc"])
        return self.shards

    def fits(self, id: bytes, task: str, key: str | None) -> bool:
        return key is None or self.shards.shard(id) == self.shards.home(task, key)


def histories(count: int) -> settings:
    """So many in `make test`, where they are the same in each run; in `make test-deep` new ones, at least 60."""
    is_deep = settings.get_current_profile_name() == "deep"
    return settings(max_examples=max(count, 60) if is_deep else count, stateful_step_count=40, deadline=None)


TestSqlite = pytest.mark.timeout(400)(SqliteHistories.TestCase)
TestShards = pytest.mark.timeout(400)(ShardHistories.TestCase)
"""Found at once or never; the time is for Hypothesis to make a failure small."""
TestSqlite.settings = TestShards.settings = histories(30)


@pytest.fixture(scope="module")
def mariadb_for_histories(mariadb_server: MariadbServer) -> None:
    MariadbHistories.server = mariadb_server


TestMariadb = pytest.mark.usefixtures("mariadb_for_histories")(pytest.mark.timeout(600)(MariadbHistories.TestCase))
TestMariadb.settings = histories(15)
