"""Shares of a limit are moved to where jobs wait, and never is the limit exceeded: whoever dies, stands still or is
away."""

import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from tarry.errors import StoreAway, StoreError, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import UNLIMITED, Limit
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import BANDS, Store, Want
from tarry.store.rules.ids import uuid7
from tarry.store.shards import share_mover
from tarry.store.shards.answers import ask_shards
from tarry.store.shards.limit_setting import set_shares
from tarry.store.shards.shard import Shard
from tarry.store.shards.share_mover import CLOCKS_DIFFER, HELD_FOR, ShareMover
from tarry.store.shards.shares import LASTS

T = TypeVar("T")
NOW = 1_800_000_000 * SECOND
LEASE = 15 * SECOND
WANTS = [Want("default", band, 1000) for band in BANDS]
NAMES = ["task:mail", "queue:default"]


class Killed(BaseException):
    """The process that moves shares has died."""


class SwitchedShard(Shard):
    """One that may be away, and before and after each call of which anything may happen."""

    def __init__(self, name: str) -> None:
        store = MemoryStore(name=name)
        super().__init__(store.url, lambda: store)
        self.part, self.is_down = store, False
        self.around: Callable[[], None] = lambda: None

    def ask(self, call: Callable[[Store], T]) -> T:
        self.around()
        if self.is_down:
            raise StoreAway(self.url)
        answer = call(self.part)
        self.around()
        if self.is_down:
            raise StoreUnavailable(self.url)
        return answer


