"""What is told when: starts, ends, what comes together, how often, what could not be told; by a clock that stands."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tarry.alert.alarms import MOST_NAMED, MOST_OPEN, MOST_OWED, Alarms
from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message
from tarry.alert.condition import Condition
from tarry.alert.dispatcher import Dispatcher
from tarry.alert.storage import CellStorage, FileStorage
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.push.endpoint.recipient import Recipient
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tests.worker.bench import until, wait_for

START = 1_800_000_000_000_000
OPS, ANN = Recipient.parse("ops@example.org"), Recipient.parse("ann@example.org")
EVERYBODY = {one.id: one for one in (OPS, ANN)}


class AlertRig:
    """Alarms, and a post that is told what it sends, at a time of the test's choice."""

    def __init__(self, *, group: int = 30 * SECOND, every: int = 5 * MINUTE) -> None:
        self.now = START
        self.store: Store = MemoryStore()
        self.alarms = self.reload_alarms()
        self.sent: list[tuple[Recipient, Message]] = []
        self.check: Callable[[Recipient], object] = lambda to: None
        self.dispatcher = Dispatcher(self._send, group, every, "host")
        self.to = {"": [OPS]}

    def reload_alarms(self) -> Alarms:
        alarms = Alarms(CellStorage(self.store))
        alarms.load()
        return alarms

    def recipient_ids(self, task: str) -> Sequence[str]:
        return [one.id for one in self.to.get(task, self.to[""])]

    def update(self, *conditions: Condition, after: float = 0) -> None:
        self.now += round(after * SECOND)
        self.alarms.update(conditions, self.now, self)
        self.alarms.save(self.now)

    def deliver(self, after: float = 0) -> None:
        """Returns once what was due has arrived, or has not."""
        self.now += round(after * SECOND)
        self.dispatcher.deliver([self.alarms], lambda: EVERYBODY, self.now)
        until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tarry-alert-send"])
        self.dispatcher.deliver([self.alarms], lambda: EVERYBODY, self.now)
        self.alarms.save(self.now)

    def subjects(self, to: Recipient = OPS) -> list[str]:
        return [message.subject.removeprefix("tarry on host: ") for one, message in self.sent if one == to]

    def _send(self, to: Recipient, message: Message) -> None:
        self.check(to)
        self.sent.append((to, message))


@pytest.fixture
def rig() -> AlertRig:
    return AlertRig()


def wrong(key: str = "x", holds: float = 0, calm: float = 30, task: str = "", **more: object) -> Condition:
    whole = {"what": f"{key} is wrong", "over": f"{key} is well", "todo": f"mend {key}"} | more
    return Condition(key, task=task, holds=round(holds * SECOND), calm=round(calm * SECOND), **whole)  # type: ignore[arg-type]


def test_one_message_at_the_start_and_one_at_the_end(rig: AlertRig) -> None:
    rig.update(wrong(details=("first", "second")))
    rig.deliver(30)
    assert rig.subjects() == ["x is wrong"]
    (_, message) = rig.sent[0]
    assert message.text.startswith(
        "x is wrong\n  since 2027-01-15 08:00:00+00:00\n  first\n  second\n  what to do: mend x\n"
    )
    for _ in range(100):
        rig.update(wrong(), after=5)
        rig.deliver()
    assert len(rig.sent) == 1
    rig.update(after=5)
    rig.update(after=30)
    rig.deliver(300)
    assert rig.subjects() == ["x is wrong", "over: x is well"]
    assert rig.sent[1][1].text.startswith(
        "OVER: x is well\n  from 2027-01-15 08:00:00+00:00 to 2027-01-15 08:08:55+00:00, 8m55s\n"
    )


def test_a_condition_has_to_hold_before_it_is_told(rig: AlertRig) -> None:
    for _ in range(3):
        rig.update(wrong(holds=60), after=25)
        rig.update(after=25)
        rig.update(after=40)
    rig.deliver(600)
    assert rig.sent == []


def test_one_that_comes_and_goes_is_one(rig: AlertRig) -> None:
    for _ in range(10):
        rig.update(wrong(holds=60), after=10)
        rig.update(after=10)
    rig.deliver(60)
    assert rig.subjects() == ["x is wrong"]
    assert len(rig.alarms.state.open) == 1


def test_what_begins_together_goes_in_one_message(rig: AlertRig) -> None:
    rig.update(wrong("a"))
    rig.update(wrong("a"), wrong("b"), after=20)
    rig.deliver(5)
    assert rig.sent == []
    rig.deliver(5)
    assert rig.subjects() == ["2 things are wrong: a is wrong"]
    assert "b is wrong" in rig.sent[0][1].text


