"""One place in a role: the process that sits in it now, how it went, and when it may be filled again."""

import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Container, Iterator
from uuid import UUID

from tarry.model.quantity import quantity
from tarry.runtime import dump
from tarry.runtime.dump import Dump
from tarry.runtime.pipe import Link, Message
from tarry.runtime.role import CUT_OFF, KEEPER, Role, become
from tarry.runtime.scoreboard import STOPPING, Cell, Slot
from tarry.runtime.signals import held_back

log = logging.getLogger("tarry.master")

QUIT, OVERDUE, GREEDY, LATE = "quit", "overdue", "memory", "late"

_LONG_LIFE = 10.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0


class Seat:
    """Times are of the monotonic clock."""

    def __init__(self, role: Role, number: int, slot: Slot, generation: int = 1) -> None:
        self.role, self.number, self.slot, self.generation = role, number, slot, generation
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
        self.worn = ""
        """Why it is to be replaced, if it is."""
        self.trouble = ""
        """Why the process could not begin, if it could not."""
        self.born, self._short_lives = 0.0, 0
        self._part = 1.0
        self.dead_by = 0.0
        """When it is killed outright, if it was told to write its stacks and to die of that; 0: it was not."""
        self._stuck: dict[tuple[bytes, int], int] = {}
        self._dump: Dump | None = None

    @property
    def keeper(self) -> bool:
        """It is told who is gone, and ends last."""
        return self.role.name == KEEPER

    def fill(self, now: float, forget: Callable[[], None]) -> None:
        """Forks the process, which calls `forget` and never returns from here. OSError: there is no room for one."""
        ours, theirs = socket.socketpair()
        try:
            self.slot.begin(self.role.name, self.role.pool, self.number, self.generation)
            self._dump = Dump()
            self._fork(ours, theirs, forget)
        except OSError as error:
            ours.close()
            self.slot.ended(f"could not be started: {error.strerror}")
            raise
        finally:
            theirs.close()
        self.link, self.born, self.asked, self.ready, self.killed = Link(ours), now, 0.0, False, ""
        self.worn, self.trouble, self._part = "", "", random.uniform(0.9, 1.0)
        self.dead_by, self._stuck = 0.0, {}

    def _fork(self, ours: socket.socket, theirs: socket.socket, forget: Callable[[], None]) -> None:
        for stream in (sys.stdout, sys.stderr):  # or else the child writes once more what waits in their buffers
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        with held_back():
            self.pid = os.fork()
            if self.pid == 0:
                ours.close()
                if self._dump is not None:
                    self._dump.adopt()
                become(self.role, self.slot, self.number, Link(theirs), forget)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # it does the same: whoever is first, the group is there when we need it
        self.slot.seated(self.pid)

    def postpone(self, now: float) -> float:
        """It could not be filled, or died: answers the seconds until it is filled again, more each time."""
        lived = now - self.born if self.born else 0.0
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

    def kill_if_greedy(self) -> None:
        """Ends the process if it takes too much memory. Any of the jobs that were on may be the cause."""
        rss = self.slot.rss()
        if not self.ready or self.killed or not 0 < self.role.wear.killed_at <= rss:
            return
        self.worn = f"{rss / 2**20:.0f} MB of memory"
        pid, cells = self.pid, self.slot.cells()
        self.kill(GREEDY)
        on = ", ".join(f"{UUID(bytes=cell.id)} ({cell.task})" for cell in cells)
        counted = f"jobs on, each counts a death: {on}" if on else "no job was on"
        log.error("%s killed, pid %d: %s, more than kill_memory; %s", self.name, pid, self.worn, counted)

    def wear(self, now: float) -> None:
        """Notes whether the process has done its part: by jobs, by age, or by memory."""
        wear, part = self.role.wear, self._part
        if not self.ready or self.killed or self.worn:
            return
        processed, rss = self.slot.counts()[0], self.slot.rss()
        if 0 < wear.jobs * part <= processed:
            self.worn = quantity(processed)
        elif 0 < wear.age * part <= now - self.born:
            self.worn = "its age"
        elif 0 < wear.memory * part <= rss:
            self.worn = f"{rss / 2**20:.0f} MB of memory"

    def kill_if_overdue(self, now: float) -> list[Cell]:
        """Ends the process if a job's time is up, its stacks written in the last moment; answers such jobs, once."""
        if 0 < self.dead_by <= now:
            self.dead_by = 0.0
            self._end(signal.SIGKILL)
        stuck = [] if self.killed else [cell for cell in self.slot.cells() if 0 < cell.kill_at <= now]
        if stuck:
            self._stuck = {(cell.id, cell.epoch): cell.thread for cell in stuck}
            self.killed, self.dead_by = OVERDUE, now + dump.WITHIN
            self._end(dump.SIGNAL)
        return stuck

    def alarms(self) -> Iterator[float]:
        """When `kill_if_overdue` has something to do, as far as can be seen now."""
        yield self.dead_by
        if not self.killed:
            yield from (cell.kill_at for cell in self.slot.cells())

    def _end(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _stacks(self) -> dict[str, str]:
        """Of the jobs for whose sake it was killed, as far as they are known."""
        if self._dump is None:
            return {}
        found = {id.hex(): self._dump.stack(thread) for (id, _), thread in self._stuck.items() if thread}
        return {id: stack for id, stack in found.items() if stack}

    def bury(self, why: str) -> Message:
        """The process is dead, with its group. Answers what the keeper is to be told; no owner: it claimed nothing."""
        cells = self.slot.cells()
        stuck = [id.hex() for id, _ in self._stuck]
        # When we killed it, no job of its is the cause, unless it took too much memory. An exit with 0 is no excuse: a
        # task may have called for it; and what a worker gave back before it ended is not found among its jobs any more.
        on = [cell.id.hex() for cell in cells] if self.killed in ("", GREEDY) else []
        notice: Message = {"gone": self.slot.owner(), "on": on, "stuck": stuck, "why": why}
        if self._stuck:
            notice |= {"stacks": self._stacks(), "epochs": {id.hex(): epoch for id, epoch in self._stuck}}
        self.slot.ended(why)
        if self.link is not None:
            self.link.close()
        self.pid, self.link, self.ready, self._dump = 0, None, False, None
        return notice


def exit_reason(status: int) -> str:
    """`status 1` or `signal 9`, from a wait status. Who wrote its stacks was killed like any other."""
    code = os.waitstatus_to_exitcode(status)
    if code == -dump.SIGNAL:
        code = -signal.SIGKILL
    if code == CUT_OFF:
        return f"status {code}: a job closed its descriptors"
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
