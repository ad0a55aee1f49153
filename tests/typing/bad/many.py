"""Many calls at once, of which one is wrong."""

from tests.typing.shop import Order, charge, crawl, fetch, send


def many() -> None:
    send.enqueue_many(send.call(number) for number in range(3))  # error
    send.enqueue_many([send.call()])  # error
    send.enqueue_many([send.call("a", nmae="x")])  # error
    send.enqueue_many([charge.call(Order(1), amount=5)])  # error
    send.enqueue_many([fetch.call("x")])  # error
    send.enqueue_many(["a@b", "c@d"])  # error
    send.enqueue_many(5)  # error
    send.enqueue_many(send.call("a"))  # error
    send.using(delay=5).enqueue_many([fetch.call("x")])  # error
    charge.enqueue_many([charge.call(Order(1), 5)])  # error
    crawl.enqueue_many([crawl.call(5)])  # error


async def awaited() -> None:
    await send.aenqueue_many([fetch.call("x")])  # error
    await send.using(delay=5).aenqueue_many([fetch.call("x")])  # error
    await crawl.aenqueue_many([crawl.call(depth="2")])  # error
