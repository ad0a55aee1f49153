from collections.abc import Sequence
from typing import Any

import pytest

from tarry import App, Cron
from tarry.client.bounds import declare_bounds
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.errors import StoreFull, StoreUnavailable
from tarry.keeper.cron import ScheduleTicker
from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.tasks.arguments.options import Options
from tests.keeper.ticking import NOON, TickingHost, shop


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON + 30 * SECOND)


class StaleCells(MemoryStore):
    """Returns old states of schedules, as to a host that was delayed in the middle."""

    stale: dict[str, bytes] | None = None

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        return super().kv_list(prefix) if self.stale is None else self.stale


WAY_OUT = "store the data elsewhere and pass its id, or raise max_body"


def test_a_host_that_was_held_up_in_the_middle_does_not_run_it_again(clock: FakeClock) -> None:
    store = StaleCells(clock.now)
    quick, slow = (TickingHost(store, clock, shop(cron="@daily")) for _ in range(2))
    quick.tick()
    slow.tick()
    before = store.kv_list("cron:")
    clock.advance(12 * 3600)
    quick.tick()
    assert quick.work() == 1
    clock.advance(59 * 60)
    quick.prune()
    store.stale = before
    assert slow.tick() == 0.0, "it was not the first, so it looks again"
    store.stale = None
    assert slow.tick() == 1800.0
    (job,) = slow.jobs()
    assert job.state is State.DONE


def test_two_hosts_that_see_a_schedule_first_at_the_same_moment(clock: FakeClock) -> None:
    store = StaleCells(clock.now)
    one, other = (TickingHost(store, clock, shop(cron="* * * * *")) for _ in range(2))
    one.tick()
    store.stale = {}
    assert other.tick() == 0.0, "it looks again"
    store.stale = None
    assert other.tick() == 30.0


class Full(MemoryStore):
    """It takes no jobs while it is told so."""

    full = False

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if self.full:
            raise StoreFull("no room")
        return super().insert(jobs)


def test_a_tick_that_cannot_be_stored_is_not_lost(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    store = Full(clock.now)
    one = TickingHost(store, clock, shop(cron="@hourly", missed="skip"))
    one.tick()
    clock.advance(3570)
    store.full = True
    assert 0 < one.tick() < 1
    store.full = False
    clock.advance(5)
    one.tick()
    assert one.dues() == [3600]
    assert [record.getMessage() for record in caplog.records] == ["schedules: no room"]


def test_a_full_queue_keeps_no_other_schedule_waiting(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(clock.now)
    app = App("memory://", closures=True)
    app.task(name="full", queue="mail", cron="@hourly")(_nothing)
    app.task(name="other", cron="@hourly")(_nothing)
    one = TickingHost(store, clock, app)
    one.tick()
    declare_bounds(store, {"mail": Bound(1)})
    filler = one.client.insert_jobs([one.client.make_job("full", b"[]", Options(queue="mail"))])[0]
    clock.advance(3600)
    one.tick()
    assert [job.task for job in one.jobs()] == ["full", "other"]
    assert "schedule full: queue mail is full" in caplog.text
    assert filler.cancel()
    clock.advance(60)
    one.tick()
    assert [(job.task, job.due) for job in one.jobs() if not job.state.finished] == [
        ("full", NOON + 3600 * SECOND), ("other", NOON + 3600 * SECOND),
    ]  # fmt: skip


def test_a_tick_beside_one_that_a_full_queue_refuses_is_over(clock: FakeClock) -> None:
    """The key of its job is kept for an hour, and the queue may be full for longer."""
    store = MemoryStore(clock.now)
    one = TickingHost(store, clock, shop(queue="mail", cron="*/30 * * * *", missed="all"))
    one.tick()
    declare_bounds(store, {"mail": Bound(1)})
    clock.advance(3900)
    for number in (1, 2, 3):
        one.tick()
        assert one.dues() == [1800 * n for n in range(1, number + 1)]
        assert one.state().last == NOON + 1800 * number * SECOND
        ended = lifecycle.cancel(one.jobs()[-1], lifecycle.Rules(keep_done=HOUR), clock.now())
        assert store.apply([ended], clock.now()) == [True]
        clock.advance(2 * 3600)


def _nothing() -> None: ...


class Breaking(MemoryStore):
    """Its writes of states of schedules fail while `breaks` is set."""

    breaks = False

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        if self.breaks:
            raise StoreUnavailable("away")
        return super().kv_cas(name, value, was)


def test_a_crash_between_the_job_and_the_state_makes_no_second_job(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Breaking(clock.now)
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    one.tick()
    clock.advance(30)
    store.breaks = True
    assert one.tick() < 1
    assert one.tick() < 1
    assert [record.getMessage() for record in caplog.records] == ["schedules: away"], "told once"
    assert one.work() == 1
    store.breaks = False
    other = TickingHost(store, clock, shop(cron="* * * * *"))
    clock.advance(10)
    assert other.tick() == 50.0
    one.tick()
    assert other.work() == 0
    assert other.dues() == [60]
    assert other.state().after == NOON + MINUTE


def test_without_schedules_the_store_is_left_alone(clock: FakeClock) -> None:
    class Closed(MemoryStore):
        reads = 0

        def kv_list(self, prefix: str) -> dict[str, bytes]:
            self.reads += 1
            return super().kv_list(prefix)

    store = Closed(clock.now)
    one = TickingHost(store, clock, App("memory://"))
    for _ in range(100):
        assert one.tick() > 0
        clock.advance(30)
    assert store.reads == 1, "once an hour"


def test_arguments_too_long_for_the_store_do_not_stop_other_schedules(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = TickingHost(MemoryStore(clock.now), clock, shop(cron=[Cron("* * * * *", args=("x" * 100,)), "* * * * *"]))
    one.client.factory.largest = 50
    one.tick()
    clock.advance(30)
    assert one.tick() == 60.0
    assert [job.body for job in one.jobs()] == [b"[]"]
    assert [record.getMessage() for record in caplog.records] == [
        "schedule report: report: the arguments take 104 bytes; max_body is 50: " + WAY_OUT
    ]


def test_an_error_of_the_apps_own_does_not_stop_the_keeper(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Client):
        def enqueue(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyError("tenant")

    one = TickingHost(MemoryStore(clock.now), clock, shop(cron="* * * * *"))
    one.ticker = ScheduleTicker(Refusing(one.store, one.client.tasks, clock=clock), {})
    one.tick()
    clock.advance(30)
    assert one.tick() == 60.0
    assert "schedule report: 'tenant'" in caplog.text
    assert "Traceback" in caplog.text


def test_a_host_whose_store_is_away_at_the_start_begins_later(clock: FakeClock) -> None:
    class Away(MemoryStore):
        away = True

        def kv_list(self, prefix: str) -> dict[str, bytes]:
            if self.away:
                raise StoreUnavailable("away")
            return super().kv_list(prefix)

    store = Away(clock.now)
    one = TickingHost(store, clock, shop(cron="* * * * *"))
    pauses = [one.tick() for _ in range(8)]
    assert pauses == sorted(pauses)
    assert 0.1 < pauses[0] < 0.5
    assert pauses[-1] == 5.0
    store.away = False
    assert one.tick() == 30.0
