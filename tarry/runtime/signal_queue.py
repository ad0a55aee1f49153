"""Records signals in the order in which they come; a loop takes them when it is ready."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from tarry import forks


class Signals:
    """While entered, the wanted signals only make `fileno()` readable. Main thread only. A forked child does not record
    them: there they do what they do in any program."""

    def __init__(self, wanted: Iterable[int], ignored: Iterable[int] = ()) -> None:
        self._handlers: dict[int, Any] = dict.fromkeys(wanted, _record)
        self._handlers |= dict.fromkeys(ignored, signal.SIG_IGN)
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        # A pipe, not a socket: it holds 65536 signals that are not taken yet, a socket about 250.
        self._read_fd, self._write_fd = -1, -1

    def __enter__(self) -> Self:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        # Before the handlers: once they are set, every signal must be recorded.
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, handler) for number, handler in self._handlers.items()}
        forks.add(self._reset_in_child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restores the handlers from before."""
        forks.remove(self._reset_in_child)
        if self._read_fd < 0:  # in a forked child
            return
        for number, handler in self._before.items():
            # None: the handler was not set from Python, so it cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._close()

    def ignore(self) -> None:
        """For a process that is about to end: no signal may kill it from now on."""
        # While SIGCHLD is ignored, the kernel keeps no exit status of children.
        for number in self._handlers.keys() - {signal.SIGCHLD}:
            signal.signal(number, signal.SIG_IGN)
            del self._before[number]

    def _reset_in_child(self) -> None:
        if (wakeup := signal.set_wakeup_fd(-1)) != self._write_fd:
            signal.set_wakeup_fd(wakeup)  # a task has set it
        for number in self._handlers:
            if signal.getsignal(number) is _record:
                forks.reset_handler(number)
        self._close()

    def _close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)
        self._read_fd = self._write_fd = -1

    def fileno(self) -> int:
        """Readable when a signal came."""
        return self._read_fd

    def take(self) -> list[int]:
        """The signals that came since the last call, in order."""
        taken = b""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._read_fd, 65536):
                taken += more
        # The descriptor also gets signals that other code in this process handles.
        return [number for number in taken if number in self._handlers]


@contextlib.contextmanager
def block_signals() -> Iterator[None]:
    """Blocks all signals within; those that come are delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, forks.ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """Unblocks all signals, also those that were blocked when this process began."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def signal_name(number: int) -> str:
    """`INT`, `TERM`."""
    return signal.Signals(number).name.removeprefix("SIG")


def _record(number: int, frame: FrameType | None) -> None:
    """Does nothing: the interpreter has written the number to the pipe before this call."""
