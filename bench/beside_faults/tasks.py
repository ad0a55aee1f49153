"""What the tasks of all projects do, and the lines that they add to the ledger: by the standard library alone.

The lines are those of `tarry.testing.history_events`. Times are microseconds of the monotonic clock, which is one for
all processes of a host and is never set. Only tarry counts attempts; so the epoch of an attempt is when it began.
"""

import json
import os
import signal
import socket
import time
from pathlib import Path

LEDGER, SCRATCH, CUTTER = "BESIDE_LEDGER", "BESIDE_SCRATCH", "BESIDE_CUTTER"
"""Variables: the ledger's file, a directory for marks of attempts, the port that cuts the network."""
CHUNK = 16 << 20
MOST_CHUNKS = 100
MINUTES = "* * * * *"
SCHEDULES = 20


def now() -> int:
    """Microseconds."""
    return time.monotonic_ns() // 1000


def write(event: str, job: str, **fields: object) -> None:
    """Adds a line, by one write."""
    line = json.dumps({"event": event, "job": job, **fields}).encode() + b"\n"
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def perform(job: str, deed: str, seconds: float) -> None:
    """One attempt of a job."""
    epoch, owner = now(), str(os.getpid())
    write("started", job, epoch=epoch, owner=owner, at=epoch, pid=os.getpid())
    _DEEDS[deed](job, seconds)
    write("ended", job, epoch=epoch, owner=owner, at=now(), outcome="done")
    if deed == "cut":
        _cut(job)


def tick(number: int) -> None:
    """A tick of a schedule, which is a job of that name."""
    perform(f"tick-{number}", "work", 0)


def _work(job: str, seconds: float) -> None:
    time.sleep(seconds)


def _exit_once(job: str, seconds: float) -> None:
    mark = Path(os.environ[SCRATCH], job)
    if not mark.exists():
        mark.touch()
        os._exit(1)
    time.sleep(seconds)


def _die(job: str, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _hog(job: str, seconds: float) -> None:
    taken = []
    for _ in range(MOST_CHUNKS):
        taken.append(b"x" * CHUNK)
        time.sleep(seconds / MOST_CHUNKS)


def _cut(job: str) -> None:
    """Returns once the network is cut: what the library says next about this job does not get through, or its answer
    does not come back."""
    way = b"a" if int(job.rpartition("-")[2]) % 2 else b"q"
    with socket.create_connection(("127.0.0.1", int(os.environ[CUTTER])), 5) as line:
        line.sendall(way)
        line.recv(1)


_DEEDS = {"work": _work, "cut": _work, "exit_once": _exit_once, "die": _die, "hog": _hog}
