"""Workers under a supervisor, as in production: what ends by itself is started again."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import machine
from bench.waiting import until

RESTART_AFTER = 1.0
"""Seconds."""
MEMORY_LIMIT = 300 << 20
"""Bytes of a process at which it is killed, where a cell has a limit: as the kernel does in a container."""
_LOOK_EVERY = 0.05
_TAG = "BESIDE_TAG"
_tags = iter(range(1 << 30))


class Workers:
    """Some commands. `on_kill` gets the processes that are about to be killed."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        environments: Sequence[Mapping[str, str]],
        log: Path,
        on_kill: Callable[[list[int]], None],
    ) -> None:
        self._tag = f"{os.getpid()}-{next(_tags)}"
        self._commands, self._environments = commands, environments
        self._log, self._on_kill = log, on_kill
        self._over = threading.Event()
        self.memory_limit = 0
        self._processes = [self._start(place) for place in range(len(commands))]
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def pids(self) -> list[int]:
        """All of their processes, also those whose parent has died."""
        found = [pid for process in self._processes for pid in machine.tree(process.pid)]
        return machine.alive({*found, *_tagged(self._tag)})

    def kill(self) -> None:
        """SIGKILL to all, as when the host dies. None is started again."""
        self._end_watch()
        self._kill(self.pids())

    def terminate(self, grace: float) -> None:
        """SIGTERM to what was started, as a deploy does; after `grace` seconds SIGKILL. None is started again."""
        self._end_watch()
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        until(lambda: all(process.poll() is not None for process in self._processes), grace)
        if left := self.pids():
            self._kill(left)

    def _kill(self, pids: list[int]) -> None:
        self._send_kill(pids)
        for process in self._processes:
            process.wait()

    def _send_kill(self, pids: list[int]) -> None:
        self._on_kill(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._commands[place],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                env={**self._environments[place], _TAG: self._tag},
                start_new_session=True,
            )

    def _end_watch(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        ended: dict[int, float] = {}
        while not self._over.wait(_LOOK_EVERY):
            self._kill_over_limit()
            for place, process in enumerate(self._processes):
                if process.poll() is not None:
                    ended.setdefault(place, time.monotonic())
            for place in [place for place, at in ended.items() if time.monotonic() - at > RESTART_AFTER]:
                del ended[place]
                self._processes[place] = self._start(place)

    def _kill_over_limit(self) -> None:
        for pid in self.pids() if self.memory_limit else ():
            if machine.memory(pid)[0] > self.memory_limit:
                self._send_kill([pid])


def _tagged(tag: str) -> list[int]:
    mark = f"\0{_TAG}={tag}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in b"\0" + path.read_bytes():
                found.append(int(path.parent.name))
    return found
