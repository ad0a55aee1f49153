"""Batch tasks: right calls of one element each, and wrong ones."""

import asyncio
from collections.abc import Sequence
from typing import assert_type

from tarry import App, Event, Fail, Job
from tests.typing.shop import Order

app = App()


@app.task(batch=100, wait=0.5)
def index(orders: list[Order]) -> list[int] | None:
    return [order.number for order in orders] or None


@app.task(batch=100, wait="1s", queue="slow")
def mixed(orders: list[Order]) -> list[int | Exception]:
    return [order.number or Fail("none") for order in orders]


@app.task(batch=10)
def nothing(orders: Sequence[Order]) -> None: ...


@app.task(batch=10)
async def aindex(orders: list[Order]) -> list[int]:
    return [order.number for order in orders]


async def _one(order: Order) -> str:
    return str(order.number)


@app.task(batch=10)
async def gathered(orders: list[Order]) -> list[str | BaseException]:
    return await asyncio.gather(*map(_one, orders), return_exceptions=True)


def a_number(number: int) -> None: ...


def two(orders: list[Order], more: int) -> None: ...


def right() -> None:
    assert_type(index.enqueue(Order(1)), Job[int])
    assert_type(index.using(delay=5).enqueue(Order(1)).result(), int)
    assert_type(mixed.enqueue(Order(1)), Job[int])
    assert_type(nothing.enqueue(Order(1)), Job[None])
    assert_type(aindex.enqueue(Order(1)), Job[int])
    assert_type(gathered.enqueue(Order(1)), Job[str])
    assert_type(index.enqueue_many(index.call(Order(n)) for n in range(3)), list[Job[int]])
    assert_type(list(index.enqueue(Order(1)).follow(5)), list[Event])


async def awaited() -> None:
    assert_type(await aindex.aenqueue(Order(1)), Job[int])
    await aindex([Order(1)])
    async for event in index.enqueue(Order(1)).follow():
        assert_type(event, Event)


def wrong() -> None:
    index.enqueue([Order(1)])  # error
    index.enqueue(5)  # error
    index.enqueue(Order(1), Order(2))  # error
    index.enqueue()  # error
    index.using(delay=5).enqueue("x")  # error
    index(Order(1))  # error
    app.task(batch="10")  # error
    app.task(batch=10, wait=[1])  # error
    app.task(wait=5)  # error
    app.task(batch=10)(a_number)  # error
    app.task(batch=10)(two)  # error
