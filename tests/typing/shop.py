"""Tasks of every shape, for the files of good and bad calls."""

from dataclasses import dataclass
from datetime import datetime

from tarry import App, Retry, Snooze

app = App()


@dataclass
class Order:
    number: int
    due: datetime | None = None


@app.task
def send(to: str, name: str = "") -> str:
    return to + name


@app.task(queue="slow", retry=Retry(3), timeout=30, priority=10)
def charge(order: Order, *, amount: int, note: str | None = None) -> bool:
    return bool(order.number and amount and note)


@app.task
async def fetch(url: str) -> int:
    return len(url)


@app.task(name="shop.crawl", expires="5m")
async def crawl(*urls: str, depth: int = 1) -> list[str]:
    return list(urls) * depth


@app.task
def total(first: int, /, *others: int, **named: float) -> float:
    return first + sum(others) + sum(named.values())


@app.task
def nothing() -> None: ...


@app.task
def maybe(a: int) -> int | Snooze:
    return a if a else Snooze(30)


@app.task
def order(number: int) -> Order:
    return Order(number)


@app.task
def join(parts: list[str]) -> str:
    return "".join(parts)


class Mailer:
    @staticmethod
    @app.task
    def post(to: str) -> int:
        return len(to)

    @staticmethod
    @app.task(queue="mail")
    async def apost(to: str) -> int:
        return len(to)


def plain(a: int, *, b: str) -> dict[str, int]:
    return {b: a}


planned = app.task(plain)
planned_too = app.task(name="plain2")(plain)
