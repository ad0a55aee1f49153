"""What is told when: starts, ends, what comes together, how often, what could not be told; by a clock that stands."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tarry.alert.alarms import MOST_NAMED, MOST_OPEN, MOST_OWED, Alarms
from tarry.alert.condition import Condition
from tarry.alert.dispatcher import Post
from tarry.alert.errors import Unsent
from tarry.alert.message import Message
from tarry.alert.storage import CellMemory, FileMemory
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.push.endpoint.recipient import Recipient
from tarry.store.base import Store
from tarry.store.memory import MemoryStore
from tests.engine.bench import until, wait_for

START = 1_800_000_000_000_000
OPS, ANN = Recipient.parse("ops@example.org"), Recipient.parse("ann@example.org")
EVERYBODY = {one.id: one for one in (OPS, ANN)}


class Room:
    """Alarms, and a post that is told what it sends, at a time of the test's choice."""

    def __init__(self, *, group: int = 30 * SECOND, every: int = 5 * MINUTE) -> None:
        self.now = START
        self.store: Store = MemoryStore()
        self.alarms = self.fresh()
        self.sent: list[tuple[Recipient, Message]] = []
        self.fails: Callable[[Recipient], object] = lambda to: None
        self.post = Post(self._send, group, every, "host")
        self.to = {"": [OPS]}

    def fresh(self) -> Alarms:
        alarms = Alarms(CellMemory(self.store))
        alarms.load()
        return alarms

    def of(self, task: str) -> Sequence[str]:
        return [one.id for one in self.to.get(task, self.to[""])]

    def see(self, *conditions: Condition, after: float = 0) -> None:
        self.now += round(after * SECOND)
        self.alarms.see(conditions, self.now, self)
        self.alarms.save(self.now)

    def deliver(self, after: float = 0) -> None:
        """Returns once what was due has arrived, or has not."""
        self.now += round(after * SECOND)
        self.post.deliver([self.alarms], lambda: EVERYBODY, self.now)
        until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tarry-alert-send"])
        self.post.deliver([self.alarms], lambda: EVERYBODY, self.now)
        self.alarms.save(self.now)

    def subjects(self, to: Recipient = OPS) -> list[str]:
        return [told.subject.removeprefix("tarry on host: ") for one, told in self.sent if one == to]

    def _send(self, to: Recipient, told: Message) -> None:
        self.fails(to)
        self.sent.append((to, told))


@pytest.fixture
def room() -> Room:
    return Room()


def wrong(key: str = "x", holds: float = 0, calm: float = 30, task: str = "", **more: object) -> Condition:
    whole = {"what": f"{key} is wrong", "over": f"{key} is well", "todo": f"mend {key}"} | more
    return Condition(key, task=task, holds=round(holds * SECOND), calm=round(calm * SECOND), **whole)  # type: ignore[arg-type]


def test_one_message_at_the_start_and_one_at_the_end(room: Room) -> None:
    room.see(wrong(details=("first", "second")))
    room.deliver(30)
    assert room.subjects() == ["x is wrong"]
    (_, told) = room.sent[0]
    assert told.text.startswith(
        "x is wrong\n  since 2027-01-15 08:00:00+00:00\n  first\n  second\n  what to do: mend x\n"
    )
    for _ in range(100):
        room.see(wrong(), after=5)
        room.deliver()
    assert len(room.sent) == 1
    room.see(after=5)
    room.see(after=30)
    room.deliver(300)
    assert room.subjects() == ["x is wrong", "over: x is well"]
    assert room.sent[1][1].text.startswith(
        "OVER: x is well\n  from 2027-01-15 08:00:00+00:00 to 2027-01-15 08:08:55+00:00, 8m55s\n"
    )


def test_a_condition_has_to_hold_before_it_is_told(room: Room) -> None:
    for _ in range(3):
        room.see(wrong(holds=60), after=25)
        room.see(after=25)
        room.see(after=40)
    room.deliver(600)
    assert room.sent == []


