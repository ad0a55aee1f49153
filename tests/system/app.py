"""The app of the stories. It is copied beside the store; its tasks tell a ledger outside the store what they did."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from uuid import UUID

from tarry import App, CalledBack, CurrentJob, TimeLimit, current_job, current_jobs

HERE = Path(__file__).parent

app = App(retry=None)


def tell(what: str) -> None:
    """A line of the ledger for each job: one write, so that lines of many processes do not mix."""
    seen = {"what": what, "pid": os.getpid(), "at": time.time()}
    records = [(job.attempt, job.running.job) for job in current_jobs()]
    lines = [
        seen
        | {
            "job": str(UUID(bytes=job.id)),
            "attempt": attempt,
            "epoch": job.epoch,
            "owner": job.owner,
            "claimed": job.state_since,
        }
        for attempt, job in records
    ]
    fd = os.open(HERE / "ledger", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    os.close(fd)


@app.task
def add(a: int, b: int) -> int:
    tell("ended")
    return a + b


@app.task
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0.01)
    tell("ended")
    return a + b


@app.task
def wait(gate: str) -> str:
    """Returns once the file is there, in the main thread of a worker."""
    tell("began")
    attempt = current_job().attempt
    try:
        while not (HERE / gate).exists():
            time.sleep(0.01)
        # Within the `try`, since the call back may come while the line is being written, and it would be lost.
        tell("ended")
    except (CalledBack, TimeLimit) as error:
        tell(type(error).__name__)
        raise
    return f"attempt {attempt}"


_loops: list[asyncio.AbstractEventLoop] = []
_gates: dict[str, asyncio.Event] = {}
_watchers: set["asyncio.Task[None]"] = set()


async def _opened(gate: str) -> None:
    """One watcher for all who wait, since a job that looks every now and then is at work every now and then."""
    if gate not in _gates:
        _loops.append(asyncio.get_running_loop())
        _gates[gate] = asyncio.Event()
        _watchers.add(asyncio.create_task(_watch(gate)))
    await _gates[gate].wait()


async def _watch(gate: str) -> None:
    while not (HERE / gate).exists():
        await asyncio.sleep(0.01)
    _gates[gate].set()


@app.task
async def await_stop() -> None:
    """Returns once its worker knows that it is to stop."""
    tell("began")
    while not current_job().stopping:
        await asyncio.sleep(0.01)


@app.task
async def await_gate(gate: str) -> None:
    tell("began")
    try:
        await _opened(gate)
    except asyncio.CancelledError:
        tell("cancelled")
        raise
    tell("ended")


@app.task
def die(neighbours: int) -> None:
    """Takes its process along, once so many async jobs wait in it: first by an exit, next by a signal."""
    _once_asleep(neighbours)
    tell("dies")
    if current_job().attempt % 2:
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def adie(neighbours: int) -> None:
    await asyncio.to_thread(_once_asleep, neighbours)
    tell("dies")
    os._exit(7)


@die.on_failure
@adie.on_failure
def witness(job: CurrentJob, error: BaseException) -> None:
    tell("failed")


@die.on_dead
@adie.on_dead
async def mourn(job: CurrentJob, error: BaseException) -> None:
    tell("mourned")


def _once_asleep(neighbours: int) -> None:
    """A job that is in the middle of a step when the process dies would rightly be held to be on."""
    pid = os.getpid()
    while sum(line["pid"] == pid and line["what"] == "began" for line in _told()) < neighbours:
        time.sleep(0.01)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), _loops[0]).result()


def _told() -> list[dict[str, object]]:
    lines = (HERE / "ledger").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@app.task(batch=20, wait=0.3)
def together(numbers: list[int]) -> None:
    """The number 13 takes the process along."""
    tell("began")
    if 13 in numbers:
        os._exit(7)
    tell("ended")


@app.task(batch=20, wait=0.3)
async def atogether(numbers: list[int]) -> None:
    await asyncio.sleep(0)
    tell("began")
    if 13 in numbers:
        os._exit(7)
    tell("ended")


@app.task(timeout=0.5)
def spin() -> None:
    tell("began")
    while True:
        pass


@app.task(timeout=0.5)
def cling() -> None:
    """Swallows whatever is thrown at it."""
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


@app.task
def exits() -> None:
    sys.exit(3)


@app.task
def unkeepable() -> object:
    return object()


@app.task
def leaks() -> str:
    """A thread that is no daemon, and never ends."""
    threading.Thread(target=threading.Event().wait).start()
    return "left one running"


@app.task
def work(seconds: float) -> None:
    tell("began")
    time.sleep(seconds)
    tell("ended")


@app.task
async def awork(seconds: float) -> None:
    tell("began")
    await asyncio.sleep(seconds)
    tell("ended")
