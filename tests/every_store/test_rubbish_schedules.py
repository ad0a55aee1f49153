"""Whatever others write beside the schedules of a store: the schedules go on."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from tarry import App
from tarry.client.clock import FakeClock
from tarry.client.schedules.facts import ScheduleFacts
from tarry.client.tasks.task import Task
from tarry.model.duration import MINUTE, SECOND
from tarry.model.schedules.definition import CallOptions, ScheduleDefinition
from tarry.model.schedules.schedule import ScheduledRun
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries.stored_schedules import PREFIX, DueEntry, entry_of
from tests.every_store.conftest import CLOCK
from tests.every_store.test_stored_schedules import Host
from tests.keeper.ticking import NOON

DUE = "schedule-due:"
LARGEST_TIME = 2**57
NOT_ENTRIES = [
    "",
    "!",
    ":",
    " 5:a",
    "-5:a",
    "-00000000000005:a",
    "0x5:a",
    "00000000000000_5:a",
    "zz",
    "0000:a",
    "+5",
    "0000000000000005:a",
    "0000000000000005:0000000g:a",
]


@pytest.fixture
def one(app: App, clock: FakeClock, report: Task[[int], None]) -> Iterator[Host]:
    host = Host(app, clock)
    host.schedules.put("good", report.call(7), cron="* * * * *")
    yield host
    host.store.close()


def ticks_on(one: Host, clock: FakeClock) -> None:
    """The schedule "good" makes its jobs, and the keeper rests between them."""
    for _ in range(3):
        clock.advance(60)
        pauses = [one.tick() for _ in range(4)]
        assert pauses[-1] >= 1.0, pauses
    assert [job.key for job in one.jobs() if "good" in (job.key or "")] == [
        f"schedule:good:{NOON + n * MINUTE}" for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("value", [b"", b"x"])
def test_names_that_are_no_entries(one: Host, clock: FakeClock, value: bytes) -> None:
    for name in NOT_ENTRIES:
        assert one.store.kv_cas(DUE + name, value, None)
    ticks_on(one, clock)


def test_more_of_them_than_are_read_at_once(one: Host, clock: FakeClock) -> None:
    one.store.kv_write([(f"{DUE}!{number}", b"", None) for number in range(450)])
    ticks_on(one, clock)


@pytest.mark.parametrize("value", [b"", b"x"])
def test_old_entries_of_schedules_that_are_not_there_go(one: Host, clock: FakeClock, value: bytes) -> None:
    entries = [DueEntry(number, "0" * 8, name).cell for number in (0, 5) for name in ("a", "é", "a:b", "")]
    for cell in entries:
        assert one.store.kv_cas(cell, value, None)
    ticks_on(one, clock)
    assert one.store.kv_read(entries) == [None] * len(entries)


def test_the_entry_of_a_schedule_has_another_value(one: Host, clock: FakeClock) -> None:
    cell = next(iter(one.store.kv_list(DUE)))
    assert one.store.kv_cas(cell, b"x", b"")
    ticks_on(one, clock)
    assert len(one.entries()) == 1


def hostile(draw: random.Random) -> StoredSchedule:
    """A schedule of values that can be stored, and that nobody would put."""
    times = (0, 1, NOON, NOON + 365 * 86400 * SECOND, LARGEST_TIME - 1, LARGEST_TIME)
    expressions = (
        "* * * * * *",
        "@every 1s",
        "@every 365000d",
        "0 0 29 2 *",
        "@once 9999-12-31T23:59:59Z",
        "x",
        "",
        "@",
    )
    definition = ScheduleDefinition(
        draw.choice(["report", "none", "\n"]),
        draw.choice([b"[7]", b"", b"{", b"\xff", b"[" * 5000, b' {"tarry-sealed":"', b' {"tarry-sealed":"ab.cd"}']),
        draw.choice(expressions),
        draw.choice(["UTC", "Europe/Paris", "../../etc/passwd", ""]),
        draw.choice(["skip", "last", "all"]),
        draw.choice(times),
        draw.choice(times),
        CallOptions(
            draw.choice([None, "mail", "\0", "x" * 200]),
            draw.choice([None, 2**62, -1]),
            draw.choice([None, 0, "x", 1e300]),
            labels=draw.choice([None, {}, {"": "x"}, {"a" * 1000: "b" * 1000}]),
            cost=draw.choice([None, 0, -1, 2**62]),
        ),
    )
    runs = [ScheduledRun(draw.choice(times), draw.choice(["", "x", "a" * 36]), draw.choice(["", "x"])) for _ in "ab"]
    return StoredSchedule(
        definition,
        look=CLOCK,
        after=draw.choice(times),
        paused=draw.random() < 0.1,
        problem_since=draw.choice(times),
        runs=runs,
    )


@pytest.mark.parametrize("seed", range(4))
def test_schedules_that_nobody_would_put(one: Host, clock: FakeClock, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(40):
        name, schedule = f"h{number}", hostile(draw)
        cell = msgspec.json.encode(schedule)
        entry = entry_of(name, schedule, cell)
        assert entry is not None
        assert one.store.kv_cas(f"{PREFIX}{name}", cell, None)
        assert one.store.kv_cas(entry.cell, b"", None)
    ticks_on(one, clock)
    for facts in one.schedules.list():
        one.schedules.get(facts.name)


@pytest.mark.parametrize("field", ["at", "until", "cron"])
def test_the_last_years_of_the_calendar(one: Host, clock: FakeClock, report: Task[[int], None], field: str) -> None:
    def put(moment: datetime) -> ScheduleFacts:
        expression = f"@once {moment.isoformat()}"
        when = {"at": {"at": moment}, "until": {"every": "1d", "until": moment}, "cron": {"cron": expression}}[field]
        return one.schedules.put("far", report.call(1), **when)  # type: ignore[arg-type]

    assert put(datetime(6499, 12, 31, 23, 59, 59, tzinfo=UTC)) == one.schedules.get("far")
    for year in (6500, 9999):
        with pytest.raises(ValueError, match=f"{field}=.* 6499"):
            put(datetime(year, 1, 1, tzinfo=UTC))
    ticks_on(one, clock)
    assert [facts.name for facts in one.schedules.list()] == ["far", "good"]
