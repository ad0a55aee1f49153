"""Schedules in the store whose ticks make no jobs: they are found without a look at all the others, and told."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from tarry import App
from tarry.alert.stored_schedules import stored_schedule_conditions
from tarry.client.clock import FakeClock
from tarry.client.tasks.task import Task
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries import missed_schedules
from tarry.store.queries.missed_schedules import MARK, TickSums, read_missed, read_sums
from tests.every_store.test_stored_schedules import Host
from tests.keeper.ticking import NOON


@pytest.fixture
def one(app: App, clock: FakeClock, report: Task[[int], None]) -> Iterator[Host]:
    host = Host(app, clock)
    yield host
    host.store.close()


def marks(host: Host) -> list[str]:
    return [name.removeprefix(MARK) for name in host.store.kv_list(MARK)]


def told(host: Host) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.what, each.details) for each in stored_schedule_conditions(host.store)]


def miss(host: Host, clock: FakeClock, report: Task[[int], None], *names: str) -> None:
    """Two ticks of each are left out."""
    for name in names:
        host.schedules.put(name, report.call(1), cron="*/10 * * * *", catch_up="skip")
    clock.advance(25 * 60)
    host.tick()


def test_what_was_missed_is_told_until_it_ticks(one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    one.schedules.put("fine", report.call(1), cron="*/10 * * * *")
    miss(one, clock, report, "a", "b")
    why = "left out, since nothing ran then"
    what = "2 of the schedules of report in the store: the newest tick made no job"
    assert told(one) == [(what, (f"a: {why}", f"b: {why}"))]
    (condition,) = stored_schedule_conditions(one.store)
    assert (condition.since, condition.where, condition.holds) == (NOON + 20 * MINUTE, "/schedules", 0)
    assert read_sums(one.store) == TickSums(NOON + 20 * MINUTE, 5), "of `fine` one, too"
    one.schedules.pause("a")
    (condition,) = stored_schedule_conditions(one.store)
    assert condition.what.startswith("1 of the schedules of report")
    assert condition.where == "/schedules/b"
    one.schedules.delete("a")
    clock.advance(5 * 60 - 30)
    one.tick()
    assert (told(one), marks(one)) == ([], [])
    assert read_sums(one.store) == TickSums(NOON + 30 * MINUTE, 5)


def test_jobs_that_cannot_be_made_are_told(app: App, one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    one.schedules.put("a", report.call(1), cron="* * * * *")
    task = app.tasks.pop("report")
    clock.advance(30)
    one.tick()
    (condition,) = stored_schedule_conditions(one.store)
    assert condition.details == ("a: no app that runs here has a task report",)
    assert (condition.holds, condition.since) == (MINUTE, clock.now())
    app.tasks["report"] = task
    one.schedules.put("a", report.call(2), cron="* * * * *")
    assert (told(one), marks(one)) == ([], [])


def test_marks_are_hints(one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    """Whatever a crash, or somebody else, left there."""
    miss(one, clock, report, "a")
    one.schedules.put("fine", report.call(1), cron="* * * * *")
    one.store.kv_write([(f"{MARK}{name}", b"", None) for name in ("fine", "none", "garbage")])
    one.store.kv_cas("schedule:garbage", b"{", None)
    one.store.kv_cas("stored-schedules:ticks", b"{", one.store.kv_get("stored-schedules:ticks"))
    assert list(read_missed(one.store)) == ["a"]
    assert read_sums(one.store) == TickSums()
    for _ in range(2):
        clock.advance(HOUR / SECOND)
        one.tick()
    assert marks(one) == ["a"], "it is left out again"
    assert read_sums(one.store).missed > 0


def test_those_that_are_paused_hide_no_others(
    one: Host, clock: FakeClock, report: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_schedules, "MOST_READ", 2)
    miss(one, clock, report, "a", "b", "c")
    for name in ("a", "b"):
        one.schedules.pause(name)
    assert list(read_missed(one.store)) == marks(one) == ["c"]
    one.schedules.resume("a")
    assert list(read_missed(one.store)) == marks(one) == ["a", "c"]


def test_one_without_a_reason_is_told(one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    """Whoever has written it."""
    miss(one, clock, report, "a")
    cell = one.store.kv_get("schedule:a")
    assert cell is not None
    odd = replace(msgspec.json.decode(cell, type=StoredSchedule), runs=[], problem="", problem_since=NOON)
    one.store.kv_cas("schedule:a", msgspec.json.encode(odd), cell)
    assert [details for _, details in told(one)] == [("a: refused: the log says why",)]


def test_two_keepers_count_together(app: App, one: Host, clock: FakeClock, report: Task[[int], None]) -> None:
    other = Host(app, clock, one.store)
    for each in (one, other, one):
        miss(each, clock, report, "a")
        clock.advance(20)
        each.ticker.close()
    assert read_sums(one.store).missed == 3 * 2
