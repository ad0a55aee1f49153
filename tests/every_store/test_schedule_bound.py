"""The store keeps a bounded number of schedules."""

from collections.abc import Callable, Iterator

import pytest

from tarry import App, TooManySchedules
from tarry.client.client import Client
from tarry.client.schedules.app_schedules import AppSchedules
from tarry.client.tasks.task import Task
from tarry.store.memory.store import MemoryStore
from tarry.store.queries import schedule_room
from tarry.store.queries.schedule_room import ScheduleRoom
from tarry.store.rules.base import Store

FULL = (
    r"^schedule c: the store keeps 2 schedules, and no more: delete some, let fewer schedules enqueue many jobs each,"
    r" or raise max_schedules$"
)


@pytest.fixture
def report(app: App) -> Task[[int], None]:
    @app.task(name="report")
    def report(customer: int) -> None: ...

    return report


@pytest.fixture
def process(app: App, report: Task[[int], None]) -> Iterator[Callable[[int], AppSchedules]]:
    """What a process puts that has this bound."""
    stores: list[Store] = []

    def process(most: int) -> AppSchedules:
        stores.append(app.open_store())
        client = Client(stores[-1], app.tasks)
        client.max_schedules = most
        return AppSchedules(lambda: client)

    yield process
    for store in stores:
        store.close()


def test_one_more_is_refused(process: Callable[[int], AppSchedules], report: Task[[int], None]) -> None:
    one, other = process(2), process(2)
    one.put("a", report.call(1), every="1h")
    other.put("b", report.call(1), every="1h")
    for each in (one, other):
        with pytest.raises(TooManySchedules, match=FULL):
            each.put("c", report.call(1), every="1h")
        assert each.put("a", report.call(2), every="2h").cron == "@every 2h", "those that are there are edited"
    assert [each.name for each in one.list()] == ["a", "b"]
    one.delete("a")
    other.put("c", report.call(1), every="1h")
    process(0).put("d", report.call(1), every="1h")


def test_many_processes_go_over_it_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is much room: each trusts its count for a hundred puts."""
    counts, store = 0, MemoryStore()

    def count(prefix: str) -> int:
        nonlocal counts
        counts += 1
        return 0

    monkeypatch.setattr(store, "kv_count", count)
    room = ScheduleRoom(store, 100_000)
    for number in range(1000):
        room.take(f"a{number}")
    assert 9 <= counts <= 11


def test_many_puts_make_few_counts(
    process: Callable[[int], AppSchedules], report: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules, counts = process(100), 0
    store = schedules._client().store
    count = store.kv_count

    def counting(prefix: str) -> int:
        nonlocal counts
        counts += 1
        return count(prefix)

    monkeypatch.setattr(store, "kv_count", counting)
    monkeypatch.setattr(schedule_room, "COUNTED_FOR", 1e9)
    for number in range(50):
        schedules.put(f"a{number}", report.call(1), every="1h")
    assert counts < 10
    for number in range(50, 100):
        schedules.put(f"a{number}", report.call(1), every="1h")
    with pytest.raises(TooManySchedules):
        schedules.put("a100", report.call(1), every="1h")
    assert len([*schedules.list()]) == 100
    monkeypatch.setattr(schedule_room, "COUNTED_FOR", -1.0)
    before = counts
    for number in (7, 8):
        schedules.delete(f"a{number}")
        schedules.put(f"b{number}", report.call(1), every="1h")
    assert counts == before + 2, "an old count is not trusted"
