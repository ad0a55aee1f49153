"""Workers, started as users start them, or without a master to see what that costs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bench import machine
from bench.app import linger
from bench.board import BOARD, CAPACITY
from bench.waiting import until

LAUNCHERS = ("master", "lone")
ROOT = Path(__file__).parent.parent
_READY_WITHIN = 30.0
_WARM = range(CAPACITY - 1000, CAPACITY)
"""Job numbers that no measure uses."""


class Crew:
    """Processes on one store. `pids` are the workers'; `everybody`, also those that look after them."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self._processes = processes
        self._log = log
        self.pids: list[int] = []
        self.begun = time.monotonic()

    @property
    def everybody(self) -> list[int]:
        """All processes, workers and others."""
        return [pid for process in self._processes for pid in machine.tree(process.pid)]

    def get_ready(self, count: int) -> None:
        """Gives out short jobs until each worker has had one; RuntimeError if that takes too long."""
        used = iter(_WARM)

        def all_seen() -> bool:
            batch = list(islice(used, 2 * count))
            linger.using(queue="warm").enqueue_many([(number, 0.05) for number in batch])
            until(lambda: all(BOARD.done[number] for number in batch) or self._ended(), _READY_WITHIN)
            self.pids = sorted({BOARD.who[number] for number in _WARM} - {0})
            return len(self.pids) >= count or self._ended()

        if not until(all_seen, _READY_WITHIN) or self._ended():
            raise RuntimeError(f"{len(self.pids)} of {count} workers are ready; {self._last_words()}")

    def _ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
        return f"the log ends: {text[-600:]}" if text else "the log is empty"

    def end(self) -> None:
        """Ends all of them now, and waits for it, so that their time counts as ours."""
        left = self.everybody
        for process in self._processes:
            # Twice is quit, for a master; a graceful end would run what waits.
            for patience in (0.1, 8.0):
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(patience)
        for pid in machine.alive(left):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()


@contextlib.contextmanager
def crew(launcher: str, settings: Path, count: int) -> Iterator[Crew]:
    """`count` workers that are ready; killed at the end."""
    with started(launcher, settings, count) as ours:
        ours.get_ready(count)
        yield ours


@contextlib.contextmanager
def started(launcher: str, settings: Path, count: int) -> Iterator[Crew]:
    """The same, not waited for."""
    log = settings.parent / "bench.out"
    ours = Crew([], log)
    try:
        with open(log, "ab") as output:
            for command in _commands(launcher, settings, count):
                ours._processes.append(_process(command, output.fileno()))
        yield ours
    finally:
        ours.end()


def _commands(launcher: str, settings: Path, count: int) -> list[list[str]]:
    if launcher == "master":
        return [["-m", "tarry", "-c", str(settings), "start"]]
    return [["-m", "bench.lone", str(settings), role] for role in ["keeper"] + ["worker"] * count]


def ask(settings: Path, command: str) -> float:
    """Runs that `tarry` command as an operator does; seconds. RuntimeError if it fails."""
    begin = time.monotonic()
    process = _process(["-m", "tarry", "-c", str(settings), command], subprocess.PIPE)
    said, _ = process.communicate(timeout=60)
    if process.returncode:
        raise RuntimeError(f"tarry {command}: {said.decode(errors='replace').strip()}")
    return time.monotonic() - begin


def _process(command: list[str], output: int) -> subprocess.Popen[bytes]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TARRY_")}
    environment = plain | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=ROOT
    )