def test_nobody_is_told_too_often_and_nothing_is_left_out(rig: AlertRig) -> None:
    rig.update(wrong("a"))
    rig.deliver(30)
    rig.update(wrong("a"), wrong("b"))
    rig.update(wrong("b"), wrong("c"), after=60)
    rig.update(wrong("b"), wrong("c"), after=60)
    rig.deliver(100)
    assert rig.subjects() == ["a is wrong"]
    rig.deliver(80)
    assert rig.subjects() == ["a is wrong", "2 wrong, 1 over: b is wrong"]


def test_what_began_and_ended_meanwhile_is_told_as_over(rig: AlertRig) -> None:
    rig.update(wrong(calm=5))
    rig.update(after=1)
    rig.update(after=5)
    rig.deliver(30)
    assert rig.subjects() == ["over: x is well"]


def test_each_hears_what_is_theirs(rig: AlertRig) -> None:
    rig.to = {"": [OPS], "order.timeout": [OPS, ANN]}
    rig.update(wrong("a"), wrong("b", task="order.timeout"))
    rig.deliver(30)
    assert rig.subjects(OPS) == ["2 things are wrong: a is wrong"]
    assert rig.subjects(ANN) == ["b is wrong"]


def test_one_who_cannot_be_told_keeps_nobody_waiting_and_is_told_later(rig: AlertRig) -> None:
    def fail(to: Recipient) -> None:
        if to == ANN and rig.now < START + 10 * MINUTE:
            raise SendError("mail.example answered 451")

    rig.to, rig.check = {"": [OPS, ANN]}, fail
    rig.update(wrong())
    rig.deliver(30)
    assert (rig.subjects(OPS), rig.subjects(ANN)) == (["x is wrong"], [])
    tries = 0
    while not rig.subjects(ANN):
        rig.deliver(5)
        tries += 1
    assert rig.now < START + 16 * MINUTE
    assert (rig.subjects(OPS), rig.subjects(ANN)) == (["x is wrong"], ["x is wrong"])


def test_one_whose_server_hangs_keeps_nobody_waiting(rig: AlertRig) -> None:
    free = threading.Event()
    rig.to, rig.check = {"": [ANN, OPS]}, lambda to: wait_for(free) if to == ANN else None
    rig.update(wrong())
    rig.now += 30 * SECOND

    def look() -> None:
        rig.dispatcher.deliver([rig.alarms], lambda: EVERYBODY, rig.now)

    look()
    until(lambda: rig.subjects(OPS) == ["x is wrong"])
    rig.now += 10 * MINUTE
    look()
    assert len([thread for thread in threading.enumerate() if thread.name == "tarry-alert-send"]) <= 2
    free.set()
    rig.deliver()
    assert rig.alarms.state.owed == []
    assert (rig.subjects(OPS), rig.subjects(ANN)) == (["x is wrong"], ["x is wrong"])


