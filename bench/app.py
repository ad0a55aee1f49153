"""The app under measure: tasks that do nothing but say so on the board."""

import asyncio
import time

from bench.board import BOARD
from tarry import App, step

app = App()

BODY = "x" * 56
"""What a job carries besides its number."""


@app.task
def noop(i: int, body: str) -> None:
    BOARD.passed(i)


@app.task
async def anoop(i: int, body: str) -> None:
    BOARD.passed(i)


@app.task
async def sleep10(i: int, body: str) -> None:
    """Ten milliseconds of waiting for somebody else."""
    await asyncio.sleep(0.010)
    BOARD.passed(i)


@app.task
def linger(i: int, seconds: float) -> None:
    """Shows which process it runs in, for long enough that each worker gets one."""
    BOARD.began(i)
    time.sleep(seconds)
    BOARD.ended(i)


@app.task
def spin(i: int, body: str, seconds: float) -> None:
    """Uses a core for so long."""
    BOARD.began(i)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    BOARD.ended(i)


@app.task
async def hold(i: int, seconds: float) -> None:
    BOARD.began(i)
    await asyncio.sleep(seconds)
    BOARD.ended(i)


@app.task
def timed(i: int, body: str) -> None:
    """Says when it started by the clock that its due time was given in."""
    BOARD.passed(i)
    BOARD.start[i] = time.time()


@app.task
def link(before: int, i: int, body: str) -> int:
    """A job of a chain."""
    BOARD.passed(i)
    return i


@app.task
def join(results: list[None], i: int, body: str) -> None:
    """The callback of a group."""
    BOARD.passed(i)


@app.task
async def walk(i: int, steps: int) -> None:
    """Does that many steps, each of which does nothing."""
    BOARD.began(i)
    for number in range(steps):
        await step(_count, number)
    BOARD.ended(i)


async def _count(number: int) -> int:
    return number
