"""A point at which a process is killed, or a call of it fails; and the processes that try one after the other."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.kill_points.servers import KINDS_OF_SERVERS, Emptied
from tests.servers.server import Missing

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("calls.c")
KINDS = ("write", "sync", "size", "name", "lock", "send", "server", "process")
"""Of system calls, as `calls.c` numbers them. server: what is sent to a server. process: one is forked,
executed or signalled."""
FAULTS = (
    "none", "killed", "torn", "EIO", "ENOSPC", "EINTR", "short", "unsent", "sent", "reset", "unanswered", "power",
    "breakpoint",
)  # fmt: skip
"""As `calls.c` numbers them. torn: half of a write is done, then the process is killed. unsent, sent: it is killed
before or after it sends something to a server. reset, unanswered: the connection is closed instead, and the process
goes on. power: see `power_cut.py`. breakpoint: it is killed before a line that writes into mapped memory."""
POWER, BREAKPOINT = FAULTS.index("power"), FAULTS.index("breakpoint")
SERVER_FAULTS = FAULTS[7:11]
FILE_FAULTS = (*FAULTS[1:7], "power")
OF_MASTERS = {
    "doors": ("killed", "torn", "breakpoint"), "worker": ("killed", "breakpoint"), "reload": ("killed", "breakpoint"),
    "upgrade": ("killed", "breakpoint"), "successor": ("killed", "breakpoint"),
}  # fmt: skip
FAULTS_OF = {
    "file": FILE_FAULTS, "shards": FILE_FAULTS, **dict.fromkeys(KINDS_OF_SERVERS, SERVER_FAULTS), **OF_MASTERS
}  # fmt: skip
"""By story; OF_MASTERS: see `masters.py`. What one on a server writes to files is the outbox, as `file` does."""
STORIES = tuple(FAULTS_OF)


class Point(NamedTuple):
    """at: the number of the call, from 1; 0: none, the calls are only counted. span: so many calls fail."""

    story: str
    at: int = 0
    fault: int = FAULTS.index("killed")
    span: int = 1

    @classmethod
    def parse(cls, text: str) -> "Point":
        """From `str` of one."""
        story, at, fault, span = text.split(":")
        return cls(story, int(at), FAULTS.index(fault), int(span))

    def __str__(self) -> str:
        return f"{self.story}:{self.at}:{FAULTS[self.fault]}:{self.span}"


class Tries:
    """A process that tries points."""

    def __init__(self, process: "subprocess.Popen[str]", emptied: Emptied) -> None:
        self._process, self._emptied = process, emptied
        self._counts: dict[str, dict[str, int]] = {}

    def answer(self, point: Point) -> dict[str, Any]:
        """What came of it. calls: of a process that was not killed: how many the fault might strike; kinds, counts: how
        many there were of each kind, and for each fault; wrong: what the next process found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        url = self._emptied(point.story) if point.story in KINDS_OF_SERVERS else ""
        self._process.stdin.write(json.dumps([point, url]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process that tries points has ended at {point}"
        return dict(json.loads(line))

    def count(self, story: str, fault: int) -> int:
        """How many calls there are that the fault may strike; one run tells of all faults of `calls.c`."""
        counts = self._counts.setdefault(story, {})
        if FAULTS[fault] not in counts:
            answer = self.answer(Point(story, 0, fault))
            assert "calls" in answer, answer["failed"]
            counts.update({FAULTS[fault]: answer["calls"]} | answer.get("counts", {}))
        return counts[FAULTS[fault]]

    def wrong(self, point: Point) -> list[str]:
        """A sentence for each thing that is wrong after it."""
        answer = self.answer(point)
        if "wrong" not in answer:
            return [f"{point}: {answer.get('failed', 'the second process was killed')}"]
        return [f"{point}: {one}" for one in answer["wrong"]]


@contextmanager
def fast_directory() -> Iterator[Path]:
    """In memory where there is such a place: what is killed is a process, so no disk is needed."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        # Servers run as users of their own.
        os.chmod(directory, 0o755)
        yield Path(directory)


@contextmanager
def trying(directory: Path, emptied: Emptied) -> Iterator[Tries]:
    """directory: where each point has one of its own. `Missing` without a compiler."""
    command = [sys.executable, "-m", "tests.kill_points.process", str(directory)]
    # A master that is upgraded is started anew, in the directory of its own.
    environ = os.environ | {"LD_PRELOAD": str(library()), "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, text=True) as process:
        yield Tries(process, emptied)


def library() -> Path:
    """The compiled `calls.c`; `Missing` without a compiler."""
    made = ROOT / "build" / "kill_points" / "calls.so"
    if made.exists() and made.stat().st_mtime > SOURCE.stat().st_mtime:
        return made
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("no C compiler: apt-get install gcc libc6-dev")
    made.parent.mkdir(parents=True, exist_ok=True)
    # Others may compile it at the same moment.
    mine = made.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(mine), str(SOURCE)], check=True)
    mine.replace(made)
    return made
