"""What a child process runs, what it gets from the master, and how it starts and exits."""

import contextlib
import gc
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from msgspec import Struct

from tarry import forks
from tarry.errors import ConfigError
from tarry.runtime.autoscaler import Range
from tarry.runtime.board.layout import READY
from tarry.runtime.board.reader import process_name
from tarry.runtime.board.slot import BoardSlot
from tarry.runtime.logs import handlers
from tarry.runtime.pipe import MessagePipe, PipeMessage
from tarry.runtime.signal_queue import Signals, unblock_signals
from tarry.runtime.sockets.listeners import Addresses, Sockets

KEEPER, CANARY, WATCHER = "keeper", "canary", "watcher"
"""KEEPER learns which processes died, and ends last. CANARY tests whether new processes could run. WATCHER reports
changed files."""

BOOT_FAILED = 3
"""Exit status after `ChildContext.report_failure`."""

CUT_OFF = 4
"""Exit status after `ChildContext.cut_off`."""

UNASKED = 5
"""Exit status after `ChildContext.exit_unasked`."""

ASKED_FROM = 128
"""With the number of a signal added: the exit status of a process that has ended gracefully since that signal came."""

# HUP is only recorded: one that is sent to the whole group, though meant for the master, must kill no child.
_WANTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_ENDING = {signal.SIGINT, signal.SIGTERM}
_FLUSH_TIMEOUT = 2.0
# Characters. The pipe drops a line of more than a million bytes.
_MAX_FAILURE = 65536


class ChildContext:
    """A child's side of its connection to the master. One thread calls `receive`, `signals`, `take_signals`,
    `should_exit` and `sleep`; any thread may call the rest."""

    def __init__(
        self, slot: BoardSlot, pool: str, number: int, pipe: MessagePipe, signals: Signals, sockets: Sockets
    ) -> None:
        self.slot, self.pool, self.number = slot, pool, number
        self.sockets = sockets
        """Where to accept connections, by door; they do not block."""
        self.signals = signals
        """Installed: INT (finish and exit), TERM (give jobs back and exit), USR1 (report). Wait on its fileno()."""
        self.is_orphaned = False
        """True: the master is gone, so exit. Set by `receive`."""
        self.is_asked = False
        """True: the master has asked for its end by the pipe. Set by `receive`."""
        self._is_confirmed = False
        self.asked_by = 0
        """The signal that asked it to end, INT or TERM; 0: none has come."""
        self._pipe, self._lock = pipe, threading.Lock()
        self._descriptors = _identity(pipe.fileno()), _identity(signals.fileno())

    def is_open(self) -> bool:
        """False: a job has closed the pipe to the master. Cheap; any thread may call it."""
        return self._pipe.is_open()

    def is_whole(self) -> bool:
        """False: a job has closed our descriptors; they may be other files now."""
        return self._descriptors == (_identity(self.parent_fd), _identity(self.signals.fileno()))

    def cut_off(self) -> NoReturn:
        """Exits at once. The jobs that its slot shows as running count a failure."""
        # Without its descriptors the process gets no messages, and may write to other files.
        os._exit(CUT_OFF)

    def exit_unasked(self) -> NoReturn:
        """Exits at once after a TERM that the master does not know of. The jobs that its slot shows as running count a
        failure: one of them may have sent it."""
        os._exit(UNASKED)

    @property
    def parent_fd(self) -> int:
        """Readable when the master sent messages or is gone: then call `receive`."""
        return self._pipe.fileno()

    def receive(self) -> list[PipeMessage]:
        """The messages that the master sent since the last call; does not wait."""
        messages = self._pipe.receive()
        self.is_orphaned = self._pipe.at_eof
        self.is_asked = self.is_asked or any("stop" in message for message in messages)
        return [message for message in messages if "stop" not in message]

    def take_signals(self) -> list[int]:
        """The signals that came since the last call. HUP also reopens the logs."""
        # HUP follows a rotation of the logs.
        came = self.signals.take()
        if signal.SIGHUP in came:
            handlers.reopen()
        self.asked_by = next((number for number in came if number in _ENDING), self.asked_by)
        return came

    def should_exit(self) -> bool:
        """True: INT or TERM came, or the master has asked or is gone. For roles that treat these alike: they take
        nothing more after it."""
        self.confirm_stop()
        return not _ENDING.isdisjoint(self.take_signals()) or self.is_orphaned or self.is_asked

    def confirm_stop(self) -> None:
        """Tells the master, if it has asked for the end by the pipe, that this process takes nothing more."""
        if self.is_asked and not self._is_confirmed:
            self._is_confirmed = True
            self.send({"stopping": True})

    def sleep(self, seconds: float) -> None:
        """Waits for a message or a signal; at most so long. Not at all once the master has asked for the end."""
        if self.is_asked:
            return
        sleeper = select.poll()
        sleeper.register(self.parent_fd, select.POLLIN)
        sleeper.register(self.signals.fileno(), select.POLLIN)
        sleeper.poll(1000 * seconds)

    def report_ready(self) -> None:
        """Tells the master that this process is ready to work."""
        self.slot.set_boot_state(READY)
        self.send({"ready": True})

    def report_failure(self, why: str | Exception) -> int:
        """Tells the master why the start failed (a traceback may follow). Returns the exit status for `run`: 3."""
        # What is wrong with a setting is not the matter of the process that found it.
        self.send({"failed": str(why)[:_MAX_FAILURE], "setting": isinstance(why, ConfigError)})
        return BOOT_FAILED

    def send(self, message: PipeMessage) -> None:
        """Sends the master a message; waits until it is sent or the master is gone."""
        with self._lock:
            # Under the lock: messages of two threads must not mix.
            self._pipe.send(message, wait=True)

    def try_send(self, message: PipeMessage) -> None:
        """Sends the master a message without a wait; drops it while an earlier one is unsent."""
        # A message that waits behind another would be old when it arrives.
        with self._lock:
            self._pipe.flush()
            if not self._pipe.has_unsent:
                self._pipe.send(message)


