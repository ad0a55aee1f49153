"""What a child hears from its master and by signal, and how it sleeps until then."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry.runtime.logs.file import LogFile
from tarry.runtime.pipe import Link
from tarry.runtime.role import Child
from tarry.runtime.scoreboard import Scoreboard
from tarry.runtime.signals import Signals

LONG = 60.0
"""Seconds. Who sleeps so long was not woken."""


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    """Of the line: the master's, and the child's."""
    pair = tuple(map(Link, socket.socketpair()))
    yield pair[0], pair[1]
    for end in pair:
        end.close()


@pytest.fixture
def child(ends: tuple[Link, Link], tmp_path: Path) -> Iterator[Child]:
    board = Scoreboard(tmp_path / "board")
    with Signals((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)) as signals:
        yield Child(board.take(1), "", 1, ends[1], signals)
    board.remove()


def asleep(child: Child) -> float:
    """Seconds that it slept."""
    began = time.monotonic()
    child.sleep(LONG)
    return time.monotonic() - began


def tell(master: Link) -> None:
    master.send({"news": 1})


def poke(master: Link) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("wake", [tell, poke, Link.close])
def test_it_wakes_for_all_that_comes(child: Child, ends: tuple[Link, Link], wake: Callable[[Link], None]) -> None:
    wake(ends[0])
    assert asleep(child) < LONG / 2


def test_it_sleeps_no_longer_than_it_wants(child: Child) -> None:
    child.sleep(0.001)
    assert not child.over()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_its_end_comes_by_signal(child: Child, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert child.over()
    assert not child.over()


def test_its_end_comes_when_the_master_is_gone(child: Child, ends: tuple[Link, Link]) -> None:
    ends[0].close()
    assert not child.over()
    child.lines()
    assert child.over()


def test_hup_opens_the_log_again_and_is_no_end(child: Child, tmp_path: Path) -> None:
    log = tmp_path / "log"
    handler = LogFile(log)
    logging.getLogger().addHandler(handler)
    try:
        log.rename(tmp_path / "rotated")
        os.kill(os.getpid(), signal.SIGHUP)
        assert not child.over()
        assert log.exists()
        os.kill(os.getpid(), signal.SIGHUP)
        assert child.came() == [signal.SIGHUP]
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