def test_pauses_between_tries_grow_and_after_an_hour_it_is_given_up(
    rig: AlertRig, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def fail(to: Recipient) -> None:
        tries.append(rig.now)
        raise SendError("nobody there")

    rig.check = fail
    rig.update(wrong())
    for _ in range(100):
        rig.deliver(60)
    assert 10 < len(tries) < 25
    assert tries[-1] <= START + HOUR + 6 * MINUTE
    assert rig.alarms.state.owed == []
    (given_up,) = [line for line in caplog.messages if "dropped" in line]
    assert given_up == "ops@example.org could not be notified for an hour; dropped: x is wrong (nobody there)"


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_clock_that_was_ahead_left_is_sent(rig: AlertRig, fails: bool) -> None:
    def fail(to: Recipient) -> None:
        raise SendError("nobody there")

    rig.update(wrong(), after=DAY / SECOND)
    if fails:
        rig.check = fail
        rig.deliver(30)
        rig.check = lambda to: None
    rig.deliver(-DAY / SECOND)
    rig.deliver(60)
    assert rig.subjects() == ["x is wrong"]


def test_a_mistake_of_ours_is_a_try_that_failed(rig: AlertRig) -> None:
    def fail(to: Recipient) -> None:
        raise KeyError(to)

    rig.check = fail
    rig.update(wrong())
    rig.deliver(30)
    assert len(rig.alarms.state.owed) == 1


def test_a_restart_neither_repeats_the_start_nor_forgets_the_end(rig: AlertRig) -> None:
    rig.update(wrong())
    rig.deliver(30)
    rig.alarms = rig.reload_alarms()
    rig.update(wrong(), after=300)
    rig.deliver(300)
    assert rig.subjects() == ["x is wrong"]
    rig.alarms = rig.reload_alarms()
    rig.update(after=5)
    rig.update(after=30)
    rig.deliver(30)
    assert rig.subjects() == ["x is wrong", "over: x is well"]


def test_what_was_not_sent_yet_is_sent_after_a_restart(rig: AlertRig) -> None:
    rig.update(wrong())
    rig.alarms = rig.reload_alarms()
    rig.deliver(30)
    assert rig.subjects() == ["x is wrong"]


def test_of_two_hosts_one_writes(rig: AlertRig) -> None:
    other = rig.reload_alarms()
    rig.update(wrong("mine"))
    other.update([wrong("other")], rig.now, rig)
    assert not other.save(rig.now)
    assert list(other.state.open) == ["mine"]


def test_what_somebody_else_wrote_there_is_forgotten(rig: AlertRig) -> None:
    rig.store.kv_cas("alert:open", b"nonsense", None)
    rig.alarms = rig.reload_alarms()
    rig.update(wrong())
    assert list(rig.reload_alarms().state.open) == ["x"]


def test_what_is_remembered_says_nobody_s_address(rig: AlertRig) -> None:
    rig.update(wrong())
    assert b"example.org" not in rig.store.kv_list("alert:")["alert:open"]


def test_who_was_taken_out_of_the_settings_hears_nothing(rig: AlertRig) -> None:
    rig.to = {"": [Recipient.parse("gone@example.org")]}
    rig.update(wrong())
    rig.deliver(30)
    assert (rig.sent, len(rig.alarms.state.owed)) == ([], 1)
    rig.deliver(3600)
    assert (rig.sent, rig.alarms.state.owed) == ([], [])


def test_names_that_enqueuers_choose_silence_nothing_else(rig: AlertRig) -> None:
    rig.update(*[wrong(f"queue {number}") for number in range(2 * MOST_OPEN)])
    rig.update(wrong("store x"), *[wrong(f"queue {number}") for number in range(2 * MOST_OPEN)])
    assert "store x" in rig.alarms.state.open
    assert len(rig.alarms.state.open) == MOST_NAMED + 1


def test_all_is_in_the_log_also_with_nobody_to_tell(rig: AlertRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.to = {"": []}
    rig.update(wrong(calm=0))
    rig.update(after=1)
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("tarry.alerts", "ERROR", "x is wrong"),
        ("tarry.alerts", "WARNING", "x is well"),
    ]
    assert rig.store.kv_list("alert:") == {}


def test_what_is_remembered_is_bounded(rig: AlertRig) -> None:
    rig.update(*[wrong(f"{number}" * 100, what="w" * 5000, todo="t" * 5000) for number in range(3 * MOST_OPEN)])
    assert len(rig.alarms.state.open) == MOST_OPEN
    for number in range(5):
        rig.update(*[wrong(f"{number} {n}", calm=0) for n in range(MOST_OPEN)], after=60)
        rig.update(after=60)
    assert len(rig.alarms.state.owed) <= MOST_OWED
    assert len(rig.store.kv_list("alert:")["alert:open"]) < 500_000
    rig.deliver(30)
    assert len(rig.sent[0][1].text) < 100_000


def test_a_file_that_remembers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = FileStorage(tmp_path / "tarry.pid.alerts")
    assert storage.read() is None
    assert storage.write(b"one")
    assert (storage.read(), [path.name for path in tmp_path.iterdir()]) == (b"one", ["tarry.pid.alerts"])
    assert (tmp_path / "tarry.pid.alerts").stat().st_mode & 0o777 == 0o600
    assert storage.write(None)
    assert list(tmp_path.iterdir()) == []
    other = FileStorage(tmp_path / "tarry.pid.alerts")
    assert other.write(b"other")
    assert not storage.write(b"mine")
    assert (storage.read(), storage.write(None)) == (b"other", True)
    nowhere = FileStorage(tmp_path / "missing" / "file")
    assert nowhere.write(b"one")
    assert nowhere.write(b"two")
    assert nowhere.read() is None
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("soon", [True, False])
@pytest.mark.parametrize("lasted", [6, 60, 299, 400])
def test_the_end_of_an_outage_is_told_soon(rig: AlertRig, soon: bool, lasted: int) -> None:
    rig.update(wrong("away", calm=10, soon=soon))
    rig.deliver(30)
    assert rig.subjects() == ["away is wrong"]
    rig.update(after=lasted)
    rig.update(after=10)
    ended = rig.now
    while len(rig.sent) < 2:
        rig.deliver(1)
    assert rig.subjects() == ["away is wrong", "over: away is well"]
    # Others wait until they are due: some 300 s after the last message, or 30 s for others to join.
    assert (rig.now - ended <= 2 * SECOND) is soon


def test_an_outage_that_comes_and_goes_tells_two_messages_at_most_within_the_time_between_two(rig: AlertRig) -> None:
    begun = rig.now
    while rig.now - begun < 30 * MINUTE:
        rig.update(wrong("away", calm=10, soon=True), after=5)
        rig.deliver(1)
        rig.update(after=5)
        rig.update(after=10)
        rig.deliver(1)
    assert 4 <= len(rig.sent) <= 14
