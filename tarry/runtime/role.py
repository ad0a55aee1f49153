"""What a forked process is to be, what it is given, and how it begins and ends."""

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

from tarry.runtime.autoscaler import Range
from tarry.runtime.logs import handlers
from tarry.runtime.pipe import Message, MessagePipe
from tarry.runtime.scoreboard import READY, Slot, process_name
from tarry.runtime.signals import ALL, Signals, unblock_signals

KEEPER, CANARY, WATCHER = "keeper", "canary", "watcher"
"""The role that is told who is gone, and that ends last; the one that shows whether others could live; and the one
that says when the files are others."""

BOOT_FAILED = 3
"""Exit status after `Child.failed`."""

CUT_OFF = 4
"""Exit status after `Child.cut_off`."""

# HUP is only recorded, so that a HUP meant for the master and sent to all of us kills nobody.
_WANTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_FLUSH_TIMEOUT = 2.0
_MAX_FAILURE = 65536


class ChildContext:
    """What the process has of its master. What comes in belongs to one thread: `lines`, `signals`, `came`, `over`,
    `sleep`; the rest may be called by any."""

    def __init__(self, slot: Slot, pool: str, number: int, pipe: MessagePipe, signals: Signals) -> None:
        self.slot, self.pool, self.number = slot, pool, number
        self.signals = signals
        """Installed already: INT (finish and exit), TERM (give back and exit), USR1 (report). Wait on its fileno()."""
        self.is_orphaned = False
        """The master is gone: exit. Set by `lines`."""
        self._pipe, self._lock = pipe, threading.Lock()
        self._descriptors = _identity(pipe.fileno()), _identity(signals.fileno())

    def is_open(self) -> bool:
        """False: the line to the master was closed in this process, by a job. From any thread, and cheap."""
        return self._pipe.is_open()

    def is_whole(self) -> bool:
        """False: our descriptors were closed in this process, or are other files by now."""
        return self._descriptors == (_identity(self.parent_fd), _identity(self.signals.fileno()))

    def cut_off(self) -> NoReturn:
        """Ends the process at once: without its descriptors it hears nobody, and what it writes may hit other files.
        The jobs that the slot shows as on count it."""
        os._exit(CUT_OFF)

    @property
    def parent_fd(self) -> int:
        """Readable when the master sent lines, or is gone: then call `lines`."""
        return self._pipe.fileno()

    def receive(self) -> list[Message]:
        """What the master said since the last call; does not wait."""
        lines = self._pipe.receive()
        self.is_orphaned = self._pipe.at_eof
        return lines

    def take_signals(self) -> list[int]:
        """The signals that came since the last call. HUP is dealt with here: logs were rotated, perhaps."""
        came = self.signals.take()
        if signal.SIGHUP in came:
            handlers.reopen()
        return came

    def should_exit(self) -> bool:
        """INT or TERM came, or `lines` found the master gone: exit. For those who make no difference between them."""
        return not {signal.SIGINT, signal.SIGTERM}.isdisjoint(self.take_signals()) or self.is_orphaned

    def sleep(self, seconds: float) -> None:
        """Until something comes, from the master or by signal; so long at most."""
        sleeper = select.poll()
        sleeper.register(self.parent_fd, select.POLLIN)
        sleeper.register(self.signals.fileno(), select.POLLIN)
        sleeper.poll(1000 * seconds)

    def report_ready(self) -> None:
        """Booted: may be counted on."""
        self.slot.set_boot_state(READY)
        self.send({"ready": True})

    def report_failure(self, text: str) -> int:
        """Could not boot, and why (a traceback may follow). Answers the exit status to return from `run`: 3."""
        self.send({"failed": text[:_MAX_FAILURE]})
        return BOOT_FAILED

    def send(self, message: Message) -> None:
        """Sends the master a line; waits until it is sent, or the master is gone."""
        with self._lock:
            self._pipe.send(message, wait=True)

    def try_send(self, message: Message) -> None:
        """Sends the master a line, without a wait; not while it has not taken the last one: such news grow old."""
        with self._lock:
            self._pipe.flush()
            if not self._pipe.has_unsent:
                self._pipe.send(message)


class RecycleLimits(Struct, frozen=True):
    """When a process is replaced, gracefully, the new one first. 0: never. Each process draws its own, up to a tenth
    less, so that those that began together do not end together."""

    jobs: int = 0
    age: float = 0.0
    """Seconds."""
    memory: int = 0
    """Bytes."""
    kill_memory: int = 0
    """Bytes of memory at which it is killed at once."""


class Role(Struct, frozen=True):
    """A kind of child process."""

    name: str
    """worker, keeper, watcher or server."""
    pool: str
    """Empty: the role has no pools."""
    count: int
    cells: int
    """How many jobs one of them may be at, at the same time."""
    run: Callable[[ChildContext], int]
    """The process; answers its exit status."""
    recycle_limits: RecycleLimits = RecycleLimits()
    range: Range | None = None
    """Within it the count follows the backlog, from `count` on; None: it stays."""

    def process_name(self, number: int) -> str:
        """`worker default.1`."""
        return process_name(self.name, self.pool, number)


class Plan(Struct, frozen=True):
    """All that the master is to do, as the configuration says it."""

    roles: Sequence[Role]
    canary: Role | None = None
    """At a reload one of these goes first: it says ready and ends, or the reload comes to nothing."""
    term_grace: float = 8.0
    """Seconds that TERM leaves the workers."""
    reload_timeout: float = 0.0
    """Seconds that those that were replaced have to finish their work; 0: as long as it takes."""
    boot_limit: float = 60.0
    """Seconds in which a process has to be ready."""


def run_child(role: Role, slot: Slot, number: int, pipe: MessagePipe, forget: Callable[[], None]) -> NoReturn:
    """The life of a forked child. Called with all signals held back; `forget` closes what is the master's."""
    try:
        gc.freeze()
        forget()
        _detach_from_master()
        with Signals(_WANTED) as signals:
            unblock_signals()
            slot.set_pid(os.getpid())
            exit_process(_run_role(role, ChildContext(slot, role.pool, number, pipe, signals)))
    finally:
        exit_process(1)


def exit_process(status: int) -> NoReturn:
    """Ends the process now: a thread that somebody left running does not keep it."""
    with contextlib.suppress(RuntimeError):
        last = threading.Thread(target=_flush_streams, daemon=True)
        last.start()
        last.join(_FLUSH_TIMEOUT)  # such a thread may hold the lock of a stream, too
    os._exit(status)


def _identity(fd: int) -> tuple[int, int]:
    try:
        status = os.fstat(fd)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _run_role(role: Role, child: ChildContext) -> int:
    try:
        return role.run(child)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        logging.getLogger(f"tarry.{role.name}").exception("%s crashed", role.process_name(child.number))
        return 1


def _detach_from_master() -> None:
    """A process group of its own, nothing of the master's handlers, and no claim on the terminal's input."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    # What we want ourselves goes from the master's handler to ours: were it ignored in between, even for an instant,
    # as it is before a handler in a process started with `nohup` or `&`, one that is pending would be lost.
    for number in ALL - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, *_WANTED}:
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    logging.shutdown()
