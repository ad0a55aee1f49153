import math
import os
from collections.abc import Iterator
from pathlib import Path
from time import CLOCK_MONOTONIC, clock_gettime_ns

import pytest

from tarry.runtime.board.layout import QUITTING, READY, RESTING, SERVING, STARTING, STOPPING
from tarry.runtime.board.master_status import MasterStatus
from tarry.runtime.board.reader import Board, BoardJob, ChildStatus
from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.notify import Notifier, describe_board
from tests.runtime.notify_socket import NotifySocket


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NotifySocket]:
    """Listens as systemd does."""
    service = NotifySocket(str(tmp_path / "notify"))
    yield service
    service.close()


class TwoWorkers:
    """A scoreboard of two workers, of which one is ready."""

    def __init__(self, path: Path) -> None:
        self.board = Scoreboard(path, [1, 1])
        self.slots = [self.board.allocate(1) for _ in range(2)]
        for number, slot in enumerate(self.slots, 1):
            slot.prepare("worker", "default", number, 1)
            slot.set_pid(number)
        self.slots[0].set_boot_state(READY)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[TwoWorkers]:
    """In the file that is looked at."""
    workers = TwoWorkers(tmp_path / "board")
    yield workers
    workers.board.remove()


@pytest.fixture
def new(tmp_path: Path, service: NotifySocket) -> Iterator["NewNotifier"]:
    """Makes what tells the manager."""
    new = NewNotifier(service, tmp_path / "board")
    yield new
    new.close()


class NewNotifier:
    def __init__(self, service: NotifySocket, board: Path) -> None:
        self._manager, self._board = service, board
        self._all: list[Notifier] = []

    def __call__(self, watchdog: float = 0.0, address: str | None = None) -> Notifier:
        self._all.append(Notifier(self._manager.address if address is None else address, self._board, watchdog))
        return self._all[-1]

    def by(self, environ: dict[str, str]) -> Notifier:
        self._all.append(Notifier.from_environ(self._board, environ))
        return self._all[-1]

    def close(self) -> None:
        for notify in self._all:
            notify.close()


