"""One child process as the master sees it: its pid, its state, and when it may be started again.

How a child process ended: in words, and as what its end counts.
"""

import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from msgspec import Struct

from tarry.model.killing import ENDED
from tarry.model.quantity import quantity
from tarry.runtime import stack_dump
from tarry.runtime.board.layout import STOPPING, JobCell
from tarry.runtime.board.slot import BoardSlot
from tarry.runtime.pipe import MessagePipe, PipeMessage
from tarry.runtime.role import ASKED_FROM, CUT_OFF, KEEPER, UNASKED, Inherit, Role, run_child
from tarry.runtime.signal_queue import block_signals
from tarry.runtime.stack_dump import StackDump

QUIT, OVERDUE, OVER_MEMORY, LATE = "quit", "overdue", "memory", "late"
"""Why the master killed a process."""

JOBS, AGE, MEMORY, HANG, CRASH, KILLED, SIGNAL = "jobs", "age", "memory", "hang", "crash", "killed", "signal"
"""Why a process ended although it was still wanted: a limit of its pool, a job that did not end, an error of its own,
SIGKILL, or another signal from outside."""

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP}
"""What the kernel or the C library sends to a process for its own error."""
_GRACEFUL = {signal.SIGINT, signal.SIGTERM}
_MASTER_KILLED = {
    QUIT: "it ends at once",
    OVERDUE: "a job did not end",
    OVER_MEMORY: "it took more memory than kill_memory",
    LATE: "it was not ready, or did not end, in time",
}


class ProcessEnd(Struct, frozen=True):
    """text: as in the log. counts_as: CRASH, KILLED or SIGNAL, if nobody here wanted its end. is_graceful: it ended by
    itself and finished or gave back its jobs."""

    text: str
    counts_as: str
    is_graceful: bool = False


def read_end(status: int, killed_for: str = "", was_asked: bool = False, has_jobs: bool = False) -> ProcessEnd:
    """From a wait status. killed_for: why the master killed it, if it did. was_asked: the master had asked it to end.
    has_jobs: it ended in the middle of jobs."""
    code = os.waitstatus_to_exitcode(status)
    # An overdue process gets the signal of the stacks first, which ends it.
    if killed_for and -code in (signal.SIGKILL, stack_dump.SIGNAL):
        return ProcessEnd(f"killed by the master: {_MASTER_KILLED[killed_for]}", KILLED)
    # In the middle of a job it is the job that has chosen this status.
    if code - ASKED_FROM in _GRACEFUL and not has_jobs:
        text = "status 0" if was_asked else f"ended by {signal.Signals(code - ASKED_FROM).name} from outside"
        return ProcessEnd(text, SIGNAL, is_graceful=True)
    if code == CUT_OFF:
        return ProcessEnd(f"status {code}: a job closed its descriptors", CRASH)
    if code == UNASKED:
        return ProcessEnd("ended by SIGTERM that its master did not ask for, from outside or by a job", SIGNAL)
    return ProcessEnd(f"status {code}", CRASH, is_graceful=not code) if code >= 0 else _of_signal(-code)


def _of_signal(number: int) -> ProcessEnd:
    name = next((each.name for each in signal.Signals if each == number), f"signal {number}")
    if number == signal.SIGKILL:
        return ProcessEnd(f"killed ({name}, perhaps out of memory)", KILLED)
    if number in _FAULTS:
        return ProcessEnd(f"crashed ({name})", CRASH)
    return ProcessEnd(f"ended by {name} from outside", SIGNAL)


log = logging.getLogger("tarry.master")

_KILL = "before the kill"
"""In the place of a request's id: the master itself asks for the stacks."""

_CONFIRM_LIMIT = 2.0
"""Seconds that a process has to confirm that it was asked to end, before it is sent a signal as well."""
# Seconds. A process that lived this long came up well, so its successor starts without a delay.
_LONG_RUN = 10.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0


