"""Which jobs there is room for, and when jobs are counted for that."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from tarry.errors import QueueFull
from tarry.model.bound import Bound
from tarry.model.job import Job
from tarry.store.rules.ids import uuid7
from tarry.store.shared.admission import Admission, admit_all
from tarry.store.shared.bounded_room import is_old_room

SECOND = 1_000_000
NOW = 1000 * SECOND


def ids(jobs: Sequence[Job]) -> list[bytes]:
    return [job.id for job in jobs]


class FakeRooms:
    """Cells in a dict. waiting: what the next count finds; counting takes `cost` microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost: int = 1000) -> None:
        self.cells: dict[str, bytes] = {}
        self.waiting: dict[str, int] = {}
        self.counts: list[str] = []
        self.locks: list[str] = []
        self.there: set[bytes] = set()
        self.looks = 0
        self._clock, self._cost = 0.0, cost
        monkeypatch.setattr("tarry.store.shared.bounded_room.time.perf_counter", lambda: self._clock)

    def lock(self, name: str) -> bytes | None:
        self.locks.append(name)
        return self.cells.get(name)

    def save(self, name: str, value: bytes) -> None:
        self.cells[name] = value

    def count(self, queue: str, most: int) -> int:
        self._clock += self._cost / 1e6
        self.counts.append(queue)
        return min(most, self.waiting.get(queue, 0))

    def count_key(self, queue: str, task: str, lane: str, most: int) -> int:
        return self.count(f"{queue} {task} {lane}", most)

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        self.looks += 1
        return [id for id in ids if id in self.there]

    def taken(self, count: int, most: int, now: int = NOW, queue: str = "mail", **more: Any) -> int:
        """How many of so many jobs are admitted, which wait from then on."""
        jobs = [Job(uuid7(), "t", b"[]", queue=queue) for _ in range(count)]
        answers = Admission(self, jobs, {queue: Bound(most)}, now, more.get("freed", ())).insert(ids)
        got = sum(isinstance(answer, bytes) for answer in answers)
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
    admission = Admission(rooms, jobs, {"mail": Bound(1)}, NOW)
    admission.save()
    errors = admission.refused
    assert [*errors] == [1]
    assert (errors[1].queue, errors[1].most, errors[1].retry_after) == ("mail", 1, 6.0)
    with pytest.raises(QueueFull, match=r"queue mail is full: 1 of its jobs wait; try again in 6 s"):
        admit_all(rooms, jobs, {"mail": Bound(1)}, NOW)


def test_queues_are_locked_in_the_order_of_their_names(rooms: FakeRooms) -> None:
    jobs = [Job(uuid7(), "t", b"[]", queue=queue) for queue in ("c", "a", "b", "a", "free")]
    Admission(rooms, jobs, {queue: Bound(9) for queue in "bacd"}, NOW)
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


def test_what_another_job_stands_for_takes_no_room(rooms: FakeRooms) -> None:
    jobs = [Job(uuid7(), "t", b"[]", queue="mail") for _ in range(3)]
    for _ in range(20):
        answers = Admission(rooms, jobs, {"mail": Bound(4)}, NOW).insert(lambda jobs: [b"holder"] * len(jobs))
        assert answers == [b"holder"] * 3
    assert (rooms.taken(4, 4), len(rooms.counts)) == (4, 1)


def test_all_rooms_are_locked_before_the_first_is_counted(rooms: FakeRooms) -> None:
    """A database may show a transaction what was there at its first read: what the others did that it waited for must
    be in it."""
    jobs = [Job(uuid7(), "t", b"[]", queue=queue, lane="ann") for queue in ("a", "b")]
    count, locks_then = rooms.count, list[int]()

    def noting(queue: str, most: int) -> int:
        locks_then.append(len(rooms.locks))
        return count(queue, most)

    rooms.count = noting  # type: ignore[method-assign]
    Admission(rooms, jobs, {"a": Bound(9), "b": Bound(9)}, NOW, (), {("t", "ann"): 3})
    assert locks_then == [4] * 4


def test_a_room_that_was_counted_long_ago_is_old(rooms: FakeRooms) -> None:
    job = Job(uuid7(), "t", b"[]", queue="mail", lane="ann")
    Admission(rooms, [job], {}, NOW, (), {("t", "ann"): 3}).insert(ids)
    ((name, value),) = rooms.cells.items()
    assert name.startswith("key-room:")
    assert not is_old_room(value, NOW + 60 * SECOND)
    assert is_old_room(value, NOW + 60 * SECOND + 1)
    assert (is_old_room(b"", NOW), is_old_room(b"[", NOW)) == (False, True)


def test_jobs_that_are_sent_again_need_no_room(rooms: FakeRooms) -> None:
    """Else the first ones, which are there, would take the room of the last ones each time."""
    jobs = [Job(uuid7(), "t", b"[]", queue="mail") for _ in range(6)]
    rooms.there, rooms.waiting = {job.id for job in jobs[:3]}, {"mail": 3}
    for _ in range(2):
        assert Admission(rooms, jobs, {"mail": Bound(6)}, NOW).refused == {}
    assert rooms.looks == 2
    assert rooms.taken(3, 6) == 3
    assert rooms.looks == 2, "nobody looks while there is room for all"