def test_the_life_of_a_master(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    told.on_state(SERVING)
    assert service.take() == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving"]
    told.on_state(STOPPING)
    told.on_state(QUITTING)
    assert service.take() == ["STOPPING=1\nSTATUS=stopping", "STOPPING=1\nSTATUS=quitting"]


def test_why_a_start_failed_is_in_the_status_in_one_line(service: NotifySocket, new: NewNotifier) -> None:
    new().on_state(STOPPING, "worker default.1 could not start: no module\nTraceback\nmore")
    assert service.take() == ["STOPPING=1\nSTATUS=stopping; worker default.1 could not start: no module"]


def test_a_reload_carries_the_moment_and_ends_ready(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    told.on_state(SERVING)
    service.take()
    before = clock_gettime_ns(CLOCK_MONOTONIC) // 1000
    told.on_reload_start()
    (message,) = service.take()
    word, moment, status = message.split("\n")
    assert (word, status) == ("RELOADING=1", "STATUS=reloading")
    assert before <= int(moment.removeprefix("MONOTONIC_USEC=")) <= clock_gettime_ns(CLOCK_MONOTONIC) // 1000
    told.on_reload_end()
    assert service.take() == ["READY=1\nSTATUS=serving"]


def test_why_a_reload_failed_is_seen_until_the_next(
    service: NotifySocket, new: NewNotifier, workers: TwoWorkers
) -> None:
    told = new()
    workers.board.set_state(SERVING)
    told.on_state(SERVING)
    told.on_reload_start()
    told.beat(100.0)
    workers.board.publish(MasterStatus(trouble="no module shop"))
    told.on_reload_end("no module shop")
    for now in (101.0, 120.0, 140.0):
        told.beat(now)
    assert [line.split("\n")[-1] for line in service.take() if "STATUS" in line] == [
        "STATUS=serving",
        "STATUS=reloading",
        "STATUS=serving: 1 of 2 processes ready",
        "STATUS=serving; the last reload failed: no module shop",
        "STATUS=serving: 1 of 2 processes ready; the last reload failed: no module shop",
    ]


def test_who_rests_and_wakes_by_a_reload_is_ready_when_that_is_over(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    for state in (SERVING, RESTING):
        told.on_state(state)
    told.on_reload_start()
    told.on_state(SERVING)
    assert len(service.take()) == 2
    told.on_reload_end()
    assert service.take() == ["READY=1\nSTATUS=serving"]


def test_a_stop_in_the_middle_of_a_reload_is_the_last_word(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    told.on_state(SERVING)
    told.on_reload_start()
    told.on_state(STOPPING)
    told.on_reload_end()
    assert service.take()[-1] == "STOPPING=1\nSTATUS=stopping"


def test_the_watchdog_hears_from_us_at_half_its_time(service: NotifySocket, new: NewNotifier) -> None:
    told = new(watchdog=10.0)
    told.on_state(SERVING)
    told.beat(100.0)
    assert told.next_beat == 105.0
    told.beat(104.9)
    assert service.take()[1:] == ["WATCHDOG=1"]
    told.beat(105.0)
    assert service.take() == ["WATCHDOG=1"]
    assert told.next_beat == 110.0


def test_without_a_watchdog_nothing_is_due(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    told.beat(100.0)
    assert told.next_beat == math.inf
    assert "WATCHDOG=1" not in service.take()


def test_time_is_asked_for_while_it_starts_reloads_or_stops(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    told.beat(100.0)
    told.beat(104.0)
    assert service.take() == ["EXTEND_TIMEOUT_USEC=30000000"]
    told.on_state(SERVING)
    told.beat(105.0)
    assert service.take() == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving"]
    told.on_state(STOPPING)
    for now in (106.0, 108.0, 111.0):
        told.beat(now)
    assert service.take()[1:] == ["EXTEND_TIMEOUT_USEC=30000000"] * 2
    told.on_reload_start()
    told.beat(112.0)
    assert service.take()[1:] == ["EXTEND_TIMEOUT_USEC=30000000"]


def test_the_status_is_told_when_it_changed(service: NotifySocket, new: NewNotifier, workers: TwoWorkers) -> None:
    told = new()
    told.beat(100.0)
    told.beat(102.0)
    workers.slots[1].set_boot_state(READY)
    told.beat(102.5)
    told.beat(103.0)
    lines = [line for line in service.take() if line.startswith("STATUS")]
    assert lines == [f"STATUS=starting: {ready} of 2 processes ready" for ready in (1, 2)]


def test_where_nothing_was_new_it_looks_seldom(service: NotifySocket, new: NewNotifier, workers: TwoWorkers) -> None:
    told = new()
    told.on_state(SERVING)
    for now in (100.0, 101.0):
        told.beat(now)
    service.take()
    workers.slots[1].set_boot_state(READY)
    told.beat(105.0)
    assert service.take() == []
    told.beat(106.0)
    assert service.take() == ["STATUS=starting: 2 of 2 processes ready"]


def child(number: int, boot: str, *running: BoardJob) -> ChildStatus:
    facts = (f"owner-{number}", 0.0, 0, 0, 0, -1.0, "", list(running))
    return ChildStatus("worker", "default", number, 1, 100 + number, boot, *facts)


def test_a_stop_says_for_whom_it_waits() -> None:
    job = BoardJob("ab", "shop.send", 5.0, 1)
    assert describe_board(Board(1, STOPPING, 0.0, [child(2, STOPPING), child(1, STOPPING, job), child(3, READY)])) == (
        "stopping: waits for worker default.1 pid 101; runs shop.send ab for 5s, and 2 more"
    )
    assert describe_board(Board(1, SERVING, 0.0, [child(1, READY, job), child(2, STARTING)])) == (
        "serving: 1 of 2 processes ready"
    )
    assert describe_board(Board(1, STOPPING, 0.0, [])) == "stopping: waits for the end"


def test_what_a_full_manager_does_not_take_comes_later_in_order(service: NotifySocket, new: NewNotifier) -> None:
    told = new(watchdog=10.0)
    while told._send("noise"):
        """Until its queue is full."""
    told.on_state(SERVING)
    told.on_state(STOPPING)
    service.take()
    told.beat(100.0)
    kept = [message.split("\n")[0] for message in service.take()]
    assert kept == ["READY=1", "STOPPING=1", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=30000000"]


def test_a_manager_that_is_gone_is_no_harm_and_is_told_when_it_is_back(service: NotifySocket, new: NewNotifier) -> None:
    told = new()
    service.close()
    Path(service.address).unlink()
    told.on_state(SERVING)
    for _ in range(1000):
        told.on_reload_start()
    told.on_reload_end()
    told.beat(100.0)
    again = NotifySocket(service.address)
    for now in (101.0, 102.0):  # the kernel queues some ten
        told.beat(now)
        again.take()
    states = [message for message in again.messages if "STATUS" in message]
    assert len(states) == 16
    assert states[-1].startswith("READY=1")
    again.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative/path", "/" + "long" * 100, "/nowhere/at/all"])
def test_where_nobody_listens_every_word_is_in_vain(address: str, new: NewNotifier) -> None:
    told = new(1.0, address)
    told.on_state(SERVING)
    told.on_reload_start()
    told.on_reload_end()
    told.beat(100.0)
    told.close()


def test_without_a_manager_nothing_is_opened(new: NewNotifier) -> None:
    before = os.listdir("/proc/self/fd")
    told = new(1.0, "")
    assert os.listdir("/proc/self/fd") == before
    assert told.next_beat == math.inf


def test_an_abstract_address(new: NewNotifier) -> None:
    service = NotifySocket(f"@tarry-test-{os.getpid()}")
    told = new(0.0, service.address)
    told.on_state(STOPPING)
    assert service.take() == ["STOPPING=1\nSTATUS=stopping"]
    service.close()


def test_a_child_has_no_voice(service: NotifySocket, new: NewNotifier) -> None:
    told = new(watchdog=10.0)
    told.close()
    told.on_state(SERVING)
    told.beat(100.0)
    assert service.take() == []
    assert told.next_beat == math.inf


def test_the_variables_are_taken_away(service: NotifySocket, new: NewNotifier) -> None:
    environ = {
        "NOTIFY_SOCKET": service.address,
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    told = new.by(environ)
    assert environ == {"HOME": "/"}
    told.beat(100.0)
    assert told.next_beat == 101.5
    assert "WATCHDOG=1" in service.take()


@pytest.mark.parametrize("variables", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}])
def test_a_watchdog_that_is_not_ours_hears_nothing(
    service: NotifySocket, new: NewNotifier, variables: dict[str, str]
) -> None:
    environ = {"NOTIFY_SOCKET": service.address, "WATCHDOG_USEC": "3000000"} | variables
    told = new.by(environ)
    told.beat(100.0)
    assert told.next_beat == math.inf
    assert "WATCHDOG=1" not in service.take()


def test_another_master_speaks_after_an_upgrade(service: NotifySocket, new: NewNotifier) -> None:
    old = new(watchdog=8.0)
    old.on_state(SERVING)
    service.take()
    following = new.by(dict(old.environ))
    old.hand_over(4711)
    old.on_state(STOPPING)
    old.beat(100.0)
    # Else the manager would take the old one's end for the service's.
    assert service.take() == ["MAINPID=4711"]
    following.on_state(SERVING)
    assert service.take() == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving"]
    following.beat(following.next_beat)
    assert "WATCHDOG=1" in service.take()
