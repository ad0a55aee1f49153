"""How much processor time processes use."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

_SOONEST = 0.9
"""Seconds between two measurements of a process, at least: the kernel counts in hundredths of a second."""


class CpuMeter:
    """Measures how many cores each process has used since it was last asked about."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}
        """By pid: the moment, and the seconds of processor time used until then."""
        self._shares: dict[int, float] = {}

    def shares(self, pids: Sequence[int]) -> dict[int, float]:
        """Cores in use by pid: 1.0 is one core. Processes that are measured for the first time are left out."""
        now = time.monotonic()
        for pid in pids:
            used, before = cpu_seconds(pid), self._before.get(pid)
            if before is None or used < before[1]:
                # A new process, perhaps with the number of an old one.
                self._before[pid] = now, used
                self._shares.pop(pid, None)
            elif now - before[0] >= _SOONEST:
                self._before[pid] = now, used
                self._shares[pid] = (used - before[1]) / (now - before[0])
        for gone in self._before.keys() - set(pids):
            del self._before[gone]
            self._shares.pop(gone, None)
        return dict(self._shares)


def cpu_seconds(pid: int) -> float:
    """Of all its threads; 0.0 if it is gone, or /proc does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        # From the last bracket on: the name of the program is in brackets, and may have spaces itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
