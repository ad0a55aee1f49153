"""One history, in which each call fails once, before it is done or after: nothing is lost, nothing counts twice.

The worker here is the smallest honest one: it sends a failed call again, and after a failure it gives back what it was
given without hearing of it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from tarry.errors import StoreUnavailable
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import (
    Cancelled,
    Expired,
    Lost,
    Outcome,
    Raised,
    Released,
    Returned,
    Snoozed,
    TimedOut,
    Unknown,
    outcome_note,
)
from tarry.model.retry import Retry
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import BANDS, Exchange, Query, Store, Want
from tarry.store.rules.ids import uuid7
from tarry.store.sqlite.store import SqliteStore

Answer = TypeVar("Answer")

NOW = 1_800_000_000 * SECOND
TURN, LEASE = 10 * SECOND, 15 * SECOND
WANTS = [Want("default", band, 3) for band in BANDS]
SLOTS = 8
TRIES = 3
MOST_TURNS = 60

DONE, OK = Returned(b'"done"'), (State.DONE, b'"done"')
ERROR = outcome_note("ValueError", "no")
RAISED = Raised(ERROR, ("ValueError",))
RULES = Rules(retry=Retry(2, base=15))
DIES, SLOW = "the worker dies while the job is on", "the job takes one turn more"

Step = Outcome | str
SCRIPTS: list[tuple[list[Step], tuple[State, bytes], int]] = [
    ([DONE], OK, 0),
    ([RAISED, DONE], OK, 1),
    ([RAISED, RAISED, RAISED], (State.DEAD, ERROR), 3),
    ([Raised(ERROR, final=True)], (State.DEAD, ERROR), 1),
    ([TimedOut(ERROR), DONE], OK, 1),
    ([Released(), Snoozed(25 * SECOND), DONE], OK, 0),
    ([Unknown(), Lost(), DONE], OK, 0),
    ([Cancelled("gone")], (State.CANCELLED, outcome_note("Cancelled", "gone")), 0),
    ([Expired()], (State.CANCELLED, outcome_note("Expired", "it could not start in time")), 0),
    ([DIES, SLOW, SLOW, SLOW, DONE], OK, 1),
]
"""What happens in each attempt; how the job must end, and after how many failures."""


class Counting(FlakyStore):
    """Never fails; knows how often each job was finished, whoever heard of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 0, after=False)
        self.finishes = Counter[bytes]()

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        valid: list[bool] = super().apply(changes, now)
        self._count(changes, valid)
        return valid

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        answer: Exchange = super().exchange(changes, wants, limit, owner, lease, now)
        self._count(changes, answer.valid)
        return answer

    def _count(self, changes: Sequence[Change], valid: Sequence[bool]) -> None:
        made = [change for change, good in zip(changes, valid, strict=True) if good]
        self.finishes.update(change.id for change in made if change.to is None or change.to.finished)


class Worker:
    """Runs jobs by their scripts, one step a turn."""

    def __init__(self, store: Store) -> None:
        self.store, self.now, self.lives = store, NOW, 1
        self.left: dict[bytes, list[Step]] = {}
        self.held: dict[bytes, Job] = {}
        self.died_on: set[tuple[bytes, int]] = set()
        self.unsure = False

    @property
    def name(self) -> str:
        return f"worker {self.lives}"

    def insist(self, call: Callable[[], Answer]) -> Answer:
        for _ in range(TRIES):
            try:
                return call()
            except StoreUnavailable:
                self.unsure = True
        raise AssertionError(f"failed {TRIES} times, and was made to fail once")

    def put(self, jobs: Sequence[Job], lives_as: Sequence[bytes]) -> None:
        assert self.insist(lambda: self.store.insert(jobs)) == lives_as

    def turn(self) -> None:
        self.now += TURN
        assert self.insist(lambda: self.store.hold("chores", "host", self.now + LEASE, self.now))
        self.die_if_scripted()
        held = [(job.id, job.epoch) for job in self.held.values()]
        assert self.insist(lambda: self.store.extend(self.name, held, LEASE, self.now)) == []
        changes = [*self.rescued(), *self.strays(), *self.settled()]
        room = SLOTS - len(self.held)
        for job in self.swapped(changes, room):
            self.held[job.id] = job

    def die_if_scripted(self) -> None:
        if fatal := [job for job in self.held.values() if self.left[job.id][0] is DIES]:
            for job in fatal:
                self.left[job.id].pop(0)
                self.died_on.add((job.id, job.epoch))
            self.lives += 1
            self.held.clear()

    def rescued(self) -> list[Change]:
        lost = self.insist(lambda: self.store.reclaim(self.now))
        return [lifecycle.after(job, Lost((job.id, job.epoch) in self.died_on), RULES, self.now) for job in lost]

    def strays(self) -> list[Change]:
        """Claimed by a call whose reply was lost: ours for the store, and unknown to us."""
        if not self.unsure:
            return []
        self.unsure = False
        mine = self.insist(lambda: self.store.reclaim(self.now, of=self.name))
        unknown = [job for job in mine if job.id not in self.held]
        return [lifecycle.after(job, Released(), RULES, self.now) for job in unknown]

    def settled(self) -> list[Change]:
        changes = []
        for job in list(self.held.values()):
            step = self.left[job.id].pop(0)
            if not isinstance(step, str):
                changes.append(lifecycle.after(job, step, RULES, self.now))
                del self.held[job.id]
        return changes

    def swapped(self, changes: list[Change], room: int) -> list[Job]:
        """In turn by one call and by two."""
        if self.now // TURN % 2:
            return self.insist(lambda: self.store.exchange(changes, WANTS, room, self.name, LEASE, self.now)).jobs
        self.insist(lambda: self.store.apply(changes, self.now))
        return self.insist(lambda: self.store.claim(WANTS, room, self.name, LEASE, self.now))