class RecycleLimits(Struct, frozen=True):
    """When a process is replaced, gracefully, the new one first. 0: never. Each process uses limits up to a tenth
    lower, chosen at random."""

    jobs: int = 0
    age: float = 0.0
    """Seconds."""
    memory: int = 0
    """Bytes."""
    kill_memory: int = 0
    """Bytes of memory at which the process is killed at once."""


class Role(Struct, frozen=True):
    """A kind of child process."""

    name: str
    """worker, keeper, watcher or server."""
    pool: str
    """Empty: the role has no pools."""
    count: int
    cells: int
    """How many jobs one process may run at the same time."""
    run: Callable[[ChildContext], int]
    """What the process runs; returns its exit status."""
    recycle_limits: RecycleLimits = RecycleLimits()
    range: Range | None = None
    """Bounds in which the count follows the backlog, starting at `count`; None: the count is fixed."""
    listens: Addresses = {}
    """The addresses whose sockets each process gets."""

    def process_name(self, number: int) -> str:
        """`worker default.1`."""
        return process_name(self.name, self.pool, number)


class Plan(Struct, frozen=True):
    """Everything that the master is to run, as configured."""

    roles: Sequence[Role]
    canary: Role | None = None
    """A reload starts one of these first. It must become ready, or the reload fails."""
    term_grace: float = 8.0
    """Seconds that workers get after TERM."""
    reload_timeout: float = 0.0
    """Seconds that replaced processes get to finish their jobs; 0: no limit."""
    boot_limit: float = 60.0
    """Seconds within which a process must be ready."""
    backlog: int = 1024
    """How many connections may wait in the kernel at each address."""

    @property
    def listens(self) -> Addresses:
        """The addresses of all roles."""
        return {door: addresses for role in self.roles for door, addresses in role.listens.items()}


Inherit = Callable[[Role], Sockets]
"""Closes what belongs to the master alone, in a child of that role; returns the sockets that the child keeps."""


def run_child(role: Role, slot: BoardSlot, number: int, pipe: MessagePipe, inherit: Inherit) -> NoReturn:
    """Runs a forked child until it exits. All signals must be blocked."""
    try:
        # A collection would write to the objects of the master, and copy memory that both processes share.
        gc.freeze()
        # The child must hold neither the lock of the pid file nor the pipes of other children.
        sockets = inherit(role)
        _detach_from_master()
        with Signals(_WANTED) as signals:
            # Only now, since handlers are in place that record a signal.
            unblock_signals()
            slot.set_pid(os.getpid())
            exit_process(_run_role(role, ChildContext(slot, role.pool, number, pipe, signals, sockets)))
    finally:
        # Whatever fails, the child must not return into the master's loop.
        exit_process(1)


def exit_process(status: int) -> NoReturn:
    """Exits the process now."""
    # An ordinary exit would wait for threads that user code has left running.
    with contextlib.suppress(RuntimeError):
        last = threading.Thread(target=_flush_streams, daemon=True)
        last.start()
        last.join(_FLUSH_TIMEOUT)  # such a thread may also hold the lock of a stream
    os._exit(status)


def _identity(fd: int) -> tuple[int, int]:
    try:
        status = os.fstat(fd)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _run_role(role: Role, child: ChildContext) -> int:
    try:
        status = role.run(child)
        # Only the process itself knows that a signal was the reason: the master may not have sent it.
        return ASKED_FROM + child.asked_by if child.asked_by and not status else status
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        # Logged here: `exit_process` prints no traceback.
        logging.getLogger(f"tarry.{role.name}").exception("%s crashed", role.process_name(child.number))
        return 1


def _detach_from_master() -> None:
    """Gives the child its own process group, default signal handlers, and no terminal input."""
    with contextlib.suppress(OSError):
        # The master kills the group, so that nothing that a job started outlives the child.
        os.setpgid(0, 0)
    # Not those in _WANTED: after `nohup` or `&` they may be ignored, and one that is pending then would be lost.
    for number in forks.ALL - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, *_WANTED}:
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    # A job must not read what somebody types into the master's terminal.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    logging.shutdown()
