"""Where an interrupt has to wait: inside tarry's own code.

A timeout or a cancel is raised in a task's thread at any bytecode. Inside tarry that could leave a lock held, a
transaction open or a connection lost, so there it is only noted, and raised on the way out:

    with shielded:
        ...

Waits inside go through `wait`, which leaves at once when an interrupt is noted. Code of the user (middleware, encoders,
iterables of calls) stays outside.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType

SLICE = 0.05
"""Seconds of one step of a wait: so late it is left at most after an interrupt."""
_LONG = 3600.0

Why = type[BaseException]


class Shield:
    """Of one thread that can be interrupted, for one attempt after the other; each is interrupted at most once.

    throw: raises an exception in that thread, and says whether it may arrive at any later bytecode. True: the thread's
    next few bytecodes; False: a signal, whose handler asks `arrived`.
    left: called in the thread when an interrupt was held back and is about to be raised.
    """

    __slots__ = ("_left", "_lock", "_throw", "depth", "noted", "thrown")

    def __init__(self, throw: Callable[[Why], bool], left: Callable[[], object]) -> None:
        self._throw, self._left = throw, left
        self._lock = threading.Lock()
        self.depth = 0
        """How many shielded blocks the thread is inside."""
        self.noted: Why | None = None
        """What was decided and, as far as is known, has not arrived."""
        self.thrown = False

    def attach(self) -> None:
        """The calling thread is the one that is protected."""
        _here.shield = self

    def begin(self) -> None:
        """Another attempt: nothing is left of the last one."""
        self.depth, self.noted, self.thrown = 0, None, False

    def interrupt(self, why: Why) -> bool:
        """Raises it in the thread; True if it has to wait for the way out. From another thread."""
        with self._lock:
            # First noted, then looked: whoever enters or leaves from now on sees it and waits for the lock.
            self.noted = why
            if self.depth:
                return True
            self.thrown = self._throw(why)
            return False

    def arrived(self) -> None:
        """The signal is here: raises what it stands for, unless that waits for the way out or has come already."""
        if not self.depth:
            self._raise()

    def check(self) -> None:
        """Raises what is noted, at a point inside where that is safe."""
        if self.noted is not None and self.depth:
            self._left()
            self._raise()

    def at_border(self) -> None:
        """On the way in or out, with something noted: it comes here and now, unless it came before."""
        with self._lock:
            if thrown := self.thrown:
                self.noted, self.thrown = None, False
        if not thrown:
            self._left()
            self._raise()
        for _ in range(100):
            pass  # what was thrown arrives in one of these steps, if it has not yet

    def _raise(self) -> None:
        why, self.noted = self.noted, None
        if why is not None:
            raise why


class _Here(threading.local):
    shield: Shield | None = None
    """Of the calling thread; None where nobody interrupts."""


_here = _Here()


class _Shielded:
    """`with shielded:`. In CPython nothing can arrive between `depth` and the look at `noted`, nor after the end of
    `__enter__` and before the block."""

    def __enter__(self) -> None:
        shield = _here.shield
        if shield is not None:
            shield.depth += 1
            if shield.noted is not None and shield.depth == 1:
                try:
                    shield.at_border()
                except BaseException:
                    shield.depth -= 1
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shield = _here.shield
        if shield is not None:
            shield.depth -= 1
            if shield.noted is not None and not shield.depth:
                shield.at_border()


shielded = _Shielded()


def wait(wait_for: Callable[[float], bool], seconds: float | None) -> bool:
    """Waits inside a shielded block: calls `wait_for(seconds)`, which answers whether what it waits for has come, until
    it has (True) or the time is over (False). Raises an interrupt that is noted. seconds: None, without end."""
    shield = _here.shield
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _LONG if end is None else max(0.0, end - time.monotonic())
        if wait_for(left if shield is None else min(left, SLICE)):
            return True
        if shield is not None:
            shield.check()
        if end is not None and time.monotonic() >= end:
            return False
