"""Results taken for what they are not."""

from tarry import Job
from tests.typing.shop import Order, charge, crawl, fetch, send


def results() -> None:
    a: int = send.enqueue("a@b").result()  # error
    b: str = charge.using(delay=5).enqueue(Order(1), amount=5).result(timeout=5)  # error
    c: Job[int] = send.enqueue("a@b")  # error
    d: list[Job[str]] = fetch.enqueue_many([("x",)])  # error
    e: list[int] = [job.result() for job in send.enqueue_many([send.call("x")])]  # error
    f: str = send.enqueue("a@b")  # error
    print(a, b, c, d, e, f)


async def awaited() -> None:
    a: str = await (await fetch.aenqueue("x")).aresult()  # error
    b: Job[int] = fetch.aenqueue("x")  # error
    c: list[int] = await (await crawl.aenqueue("x")).aresult()  # error
    d: Job[str] = await fetch.using(delay=5).aenqueue("x")  # error
    e: int = fetch("x")  # error
    f: str = await fetch("x")  # error
    g: int = send("x")  # error
    h: list[Job[str]] = await fetch.aenqueue_many([("x",)])  # error
    print(a, b, c, d, e, f, g, h)
