"""The app of tests/system/test_storm.py, which copies it beside its store: tasks of every kind that write a ledger."""

import asyncio
import json
import os
import random
import time
from pathlib import Path

from tarry import App, Retry, current_job, current_jobs, sleep, step, wait_for

HERE = Path(__file__).parent
# Workers are forked from one process: each draws on from where that one stood.
chance = random.Random(1)
app = App(retry=Retry(8, backoff="fixed", base=0.2))


def tell(what: str, about: str = "") -> None:
    """A line of the ledger for each job that is on."""
    write_lines("ledger", [(what, job.id, job.attempt, os.getpid(), time.time(), about) for job in current_jobs()])


def write_lines(name: str, lines: list[tuple[object, ...]]) -> None:
    """By one write, so that lines of many processes do not mix."""
    fd = os.open(HERE / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    os.close(fd)


def busy() -> float:
    return chance.uniform(0, 0.06)


@app.task(limit_by=lambda who: who, limit=1, limit_all=6)
def keyed(who: str) -> str:
    tell("began", who)
    time.sleep(busy())
    tell("ended", who)
    return who


@app.task(queue="other")
async def work(number: int) -> int:
    tell("began")
    await asyncio.sleep(busy())
    tell("ended")
    return number


@app.task(queue="bounded")
def bounded(number: int) -> None:
    tell("began")
    time.sleep(busy())
    tell("ended")


@app.task
def flaky(times: int) -> int:
    tell("began")
    if current_job().attempt <= times:
        tell("ended")
        raise ValueError("not yet")
    tell("ended")
    return times


@app.task(retry=None)
def fails() -> None:
    tell("began")
    tell("ended")
    raise ValueError("it is to fail")


@app.task(queue="other", timeout=5)
async def slow() -> None:
    tell("began")
    try:
        await asyncio.sleep(2)
    finally:
        tell("ended")


@app.task(queue="other", batch=10, wait=0.2)
def together(numbers: list[int]) -> None:
    tell("began")
    time.sleep(0.02)
    tell("ended")


@app.task
def order(number: int) -> int:
    tell("began")
    try:
        paid = step(number.__add__, 1)
        sleep("1s")
        said = wait_for("paid", key=str(number))
        return int(paid + step(int, said))
    finally:
        tell("ended")


@app.task(queue="other")
def total(numbers: list[int]) -> int:
    tell("began")
    tell("ended")
    return sum(numbers)