def test_one_that_comes_and_goes_is_one(room: Room) -> None:
    for _ in range(10):
        room.see(wrong(holds=60), after=10)
        room.see(after=10)
    room.deliver(60)
    assert room.subjects() == ["x is wrong"]
    assert len(room.alarms.kept.open) == 1


def test_what_begins_together_goes_in_one_message(room: Room) -> None:
    room.see(wrong("a"))
    room.see(wrong("a"), wrong("b"), after=20)
    room.deliver(5)
    assert room.sent == []
    room.deliver(5)
    assert room.subjects() == ["2 things are wrong: a is wrong"]
    assert "b is wrong" in room.sent[0][1].text


def test_nobody_is_told_too_often_and_nothing_is_left_out(room: Room) -> None:
    room.see(wrong("a"))
    room.deliver(30)
    room.see(wrong("a"), wrong("b"))
    room.see(wrong("b"), wrong("c"), after=60)
    room.see(wrong("b"), wrong("c"), after=60)
    room.deliver(100)
    assert room.subjects() == ["a is wrong"]
    room.deliver(80)
    assert room.subjects() == ["a is wrong", "2 wrong, 1 over: b is wrong"]


def test_what_began_and_ended_meanwhile_is_told_as_over(room: Room) -> None:
    room.see(wrong(calm=5))
    room.see(after=1)
    room.see(after=5)
    room.deliver(30)
    assert room.subjects() == ["over: x is well"]


def test_each_hears_what_is_theirs(room: Room) -> None:
    room.to = {"": [OPS], "order.timeout": [OPS, ANN]}
    room.see(wrong("a"), wrong("b", task="order.timeout"))
    room.deliver(30)
    assert room.subjects(OPS) == ["2 things are wrong: a is wrong"]
    assert room.subjects(ANN) == ["b is wrong"]


def test_one_who_cannot_be_told_keeps_nobody_waiting_and_is_told_later(room: Room) -> None:
    def fails(to: Recipient) -> None:
        if to == ANN and room.now < START + 10 * MINUTE:
            raise Unsent("mail.example answered 451")

    room.to, room.fails = {"": [OPS, ANN]}, fails
    room.see(wrong())
    room.deliver(30)
    assert (room.subjects(OPS), room.subjects(ANN)) == (["x is wrong"], [])
    tries = 0
    while not room.subjects(ANN):
        room.deliver(5)
        tries += 1
    assert room.now < START + 16 * MINUTE
    assert (room.subjects(OPS), room.subjects(ANN)) == (["x is wrong"], ["x is wrong"])


def test_one_whose_server_hangs_keeps_nobody_waiting(room: Room) -> None:
    free = threading.Event()
    room.to, room.fails = {"": [ANN, OPS]}, lambda to: wait_for(free) if to == ANN else None
    room.see(wrong())
    room.now += 30 * SECOND

    def look() -> None:
        room.post.deliver([room.alarms], lambda: EVERYBODY, room.now)

    look()
    until(lambda: room.subjects(OPS) == ["x is wrong"])
    room.now += 10 * MINUTE
    look()
    assert len([thread for thread in threading.enumerate() if thread.name == "tarry-alert-send"]) <= 2
    free.set()
    room.deliver()
    assert room.alarms.kept.owed == []
    assert (room.subjects(OPS), room.subjects(ANN)) == (["x is wrong"], ["x is wrong"])


