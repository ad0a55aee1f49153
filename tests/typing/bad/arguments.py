"""Arguments that do not fit. Each line that ends in `# error` is refused by both checkers, and no other line is."""

from tests.typing.shop import Mailer, Order, charge, crawl, fetch, nothing, planned, planned_too, send, total


def enqueued() -> None:
    send.enqueue()  # error
    send.enqueue(5)  # error
    send.enqueue("a@b", name=5)  # error
    send.enqueue("a@b", "Ann", "more")  # error
    send.enqueue("a@b", nmae="Ann")  # error
    send.enqueue(None)  # error
    charge.enqueue(Order(1), 5)  # error
    charge.enqueue(Order(1))  # error
    charge.enqueue(5, amount=5)  # error
    charge.enqueue(Order(1), amount="5")  # error
    fetch.enqueue(5)  # error
    crawl.enqueue("a", 5)  # error
    crawl.enqueue("a", depth="2")  # error
    total.enqueue(1, "2")  # error
    total.enqueue(1, tax="x")  # error
    total.enqueue(first=1)  # error
    nothing.enqueue(1)  # error
    Mailer.post.enqueue(5)  # error
    Mailer.apost.enqueue(5)  # error
    planned.enqueue(1)  # error
    planned_too.enqueue(1, b=2)  # error


async def awaited() -> None:
    await send.aenqueue(5)  # error
    await send.aenqueue("a@b", nmae="Ann")  # error
    await charge.aenqueue(Order(1))  # error
    await fetch.aenqueue()  # error
    await crawl.aenqueue("a", depth="2")  # error


def with_settings() -> None:
    send.using(delay=5).enqueue(5)  # error
    charge.using(delay=5).enqueue(Order(1))  # error
    fetch.using(delay=5).enqueue()  # error
    total.using(delay=5).enqueue("1")  # error


async def awaited_with_settings() -> None:
    await send.using(delay=5).aenqueue(5)  # error
    await charge.using(delay=5).aenqueue(Order(1), amount="5")  # error


async def plain_calls() -> None:
    send(5)  # error
    charge(Order(1), 5)  # error
    await fetch(5)  # error
    await crawl("a", depth="2")  # error
    Mailer.post(5)  # error
    planned(1, "x")  # error
