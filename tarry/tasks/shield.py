"""Holds interrupts back while a task is inside tarry's own code.

A timeout or a cancel is raised in a task's thread, at any bytecode. Inside tarry's code that could leave a lock held, a
transaction open or a connection lost. So a shielded block only notes the interrupt, and raises it at the block's end:

    with shielded:
        ...

Waits in such a block use `wait`, which ends at once when an interrupt is noted. The user's code (middleware, encoders,
iterables of calls) must run outside.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

# A wait cannot be woken by an interrupt, so it looks for one after each step.
SLICE = 0.05
"""Seconds of one step of a wait: an interrupt ends the wait after this time at most."""
_LONG = 3600.0

Why = type[BaseException]


class Shield:
    """The shield of one thread, which runs one attempt after the other. Each attempt is interrupted at most once.

    throw: raises an exception in that thread. True: it arrives within the next few bytecodes; False: a signal was sent,
    whose handler calls `on_signal`. on_release: called in the thread before an interrupt is raised that was held back.
    """

    __slots__ = ("_lock", "_on_release", "_throw", "depth", "noted", "thrown")

    def __init__(self, throw: Callable[[Why], bool], on_release: Callable[[], object]) -> None:
        self._throw, self._on_release = throw, on_release
        self._lock = threading.Lock()
        self.depth = 0
        """How many shielded blocks the thread is in."""
        self.noted: Why | None = None
        """The interrupt that was requested and, as far as is known, has not arrived yet."""
        self.thrown = False

    def attach(self) -> None:
        """Makes this the shield of the calling thread."""
        _local.shield = self

    def begin(self) -> None:
        """Starts another attempt: forgets the interrupt of the last one."""
        self.depth, self.noted, self.thrown = 0, None, False

    def interrupt(self, why: Why) -> bool:
        """Raises the exception in the thread; True if it waits for the end of a block. Call from another thread."""
        with self._lock:
            # Note it before the check: a thread that enters or leaves a block now sees the note and waits for the lock.
            self.noted = why
            if self.depth:
                return True
            self.thrown = self._throw(why)
            return False

    def on_signal(self) -> None:
        """The signal's handler: raises the interrupt, unless it waits for the end of a block, or was raised."""
        if not self.depth:
            self._raise()

    def check(self) -> None:
        """Raises the noted interrupt. Call inside a block, at a point where that is safe."""
        if self.noted is not None and self.depth:
            self._on_release()
            self._raise()

    def at_border(self) -> None:
        """Raises the noted interrupt, unless it came already. Called at the start and the end of the outer block."""
        with self._lock:
            if thrown := self.thrown:
                self.noted, self.thrown = None, False
        if not thrown:
            self._on_release()
            self._raise()
        # A thrown exception arrives in one of these steps at the latest: here, and not inside tarry's code.
        for _ in range(100):
            pass

    def _raise(self) -> None:
        # Forget it first: it must be raised only once.
        why, self.noted = self.noted, None
        if why is not None:
            raise why


class _ShieldState(threading.local):
    shield: Shield | None = None
    """The shield of the calling thread; None: it is never interrupted."""


_local = _ShieldState()


class _Shielded:
    """`with shielded:`."""

    # CPython lets no exception in between the change of `depth` and the check of `noted`, nor between the end of
    # `__enter__` and the start of the block. So no interrupt can slip past both. Python 3.14 lets one in where an
    # `__enter__` in C ends, as a lock's (CPython issue 148874): in a task's thread only what is shielded uses locks.

    def __enter__(self) -> None:
        shield = _local.shield
        if shield is not None:
            shield.depth += 1
            if shield.noted is not None and shield.depth == 1:
                try:
                    shield.at_border()
                # Where `__enter__` raises, `__exit__` is not called.
                except BaseException:
                    shield.depth -= 1
                    raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shield = _local.shield
        if shield is not None:
            shield.depth -= 1
            # Only the outermost block: an inner one still runs inside tarry's code.
            if shield.noted is not None and not shield.depth:
                shield.at_border()


shielded = _Shielded()


class Flag:
    """One thread sets it, another waits for it. Unlike `threading.Event`, no exception that comes amid a wait leaves a
    lock held, on which the thread that sets it would hang."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # Held while it is not set. Its methods are C, so an exception comes before or after them.
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        # Two threads may set it at once, so it is tried and not asked first.
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Waits until it is set, and clears it. False: time is up."""
        return self._lock.acquire(timeout=seconds)


def wait(wait_for: Callable[[float], bool], seconds: float | None) -> bool:
    """Waits inside a shielded block; raises a noted interrupt. seconds: None: without end.

    Calls `wait_for(seconds)`, which returns whether the event has come, until it has (True) or time is up (False).
    """
    shield = _local.shield
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _LONG if end is None else max(0.0, end - time.monotonic())
        if wait_for(left if shield is None else min(left, SLICE)):
            return True
        if shield is not None:
            shield.check()
        if end is not None and time.monotonic() >= end:
            return False
