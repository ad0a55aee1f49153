"""Starts real masters, and waits for what they do."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tarry.runtime.board.reader import Board, ChildStatus, read
from tarry.runtime.board.scoreboard import board_path
from tests.runtime.scripted_roles import MasterScript

T = TypeVar("T")

KEEPER = ("keeper", "", 1, "keeper")


def until(look: Callable[[], T], limit: float = 60.0) -> T:
    """Waits for a true result, and returns it."""
    end = time.monotonic() + limit
    while not (answer := look()):
        assert time.monotonic() < end, f"still {answer!r} after {limit} s"
        time.sleep(0.01)
    return answer


def alive(pid: int) -> bool:
    """False also for a zombie, a dead process that nobody has reaped."""
    return state(pid) not in "ZX"


def state(pid: int) -> str:
    """S sleeps, R runs, T is stopped, Z is a zombie; X: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _is_over(process: "subprocess.Popen[str]") -> bool:
    """Nobody has its pipes any more: a process that is just being replaced by another program shows no environment, and
    is found when it is that program."""
    try:
        process.communicate(timeout=0.1)
    except subprocess.TimeoutExpired:
        return False
    return True


class MasterHarness:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pid_file = directory / "run" / "tarry.pid"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *roles: tuple[str, str, int, str], **rest: Any) -> "subprocess.Popen[str]":
        """Starts a master without waiting."""
        self.next(*roles, **rest)
        process = self._spawn((self.directory / "next").read_text())
        self._started.append(process)
        return process

    def _spawn(self, script: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.scripted_roles", str(self.directory), script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"TARRY_TEST_MASTER": str(self.directory)},
            text=True,
        )

    def next(self, *roles: tuple[str, str, int, str], **rest: Any) -> None:
        """Sets what the next reload reads."""
        draft = self.directory / "next.draft"
        draft.write_bytes(msgspec.json.encode(MasterScript(list(roles), **rest)))
        draft.rename(self.directory / "next")

    def serve(self, *roles: tuple[str, str, int, str], **rest: Any) -> "subprocess.Popen[str]":
        """Starts a master and waits until it serves."""
        before = len(self.facts("serving"))
        process = self.start(*roles, **rest)
        until(lambda: len(self.facts("serving")) > before or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    def facts(self, what: str | None = None) -> list[dict[str, Any]]:
        """What the scripted roles have noted."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.directory / "facts").read_bytes().splitlines(keepends=True)
            facts = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
            return [fact for fact in facts if what is None or fact["what"] == what]
        return []

    def deaths_told(self) -> list[dict[str, Any]]:
        """The messages about deaths that keepers got."""
        return [fact["line"] for fact in self.facts("told")]

    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "log").read_text()
        return ""

    def board(self) -> Board:
        board = read(board_path(self.pid_file))
        assert board is not None
        return board

    def children(self, role: str = "worker") -> list[ChildStatus]:
        return [child for child in self.board().children if child.role == role]

    def ready(self, role: str = "worker") -> list[int]:
        return [child.pid for child in self.children(role) if child.boot == "ready"]

    def wait_for_exit(self, process: "subprocess.Popen[str]", limit: float = 60.0) -> tuple[int, str]:
        """Waits for the master. Returns its exit status and its stderr."""
        _, said = process.communicate(timeout=limit)
        return process.returncode, said

    def close(self) -> None:
        for process in self._started:
            process.kill()
        until(lambda: not self._kill_all() and all(map(_is_over, self._started)))

    def _kill_all(self) -> list[int]:
        """Kills all processes that were started here, directly or not; returns their pids."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(int(name))]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                if (group := os.getpgid(pid)) != os.getpgid(0):
                    os.killpg(group, signal.SIGKILL)  # between fork and exec a process shows no environment
                os.kill(pid, signal.SIGKILL)
        return found

    def _is_ours(self, pid: int) -> bool:
        try:
            return f"TARRY_TEST_MASTER={self.directory}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
