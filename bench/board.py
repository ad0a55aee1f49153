"""The board: shared memory in which each job writes what it did, at the cost of about a microsecond.

Per job number: how often it was started, whether it ended, when it started and ended, and in which process. A job
writes only its own cells, so that no lock is needed, and a lost or doubled job is seen.
"""

import atexit
import mmap
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CAPACITY = 1_200_000
"""Job numbers 0 to this; those of one measure."""
_CELL = 8 + 8 + 8 + 4 + 1 + 1
_VARIABLE = "BENCH_BOARD"


class Board:
    """One file, mapped by every process of the benchmark. Times are time.monotonic(), one clock for all of them;
    `put` and, for timed jobs, `start` are time.time()."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "a+b") as file:
            os.ftruncate(file.fileno(), CAPACITY * _CELL)
            self._memory = mmap.mmap(file.fileno(), CAPACITY * _CELL)
        whole, n = memoryview(self._memory), CAPACITY
        self.put, self.start, self.end = (whole[k * 8 * n : (k + 1) * 8 * n].cast("d") for k in range(3))
        self.who = whole[24 * n : 28 * n].cast("I")
        self.starts, self.done = whole[28 * n : 29 * n], whole[29 * n : 30 * n]

    def began(self, number: int) -> None:
        """The job runs in this process from now on."""
        self.start[number] = time.monotonic()
        self.starts[number] += 1
        self.who[number] = os.getpid()

    def ended(self, number: int) -> None:
        """The job is done."""
        self.end[number] = time.monotonic()
        self.done[number] = 1

    def passed(self, number: int) -> None:
        """The job began and ended in the same moment."""
        self.start[number] = self.end[number] = time.monotonic()
        self.starts[number] += 1
        self.done[number] = 1

    def count(self, jobs: range) -> int:
        """How many of them are done."""
        offset = 29 * CAPACITY
        return self._memory[offset + jobs.start : offset + jobs.stop].count(1)

    def ends(self, jobs: Sequence[int]) -> list[float]:
        """When those ended that did, in that order of time."""
        return sorted(self.end[number] for number in jobs if self.done[number])

    def doubled(self, jobs: range) -> int:
        """How many were started more than once."""
        return sum(count > 1 for count in self.starts[jobs.start : jobs.stop])

    def clear(self) -> None:
        """Empty again, for every process that has it mapped. No job may run meanwhile."""
        os.truncate(self.path, 0)
        os.truncate(self.path, CAPACITY * _CELL)

    def remove(self) -> None:
        """Takes the file away; what is mapped stays."""
        self.path.unlink(missing_ok=True)


def _place() -> Path:
    """Named by the process that measures, known to all that it starts. Memory, not a disk, where there is any."""
    memory = Path("/dev/shm")
    home = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return Path(os.environ.setdefault(_VARIABLE, str(home / f"tarry-bench-{os.getpid()}")))


def _opened() -> Board:
    ours = _VARIABLE not in os.environ
    board = Board(_place())
    if ours:
        atexit.register(board.remove)
    return board


BOARD = _opened()
