import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tarry import App, ArgumentError, ConfigError, Cron
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.keeper import schedule_state
from tarry.keeper.chores import Keeper
from tarry.keeper.cron import ScheduleTicker, run_now, schedules_of
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.job import State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query, Store
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.keeper.ticking import NOON, TickingHost, shop
from tests.worker.bench import until

Open = Callable[[], Store]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON + 30 * SECOND)


@pytest.fixture(params=["memory", "sqlite", "sharded"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Open]:
    """Each host's own way to one and the same store, where it can have its own."""
    opened: list[Store] = []
    memories = [MemoryStore(clock.now, name) for name in ("one", "two", "three")]

    def connect() -> Store:
        match request.param:
            case "memory":
                opened.append(memories[0])
            case "sqlite":
                opened.append(SqliteStore(tmp_path / "tarry.db"))
            case _:
                opened.append(ShardedStore(memories))
        return opened[-1]

    yield connect
    for store in opened:
        store.close()


Hosts = Callable[..., TickingHost]


@pytest.fixture
def host(connect: Open, clock: FakeClock) -> Hosts:
    def host(app: App | None = None, **settings: Any) -> TickingHost:
        return TickingHost(connect(), clock, app or shop(**{"cron": "* * * * *"} | settings))

    return host


def test_a_new_schedule_ticks_from_now_on(host: Hosts, clock: FakeClock) -> None:
    one = host()
    assert one.tick() == 30.0
    assert one.jobs() == []
    clock.advance(29.9)
    assert one.tick() == pytest.approx(0.1)
    assert one.jobs() == []
    clock.advance(0.1)
    assert one.tick() == 60.0
    (job,) = one.jobs()
    assert (job.task, job.body, job.due, job.state_since) == ("report", b"[]", NOON + MINUTE, clock.now())
    assert job.state is State.READY


def test_a_late_ticker_makes_the_job_for_the_time_of_the_tick(host: Hosts, clock: FakeClock) -> None:
    one = host()
    one.tick()
    clock.advance(32.5)
    assert one.tick() == 57.5
    assert one.dues() == [60]


def test_each_tick_is_one_job_however_many_hosts_there_are(host: Hosts, clock: FakeClock) -> None:
    hosts = [host(cron="@every 10s") for _ in range(3)]
    for one in hosts:
        one.tick()
    for _ in range(10):
        clock.advance(10)
        for one in hosts:
            one.tick()
    assert hosts[0].dues() == [40 + n * 10 for n in range(10)]


def test_hosts_that_race_make_one_job_a_tick(host: Hosts, clock: FakeClock) -> None:
    hosts = [host(cron="@every 1s") for _ in range(4)]
    for one in hosts:
        one.tick()
    over = threading.Event()

    def race(one: TickingHost) -> None:
        while not over.is_set():
            one.tick()

    threads = [threading.Thread(target=race, args=(one,)) for one in hosts]
    for thread in threads:
        thread.start()
    try:
        for second in range(1, 31):
            clock.advance(1)
            until(lambda: all(one.ticker._last_now >= NOON + (30 + second) * SECOND for one in hosts))  # noqa: B023
        until(lambda: len(hosts[0].dues()) >= 30)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert hosts[0].dues() == [30 + n for n in range(1, 31)]


def test_the_job_of_a_tick_is_remembered_for_an_hour_also_where_nothing_is_kept(host: Hosts, clock: FakeClock) -> None:
    one = host(cron="@daily")
    one.tick()
    clock.advance(12 * 3600)
    one.tick()
    assert one.work() == 1
    one.prune()
    (job,) = one.jobs()
    assert job.keep_until == clock.now() + HOUR
    clock.advance(3601)
    one.tick()
    one.prune()
    assert one.jobs() == []


@pytest.mark.parametrize(
    ("missed", "runs"),
    [("skip", []), ("last", [10]), ("all", list(range(1, 11)))],
)
def test_what_was_missed_while_nothing_ran(
    host: Hosts, clock: FakeClock, missed: str, runs: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    host(cron="@hourly", missed=missed).tick()
    clock.advance(10 * 3600 + 60)
    again = host(cron="@hourly", missed=missed)
    assert again.tick() == 30 * 60, "then it looks how the jobs have ended"
    assert again.dues() == [hours * 3600 for hours in runs]
    host(cron="@hourly", missed=missed).tick()
    again.tick()
    assert len(again.jobs()) == len(runs), "made up for once"
    told = [record.getMessage() for record in caplog.records]
    dropped = 10 - len(runs)
    assert told == ([f"schedule report: nothing ran for a while; left out {dropped} of its ticks"] if dropped else [])


def test_a_missed_run_is_due_when_it_was_so_it_can_have_expired(host: Hosts, clock: FakeClock) -> None:
    host(cron="@daily", expires="1h").tick()
    clock.advance(20 * 3600)
    one = host(cron="@daily", expires="1h")
    one.tick()
    (job,) = one.jobs()
    assert job.expires == job.due + HOUR < clock.now()


def test_the_clock_going_back_runs_nothing_twice(host: Hosts, clock: FakeClock) -> None:
    one = host(cron="@every 10s")
    one.tick()
    for _ in range(6):
        clock.advance(10)
        one.tick()
    assert one.work() == 6
    clock.advance(-45)
    other = host(cron="@every 10s")
    for _ in range(9):
        for each in (one, other):
            assert 0 < each.tick() <= 55
        clock.advance(5)
    assert one.work() == 0, "it is not yet as late as it was"
    clock.advance(10)
    other.tick()
    one.tick()
    assert one.work() == 1
    assert one.dues() == [40, 50, 60, 70, 80, 90, 100]


def test_a_clock_that_was_wrong_by_far_does_not_stop_schedules_for_ever(
    host: Hosts, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = host()
    clock.advance(365 * 86400)
    one.tick()
    clock.advance(-365 * 86400)
    assert one.tick() == 30.0
    assert "the clock was set back far; it ticks from now on" in caplog.text
    clock.advance(30)
    one.tick()
    assert one.dues() == [60]


def test_a_schedule_that_was_changed_does_not_make_up_for_what_it_would_have_done(
    host: Hosts, clock: FakeClock
) -> None:
    host(cron="0 9 * * *").tick()
    clock.advance(3 * 3600)
    one = host(cron="0 14 * * *", missed="all")
    one.tick()
    assert one.jobs() == []
    clock.advance(24 * 3600)
    one.tick()
    assert one.dues() == [26 * 3600]


def test_while_a_deployment_is_half_done_each_host_keeps_its_own_times(host: Hosts, clock: FakeClock) -> None:
    old = host(cron="0,20,40 * * * * *")
    old.tick()
    clock.advance(15)
    new = host(cron="10,30,50 * * * * *")
    for _ in range(60):
        old.tick()
        new.tick()
        clock.advance(1)
    assert old.dues() == [40, 50, 60, 70, 80, 90, 100]


def test_paused_it_makes_nothing_on_any_host_and_then_goes_on_from_there(host: Hosts, clock: FakeClock) -> None:
    one, two = host(missed="all"), host(missed="all")
    one.tick()
    two.tick()
    schedule_state.pause(one.store, one.schedule(), clock.now())
    clock.advance(10 * 60)
    for each in (one, two, host(missed="all")):
        each.tick()
    assert one.jobs() == []
    schedule_state.resume(one.store, one.schedule(), clock.now())
    clock.advance(60)
    one.tick()
    two.tick()
    assert one.dues() == [11 * 60]
    assert one.state().paused is False


def test_it_can_be_paused_before_any_host_has_seen_it_and_resumed_twice(host: Hosts, clock: FakeClock) -> None:
    one = host()
    schedule_state.pause(one.store, one.schedule(), clock.now())
    schedule_state.pause(one.store, one.schedule(), clock.now())
    clock.advance(60)
    one.tick()
    assert one.jobs() == []
    schedule_state.resume(one.store, one.schedule(), clock.now())
    clock.advance(45)
    schedule_state.resume(one.store, one.schedule(), clock.now())
    one.tick()
    assert one.dues() == [120], "a second resume takes nothing away"


def test_run_now_is_a_job_more_and_moves_no_tick(host: Hosts, clock: FakeClock) -> None:
    one = host(cron=Cron("* * * * *", args=("eu",)))
    one.tick()
    schedule_state.pause(one.store, one.schedule(), clock.now())
    run_now(one.client, one.schedule())
    run_now(one.client, one.schedule())
    assert [(job.due, job.body, job.state) for job in one.jobs()] == [(clock.now(), b'["eu"]', State.READY)] * 2
    schedule_state.resume(one.store, one.schedule(), clock.now())
    clock.advance(30)
    one.tick()
    assert len(one.jobs()) == 3


def test_several_schedules_of_a_task_tick_by_themselves(host: Hosts, clock: FakeClock) -> None:
    crons = [Cron("* * * * *", args=("a",)), Cron("* * * * *", args=("b",), name="b"), "@every 30s"]
    one = host(cron=crons)
    one.tick()
    clock.advance(30)
    one.tick()
    assert [(job.due - NOON, job.body) for job in one.jobs()] == [
        (MINUTE, b'["a"]'), (MINUTE, b'["b"]'), (MINUTE, b"[]"),
    ]  # fmt: skip
    assert sorted(schedule_state.read(one.store)) == ["b", "report", "report#3"]
    assert one.state("b").last == NOON + MINUTE


def test_a_job_goes_where_the_task_says(host: Hosts, clock: FakeClock) -> None:
    one = host(queue="reports", priority=7, expires="5m")
    one.tick()
    clock.advance(30)
    one.tick()
    (job,) = one.jobs()
    assert (job.queue, job.priority, job.expires) == ("reports", 7, NOON + 6 * MINUTE)


def test_a_schedule_that_left_the_code_is_forgotten_after_a_month(host: Hosts, clock: FakeClock) -> None:
    host(cron="@yearly").tick()
    stays, left = host(cron=Cron("@yearly", name="stays")), host(App("memory://"))
    for _ in range(29):
        stays.tick()
        left.tick()
        clock.advance(86400)
    assert sorted(schedule_state.read(left.store)) == ["report", "stays"]
    for _ in range(3):
        stays.tick()
        left.tick()
        clock.advance(86400)
    assert sorted(schedule_state.read(left.store)) == ["stays"], "seen, although it has not ticked"


def test_by_the_wall_of_its_zone_through_the_change_of_the_clocks(connect: Open, clock: FakeClock) -> None:
    clock.time = round(datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp()) * SECOND
    one = TickingHost(connect(), clock, shop(cron="30 2 * * *", zone="Europe/Paris"))
    for _ in range(72):
        one.tick()
        clock.advance(3600)
    told = [datetime.fromtimestamp(job.due / SECOND, UTC) for job in one.jobs()]
    assert [f"{due:%d %H:%M}" for due in told] == ["28 01:00", "29 00:30", "30 00:30"]


def test_the_keeper_ticks_and_wakes_for_the_next(connect: Open, clock: FakeClock) -> None:
    app, store = shop(cron="@every 1s"), connect()
    client = Client(store, app.tasks, clock=clock)
    keeper = Keeper(store, clock=clock, ticker=ScheduleTicker(client, {}))
    clock.advance(0.8)
    assert 0 <= keeper.tick() <= 0.2
    clock.advance(0.2)
    assert keeper.tick() <= 1.0
    assert [job.due - NOON for job in store.find(Query())] == [31 * SECOND]


def test_it_ticks_without_a_master(app: App) -> None:
    @app.task(name="count", cron="@every 1s")
    def count() -> int:
        return 1

    with app.running():
        until(lambda: [job for job in app.client.store.find(Query()) if job.state is State.DONE])


def test_a_call_that_does_not_fit_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ArgumentError, match=r"^report: .*too many positional"):
        shop(cron=Cron("@daily", args=("eu", 1)))
    with pytest.raises(ArgumentError, match=r"^report: argument shop: "):
        shop(cron=Cron("@daily", args=(7,)))
    with pytest.raises(ArgumentError, match="city"):
        shop(cron=["@daily", Cron("@daily", kwargs={"city": "x"})])
    with pytest.raises(ValueError, match=r'^cron="61 \* \* \* \*": bad minute'):
        shop(cron="61 * * * *")
    with pytest.raises(ValueError, match=r"^zone='Paris'"):
        shop(cron="@daily", zone="Paris")


def test_two_tasks_cannot_have_a_schedule_of_one_name() -> None:
    app = shop(cron=Cron("@daily", name="night"))

    def declare(name: str) -> None:
        @app.task(name=name, cron=Cron("@daily", name="night"))
        def other() -> None: ...

    with pytest.raises(ConfigError, match=r"^other: a schedule of report is named 'night' too; give it another Cron"):
        declare("other")
    assert list(app.tasks) == ["report"]


def test_a_task_that_is_declared_again_keeps_its_schedule(clock: FakeClock) -> None:
    app = App("memory://", closures=True)
    for _ in range(2):

        @app.task(name="report", cron=Cron("@daily", name="night"))
        def report() -> None: ...

    assert list(schedules_of(app.tasks, {})) == ["night"]


def test_it_logs_nothing_on_a_good_day(host: Hosts, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = host()
    # That its store is new is told.
    caplog.clear()
    for _ in range(5):
        one.tick()
        clock.advance(DAY / SECOND / 1440)
    assert caplog.records == []
