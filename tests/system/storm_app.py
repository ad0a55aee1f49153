"""The app of tests/system/test_storm.py, which copies it beside its store: tasks of every kind that write a ledger."""

import asyncio
import random
import time
from pathlib import Path

from tarry import App, Retry, current_job, current_jobs, sleep, step, wait_for
from tarry.testing.history_check import StepRan, StepRecorded
from tarry.testing.ledger import Ledger

HERE = Path(__file__).parent
# Workers are forked from one process: each draws on from where that one stood.
chance = random.Random(1)
app = App(retry=Retry(8, backoff="fixed", base=0.2))
history = Ledger(HERE / "history")
app.middleware("run")(history.run)


def busy() -> float:
    return chance.uniform(0, 0.06)


@app.task(limit_by=lambda who: who, limit=1, limit_all=6)
def keyed(who: str) -> str:
    time.sleep(busy())
    return who


@app.task(order_by=lambda line: line)
def ordered(line: str) -> str:
    time.sleep(busy())
    if current_job().attempt < 4 and chance.random() < 0.2:
        raise ValueError("not yet")
    return line


@app.task(queue="other")
async def work(number: int) -> int:
    await asyncio.sleep(busy())
    return number


@app.task(queue="bounded")
def bounded(number: int) -> None:
    time.sleep(busy())


@app.task
def flaky(times: int) -> int:
    if current_job().attempt <= times:
        raise ValueError("not yet")
    return times


@app.task(retry=None)
def fails() -> None:
    raise ValueError("it is to fail")


@app.task(queue="other", timeout=5)
async def slow() -> None:
    await asyncio.sleep(2)


@app.task(queue="other", batch=10, wait=0.2)
def together(numbers: list[int]) -> None:
    history.record_start(*current_jobs())
    time.sleep(0.02)
    history.record_end("done", *current_jobs())


def pay(number: int) -> int:
    history.write(StepRan(current_job().id, "pay", history.now()))
    return number + 1


def send(said: int) -> int:
    history.write(StepRan(current_job().id, "send", history.now()))
    return said


@app.task
def order(number: int) -> int:
    paid = step(pay, number)
    history.write(StepRecorded(current_job().id, "pay", history.now()))
    sleep("1s")
    said = wait_for("paid", key=str(number))
    sent = step(send, said)
    history.write(StepRecorded(current_job().id, "send", history.now()))
    return paid + int(sent)


@app.task(queue="other")
def total(numbers: list[int]) -> int:
    return sum(numbers)
