"""Gives a forked child of this process, such as a `multiprocessing.Process` of a task, the signal handlers of a plain
program.

The child inherits our handlers and the descriptor to which they write. Without this, a signal for it would be ours.
"""

import signal
import threading
from collections.abc import Callable

from tarry.platform import at_fork

ALL = frozenset(signal.valid_signals())

depth = 0
"""How many forks lie between the first process that imported this and this one."""

_resets: list[Callable[[], None]] = []
_masks = threading.local()


def add(reset: Callable[[], None]) -> None:
    """From now on forked children call this first; all signals are blocked meanwhile."""
    _resets.append(reset)


def remove(reset: Callable[[], None]) -> None:
    """Ends that. Does nothing in such a child, which has forgotten it."""
    if reset in _resets:
        _resets.remove(reset)


def reset_handler(number: int) -> None:
    """Gives the signal what it does in a plain program. Called within a reset."""
    signal.signal(number, signal.SIG_DFL)


def _block() -> None:
    # A signal that comes before the child has reset its handlers waits until it has.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, ALL) if _resets else None


def _unblock() -> None:
    if _masks.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset() -> None:
    global depth
    depth += 1
    resets = _resets.copy()
    _resets.clear()
    try:
        for reset in reversed(resets):
            reset()
    finally:
        # An INT that came meanwhile ends the child: a KeyboardInterrupt would be lost in here.
        _unblock()
    if resets and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset)
