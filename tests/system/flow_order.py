"""The process of tests/system/test_flow_order.py: it runs the order of docs/flows.md, until that has ended.

    python -m tests.system.flow_order STORE DIRECTORY KILL_AT

It kills itself before the line number KILL_AT that the tasks come to, as `kill -9` would; 0: it does not. Prints how
many lines they came to. The directory has the time, the example as order.py, and the ledgers of what was asked for and
of what was done.
"""

import importlib
import itertools
import os
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from tarry import State
from tarry.store.opening import open_store
from tests.system.flow_process import FlowProcess, add_line

FOLLOWED = ("charge", "pack", "ship", "ask", "remind", "review", "refund")
"""The functions whose lines count."""
MOST_ROUNDS = 50


class Lines:
    """Counts the lines that tasks come to, in all threads, and kills the process before one of them."""

    def __init__(self, file: str, kill_at: int) -> None:
        self._file, self._kill_at = file, kill_at
        self._numbers = itertools.count(1)
        self.count = 0

    def follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        """For `settrace`."""
        if frame.f_code.co_filename != self._file or frame.f_code.co_name not in FOLLOWED:
            return None
        if event == "line":
            self.count = next(self._numbers)
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.follow


class Others:
    """The bank, the post and the mail server: stands for the list of the example."""

    def __init__(self, directory: Path) -> None:
        self._asked, self._done = directory / "asked", directory / "done"

    def __contains__(self, what: str) -> bool:
        # The example asks this first at each call of theirs.
        add_line(self._asked, what)
        return self.has_done(what)

    def append(self, what: str) -> None:
        """Does it."""
        add_line(self._done, what)

    def has_done(self, what: str) -> bool:
        """Whether it was done."""
        return self._done.exists() and what in self._done.read_text().splitlines()


def main(url: str, directory: str, kill_at: str) -> None:
    """See the top of the file."""
    sys.path.insert(0, directory)
    order: Any = importlib.import_module("order")
    order.done = others = Others(Path(directory))
    lines = Lines(order.__file__, int(kill_at))
    with closing(open_store(url)) as store:
        process = FlowProcess(order.app, store, store, Path(directory))
        found = order.app.flows.list(name="order")
        flow = found[0] if found else order.place(7)
        threading.settrace(lines.follow)
        sys.settrace(lines.follow)
        for _ in range(MOST_ROUNDS):
            process.rescue()
            process.work()
            if flow.state is not State.RUNNING:
                break
            if others.has_done("reminded of 7") and store.flows.awaiting("review", 1):
                order.app.signal("review", key="7", value="good", id="the review of 7")
            else:
                process.keep()
        assert flow.result(0) == "good"
    print(lines.count)


if __name__ == "__main__":
    main(*sys.argv[1:])
