"""Which jobs there is room for, and when jobs are counted for that."""

from typing import Any

import pytest

from tarry.errors import QueueFull
from tarry.model.bound import Bound
from tarry.model.job import Job
from tarry.store.rules.admission import admit, admit_all
from tarry.store.rules.ids import uuid7

SECOND = 1_000_000
NOW = 1000 * SECOND


class FakeRooms:
    """Cells in a dict. waiting: what the next count finds; counting takes `cost` microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: int = 1000) -> None:
        self.cells: dict[str, bytes] = {}
        self.waiting: dict[str, int] = {}
        self.counts: list[str] = []
        self.locks: list[str] = []
        self._clock, self._cost = 0.0, cost
        monkeypatch.setattr("tarry.store.rules.admission.time.perf_counter", lambda: self._clock)

    def lock(self, name: str) -> bytes | None:
        self.locks.append(name)
        return self.cells.get(name)

    def save(self, name: str, value: bytes) -> None:
        self.cells[name] = value

    def count(self, queue: str, most: int) -> int:
        self._clock += self._cost / 1e6
        self.counts.append(queue)
        return min(most, self.waiting.get(queue, 0))

    def taken(self, count: int, most: int, now: int = NOW, queue: str = "mail", **more: Any) -> int:
        """How many of so many jobs are admitted, which wait from then on."""
        jobs = [Job(uuid7(), "t", b"[]", queue=queue) for _ in range(count)]
        got = count - len(admit(self, jobs, {queue: Bound(most)}, now, more.get("freed", ())))
        self.waiting[queue] = self.waiting.get(queue, 0) + got
        return got


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> FakeRooms:
    return FakeRooms(monkeypatch)


def test_jobs_are_counted_once_while_there_is_room(rooms: FakeRooms) -> None:
    assert [rooms.taken(10, 100) for _ in range(10)] == [10] * 10
    assert len(rooms.counts) == 1


def test_a_full_queue_is_not_counted_for_each_job(rooms: FakeRooms) -> None:
    rooms.taken(100, 100)
    rooms.waiting["mail"] = 0
    # The first count took 1 ms, so the next comes after 20 ms.
    assert [rooms.taken(1, 100, NOW + 19_999) for _ in range(50)] == [0] * 50
    assert len(rooms.counts) == 1
    assert rooms.taken(1, 100, NOW + 20_000) == 1
    assert len(rooms.counts) == 2


def test_what_came_back_is_counted_within_a_second(rooms: FakeRooms) -> None:
    rooms.taken(1, 100)
    rooms.waiting["mail"] = 100
    assert rooms.taken(1, 100, NOW + SECOND) == 1, "the count is young yet"
    assert rooms.taken(1, 100, NOW + SECOND + 1) == 0


def test_the_error_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = FakeRooms(monkeypatch, cost=300_000)
    jobs = [Job(uuid7(), "t", b"[]", queue="mail") for _ in range(2)]
    errors = admit(rooms, jobs, {"mail": Bound(1)}, NOW, ())
    assert [*errors] == [1]
    assert (errors[1].queue, errors[1].most, errors[1].retry_after) == ("mail", 1, 6.0)
    with pytest.raises(QueueFull, match=r"queue mail is full: 1 of its jobs wait; try again in 6 s"):
        admit_all(rooms, jobs, {"mail": Bound(1)}, NOW)


def test_queues_are_locked_in_the_order_of_their_names(rooms: FakeRooms) -> None:
    jobs = [Job(uuid7(), "t", b"[]", queue=queue) for queue in ("c", "a", "b", "a", "free")]
    admit(rooms, jobs, {queue: Bound(9) for queue in "bacd"}, NOW, ())
    assert rooms.locks == ["room:a", "room:b", "room:c"]


def test_queues_without_a_bound_are_not_looked_at(rooms: FakeRooms) -> None:
    assert rooms.taken(5, 0) == 5
    assert (rooms.locks, rooms.counts) == ([], [])


def test_after_a_deletion_jobs_are_counted_at_once(rooms: FakeRooms) -> None:
    rooms.taken(9, 9)
    rooms.waiting["mail"] -= 2
    assert rooms.taken(3, 9, freed=("mail",)) == 2


def test_the_clock_was_set_back(rooms: FakeRooms) -> None:
    rooms.taken(9, 9)
    rooms.waiting["mail"] = 0
    assert rooms.taken(9, 9, NOW - 500 * SECOND) == 9
