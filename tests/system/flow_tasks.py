"""The tasks and the flows of tests/system/flow_story.py. Each task writes into a ledger what it does."""

import asyncio
from pathlib import Path

from tarry import App, Retry, astep, current_job, fan_out, sleep, step, wait_for
from tarry.client.flows.block import Flow
from tests.system.flow_process import add_line

app = App(retry=Retry(3, base=1))
directory = Path()
"""Where the ledger lies, and the file without which `fail_once` fails. The process sets it."""


def tell(what: str) -> None:
    """Adds a line to the ledger: the job, and this."""
    add_line(directory / "ledger", f"{current_job().id} {what}")


@app.task(name="work")
def work(number: int) -> int:
    tell("ran")
    return number


@app.task(name="awork")
async def awork(number: int) -> int:
    tell("ran")
    return number


@app.task(name="add")
def add(numbers: list[int]) -> int:
    tell("ran")
    return sum(numbers)


@app.task(name="split")
def split(number: int) -> list[int]:
    tell("ran")
    return fan_out(work.call(n) for n in range(number))


def charge(order: int) -> int:
    tell("step charge")
    return order


def ship(order: int) -> int:
    tell("step ship")
    return order * 2


def thank(order: int) -> int:
    tell("step thank")
    return order * 3


@app.task(name="order")
def order(number: int) -> int:
    tell("ran")
    paid = step(charge, number)
    shipped = step(ship, paid)
    sleep("3d")
    return paid + shipped + step(thank, number)


@app.task(name="aorder")
async def aorder(number: int) -> str:
    tell("ran")
    paid, shipped = await asyncio.gather(astep(charge, number), astep(ship, number))
    said = await wait_for("review", key=str(number))
    return f"{said} {paid + shipped + await astep(thank, number)}"


@app.task(name="undo")
def undo(done: int) -> None:
    tell(f"undo {done}")


@app.task(name="refuse", retry=None)
def refuse(number: int) -> int:
    tell("ran")
    raise ValueError("it is to fail")


@app.task(name="fail_once", retry=None)
def fail_once(number: int) -> int:
    tell("ran")
    if not (directory / "mended").exists():
        raise ValueError("it is not mended yet")
    return number


@app.task(name="doze")
def doze(number: int) -> None:
    tell("ran")
    sleep("90d")


def big(flow: Flow) -> None:
    """A chain, a diamond, a group with a callback, a fan-out and two tasks with steps: 40 nodes, and 10 more."""
    link = flow.add(work.call(1))
    for _ in range(9):
        link = flow.add(awork.call(link.result))
    sides = [flow.add(task.call(link.result)) for task in (work, awork)]
    tip = flow.add(add.call([side.result for side in sides]))
    group = flow.add_all((work.call(n) for n in range(20)), after=[tip])
    total = flow.add(add.call(group.result))
    joined = flow.add(add.call(flow.add(split.call(10), after=[link]).result))
    first = flow.add(order.call(7), after=[link])
    last = flow.add(aorder.call(7), after=[link])
    end = flow.add(add.call([total.result, joined.result, first.result]), after=[last])
    flow.add(work.call(end.result))


def undone(flow: Flow) -> None:
    """Three nodes are done, and undone since another one fails."""
    done = [flow.add(work.call(n), undo=undo.call()) for n in range(1, 4)]
    flow.add(work.call(0), after=[flow.add(refuse.call(0), after=done, on_failure="compensate")])


def mended(flow: Flow) -> None:
    """One of two nodes fails until it is mended; a third waits for both."""
    flow.add(add.call([flow.add(task.call(5)).result for task in (fail_once, work)]))


def withdrawn(flow: Flow) -> None:
    """After its first node it only waits."""
    first = flow.add(work.call(1))
    waits = [flow.add(doze.call(first.result)), flow.add(work.using(delay="90d").call(first.result))]
    flow.add(work.call(0), after=waits)


FLOWS = {"big": big, "undone": undone, "mended": mended, "withdrawn": withdrawn}
