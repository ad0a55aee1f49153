"""The file into which a process writes its stacks: before it is killed, or when somebody wants to see them.

Both signals are for a process that does not tell of its threads itself when it is asked. A signal's handler does not
wait for the interpreter, and reads freed memory if a thread leaves its frames meanwhile: while threads go on, it may
crash before it has written all.
"""

import contextlib
import faulthandler
import os
import signal
import weakref

from tarry import platform

# macOS has no real-time signals.
SIGNAL: int = getattr(signal, "SIGRTMAX", signal.SIGUSR2)
"""Makes the process write its stacks and die."""
LIVE_SIGNAL: int = getattr(signal, "SIGRTMAX", signal.SIGPROF + 1) - 1
"""Makes the process write its stacks and go on. Only where no thread of it goes on, since one holds the interpreter."""
KILLED, LIVE = "Stack when it was killed", "Stack"
"""What stands above a stack."""
ASK_TIMEOUT = 0.3
"""Seconds that a process gets to tell of its threads before it is killed."""
# A stopped process writes nothing, so it cannot be waited for.
WRITE_TIMEOUT = 0.2
"""Seconds that the process gets for that before SIGKILL."""
MAX_STACK = 8192
"""Bytes of one stack."""

_MAX_DUMP = 2**20
# Weak, so that the file of a process that has ended is closed.
_all: "weakref.WeakSet[StackDump]" = weakref.WeakSet()


class StackDump:
    """A file without a name. The master makes it before it forks a child; the child writes, the master reads."""

    def __init__(self) -> None:
        self._fd = platform.anonymous_file()
        _all.add(self)

    def register(self) -> None:
        """In the child: the signal writes to this file from now on. Closes the files of other children."""
        # The master's descriptors of all other children came along with the fork.
        for other in list(_all):
            if other is not self:
                other.close()
        # C code in the signal handler writes the stacks: that works also while a thread never releases the GIL.
        with contextlib.suppress(OSError, RuntimeError):
            # chain: after the stacks are written, the signal's default action ends the process.
            faulthandler.register(SIGNAL, file=self._fd, all_threads=True, chain=True)
            faulthandler.register(LIVE_SIGNAL, file=self._fd, all_threads=True, chain=False)

    def clear(self) -> None:
        """Removes what was written before."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            # Both processes have the same position in the file.
            os.lseek(self._fd, 0, os.SEEK_SET)

    def text(self) -> str:
        """What was written, as faulthandler writes it."""
        written = os.pread(self._fd, _MAX_DUMP, 0) if self._fd >= 0 else b""
        return written.decode("utf-8", "replace")

    def close(self) -> None:
        """Closes the descriptor of this process only."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def find_stack(dump: str, thread: int, title: str = KILLED) -> str:
    """One thread's stack from the output of faulthandler, in the order of a traceback. A long one loses its outermost
    calls."""
    for part in dump.split("\n\n"):
        head, _, calls = part.strip("\n").partition("\n")
        # faulthandler writes `Thread 0x` or `Current thread 0x`, and the innermost call first.
        if f"hread 0x{thread:016x} " in head:
            return _truncate(title, [call for call in reversed(calls.splitlines()) if call.startswith("  ")])
    return ""


def _truncate(title: str, calls: list[str]) -> str:
    text = "\n".join([f"{title} (most recent call last):", *calls])
    if len(text) <= MAX_STACK:
        return text
    # The innermost calls show where the job is stuck.
    kept = text[-MAX_STACK:]
    return "  ...\n" + kept[kept.index("\n") + 1 :]
