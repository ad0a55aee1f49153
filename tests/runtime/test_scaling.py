"""Counts by hand, by reload and by the keeper's reports, of groups without processes."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.runtime.autoscaler import Range
from tarry.runtime.board.master_status import PoolStatus
from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.pipe import MessagePipe
from tarry.runtime.process_group import ProcessGroup
from tarry.runtime.role import ChildContext, Role
from tarry.runtime.scaling import PoolScaler, pool_status
from tarry.runtime.signal_queue import Signals

WIDE = Range(2, 5)


def role(range: Range | None = WIDE, count: int = 2) -> Role:
    return Role("worker", "mail", count, 1, lambda child: 0, range=range)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Scoreboard]:
    board = Scoreboard(tmp_path / "board")
    yield board
    board.remove()


@pytest.fixture
def group(board: Scoreboard) -> ProcessGroup:
    return ProcessGroup(role(), board, 1)


def start_workers(group: ProcessGroup, fill: float) -> None:
    """As many as are wanted work, so much."""
    group.reconcile(0.0)
    for child in group.children:
        child.pid, child.is_ready = os.getpid() + child.number, True
        child.slot.load(fill, 1)


def test_by_hand_it_stays_within_its_bounds(group: ProcessGroup) -> None:
    scaling = PoolScaler()
    for by, wanted, count in ((1, None, 3), (1, 5, 5), (1, None, 5), (-1, 2, 2), (-1, None, 2), (1, 6, 2), (1, 0, 2)):
        scaling.set_by_hand(group, by, wanted, 0.0)
        assert group.wanted == count
    assert pool_status(group) == PoolStatus("mail", 2, "", 2, 5)


def test_a_pool_without_bounds_goes_where_it_is_told(board: Scoreboard) -> None:
    group = ProcessGroup(role(None, 1), board, 1)
    for by, wanted, count in ((1, None, 2), (-1, None, 1), (-1, None, 1), (1, 40, 40), (1, 0, 0)):
        PoolScaler().set_by_hand(group, by, wanted, 0.0)
        assert group.wanted == count


@pytest.mark.parametrize(
    ("was", "following", "count"),
    [(4, role(Range(2, 3)), 3), (2, role(Range(3, 9), 3), 3), (4, role(Range(1, 9), 1), 4), (4, role(None, 2), 2)],
    ids=["max falls", "min rises", "still within", "no bounds any more"],
)
def test_a_reload_brings_other_bounds(group: ProcessGroup, was: int, following: Role, count: int) -> None:
    group.wanted = was
    group.replace_with(following, 2)
    assert group.wanted == count


def test_a_reload_brings_bounds_where_there_were_none(board: Scoreboard) -> None:
    group = ProcessGroup(role(None, 7), board, 1)
    group.replace_with(role(), 2)
    assert group.wanted == 5


def test_what_the_keeper_tells_makes_it_grow(group: ProcessGroup) -> None:
    scaling, now = PoolScaler(), time.monotonic()
    start_workers(group, 1.0)
    scaling.follow_backlogs({"mail": [9, 2.5]}, [group], now)
    assert group.wanted == 4
    scaling.follow_backlogs({"mail": [9, 2.5]}, [group], now + 1)  # those that came are not ready yet
    assert group.wanted == 4
    start_workers(group, 1.0)
    scaling.follow_backlogs({"mail": [9, 2.5]}, [group], now + 2)
    assert group.wanted == 5


def test_what_it_tells_of_others_and_what_makes_no_sense_changes_nothing(
    group: ProcessGroup, board: Scoreboard
) -> None:
    fixed = ProcessGroup(role(None), board, 1)
    for told in ({"web": [9, 2.5]}, {"mail": [9]}, {"mail": ["9", 2.5]}, [1], None, "x", {"mail": None}):
        start_workers(group, 1.0)
        PoolScaler().follow_backlogs(told, [group, fixed], 10.0)
    PoolScaler().follow_backlogs({"mail": [9, 2.5]}, [fixed], 10.0)
    assert (group.wanted, fixed.wanted) == (2, 2)


def test_servers_grow_when_all_are_full_and_shrink_when_fewer_will_do(board: Scoreboard) -> None:
    server = Role("server", "", 1, 1, lambda child: 0, range=Range(1, 3, calm=2.0))
    group, scaling, now = ProcessGroup(server, board, 1), PoolScaler(), time.monotonic()
    start_workers(group, 0.5)
    scaling.follow_servers([group], now)
    assert group.wanted == 1
    start_workers(group, 1.0)
    scaling.follow_servers([group], now + 0.5)  # too soon after the last look
    assert group.wanted == 1
    scaling.follow_servers([group], now + 1)
    assert group.wanted == 2
    start_workers(group, 0.0)
    for second in range(2, 6):
        scaling.follow_servers([group], now + second)
    assert group.wanted == 1


def test_servers_without_bounds_and_pools_are_left_alone(group: ProcessGroup, board: Scoreboard) -> None:
    fixed = ProcessGroup(Role("server", "", 1, 1, lambda child: 0), board, 1)
    for each in (group, fixed):
        start_workers(each, 1.0)
    PoolScaler().follow_servers([group, fixed], time.monotonic())
    assert (group.wanted, fixed.wanted) == (2, 1)


def test_time_in_use_is_added_up_between_two_looks(board: Scoreboard) -> None:
    slot = board.allocate(1)
    began = time.monotonic()
    slot.load(1.0, 3)
    slot.load(0.5, 2)
    slot.load(0.5, 2)
    now = time.monotonic()
    busy, fill, held = slot.load_figures(now + 10)
    assert (fill, held) == (0.5, 2)
    assert 5.0 <= busy <= 5.0 + (now - began)
    slot.load(0.0, 0)
    assert slot.load_figures(now + 20)[0] == pytest.approx(slot.load_figures(now + 90)[0])


def test_news_for_a_master_that_does_not_listen_neither_wait_nor_pile_up(board: Scoreboard) -> None:
    ours, theirs = socket.socketpair()
    link = MessagePipe(ours)
    with Signals(()) as signals:
        child = ChildContext(board.allocate(1), "", 1, link, signals, {})
        while not link.has_unsent:
            child.try_send({"backlog": {"mail": [1, 0.5]}, "pad": "x" * 1000})
        for _ in range(1000):
            child.try_send({"ready_late": True})
        master = MessagePipe(theirs)
        heard = master.receive()
        child.try_send({"fresh": True})
        heard += master.receive()
    assert {"ready_late": True} not in heard
    assert heard[-1] == {"fresh": True}
    link.close()
    master.close()
