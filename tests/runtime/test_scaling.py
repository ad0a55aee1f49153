"""Counts by hand, by reload and by what the keeper tells, of crews without processes."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.runtime.autoscaler import Range
from tarry.runtime.master_status import PoolStatus
from tarry.runtime.pipe import Link
from tarry.runtime.process_group import Crew
from tarry.runtime.role import Child, Role
from tarry.runtime.scaling import Scaling, pool_status
from tarry.runtime.scoreboard import Scoreboard
from tarry.runtime.signals import Signals

WIDE = Range(2, 5)


def role(range: Range | None = WIDE, count: int = 2) -> Role:
    return Role("worker", "mail", count, 1, lambda child: 0, range=range)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Scoreboard]:
    board = Scoreboard(tmp_path / "board")
    yield board
    board.remove()


@pytest.fixture
def crew(board: Scoreboard) -> Crew:
    return Crew(role(), board, 1)


def staff(crew: Crew, fill: float) -> None:
    """As many as are wanted work, so much."""
    crew.tend(0.0)
    for seat in crew.seats:
        seat.pid, seat.ready = os.getpid() + seat.number, True
        seat.slot.load(fill, 1)


def test_by_hand_it_stays_within_its_bounds(crew: Crew) -> None:
    scaling = Scaling()
    for by, wanted, count in ((1, None, 3), (1, 5, 5), (1, None, 5), (-1, 2, 2), (-1, None, 2), (1, 6, 2), (1, 0, 2)):
        scaling.change(crew, by, wanted, 0.0)
        assert crew.wanted == count
    assert pool_status(crew) == PoolStatus("mail", 2, "", 2, 5)


def test_a_pool_without_bounds_goes_where_it_is_told(board: Scoreboard) -> None:
    crew = Crew(role(None, 1), board, 1)
    for by, wanted, count in ((1, None, 2), (-1, None, 1), (-1, None, 1), (1, 40, 40), (1, 0, 0)):
        Scaling().change(crew, by, wanted, 0.0)
        assert crew.wanted == count


@pytest.mark.parametrize(
    ("was", "following", "count"),
    [(4, role(Range(2, 3)), 3), (2, role(Range(3, 9), 3), 3), (4, role(Range(1, 9), 1), 4), (4, role(None, 2), 2)],
    ids=["max falls", "min rises", "still within", "no bounds any more"],
)
def test_a_reload_brings_other_bounds(crew: Crew, was: int, following: Role, count: int) -> None:
    crew.wanted = was
    crew.turn_to(following, 2)
    assert crew.wanted == count


def test_a_reload_brings_bounds_where_there_were_none(board: Scoreboard) -> None:
    crew = Crew(role(None, 7), board, 1)
    crew.turn_to(role(), 2)
    assert crew.wanted == 5


def test_what_the_keeper_tells_makes_it_grow(crew: Crew) -> None:
    scaling, now = Scaling(), time.monotonic()
    staff(crew, 1.0)
    scaling.heard({"mail": [9, 2.5]}, [crew], now)
    assert crew.wanted == 4
    scaling.heard({"mail": [9, 2.5]}, [crew], now + 1)  # those that came are not ready yet
    assert crew.wanted == 4
    staff(crew, 1.0)
    scaling.heard({"mail": [9, 2.5]}, [crew], now + 2)
    assert crew.wanted == 5


def test_what_it_tells_of_others_and_what_makes_no_sense_changes_nothing(crew: Crew, board: Scoreboard) -> None:
    fixed = Crew(role(None), board, 1)
    for told in ({"web": [9, 2.5]}, {"mail": [9]}, {"mail": ["9", 2.5]}, [1], None, "x", {"mail": None}):
        staff(crew, 1.0)
        Scaling().heard(told, [crew, fixed], 10.0)
    Scaling().heard({"mail": [9, 2.5]}, [fixed], 10.0)
    assert (crew.wanted, fixed.wanted) == (2, 2)


def test_time_in_use_is_added_up_between_two_looks(board: Scoreboard) -> None:
    slot = board.take(1)
    began = time.monotonic()
    slot.load(1.0, 3)
    slot.load(0.5, 2)
    slot.load(0.5, 2)
    now = time.monotonic()
    busy, fill, held = slot.loaded(now + 10)
    assert (fill, held) == (0.5, 2)
    assert 5.0 <= busy <= 5.0 + (now - began)
    slot.load(0.0, 0)
    assert slot.loaded(now + 20)[0] == pytest.approx(slot.loaded(now + 90)[0])


def test_news_for_a_master_that_does_not_listen_neither_wait_nor_pile_up(board: Scoreboard) -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    with Signals(()) as signals:
        child = Child(board.take(1), "", 1, link, signals)
        while not link.unsent:
            child.tell({"backlog": {"mail": [1, 0.5]}, "pad": "x" * 1000})
        for _ in range(1000):
            child.tell({"late": True})
        master = Link(theirs)
        heard = master.lines()
        child.tell({"fresh": True})
        heard += master.lines()
    assert {"late": True} not in heard
    assert heard[-1] == {"fresh": True}
    link.close()
    master.close()
