"""Notifies the service manager: systemd's protocol, datagrams of `NAME=value` lines; see sd_notify(3)."""

import contextlib
import math
import os
import socket
from collections import deque
from collections.abc import MutableMapping
from pathlib import Path
from time import monotonic_ns
from typing import Self

from msgspec.structs import replace

from tarry.errors import MasterError
from tarry.runtime.board.layout import QUITTING, READY, RESTING, SERVING, STARTING, STOPPING
from tarry.runtime.board.reader import Board, ChildStatus, read
from tarry.runtime.master_report import problem_lines, waiting_lines

_IDLE_STATES = (SERVING, RESTING)
_WORDS = {SERVING: "READY=1\nMAINPID={pid}", STOPPING: "STOPPING=1", QUITTING: "STOPPING=1"}

_EXTENSION = 30.0  # Seconds of extra time to ask for, each time, during a start, reload or stop.
_EXTEND_EVERY = 5.0
# Seconds between two reads of the scoreboard; seldom: the last brought no news, and none is expected.
_REFRESH_EVERY, _REFRESH_SELDOM = 1.0, 5.0
_MAX_STATUS = 400  # Characters of a status.
_MAX_UNSENT = 16  # Unsent messages that are kept; the oldest is dropped first.


class Notifier:
    """Sends each change of the master's state. Never waits, never raises; without an address it does nothing.

    A later `beat` sends, in order, what the manager does not take now. `next_beat`: when to call it next.
    """

    def __init__(self, address: str, board: Path, watchdog: float = 0.0) -> None:
        """address: a path, or `@name`; empty: no manager. watchdog: seconds of silence allowed; 0: no limit."""
        self._address, self.board = _kernel_address(address), board
        """board: the scoreboard that the status tells of."""
        self.environ = {"NOTIFY_SOCKET": address} | ({"WATCHDOG_USEC": f"{watchdog * 1e6:.0f}"} if watchdog else {})
        """The variables from which another master would make the same."""
        self._socket = _open_socket() if self._address else None
        # Half of the limit, as sd_watchdog_enabled(3) advises.
        self._every = watchdog / 2
        self.next_beat = 0.0 if self._socket and watchdog else math.inf
        self._state, self._is_reloading = STARTING, False
        self._failure = self._status = ""
        self._extended_at = self._refresh_at = -math.inf
        self._unsent: deque[str] = deque(maxlen=_MAX_UNSENT)

    @classmethod
    def from_environ(cls, board: Path, environ: MutableMapping[str, str] = os.environ) -> Self:
        """From the environment variables, which are removed."""
        # The manager would believe a child that uses them.
        address = environ.pop("NOTIFY_SOCKET", "")
        interval, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = interval.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, board, int(interval) / 1e6 if watched else 0.0)

    def on_state(self, state: str, failure: str = "") -> None:
        """The master has entered that state; `failure`: why it gives up."""
        self._state, self._failure = state, failure
        self._refresh_soon()
        # During a reload, READY=1 would say that the reload is over.
        if state in _WORDS and not (self._is_reloading and state == SERVING):
            self._queue(f"{_WORDS[state].format(pid=os.getpid())}\n{self._status_line(state)}")

    def on_reload_start(self) -> None:
        """A reload begins. `on_reload_end` must follow, with or without success, unless a stop comes first."""
        self._is_reloading = True
        self._refresh_soon()
        # A manager with Type=notify-reload requires the moment.
        self._queue(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ns() // 1000}\n{self._status_line('reloading')}")

    def on_reload_end(self, failure: str = "") -> None:
        """The reload is over; `failure`: why it failed."""
        self._is_reloading = False
        self._refresh_soon()
        # READY=1 must not follow STOPPING=1.
        if self._state in _IDLE_STATES:
            text = f"{self._state}; the last reload failed: {failure}" if failure else self._state
            # READY=1 also after a failure, for which the protocol has no word.
            self._queue(f"READY=1\n{self._status_line(text)}")

    def beat(self, now: float) -> None:
        """At each pass of the loop: sends a sign of life, asks for more time, updates the status. now: monotonic."""
        if self._socket is None:
            return
        self._send_unsent()
        if now >= self.next_beat:
            self.next_beat = now + self._every
            # Not queued: an old sign of life is worth nothing.
            self._send("WATCHDOG=1")
        # Else the manager would kill a start, reload or stop that takes longer than its own limit.
        if not self._is_idle and now >= self._extended_at + _EXTEND_EVERY:
            self._extended_at = now
            self._send(f"EXTEND_TIMEOUT_USEC={_EXTENSION * 1e6:.0f}")
        if now >= self._refresh_at:
            news = self._refresh()
            self._refresh_at = now + (_REFRESH_EVERY if news or not self._is_idle else _REFRESH_SELDOM)

    def hand_over(self, pid: int) -> None:
        """Another master, of that pid, speaks from now on."""
        self._queue(f"MAINPID={pid}")
        self.close()

    def close(self) -> None:
        """Sends nothing any more. Also called in a forked child, which must not speak for the master."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self.next_beat = None, math.inf

    @property
    def _is_idle(self) -> bool:
        return self._state in _IDLE_STATES and not self._is_reloading

    def _refresh_soon(self) -> None:
        self._extended_at = self._refresh_at = -math.inf

    def _refresh(self) -> bool:
        """Sends the status from the scoreboard; False: it has not changed."""
        before, board = self._status, None
        with contextlib.suppress(MasterError, OSError):
            board = read(self.board)
        if board is None or self._status_line(describe_board(board)) == before:
            return False
        self._queue(self._status)
        return True

    def _status_line(self, text: str) -> str:
        whole = f"{text}; {self._failure}" if self._failure else text
        # One line: a line break would begin another field.
        self._status = "STATUS=" + " ".join(whole.split("\n", 1)[0].split())[:_MAX_STATUS]
        return self._status

    def _queue(self, message: str) -> None:
        if self._socket is not None:
            self._unsent.append(message)
            self._send_unsent()

    def _send_unsent(self) -> None:
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()

    def _send(self, message: str) -> bool:
        """False: the manager does not take it now, or is not there."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(message.encode("utf-8", "replace"), self._address)
        except OSError:
            return False
        return True


def describe_board(board: Board) -> str:
    """The board in one line: `serving: 3 of 3 processes ready`; for which processes a stop waits; problems."""
    if board.state in (STOPPING, QUITTING):
        # A process that runs jobs is most likely what the stop waits for.
        busy_first = sorted(board.children, key=_is_idle)
        first, *more = waiting_lines(replace(board, children=busy_first)) or ["the end"]
        return f"{board.state}: waits for {first}" + (f", and {len(more)} more" if more else "")
    ready = sum(child.boot == READY for child in board.children)
    head = f"{board.state}: {ready} of {len(board.children)} processes ready"
    return "; ".join([head, *problem_lines(board)])


def _is_idle(child: ChildStatus) -> bool:
    return not child.running


def _kernel_address(address: str) -> str:
    """The address in the form of the kernel; empty: this kind is not supported."""
    # An abstract address is written with `@` in place of its zero byte.
    return "\0" + address[1:] if address.startswith("@") else address if address.startswith("/") else ""


def _open_socket() -> socket.socket | None:
    # It stays open, so that it can be used also when the process has no descriptors left.
    with contextlib.suppress(OSError):
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        return ours
    return None
