"""What `ps` shows of a process, if the extra `titles` (setproctitle) is installed."""

import contextlib
import functools
import time
from collections.abc import Callable

from tarry.runtime.board.reader import process_name
from tarry.runtime.role import ChildContext

_SHOW_EVERY = 1.0

Setter = Callable[[str], object]


def show(text: str) -> None:
    """Sets the title to `tarry: ` and the text."""
    setter = _setter()
    if setter is not None:
        setter(f"tarry: {text}")


class Title:
    """The title of a worker: its name, and the task that has run the longest."""

    def __init__(self, child: ChildContext) -> None:
        self._child, self._name = child, process_name("worker", child.pool, child.number)
        self._shown, self._again = "", 0.0

    def show(self) -> None:
        """Updates the title, at most once a second."""
        now = time.monotonic()
        if now < self._again:
            return
        self._again = now + _SHOW_EVERY
        first = min(self._child.slot.cells(), key=lambda cell: cell.since, default=None)
        text = f"{self._name} {first.task}" if first else self._name
        if text != self._shown:
            self._shown = text
            show(text)


@functools.cache
def _setter() -> Setter | None:
    with contextlib.suppress(ImportError):
        from setproctitle import setproctitle  # noqa: PLC0415 - an extra, and only the master and its children need it

        return setproctitle
    return None
