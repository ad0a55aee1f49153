"""The store's clock is set, or the machine sleeps: nobody who lives loses a job, and who died still does."""

import time
from collections.abc import Callable, Iterator

import pytest

from tarry.client import clock as clocks
from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.keeper.chores import Keeper
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids, owner
from tarry.store.rules.base import Want
from tarry.worker import capacity, claim_plan, held_leases
from tarry.worker import pump as pumping
from tarry.worker.pump import Pump
from tests.worker.manual_pump import TASKS, ManualRunner, Monotonic

ELSEWHERE = "elsewhere|0.0:1:1:1"
STEPS = [MINUTE, -MINUTE, HOUR, -HOUR]
LEASE = 15.0


class World(Monotonic):
    """The module `time` of a machine, and a store with a clock of its own. Seconds; microseconds where it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.suspended = 0.0
        self.set_by = 0
        """Microseconds by which the store's clock was set forward."""
        self.own_clock = False
        """The store's clock is this machine's."""

    def clock_gettime_ns(self, which: int) -> int:
        asleep = 0.0 if which == time.CLOCK_MONOTONIC else self.suspended
        return round((self.now + asleep) * 1e9)

    def time_ns(self) -> int:
        return self._passed() * 1000 + 10**18 + (1000 * self.set_by if self.own_clock else 0)

    def store_time(self) -> int:
        return self._passed() + 10**15 + self.set_by

    def _passed(self) -> int:
        return round((self.now + self.suspended) * 1e6)


class Play:
    """One worker with one job, and one keeper, each with a clock that it measures at its own moments."""

    def __init__(self, world: World, name: str, apart: float) -> None:
        self.world = world
        self.store = MemoryStore(world.store_time)
        self.works = True
        now = world.store_time()
        self.job = Job(ids.uuid7(), "sync", b"[]", due=now, state_since=now)
        self.store.insert([self.job])
        self.keeper = Keeper(self.store, clock=Clock(world.store_time, CHECKED_EVERY))
        self.keeper.rescue_overdue()
        world.now += apart
        self.pump = Pump(self.store, TASKS, owner=name, clock=Clock(world.store_time, CHECKED_EVERY))
        self.slots = ManualRunner(1, self.pump.outcomes, world)
        self.pump.attach(self.slots, ManualRunner(0, self.pump.outcomes, world))
        self.run(20)
        assert self.state() == (State.RUNNING, 1, 0)

    def run(self, seconds: float) -> None:
        """The keeper first in each half second, so that a worker who is late is seen to be."""
        for _ in range(int(2 * seconds)):
            self.world.now += 0.5
            self.keeper.rescue_overdue()
            if self.works:
                self.pump.step()

    def state(self) -> tuple[State, int, int]:
        (found,) = self.store.get([self.job.id])
        assert found is not None
        return found.state, found.epoch, found.crashes

    def undisturbed(self) -> bool:
        return self.state() == (State.RUNNING, 1, 0) and not self.slots.interrupted


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    for module in (clocks, pumping, capacity, claim_plan, held_leases):
        monkeypatch.setattr(module, "time", world)
    return world


Begin = Callable[[str, float], Play]


@pytest.fixture
def begin(world: World) -> Iterator[Begin]:
    plays: list[Play] = []

    def begin(name: str, apart: float) -> Play:
        plays.append(Play(world, name, apart))
        return plays[-1]

    yield begin
    for play in plays:
        play.pump.wakeup.close()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("apart", "wait"), [(0.1, 0), (1.3, 0), (3.7, 2), (4.9, 4), (12.0, 12), (23.0, 25)])
@pytest.mark.parametrize("own_clock", [True, False])
def test_a_step_takes_no_job_from_a_worker_of_another_host(
    world: World, begin: Begin, step: int, apart: float, wait: int, own_clock: bool
) -> None:
    world.own_clock = own_clock
    play = begin(ELSEWHERE, apart)
    play.run(wait)
    world.set_by += step
    play.run(120)
    assert play.undisturbed()


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_dies_after_a_step_loses_its_jobs_uncounted(world: World, begin: Begin, step: int) -> None:
    play = begin(ELSEWHERE, 2.0)
    world.set_by += step
    play.run(30)
    play.works = False
    # What it held before the step it holds until that moment by the store's clock.
    play.run(max(0, -step / SECOND) + LEASE + 10)
    assert play.state() == (State.READY, 1, 0)


def test_a_worker_that_comes_after_a_step_back_keeps_its_jobs_from_a_keeper_that_has_not_noticed(
    world: World, begin: Begin
) -> None:
    play = begin(ELSEWHERE, 2.0)
    world.set_by -= HOUR
    now = world.store_time()
    job = Job(ids.uuid7(), "sync", b"[]", due=now, state_since=now)
    play.store.insert([job])
    (taken,) = play.store.claim([Want("default", 0, 1)], 1, "elsewhere|0.0:2:2:2", round(LEASE * SECOND), now)
    for _ in range(12):
        play.keeper.rescue_overdue()
        world.now += 0.5
    assert play.store.get([job.id]) == [taken]


def test_a_keeper_that_was_not_there_before_the_step_spares_a_process_that_lives(world: World, begin: Begin) -> None:
    play = begin(owner.new_name(), 2.0)
    world.set_by += HOUR
    play.keeper = Keeper(play.store, clock=Clock(world.store_time, CHECKED_EVERY))
    play.run(120)
    assert play.undisturbed()


def test_a_process_of_this_host_that_does_not_prolong_keeps_its_jobs_for_ten_minutes(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    play = begin(owner.new_name(), 2.0)
    play.works = False
    play.run(LEASE + 590)
    assert play.state() == (State.RUNNING, 1, 0)
    assert caplog.text.count("lives and did not prolong its lease") == 1
    play.run(40)
    assert play.state() == (State.READY, 1, 0)


@pytest.mark.parametrize("late", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("stopped", [True, False])
def test_when_all_slept_whoever_wakes_late_keeps_its_jobs(
    world: World, begin: Begin, stopped: bool, late: float
) -> None:
    """By SIGSTOP and SIGCONT to all, or with the machine: then the monotonic clock stood still."""
    play = begin(ELSEWHERE, 2.0)
    if stopped:
        world.now += 3600
    else:
        world.suspended += 3600
    play.works = False
    play.run(late)
    play.works = True
    play.run(60)
    assert play.undisturbed()


def test_a_machine_on_which_every_look_comes_late_still_brings_jobs_back(world: World, begin: Begin) -> None:
    play = begin(ELSEWHERE, 2.0)
    for _ in range(6):
        world.now += 7
        play.keeper.rescue_overdue()
    assert play.state() == (State.READY, 1, 0)


def test_a_step_is_told_once(world: World, begin: Begin, caplog: pytest.LogCaptureFixture) -> None:
    play = begin(ELSEWHERE, 2.0)
    world.set_by += HOUR
    play.run(60)
    assert caplog.text.count("the store's clock was set forward by 3600.0 s; for 10 s no lease counts as over") == 1
    world.set_by -= MINUTE
    play.run(60)
    assert caplog.text.count("the store's clock was set back by 60.0 s") == 1