def test_pauses_between_tries_grow_and_after_an_hour_it_is_given_up(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def fails(to: Recipient) -> None:
        tries.append(room.now)
        raise Unsent("nobody there")

    room.fails = fails
    room.see(wrong())
    for _ in range(100):
        room.deliver(60)
    assert 10 < len(tries) < 25
    assert tries[-1] <= START + HOUR + 6 * MINUTE
    assert room.alarms.kept.owed == []
    (given_up,) = [line for line in caplog.messages if "never is" in line]
    assert given_up == "ops@example.org was not told for an hour, and now never is: x is wrong (nobody there)"


def test_a_mistake_of_ours_is_a_try_that_failed(room: Room) -> None:
    def fails(to: Recipient) -> None:
        raise KeyError(to)

    room.fails = fails
    room.see(wrong())
    room.deliver(30)
    assert len(room.alarms.kept.owed) == 1


def test_a_restart_neither_repeats_the_start_nor_forgets_the_end(room: Room) -> None:
    room.see(wrong())
    room.deliver(30)
    room.alarms = room.fresh()
    room.see(wrong(), after=300)
    room.deliver(300)
    assert room.subjects() == ["x is wrong"]
    room.alarms = room.fresh()
    room.see(after=5)
    room.see(after=30)
    room.deliver(30)
    assert room.subjects() == ["x is wrong", "over: x is well"]


def test_what_was_not_sent_yet_is_sent_after_a_restart(room: Room) -> None:
    room.see(wrong())
    room.alarms = room.fresh()
    room.deliver(30)
    assert room.subjects() == ["x is wrong"]


def test_of_two_hosts_one_writes(room: Room) -> None:
    other = room.fresh()
    room.see(wrong("mine"))
    other.see([wrong("other")], room.now, room)
    assert not other.save(room.now)
    assert list(other.kept.open) == ["mine"]


def test_what_somebody_else_wrote_there_is_forgotten(room: Room) -> None:
    room.store.write("alert:open", b"nonsense", None)
    room.alarms = room.fresh()
    room.see(wrong())
    assert list(room.fresh().kept.open) == ["x"]


def test_what_is_remembered_says_nobody_s_address(room: Room) -> None:
    room.see(wrong())
    assert b"example.org" not in room.store.cells("alert:")["alert:open"]


def test_who_was_taken_out_of_the_settings_hears_nothing(room: Room) -> None:
    room.to = {"": [Recipient.parse("gone@example.org")]}
    room.see(wrong())
    room.deliver(30)
    assert (room.sent, len(room.alarms.kept.owed)) == ([], 1)
    room.deliver(3600)
    assert (room.sent, room.alarms.kept.owed) == ([], [])


def test_names_that_enqueuers_choose_silence_nothing_else(room: Room) -> None:
    room.see(*[wrong(f"queue {number}") for number in range(2 * MOST_OPEN)])
    room.see(wrong("store x"), *[wrong(f"queue {number}") for number in range(2 * MOST_OPEN)])
    assert "store x" in room.alarms.kept.open
    assert len(room.alarms.kept.open) == MOST_NAMED + 1


def test_all_is_in_the_log_also_with_nobody_to_tell(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.to = {"": []}
    room.see(wrong(calm=0))
    room.see(after=1)
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("tarry.alerts", "ERROR", "x is wrong"),
        ("tarry.alerts", "WARNING", "x is well"),
    ]
    assert room.store.cells("alert:") == {}


def test_what_is_remembered_is_bounded(room: Room) -> None:
    room.see(*[wrong(f"{number}" * 100, what="w" * 5000, todo="t" * 5000) for number in range(3 * MOST_OPEN)])
    assert len(room.alarms.kept.open) == MOST_OPEN
    for number in range(5):
        room.see(*[wrong(f"{number} {n}", calm=0) for n in range(MOST_OPEN)], after=60)
        room.see(after=60)
    assert len(room.alarms.kept.owed) <= MOST_OWED
    assert len(room.store.cells("alert:")["alert:open"]) < 500_000
    room.deliver(30)
    assert len(room.sent[0][1].text) < 100_000


def test_a_file_that_remembers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = FileMemory(tmp_path / "tarry.pid.alerts")
    assert memory.read() is None
    assert memory.write(b"one")
    assert (memory.read(), [path.name for path in tmp_path.iterdir()]) == (b"one", ["tarry.pid.alerts"])
    assert (tmp_path / "tarry.pid.alerts").stat().st_mode & 0o777 == 0o600
    assert memory.write(None)
    assert list(tmp_path.iterdir()) == []
    other = FileMemory(tmp_path / "tarry.pid.alerts")
    assert other.write(b"other")
    assert not memory.write(b"mine")
    assert (memory.read(), memory.write(None)) == (b"other", True)
    nowhere = FileMemory(tmp_path / "missing" / "file")
    assert nowhere.write(b"one")
    assert nowhere.write(b"two")
    assert nowhere.read() is None
    assert len(caplog.messages) == 1
