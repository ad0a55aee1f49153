"""What a child hears from its master and by signal, and how it sleeps until then."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.logs.handlers import LogFile
from tarry.runtime.pipe import MessagePipe
from tarry.runtime.role import ChildContext
from tarry.runtime.signal_queue import Signals

LONG = 60.0
"""Seconds. Who sleeps so long was not woken."""


@pytest.fixture
def pipe_ends() -> Iterator[tuple[MessagePipe, MessagePipe]]:
    """Of the line: the master's, and the child's."""
    pair = tuple(map(MessagePipe, socket.socketpair()))
    yield pair[0], pair[1]
    for end in pair:
        end.close()


@pytest.fixture
def child(pipe_ends: tuple[MessagePipe, MessagePipe], tmp_path: Path) -> Iterator[ChildContext]:
    board = Scoreboard(tmp_path / "board")
    with Signals((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)) as signals:
        yield ChildContext(board.allocate(1), "", 1, pipe_ends[1], signals, {})
    board.remove()


def measure_sleep(child: ChildContext) -> float:
    """Seconds that it slept."""
    began = time.monotonic()
    child.sleep(LONG)
    return time.monotonic() - began


def send_message(master: MessagePipe) -> None:
    master.send({"news": 1})


def send_signal(master: MessagePipe) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("wake", [send_message, send_signal, MessagePipe.close])
def test_it_wakes_for_all_that_comes(
    child: ChildContext, pipe_ends: tuple[MessagePipe, MessagePipe], wake: Callable[[MessagePipe], None]
) -> None:
    wake(pipe_ends[0])
    assert measure_sleep(child) < LONG / 2


def test_it_sleeps_no_longer_than_it_wants(child: ChildContext) -> None:
    child.sleep(0.001)
    assert not child.should_exit()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_its_end_comes_by_signal(child: ChildContext, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    assert child.should_exit()
    assert not child.should_exit()


def test_its_end_comes_when_the_master_is_gone(child: ChildContext, pipe_ends: tuple[MessagePipe, MessagePipe]) -> None:
    pipe_ends[0].close()
    assert not child.should_exit()
    child.receive()
    assert child.should_exit()


def test_its_end_comes_by_message_is_confirmed_once_and_ends_every_sleep(
    child: ChildContext, pipe_ends: tuple[MessagePipe, MessagePipe]
) -> None:
    child.confirm_stop()
    assert pipe_ends[0].receive() == [], "it was not asked"
    pipe_ends[0].send({"stop": True})
    assert child.receive() == []
    assert measure_sleep(child) < LONG / 2
    assert [child.should_exit(), child.should_exit()] == [True, True]
    assert pipe_ends[0].receive() == [{"stopping": True}]


def test_hup_opens_the_log_again_and_is_no_end(child: ChildContext, tmp_path: Path) -> None:
    log = tmp_path / "log"
    handler = LogFile(log)
    logging.getLogger().addHandler(handler)
    try:
        log.rename(tmp_path / "rotated")
        os.kill(os.getpid(), signal.SIGHUP)
        assert not child.should_exit()
        assert log.exists()
        os.kill(os.getpid(), signal.SIGHUP)
        assert child.take_signals() == [signal.SIGHUP]
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
