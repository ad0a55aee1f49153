"""Schedules that are kept in the store, on every store: what ticks, once however many hosts there are."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tarry import App, ArgumentError, BodyTooLarge, ConfigError, ScheduleNotFound, StoreUnavailable
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.client.schedules.app_schedules import AppSchedules
from tarry.client.tasks.task import Task
from tarry.keeper import stored_ticks
from tarry.keeper.stored_ticks import StoredTicker
from tarry.model import lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.model.outcome import Returned
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import KEPT_FOR, StoredSchedule
from tarry.store.flaky import FlakyStore
from tarry.store.queries import stored_schedules
from tarry.store.rules.base import BANDS, Query, Store, Want
from tests.keeper.ticking import NOON, NOTHING_KEPT


class Host:
    """A keeper with its own connection, and a client beside it."""

    def __init__(self, app: App, clock: FakeClock, store: Store | None = None) -> None:
        self.store, self.clock = store or app.open_store(), clock
        self.client = Client(self.store, app.tasks, clock=clock, rules=lambda task, queue: NOTHING_KEPT)
        self.ticker = StoredTicker(self.client, app.find)
        self.schedules = AppSchedules(lambda: self.client)

    def tick(self) -> float:
        return self.ticker.tick()

    def jobs(self) -> list[Job]:
        return sorted(self.store.find(Query(limit=10_000)), key=lambda job: job.due)

    def dues(self) -> list[float]:
        """Of all jobs, in seconds from noon."""
        return [(job.due - NOON) / SECOND for job in self.jobs()]

    def cells(self) -> list[str]:
        return [*self.store.kv_list("schedule")]

    def entries(self) -> list[float]:
        """In seconds from noon."""
        found = stored_schedules.due_entries(self.store, None, 10_000)
        return [(entry.at - NOON) / SECOND for entry in found]


Hosts = Callable[..., Host]


@pytest.fixture
def host(app: App, clock: FakeClock, report: Task[[int], None]) -> Iterator[Hosts]:
    made: list[Host] = []

    def host(store: Store | None = None) -> Host:
        made.append(Host(app, clock, store))
        return made[-1]

    yield host
    for each in made:
        each.store.close()


def test_it_ticks_once_however_many_hosts_there_are(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one, other = host(), host()
    facts = one.schedules.put("report:7", report.call(7), cron="* * * * *")
    assert (facts.name, facts.task, facts.cron, facts.zone) == ("report:7", "report", "* * * * *", "UTC")
    assert (facts.next, facts.last, facts.is_paused, facts.problem) == ((NOON + MINUTE) / SECOND, None, False, "")
    for _ in range(3):
        for each in (one, other):
            each.tick()
        clock.advance(60)
    assert one.dues() == [60, 120]
    assert {(job.task, job.body, job.key) for job in one.jobs()} == {
        ("report", b"[7]", f"schedule:report:7:{NOON + n * MINUTE}") for n in (1, 2)
    }
    assert one.schedules.get("report:7").last == (NOON + 2 * MINUTE) / SECOND  # type: ignore[union-attr]
    assert other.schedules.get("report:8") is None


def test_a_keeper_sleeps_until_the_next_tick(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    assert one.tick() == stored_ticks.LOOK_EVERY
    one.schedules.put("a", report.call(1), cron="0 7 * * *")
    assert one.tick() == stored_ticks.LOOK_EVERY
    one.schedules.put("b", report.call(1), every="2s")
    assert one.tick() == 2.0
    clock.advance(2)
    assert one.tick() == 2.0
    assert len(one.jobs()) == 1


def test_what_is_put_again_goes_on(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    first = one.schedules.put("a", report.call(1), cron="* * * * *")
    clock.advance(40)
    again = one.schedules.put("a", report.call(1), cron="*  * * * *")
    assert again.changed == first.changed, "the same is not written again"
    one.schedules.put("a", report.call(2), cron="* * * * *")
    clock.advance(0.1)
    one.tick()
    assert [(job.body, due) for job, due in zip(one.jobs(), one.dues(), strict=True)] == [(b"[2]", 60)]
    one.schedules.put("a", report.call(2), cron="*/5 * * * *")
    clock.advance(60)
    one.tick()
    assert one.dues() == [60], "ticks of the new rule in the past were not missed"
    clock.advance(300)
    one.tick()
    assert one.dues() == [60, 300]


def test_pause_resume_and_delete(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one, other = host(), host()
    one.schedules.put("a", report.call(1), cron="* * * * *")
    assert other.schedules.pause("a").is_paused
    assert other.schedules.pause("a").next is None
    assert one.schedules.put("a", report.call(2), cron="* * * * *").is_paused, "whoever puts it again did not resume it"
    clock.advance(600)
    one.tick()
    assert (one.jobs(), one.entries()) == ([], [])
    assert not one.schedules.resume("a").is_paused
    clock.advance(60)
    one.tick()
    assert one.dues() == [660], "what fell into the pause is skipped"
    assert one.schedules.delete("a")
    assert not other.schedules.delete("a")
    clock.advance(600)
    one.tick()
    assert (one.dues(), one.cells()) == ([660], [])
    for act in (one.schedules.pause, one.schedules.resume):
        with pytest.raises(ScheduleNotFound, match="no schedule a"):
            act("a")


def test_they_are_listed_by_name(host: Hosts, report: Task[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.schedules.app_schedules._PAGE", 2)
    one = host()
    for name in ("b:2", "a:1", "b:1", "b:3", "c", "b"):
        one.schedules.put(name, report.call(1), every="1h")
    one.store.kv_cas("schedule:b:15", b"{garbage", None)
    assert [each.name for each in one.schedules.list()] == ["a:1", "b", "b:1", "b:2", "b:3", "c"]
    assert [each.name for each in one.schedules.list("b:")] == ["b:1", "b:2", "b:3"]
    assert [*one.schedules.list("d")] == []


def test_one_time_until_and_forgotten(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    at = datetime.fromtimestamp(NOON / SECOND + 90, UTC)
    one.schedules.put("once", report.call(1), at=at)
    one.schedules.put("some", report.call(2), every="1m", until=NOON / SECOND + 130)
    for _ in range(5):
        clock.advance(60)
        one.tick()
    assert one.dues() == [60, 90, 120]
    assert [(each.name, each.next) for each in one.schedules.list()] == [("once", None), ("some", None)]
    clock.advance(KEPT_FOR / SECOND)
    one.tick()
    assert ([*one.schedules.list()], one.cells()) == ([], [])


def test_jitter_is_the_same_for_the_same_tick(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    for number in range(40):
        one.schedules.put(f"a{number}", report.call(number), cron="* * * * *", jitter="20s")
    clock.advance(31)
    one.tick()
    late = [due - 60 for due in one.dues()]
    assert all(0 <= each <= 20 for each in late)
    assert len({round(each) for each in late}) > 8
    assert {job.key.rpartition(":")[2] for job in one.jobs() if job.key} == {str(NOON + MINUTE)}


@pytest.mark.parametrize(("catch_up", "expected"), [("last", [300]), ("skip", []), ("all", [60, 120, 180, 240, 300])])
def test_ticks_that_were_missed(
    host: Hosts, clock: FakeClock, report: Task[[int], None], catch_up: Any, expected: list[float]
) -> None:
    one = host()
    one.schedules.put("a", report.call(1), cron="* * * * *", catch_up=catch_up)
    clock.advance(300 + 65)
    one.tick()
    # That of a moment ago is not missed.
    assert one.dues() == [*expected, *([360] if catch_up == "all" else [])] or one.dues() == [360]


def test_daylight_saving_is_that_of_code(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    clock.advance((datetime(2027, 3, 27, 12, tzinfo=UTC).timestamp() * SECOND - clock.now()) / SECOND)
    facts = one.schedules.put("a", report.call(1), cron="30 2 * * *", zone="Europe/Berlin")
    assert facts.next == datetime(2027, 3, 28, 1, 0, tzinfo=UTC).timestamp()


def test_options_of_the_call(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    call = report.using(queue="slow", priority=5, expires="1h", labels={"customer": "7"}).call(7)
    one.schedules.put("a", call, cron="* * * * *")
    clock.advance(30)
    one.tick()
    (job,) = one.jobs()
    assert (job.queue, job.priority, job.expires - job.due, job.labels) == ("slow", 5, HOUR, {"customer": "7"})
    with pytest.raises(ValueError, match="key= is not for the call of a schedule; it can have: cost, expires"):
        one.schedules.put("a", report.using(key="k").call(7), cron="* * * * *")


def test_what_became_of_its_ticks(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    one.schedules.put("a", report.call(1), cron="0 * * * *")
    clock.advance(HOUR / SECOND)
    one.tick()
    (job,) = one.store.claim([Want("default", band, 9) for band in BANDS], 9, "me", 60 * SECOND, clock.now())
    assert one.store.apply([lifecycle.after(job, Returned(), lifecycle.DEFAULT, clock.now())], clock.now()) == [True]
    clock.advance(HOUR / 2 / SECOND)
    one.tick()
    (run,) = stored_schedules.get(one.store, "a").runs  # type: ignore[union-attr]
    assert (run.tick, run.end) == (NOON + HOUR, "done")
    assert one.entries() == [2 * HOUR / SECOND]


def test_a_task_that_nobody_knows(app: App, host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    one.schedules.put("a", report.call(1), cron="* * * * *")
    task = app.tasks.pop("report")
    clock.advance(30)
    for _ in range(3):
        assert one.tick() > 0
    assert one.schedules.get("a").problem == "no app that runs here has a task report"  # type: ignore[union-attr]
    before = one.store.kv_get("schedule:a")
    clock.advance(4)
    one.tick()
    assert one.store.kv_get("schedule:a") == before, "it is not tried all the time"
    app.tasks["report"] = task
    clock.advance(50)
    one.tick()
    assert one.dues() == [60]
    assert one.schedules.get("a").problem == ""  # type: ignore[union-attr]


def test_arguments_that_do_not_fit_any_more(app: App, host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    one = host()
    one.schedules.put("a", report.call(1), cron="* * * * *")
    one.schedules.put("b", report.call(2), cron="* * * * *")

    def with_text(schedule: StoredSchedule | None) -> StoredSchedule | None:
        assert schedule is not None
        return replace(schedule, definition=replace(schedule.definition, body=b'["x"]'))

    stored_schedules.change(one.store, "a", with_text)
    clock.advance(30)
    one.tick()
    assert [job.body for job in one.jobs()] == [b"[2]"]
    assert "refused" in one.schedules.get("a").problem  # type: ignore[union-attr]
    assert one.schedules.get("a").next == (NOON + 2 * MINUTE) / SECOND  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cron": "* * *"}, "five|fields|understood|write minute"),
        ({}, "nothing says when"),
        ({"cron": "* * * * *", "every": 5}, "cron= and every= says when"),
        ({"every": 0.5}, "every=0.5: a second at least"),
        ({"at": datetime(2030, 1, 1)}, "at=2030-01-01T00:00:00 needs a time zone"),
        ({"at": 12.0}, "no tick is left"),
        ({"every": 5, "until": 12.0}, "no tick is left"),
        ({"cron": "* * * * *", "zone": "Europe/Pariss"}, 'did you mean "Europe/Paris"'),
        ({"every": 5, "jitter": "2d"}, "jitter=.*a day at most"),
        ({"every": 5, "catch_up": "never"}, 'catch_up=.*"skip", "last" or "all"'),
    ],
)
def test_what_cannot_be(app: App, report: Task[[int], None], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        app.schedules.put("a", report.call(1), **wrong)
    assert [*app.schedules.list()] == []


def test_names_and_calls_that_cannot_be(app: App, report: Task[[int], None]) -> None:
    for name in ("", "x" * 101, "a\nb", " a", "a\0", 7):
        with pytest.raises(ValueError, match=r"name=.*: text of 1 to 100 printable characters"):
            app.schedules.put(name, report.call(1), every=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is no call"):
        app.schedules.put("a", report, every=5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="customer"):
        app.schedules.put("a", report.call("x"), every=5)  # type: ignore[arg-type]

    @app.task(name="text", cron="@hourly")
    def text(words: str = "") -> None: ...

    with pytest.raises(BodyTooLarge, match="schedule a: the arguments take"):
        app.schedules.put("a", text.call("x" * 70_000), every=5)
    with pytest.raises(ConfigError, match="schedule text: the code of task text has one of this name"):
        app.schedules.put("text", text.call(), every=5)


@pytest.mark.parametrize("after", [False, True])
def test_every_call_of_a_put_may_fail(
    app: App, host: Hosts, clock: FakeClock, report: Task[[int], None], after: bool
) -> None:
    one = host()
    for fail_at in range(1, 30):
        flaky = FlakyStore(one.store, fail_at, after)
        broken = Host(app, clock, flaky)
        changes: list[Callable[[], object]] = [
            partial(broken.schedules.put, "a", report.call(fail_at), cron="* * * * *"),
            partial(broken.schedules.put, "a", report.call(fail_at), cron="*/2 * * * *"),
            partial(broken.schedules.pause, "a"),
            partial(broken.schedules.resume, "a"),
        ]
        for change in changes:
            try:
                change()
            except StoreUnavailable:
                change()
        minute = NOON + (fail_at * 10 + 10) * MINUTE
        clock.advance((minute - clock.now()) / SECOND)
        before = len(one.jobs())
        one.tick()
        assert len(one.jobs()) == before + 1
        if flaky.calls < fail_at:
            break
    assert fail_at > 10
    clock.advance(2 * HOUR / SECOND)
    one.schedules.delete("a")
    one.tick()
    assert one.cells() == []


class SlowToTidy:
    """Named values of a store; once a schedule is written, somebody else does something first."""

    def __init__(self, store: Store, meanwhile: Callable[[], object]) -> None:
        self._store, self._meanwhile = store, meanwhile

    def kv_get(self, name: str) -> bytes | None:
        return self._store.kv_get(name)

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        is_made = self._store.kv_cas(name, value, was)
        if is_made and name.startswith(stored_schedules.PREFIX):
            self._meanwhile()
        return is_made


@pytest.mark.parametrize("paused", [False, True])
def test_who_tidies_up_late_takes_no_entry_of_a_later_change(
    host: Hosts, clock: FakeClock, report: Task[[int], None], paused: bool
) -> None:
    """Also where that is for the same time as the one before."""
    one = host()
    one.schedules.put("a", report.call(1), cron="* * * * *")

    def change(schedule: StoredSchedule | None) -> StoredSchedule | None:
        assert schedule is not None
        return rules.pause("a", schedule, clock.now()) if paused else replace(schedule, look=schedule.look + HOUR)

    def change_back() -> None:
        clock.advance(0.001)
        if paused:
            one.schedules.resume("a")
        one.schedules.put("a", report.call(2), cron="* * * * *")

    stored_schedules.change(one.store, "a", change, SlowToTidy(one.store, change_back))
    found = stored_schedules.get(one.store, "a")
    assert found is not None
    assert one.entries() == [(found.look - NOON) / SECOND]
    clock.advance(3600)
    one.tick()
    assert one.jobs()


def test_a_change_that_another_one_is_before_leaves_no_entry(
    host: Hosts, clock: FakeClock, report: Task[[int], None]
) -> None:
    one = host()
    one.schedules.put("a", report.call(1), cron="* * * * *")
    calls: list[int] = []

    def change(schedule: StoredSchedule | None) -> StoredSchedule | None:
        assert schedule is not None
        if not calls:
            one.schedules.put("a", report.call(2), cron="5 * * * *")
        calls.append(1)
        return replace(schedule, look=schedule.look + HOUR)

    stored_schedules.change(one.store, "a", change)
    assert len(calls) == 2
    assert len(one.entries()) == 1


@pytest.mark.parametrize("after", [False, True])
def test_every_call_of_a_tick_may_fail(
    app: App, host: Hosts, clock: FakeClock, report: Task[[int], None], after: bool
) -> None:
    one = host()
    for number in range(3):
        one.schedules.put(f"a{number}", report.call(number), cron="* * * * *")
    for fail_at in range(1, 30):
        clock.advance(60)
        flaky = FlakyStore(one.store, fail_at, after)
        broken = Host(app, clock, flaky)
        broken.tick()
        one.ticker.close()
        clock.advance(11)
        one.tick()
        clock.advance(-11)
        dues = one.dues()
        assert len(dues) == 3 * fail_at, f"call {fail_at}"
        if flaky.calls < fail_at:
            break
    assert fail_at > 6
    assert len(one.entries()) <= 6
    assert {job.state for job in one.jobs()} <= {State.READY, State.SCHEDULED}


def test_changes_and_ticks_at_the_same_moment(host: Hosts, clock: FakeClock, report: Task[[int], None]) -> None:
    """Two keepers tick while somebody puts, pauses and resumes: the schedule is never lost, and no tick runs twice."""
    one, *hosts = host(), host(), host()
    for name in ("a", "b"):
        one.schedules.put(name, report.call(0), every="1s", catch_up="all")
    stopped, errors = threading.Event(), list[Exception]()

    def tick(each: Host) -> None:
        while not stopped.is_set():
            each.tick()
            # So that both get their turn.
            each.ticker.close()

    def guard(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(partial(tick, each),)) for each in hosts]
    for thread in threads:
        thread.start()
    for number in range(40):
        clock.advance(1)
        one.schedules.put("a", report.call(number), every="1s" if number % 2 else "2s", catch_up="all")
        one.schedules.pause("b")
        one.schedules.resume("b")
    stopped.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    keys = [job.key for job in one.jobs()]
    assert len(keys) == len(set(keys))
    entries = {(entry.name, entry.at) for entry in stored_schedules.due_entries(one.store, None, 1000)}
    for name in ("a", "b"):
        found = stored_schedules.get(one.store, name)
        assert found is not None
        assert (name, found.look) in entries
    before = {job.key for job in one.jobs()}
    clock.advance(5)
    one.tick()
    assert {key.split(":")[1] for job in one.jobs() if (key := job.key) and key not in before} == {"a", "b"}


def test_a_full_queue_makes_no_tick_twice(app: App, host: Hosts, clock: FakeClock) -> None:
    """A tick whose job is stored is over, also if that of the next one is refused."""

    @app.task(name="bill", limit_by=lambda account: account, max_waiting=1)
    def bill(account: str) -> None: ...

    one = host()
    one.schedules.put("a", bill.call("ann"), cron="*/30 * * * *", catch_up="all")
    clock.advance(65 * 60)
    for number in (1, 2, 3):
        one.tick()
        jobs = one.jobs()
        assert [job.key for job in jobs] == [f"schedule:a:{NOON + n * 30 * MINUTE}" for n in range(1, number + 1)]
        facts = one.schedules.get("a")
        assert facts is not None
        assert "max_waiting is 1" in facts.problem
        assert facts.last == (NOON + number * 30 * MINUTE) / SECOND
        one.store.apply([lifecycle.cancel(jobs[-1], lifecycle.Rules(keep_done=HOUR), clock.now())], clock.now())
        # Longer than the key of a job is kept.
        clock.advance(2 * HOUR / SECOND)