class System:
    """Some stores, and what runs. limit: of `NAMES`."""

    def __init__(self, among: int, name: str, limit: Limit) -> None:
        self.shards = [SwitchedShard(str(number)) for number in range(among)]
        self.name, self.limit, self.now = name, limit, NOW
        self.running: dict[int, list[Job]] = {number: [] for number in range(among)}
        self.lasts: dict[int, int] = {}
        """Until when attempts of a store that is down may run."""
        self.lost: dict[int, list[Job]] = {number: [] for number in range(among)}
        """Run no more, but their store does not know it yet."""
        self.allowed = [UNLIMITED if limit.most is None else limit.most]
        """How many may run of what began since it was set for the first time, the second time and so on."""
        self.ages: dict[bytes, int] = {}
        """How often it had been set anew when a job began."""
        self.clocks = [0]
        """By how much the clocks of those who claim are ahead."""
        self.mover = self.new_mover()
        set_shares(self.shards, name, limit, NOW).result(None)

    def new_mover(self) -> ShareMover:
        return ShareMover(self.shards, lambda *_: True)

    def put(self, number: int, count: int) -> None:
        jobs = [Job(uuid7(), "mail", b"", due=NOW, state_since=NOW, lane="") for _ in range(count)]
        self.shards[number].part.insert(jobs)

    def claim(self, number: int, count: int = 1000) -> int:
        if self.shards[number].is_down:
            return 0
        # Each has another clock from time to time.
        ahead = self.clocks[(number + self.now // SECOND) % len(self.clocks)]
        started = self.shards[number].part.claim(WANTS, count, "ann", LEASE, self.now + ahead)
        self.running[number] += started
        self.ages |= {job.id: len(self.allowed) - 1 for job in started}
        self.check()
        return len(started)

    def end(self, number: int, count: int) -> None:
        ended, self.running[number] = self.running[number][:count], self.running[number][count:]
        changes = [lifecycle.after(job, Returned(), DEFAULT, self.now) for job in ended]
        assert all(self.shards[number].part.apply(changes, self.now))

    def move(self, seconds: float = 1) -> None:
        self.now += round(seconds * SECOND)
        self.mover.run("ann", self.now, LEASE)

    def switch(self, number: int, *, down: bool) -> None:
        shard = self.shards[number]
        if down and not shard.is_down:
            self.lasts[number] = self.now + LEASE
        elif not down and shard.is_down and self.lasts[number] <= self.now:
            # What ran has lost its lease.
            self.lost[number] += self.running[number]
            self.running[number] = []
        shard.is_down = down

    def rescue(self, number: int) -> None:
        """What has lost its lease is put back."""
        jobs, self.lost[number] = self.lost[number], []
        changes = [lifecycle.after(job, Returned(), DEFAULT, self.now) for job in jobs]
        assert all(self.shards[number].part.apply(changes, self.now))

    def check(self) -> None:
        """No more run than the limit says, or than one said that was set since the first of them began."""
        alive = [
            self.ages[job.id]
            for number, jobs in self.running.items()
            if not self.shards[number].is_down or self.now < self.lasts[number]
            for job in jobs
        ]
        for count, age in enumerate(sorted(alive, reverse=True), 1):
            assert count <= max(self.allowed[age:]), (alive, self.allowed)

    def share(self, number: int) -> int:
        return self.shards[number].part.limits()[self.name][0].most or 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("among", [2, 4, 8])
def test_one_store_gets_nearly_all_of_it(name: str, among: int) -> None:
    """Within a second, while the others have nothing to do; and equal parts once they do."""
    system = System(among, name, Limit(100))
    system.put(0, 1000)
    assert system.claim(0) == 100 // among + (100 % among > 0)
    system.move()
    system.claim(0)
    assert len(system.running[0]) >= 80
    for number in range(among):
        system.put(number, 1000)
        system.claim(number)
    for _ in range(4):
        system.move()
        system.end(0, len(system.running[0]))
        for number in range(among):
            system.claim(number)
    assert sum(map(len, system.running.values())) >= 90
    assert min(map(len, system.running.values())) >= 100 // among - 1


@pytest.mark.parametrize("name", NAMES)
def test_a_single_place_goes_where_a_job_waits(name: str) -> None:
    system = System(4, name, Limit(1))
    for number in range(4):
        system.put(number, 3)
    done = 0
    for _ in range(300):
        system.move()
        for number in range(4):
            done += system.claim(number)
            system.end(number, 1)
    assert done == 12


@pytest.mark.parametrize("name", NAMES)
def test_what_nobody_waits_for_is_left_alone(name: str) -> None:
    """Shares are prolonged, and nothing else is written."""
    system = System(3, name, Limit(10))
    system.put(0, 2)
    system.claim(0)
    before = [system.share(number) for number in range(3)]
    for _ in range(60):
        system.move()
    assert [system.share(number) for number in range(3)] == before
    system.put(1, 9)
    assert system.claim(1) == before[1], "it has not ended"


@pytest.mark.parametrize("limits", [3, 600])
def test_as_many_limits_as_there_are_take_as_many_calls(limits: int) -> None:
    """Of each store: its limits, its queues, the tasks of each queue, and what is written and read again."""
    system = System(2, "task:mail", Limit(10))
    for number in range(limits):
        set_shares(system.shards, f"task:t{number}", Limit(10), NOW)
    for number in range(2):
        system.put(number, 20)
    system.move()
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    for shard in system.shards:
        shard.around = count
    system.move()
    assert calls / 2 <= 2 * 4


def test_tasks_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_mover, "TASKS_AT_ONCE", 2)
    system = System(2, "task:mail", Limit(10))
    system.put(0, 20)
    system.claim(0)
    # Before it by name.
    others = [Job(uuid7(), task, b"", due=NOW, state_since=NOW, lane="") for task in "abcdefg"]
    system.shards[0].part.insert(others)
    system.move()
    assert system.share(0) >= 9


def test_nothing_starts_once_nobody_moves_shares_any_more() -> None:
    system = System(2, "task:mail", Limit(10))
    system.put(0, 100)
    system.move()
    system.now += LASTS
    assert system.claim(0) == 0
    system.move()
    assert system.claim(0) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_share_of_a_store_that_is_away_goes_to_the_others(name: str) -> None:
    """Once nothing that ran there runs any more; and when it is back it begins with nothing."""
    system = System(2, name, Limit(10))
    for number in range(2):
        system.put(number, 100)
        system.claim(number)
    system.move()
    system.switch(1, down=True)
    waited = 0
    while system.share(0) < 9:
        system.move()
        system.claim(0)
        waited += 1
    assert waited * SECOND <= LASTS + CLOCKS_DIFFER + LEASE + 2 * SECOND
    system.claim(0)
    system.switch(1, down=False)
    assert system.claim(1) == 0
    # Before its keeper notes that nothing of it runs any more.
    system.move()
    system.rescue(1)
    system.claim(1)
    for _ in range(5):
        system.move()
        assert system.claim(0) + system.claim(1) <= 10
        system.end(0, 10)
        system.end(1, 10)
    system.move()
    assert system.claim(0) >= 4
    assert system.claim(1) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_a_store_that_was_away_all_the_time_keeps_what_it_may_have(name: str) -> None:
    """Also from one who never saw it: a keeper that has just started."""
    system = System(3, name, Limit(9))
    for number in range(3):
        system.put(number, 100)
        system.claim(number)
    system.move()
    system.switch(2, down=True)
    system.mover = system.new_mover()
    system.end(0, 3)
    for _ in range(5):
        system.move()
        system.claim(0)
        system.claim(1)
    assert system.share(0) + system.share(1) == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(10))