class ChildProcess:
    """One numbered place in a role, and the process that runs in it now. Times are of the monotonic clock."""

    def __init__(
        self, role: Role, number: int, slot: BoardSlot, generation: int = 1, ends: Counter[str] | None = None
    ) -> None:
        """ends: where each process that ends here is counted, by JOBS and the others."""
        self.role, self.number, self.slot, self.generation = role, number, slot, generation
        self._ends: Counter[str] = Counter() if ends is None else ends
        self.name = role.process_name(number)
        self.pid = 0
        """0: no process runs."""
        self.pipe: MessagePipe | None = None
        self.start_at = 0.0
        """When a process may be started here."""
        self.stopping_since = 0.0
        """When the process was asked to end; 0: it was not asked."""
        self.has_confirmed_stop, self._interrupt_at = False, 0.0
        self.is_ready = False
        self.kill_reason = ""
        """Why the master killed the process; empty: it did not."""
        self.recycle_reason = ""
        """Why the process is to be replaced; empty: it is not."""
        self._reached = ""
        """The limit that it has reached: JOBS, AGE or MEMORY; empty: none."""
        self.start_error = ""
        """Why the process could not start; empty: no failure is known."""
        self.started_at, self._short_runs, self._jitter = 0.0, 0, 1.0
        self.signal_at, self.sigkill_at = 0.0, 0.0
        """Of an overdue process: when the signal comes that makes it write its stacks and die, unless it has told of
        them before, and when SIGKILL. 0: never."""
        self._last_threads = ""
        """The stacks of all threads, as it told of them before its kill; empty: it did not."""
        self._stuck: dict[tuple[bytes, int], int] = {}
        self._ended: list[str] = []
        """Of the stuck jobs, those that an operator ended."""
        self._dump: StackDump | None = None

    @property
    def is_keeper(self) -> bool:
        """The keeper learns which processes died, and ends last."""
        return self.role.name == KEEPER

    def start(self, now: float, inherit: Inherit) -> None:
        """Forks the process. The child calls `inherit` and never returns. OSError: no process can be made."""
        ours, theirs = socket.socketpair()
        try:
            # Before the fork, since the child writes to its slot at once.
            self.slot.prepare(self.role.name, self.role.pool, self.number, self.generation)
            # Made before the fork, so that the child and the master share the file.
            self._dump = StackDump()
            self._fork(ours, theirs, inherit)
        except OSError as error:
            ours.close()
            self.slot.mark_exited(f"could not be started: {error.strerror}")
            raise
        finally:
            # The child has a copy. With ours open, the pipe would not show the child's death.
            theirs.close()
        self.pipe, self.started_at, self.stopping_since, self.is_ready, self.kill_reason = (
            MessagePipe(ours),
            now,
            0.0,
            False,
            "",
        )
        # At random, so that processes that started together do not end together.
        self.recycle_reason, self.start_error, self._jitter = "", "", random.uniform(0.9, 1.0)
        self._reached, self.has_confirmed_stop, self._interrupt_at = "", False, 0.0
        self.signal_at, self.sigkill_at, self._stuck, self._ended = 0.0, 0.0, {}, []
        self._last_threads = ""

    def _fork(self, ours: socket.socket, theirs: socket.socket, inherit: Inherit) -> None:
        for stream in (sys.stdout, sys.stderr):  # else the child would write what is in their buffers once more
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        # Until the child has handlers of its own, a signal to it would be recorded in the master's pipe.
        with block_signals():
            self.pid = os.fork()
            if self.pid == 0:
                ours.close()
                if self._dump is not None:
                    self._dump.register()
                run_child(self.role, self.slot, self.number, MessagePipe(theirs), inherit)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # the child does it too: the group exists, whoever is first
        self.slot.set_pid(self.pid)

    def send(self, message: PipeMessage) -> None:
        """Sends the process a message, without a wait; does nothing if there is no process."""
        if self.pipe is not None:
            self.pipe.send(message)

    def back_off(self, now: float) -> float:
        """After a failed start or a death: returns the seconds until the next start, which grow each time."""
        lived = now - self.started_at if self.started_at else 0.0
        self._short_runs = 0 if lived >= _LONG_RUN else self._short_runs + 1
        delay = 0.0
        # The first short run costs no delay: a worker that was killed once is replaced at once.
        if self._short_runs > 1:
            # The exponent is bounded, since a large power of 2.0 raises OverflowError.
            delay = min(_FIRST_DELAY * 2.0 ** min(self._short_runs - 2, 20), _LONGEST_DELAY) * random.uniform(0.5, 1)
        self.start_at = now + delay
        return delay

    def request_stop(self, now: float) -> None:
        """Asks the process, once, to finish its jobs and end."""
        if not self.stopping_since:
            self.stopping_since = now
            self.slot.set_boot_state(STOPPING)
            # By the pipe: a task may have changed the handlers of signals, or have made one of its own for INT.
            self.send({"stop": True})
            # A keeper runs no tasks: nothing keeps it from hearing at once, also within a call of the store.
            self._interrupt_at = now if self.is_keeper else now + _CONFIRM_LIMIT
            self.interrupt_if_silent(now)

    def interrupt_if_silent(self, now: float) -> None:
        """Sends INT, once, if the process was asked to end and has not confirmed it."""
        if 0 < self._interrupt_at <= now:
            self._interrupt_at = 0.0
            self._send_signal(signal.SIGINT)

    def note_stop(self) -> None:
        """The process has confirmed that it was asked to end."""
        self.has_confirmed_stop, self._interrupt_at = True, 0.0

    def kill(self, why: str) -> None:
        """Kills the process, once, and everything that its jobs started."""
        if not self.kill_reason:
            self.kill_reason = why
            kill_pgrp(self.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def kill_if_over_memory(self) -> None:
        """Kills the process if it uses too much memory. Each of its running jobs may be the cause."""
        rss = self.slot.rss()
        if not self.is_ready or self.kill_reason or not 0 < self.role.recycle_limits.kill_memory <= rss:
            return
        self.recycle_reason = f"{rss / 2**20:.0f} MB of memory"
        pid, cells = self.pid, self.slot.cells()
        self.kill(OVER_MEMORY)
        on = ", ".join(f"{UUID(bytes=cell.id)} ({cell.task})" for cell in cells)
        counted = f"jobs on, each counts a death: {on}" if on else "no job was on"
        log.error("%s killed, pid %d: %s, more than kill_memory; %s", self.name, pid, self.recycle_reason, counted)

    def kill_if_not_ready(self, now: float, limit: float) -> None:
        """Kills the process if it has not become ready within so many seconds."""
        if not self.is_ready and now >= self.started_at + limit:
            self.start_error = f"{self.name} was not ready within {limit:g} s"
            self.kill(LATE)

    def kill_if_slow_to_end(self, now: float, limit: float) -> None:
        """Kills the process if it was asked to end so many seconds ago; 0: there is no limit."""
        if self.stopping_since and 0 < limit <= now - self.stopping_since:
            self.kill(LATE)

    def check_recycling(self, now: float) -> None:
        """Sets `recycle_reason` when the process reaches a limit: of jobs, age or memory."""
        limits, jitter = self.role.recycle_limits, self._jitter
        if not self.is_ready or self.kill_reason or self.recycle_reason:
            return
        processed, rss = self.slot.counts()[0], self.slot.rss()
        if 0 < limits.jobs * jitter <= processed:
            self._reached, self.recycle_reason = JOBS, quantity(processed)
        elif 0 < limits.age * jitter <= now - self.started_at:
            self._reached, self.recycle_reason = AGE, "its age"
        elif 0 < limits.memory * jitter <= rss:
            self._reached, self.recycle_reason = MEMORY, f"{rss / 2**20:.0f} MB of memory"

    def kill_if_overdue(self, now: float) -> None:
        """Kills the process if a job has run too long. Before that it tells where its threads are; see `dump`."""
        if 0 < self.sigkill_at <= now:
            self.sigkill_at = 0.0
            self._send_signal(signal.SIGKILL)
        elif 0 < self.signal_at <= now:
            self.signal_at, self.sigkill_at = 0.0, now + stack_dump.WRITE_TIMEOUT
            if self._dump is not None:
                self._dump.clear()
            self._send_signal(stack_dump.SIGNAL)
        stuck = [] if self.kill_reason else [cell for cell in self.slot.cells() if 0 < cell.kill_at <= now]
        if stuck:
            # Recorded now: the process may change its cells before it dies.
            self._stuck = {(cell.id, cell.epoch): cell.thread for cell in stuck}
            self._ended = [cell.id.hex() for cell in stuck if cell.reason == ENDED]
            self.kill_reason, self.signal_at = OVERDUE, now + stack_dump.ASK_TIMEOUT
            self.send({"stack": _KILL})
        for cell in stuck:
            self._log_overdue(cell, now)

    def note_threads(self, message: PipeMessage, now: float) -> None:
        """What the process answered: if to the question of `kill_if_overdue`, SIGKILL follows at once."""
        if message.get("stack") == _KILL and self.signal_at:
            self._last_threads = str(message.get("threads", ""))
            self.signal_at, self.sigkill_at = 0.0, now

    def _log_overdue(self, cell: JobCell, now: float) -> None:
        job = str(UUID(bytes=cell.id))
        log.error(
            "%s killed, pid %d: job %s (%s) still ran %.1f s after its start, %s",
            *(self.name, self.pid, job, cell.task, now - cell.since, cell.why),
            extra={"tarry": {"job": job, "task": cell.task, "worker": self.name}},
        )

    def deadlines(self) -> Iterator[float]:
        """When `kill_if_overdue` or `interrupt_if_silent` will have something to do, as far as is known now."""
        yield from (self.signal_at, self.sigkill_at, self._interrupt_at)
        if not self.kill_reason:
            yield from (cell.kill_at for cell in self.slot.cells())

    def _send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def write_stacks(self) -> None:
        """Makes the process write the stacks of its threads and go on; it must be ready. Not while its threads go on:
        see `stack_dump.LIVE_SIGNAL`."""
        if self._dump is not None:
            self._dump.clear()
            self._send_signal(stack_dump.LIVE_SIGNAL)

    def written_stacks(self) -> str:
        """What it has written since `write_stacks`."""
        return "" if self._dump is None else self._dump.text()

    def stacks_of_jobs(self, threads: str) -> dict[str, str]:
        """By job (hexadecimal) the stack of its thread. threads: the stacks of all, in the form of faulthandler."""
        found = {
            cell.id.hex(): stack_dump.find_stack(threads, cell.thread, stack_dump.LIVE)
            for cell in self.slot.cells()
            if cell.thread
        }
        return {id: stack for id, stack in found.items() if stack}

    def _stacks(self) -> dict[str, str]:
        """By job id, the stacks of the jobs that ran too long, as far as they are known."""
        threads = self._last_threads or self.written_stacks()
        found = {id.hex(): stack_dump.find_stack(threads, thread) for (id, _), thread in self._stuck.items() if thread}
        return {id: stack for id, stack in found.items() if stack}

    def read_end(self, status: int) -> ProcessEnd:
        """How the process ended. status: as os.waitpid."""
        return read_end(status, self.kill_reason, bool(self.stopping_since), bool(self.slot.cells()))

    def record_exit(self, end: ProcessEnd) -> PipeMessage:
        """The process and its group are dead. Returns the message for the keeper; no owner: it claimed nothing."""
        cells = self.slot.cells()
        stuck = [id.hex() for id, _ in self._stuck]
        # If the master killed it, none of its jobs is the cause, unless it used too much memory. Status 0 counts too: a
        # task may have called exit. Jobs that a worker gave back before its end are not in its cells any more.
        on = [cell.id.hex() for cell in cells] if self.kill_reason in ("", OVER_MEMORY) else []
        message: PipeMessage = {"gone": self.slot.owner(), "on": on, "stuck": stuck, "why": end.text}
        if self._stuck:
            message |= {"stacks": self._stacks(), "epochs": {id.hex(): epoch for id, epoch in self._stuck}}
            message |= {"ended": self._ended} if self._ended else {}
        self.slot.mark_exited(end.text)
        self._count_end(end)
        if self.pipe is not None:
            self.pipe.close()
        self.pid, self.pipe, self.is_ready, self._dump = 0, None, False, None
        return message

    def _count_end(self, end: ProcessEnd) -> None:
        if self.kill_reason in (OVERDUE, OVER_MEMORY):
            self._ends[HANG if self.kill_reason == OVERDUE else MEMORY] += 1
        elif self.stopping_since:
            # Without a limit that it reached, a reload or a smaller pool has ended it.
            self._ends.update([self._reached] if self._reached else [])
        elif not self.kill_reason:
            self._ends[end.counts_as] += 1


def kill_pgrp(pid: int) -> None:
    """Sends SIGKILL to what is left of the Unix process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