def history(store: Store) -> Worker:
    """Twenty jobs, some with a delay or a key, put in two batches and run to their ends."""
    worker = Worker(store)
    jobs = [scripted(number) for number in range(20)]
    for number, job in enumerate(jobs):
        worker.left[job.id] = list(SCRIPTS[number % len(SCRIPTS)][0])
    ids = [job.id for job in jobs]
    worker.put(jobs[:10], ids[:10])
    worker.turn()
    twin = replace(jobs[9], id=uuid7())
    worker.put([*jobs[10:], twin], [*ids[10:], ids[9]])
    for _ in range(MOST_TURNS):
        if not any(worker.left.values()) and not worker.held:
            break
        worker.turn()
    return worker


def scripted(number: int) -> Job:
    delay, key = (number % 4) * 5 * SECOND, f"key {number}" if number % 3 == 0 else None
    job = Job(
        uuid7(),
        "mail",
        b"%d" % number,
        priority=number % 3 - 1,
        due=NOW + delay,
        key=key,
        state_since=NOW,
        key_held_until=HELD * (key is not None),
    )
    return replace(job, state=lifecycle.initial_state(job.due, NOW))


def check(store: Counting, worker: Worker) -> None:
    jobs = store.find(Query(limit=1000))
    assert [job.body for job in jobs] == [b"%d" % number for number in range(20)]
    for number, job in enumerate(jobs):
        _, end, failures = SCRIPTS[number % len(SCRIPTS)]
        assert ((job.state, job.note), job.failures) == (end, failures), job
        assert store.finishes[job.id] == 1
    assert (worker.held, store.owners(), store.next_due()) == ({}, [], None)


def failing_everywhere(opened: Callable[[int], Store], after: bool) -> int:
    for fail_at in count(1):
        with closing(opened(fail_at)) as inner:
            store = Counting(inner)
            flaky = FlakyStore(store, fail_at, after)
            worker = history(flaky)
            check(store, worker)
        if flaky.calls < fail_at:
            return fail_at
    raise AssertionError("a history has an end")


@pytest.mark.parametrize("after", [False, True])
def test_memory_at_every_call(after: bool) -> None:
    assert failing_everywhere(lambda _: MemoryStore(), after) > 50


@pytest.mark.parametrize("after", [False, True])
def test_sqlite_at_every_call(tmp_path: Path, after: bool) -> None:
    assert failing_everywhere(lambda n: SqliteStore(tmp_path / f"{n}.db", durable=False), after) > 50


def test_fails_once_and_before() -> None:
    store = FlakyStore(MemoryStore(), 2, after=False)
    first, second = scripted(0), scripted(1)
    store.insert([first])
    with pytest.raises(StoreUnavailable, match="call 2"):
        store.insert([second])
    assert store.get([second.id]) == [None]
    assert store.insert([second]) == [second.id]
    assert store.calls == 4


def test_fails_once_and_after() -> None:
    store = FlakyStore(MemoryStore(), 1, after=True)
    job = scripted(0)
    with pytest.raises(StoreUnavailable, match="reply to call 1"):
        store.insert([job])
    assert store.get([job.id]) == [job]


def test_every_verb_can_fail() -> None:
    calls: list[Callable[[Store], object]] = [
        lambda store: store.insert([]),
        lambda store: store.claim(WANTS, 1, "ann", LEASE, NOW),
        lambda store: store.apply([], NOW),
        lambda store: store.exchange([], WANTS, 1, "ann", LEASE, NOW),
        lambda store: store.next_due(),
        lambda store: store.extend("ann", [], LEASE, NOW),
        lambda store: store.reclaim(NOW),
        lambda store: store.owners(),
        lambda store: store.hold("chores", "ann", NOW, NOW),
        lambda store: store.get([]),
        lambda store: store.find(Query()),
        lambda store: store.counts(),
        lambda store: store.expiring(0, NOW, 10),
        lambda store: store.prune(NOW, 0),
        lambda store: store.pause("default", True),
        lambda store: store.queues(),
        lambda store: store.backlog(None, NOW, 10),
        lambda store: store.time(),
        lambda store: store.diagnostics(),
    ]
    for call in calls:
        store = FlakyStore(MemoryStore(), 1, after=False)
        with pytest.raises(StoreUnavailable):
            call(store)
        call(store)
        assert store.calls == 2


def test_wakeups_and_ids_pass_through() -> None:
    store = FlakyStore(MemoryStore(), 1, after=False)
    with closing(store.wakeup()) as sleeper:
        sleeper.listen("full")
        store.wake_for_recall()
        assert sleeper.wait(10)
    assert len(store.new_id("mail", None)) == 16
    assert store.calls == 0
