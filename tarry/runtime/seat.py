"""One place in a role: the process that sits in it now, how it went, and when it may be filled again."""

import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Container, Iterator

from tarry.runtime.link import Link, Message
from tarry.runtime.role import KEEPER, Role, become
from tarry.runtime.scoreboard import STOPPING, Cell, Slot
from tarry.runtime.signals import held_back

QUIT, OVERDUE = "quit", "overdue"

GENERATION = 1

_LONG_LIFE = 10.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0


class Seat:
    """Times are of the monotonic clock."""

    def __init__(self, role: Role, number: int, slot: Slot) -> None:
        self.role, self.number, self.slot = role, number, slot
        self.name = role.named(number)
        self.pid = 0
        """0: nobody sits here."""
        self.link: Link | None = None
        self.due = 0.0
        """When it may be filled."""
        self.asked = 0.0
        """When the process was asked to end; 0: it was not."""
        self.ready = False
        self.killed = ""
        """Why we killed the process, if we did."""
        self._born, self._short_lives = 0.0, 0
        self._stuck: set[tuple[bytes, int]] = set()

    @property
    def keeper(self) -> bool:
        """It is told who is gone, and ends last."""
        return self.role.name == KEEPER

    def fill(self, now: float, forget: Callable[[], None]) -> None:
        """Forks the process, which calls `forget` and never returns from here. OSError: there is no room for one."""
        ours, theirs = socket.socketpair()
        try:
            self.slot.begin(self.role.name, self.role.pool, self.number, GENERATION)
            self._fork(ours, theirs, forget)
        except OSError as error:
            ours.close()
            self.slot.ended(f"could not be started: {error.strerror}")
            raise
        finally:
            theirs.close()
        self.link, self._born, self.asked, self.ready, self.killed = Link(ours), now, 0.0, False, ""
        self._stuck.clear()

    def _fork(self, ours: socket.socket, theirs: socket.socket, forget: Callable[[], None]) -> None:
        for stream in (sys.stdout, sys.stderr):  # or else the child writes once more what waits in their buffers
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        with held_back():
            self.pid = os.fork()
            if self.pid == 0:
                ours.close()
                become(self.role, self.slot, self.number, Link(theirs), forget)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # it does the same: whoever is first, the group is there when we need it
        self.slot.seated(self.pid)

    def postpone(self, now: float) -> float:
        """It could not be filled, or died: answers the seconds until it is filled again, more each time."""
        lived = now - self._born if self._born else 0.0
        self._short_lives = 0 if lived >= _LONG_LIFE else self._short_lives + 1
        delay = 0.0
        if self._short_lives > 1:
            delay = min(_FIRST_DELAY * 2.0 ** min(self._short_lives - 2, 20), _LONGEST_DELAY) * random.uniform(0.5, 1)
        self.due = now + delay
        return delay

    def ask(self, now: float) -> None:
        """Asks the process, once, to finish what it does and end."""
        if not self.asked:
            self.asked = now
            self.slot.boot(STOPPING)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def kill(self, why: str) -> None:
        """Kills the process, once, with all that its jobs started."""
        if not self.killed:
            self.killed = why
            kill_group(self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def kill_if_overdue(self, now: float) -> list[Cell]:
        """Kills the process if a job's time is up; answers such jobs."""
        stuck = [] if self.killed else [cell for cell in self.slot.cells() if 0 < cell.kill_at <= now]
        if stuck:
            self._stuck = {(cell.id, cell.epoch) for cell in stuck}
            self.kill(OVERDUE)
        return stuck

    def bury(self, why: str) -> Message:
        """The process is dead, with its group. Answers what the keeper is to be told; no owner: it claimed nothing."""
        cells = self.slot.cells()
        stuck = [cell.id.hex() for cell in cells if (cell.id, cell.epoch) in self._stuck]
        # When we killed it, no job of its is the cause. An exit with 0 is no excuse: a task may have called for it; and
        # what a worker gave back before it ended is not found among its jobs any more.
        on = [] if self.killed else [cell.id.hex() for cell in cells]
        notice: Message = {"gone": self.slot.owner(), "on": on, "stuck": stuck, "why": why}
        self.slot.ended(why)
        if self.link is not None:
            self.link.close()
        self.pid, self.link, self.ready = 0, None, False
        return notice


def exit_reason(status: int) -> str:
    """`status 1` or `signal 9`, from a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"status {code}"


def kill_group(pid: int) -> None:
    """SIGKILL to all of the process group that is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def reaped(ours: Container[int]) -> Iterator[tuple[int, int]]:
    """Every dead child's pid and wait status; the groups of ours are killed, strangers only reaped."""
    with contextlib.suppress(ChildProcessError):
        while pid := _next_dead():
            if pid in ours:
                kill_group(pid)  # while it is unreaped, nobody else can have its number
            yield os.waitpid(pid, 0)


def _next_dead() -> int:
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return 0 if found is None else found.si_pid


def _reaped_at_once(ours: Container[int]) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            if dead[0] in ours:
                kill_group(dead[0])
            yield dead


if not hasattr(os, "waitid"):  # macOS before Python 3.13
    reaped = _reaped_at_once