def test_no_period_has_more_starts_than_a_rate_says(name: str, seed: int) -> None:
    """While its shares go from store to store, as jobs come here and there."""
    draw, count, period = random.Random(seed), 40, 5 * SECOND
    system = System(2, name, Limit(None, count, period))
    starts: list[int] = []
    counts = set[int]()
    number = 0
    for _ in range(600):
        number = draw.choices([number, 1 - number], [99, 1])[0]
        # So that nothing waits in the other one.
        for each in range(2):
            system.shards[each].part.pause("default", each != number)
        system.put(number, 10)
        starts += [system.now] * system.claim(number)
        system.end(number, 1000)
        system.move(draw.uniform(0.05, 0.3))
        counts.add(system.shards[0].part.limits()[name][0].count)
    assert min(counts) < count / 4
    assert max(counts) > 3 * count / 4
    assert len(starts) > count
    for at, first in enumerate(starts):
        assert sum(start < first + period for start in starts[at : at + count + 1]) <= count


class Trouble:
    """Two processes move shares, one of which stands still now and then while the other goes on; others set the limit
    anew. Each may die between any two calls, and stores go and come back. Clocks differ."""

    def __init__(self, seed: int, among: int) -> None:
        self.draw = random.Random(seed)
        self.among = among
        self.limit = self.new_limit()
        self.system = System(among, self.draw.choice(NAMES), self.limit)
        self.system.clocks = [round(self.draw.uniform(0, CLOCKS_DIFFER)) for _ in range(3)]
        self.setting, self.is_alone, self.is_set = 0, True, True
        self.holder, self.held_until = "", 0
        self.movers = [self.new_mover(), self.new_mover()]
        self.running: list[int] = []
        self.is_calm = False
        for shard in self.system.shards:
            shard.around = self.happen

    def new_limit(self) -> Limit:
        return Limit(self.draw.choice([1, 3, 10, 50]))

    def set(self, limit: Limit | None) -> None:
        """Until it is set, what was set before may hold, too. None: lifts it."""
        allowed = self.system.allowed
        allowed[-1] = max(allowed[-1], UNLIMITED if limit is None else limit.most or 0)
        self.limit, self.is_set, self.is_alone = limit or self.limit, False, not self.setting
        self.setting += 1
        try:
            if limit is None:
                ask_shards(self.system.shards, range(self.among), lambda _, store: store.limit(self.system.name, None))
            else:
                set_shares(self.system.shards, self.system.name, limit, self.system.now).result(None)
                # Of two at the same moment either one may win.
                self.is_set = self.is_alone
        except (StoreError, Killed):
            pass
        self.setting -= 1
        if self.is_set:
            allowed.append(self.limit.most or 0)

    def new_mover(self) -> ShareMover:
        return ShareMover(self.system.shards, self.hold)

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        if self.holder not in ("", owner) and self.held_until > now:
            return False
        self.holder, self.held_until = owner, until
        return True

    def happen(self) -> None:
        """What may come between two calls."""
        if self.is_calm:
            return
        what, number = self.draw.random(), self.draw.randrange(self.among)
        if what < 0.02 and (self.running or self.setting):
            raise Killed
        if what < 0.05 and len(self.running) == 1:
            # The one that runs stands still until another one may take over.
            self.system.now += HELD_FOR + self.draw.choice([0, SECOND, 40 * SECOND])
            self.run(1 - self.running[0])
        elif what < 0.08 and self.setting:
            self.system.now += self.draw.choice([0, SECOND, 5 * SECOND])
            self.run(self.draw.randrange(2))
        elif what < 0.09 and self.setting < 2:
            self.set(self.draw.choice([None, self.limit, self.new_limit(), self.new_limit()]))
        elif what < 0.15:
            self.system.claim(number, self.draw.choice([1, 100]))
        elif what < 0.152:
            self.system.switch(number, down=not self.system.shards[number].is_down)

    def run(self, number: int) -> None:
        if number in self.running:
            return
        self.running.append(number)
        try:
            self.movers[number].run(str(number), self.system.now + self.system.clocks[number], LEASE)
        except Killed:
            self.movers[number] = self.new_mover()
        self.running.pop()

    def step(self) -> None:
        self.system.now += self.draw.choice([SECOND // 10, SECOND, SECOND, HELD_FOR])
        number = self.draw.randrange(self.among)
        if not self.system.shards[number].is_down:
            self.system.put(number, self.draw.choice([0, 1, 20]))
            self.system.end(number, self.draw.choice([0, 1, 3, 100]))
            if self.draw.random() < 0.3:
                self.system.rescue(number)
        self.run(self.draw.randrange(2))
        self.system.claim(self.draw.randrange(self.among))
        if self.draw.random() < 0.05:
            self.system.switch(number, down=not self.system.shards[number].is_down)
        if self.draw.random() < 0.1:
            # The store does not know that they run no more.
            self.system.lost[number] += self.system.running[number]
            self.system.running[number] = []
        if self.draw.random() < (0.05 if self.is_set else 0.2):
            self.set(self.new_limit() if self.is_set else self.limit)
        if self.draw.random() < 0.02:
            self.outlast(number)
        self.system.check()

    def outlast(self, number: int) -> None:
        """A store is away until the others have its share, and they use it."""
        for other in range(self.among):
            self.system.put(other, 60)
            self.system.claim(other)
        self.system.switch(number, down=True)
        self.is_calm = True
        for _ in range(30):
            self.system.now += SECOND
            self.run(0)
            for other in range(self.among):
                self.system.claim(other)
        self.is_calm = False
        self.system.switch(number, down=False)

    def recover(self) -> int:
        """All is well for a while; how many begin at the end of it."""
        self.is_calm, system = True, self.system
        for number in range(self.among):
            system.switch(number, down=False)
        if not self.is_set:
            self.set(self.limit)
        begun = 0
        for second in range(45):
            system.now += SECOND
            for number in range(self.among):
                system.rescue(number)
                # At first all that began while there was no limit.
                system.end(number, 5 if second else 9999)
                system.put(number, 60 if second % 9 == 0 else 0)
                started = system.claim(number)
                begun += started if second > 30 else 0
            self.run(0)
            self.run(1)
        return begun


@pytest.mark.parametrize("among", [2, 4])
@pytest.mark.parametrize("seed", range(30))
def test_never_above_the_limit(among: int, seed: int) -> None:
    trouble = Trouble(seed, among)
    for _ in range(120):
        trouble.step()
    begun = trouble.recover()
    shares = [shard.part.limits()[trouble.system.name][0] for shard in trouble.system.shards]
    assert {share.whole for share in shares} == {trouble.limit}
    most = trouble.limit.most or 0
    # One may just be on its way.
    assert sum(share.most or 0 for share in shares) >= most - 1
    assert sum(map(len, trouble.system.running.values())) >= 0.8 * most - 1
    assert begun
