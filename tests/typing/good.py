"""Calls that are right: neither checker has a word to say, and each result is of the type that it should be."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from tarry import Flow, Job, Node, Snooze, astep, sleep, step
from tests.typing.shop import (
    Mailer,
    Order,
    app,
    charge,
    crawl,
    fetch,
    join,
    maybe,
    nothing,
    order,
    planned,
    planned_too,
    send,
    total,
)


def enqueued() -> None:
    assert_type(send.enqueue("a@b"), Job[str])
    assert_type(send.enqueue("a@b", "Ann"), Job[str])
    assert_type(send.enqueue("a@b", name="Ann"), Job[str])
    assert_type(send.enqueue(name="Ann", to="a@b"), Job[str])
    assert_type(charge.enqueue(Order(1), amount=5), Job[bool])
    assert_type(charge.enqueue(order=Order(1), amount=5, note=None), Job[bool])
    assert_type(fetch.enqueue("https://x"), Job[int])
    assert_type(crawl.enqueue(), Job[list[str]])
    assert_type(crawl.enqueue("a", "b", "c", depth=2), Job[list[str]])
    assert_type(total.enqueue(1, 2, 3, tax=0.5), Job[float])
    assert_type(nothing.enqueue(), Job[None])
    assert_type(fetch.broadcast("https://x"), Flow[dict[str, int | None]])
    assert_type(send.using(per="worker").broadcast("a@b", name="Ann").result(), dict[str, str | None])
    assert_type(maybe.enqueue(1), Job[int | Snooze])
    assert_type(Mailer.post.enqueue("a@b"), Job[int])
    assert_type(Mailer.apost.enqueue("a@b"), Job[int])
    assert_type(planned.enqueue(1, b="x"), Job[dict[str, int]])
    assert_type(planned_too.enqueue(a=1, b="x"), Job[dict[str, int]])


async def awaited() -> None:
    assert_type(await send.aenqueue("a@b", name="Ann"), Job[str])
    assert_type(await charge.aenqueue(Order(1), amount=5), Job[bool])
    assert_type(await fetch.aenqueue("https://x"), Job[int])
    assert_type(await crawl.aenqueue("a", depth=2), Job[list[str]])
    assert_type(await send.using(delay=5).aenqueue("a@b"), Job[str])
    assert_type(await fetch.aenqueue_many([("a",)]), list[Job[int]])
    assert_type(await fetch.using(delay=5).aenqueue_many([fetch.call("a")]), list[Job[int]])


def with_settings() -> None:
    later = send.using(delay=timedelta(minutes=5), key="ann", priority=50, queue="slow", expires="1h")
    assert_type(later.enqueue("a@b", name="Ann"), Job[str])
    assert_type(fetch.using(at=datetime.now(UTC)).enqueue("https://x"), Job[int])
    assert_type(fetch.using(at=1.5e9).enqueue(url="https://x"), Job[int])
    assert_type(total.using().enqueue(1, 2, tax=0.5), Job[float])


def many() -> None:
    assert_type(send.enqueue_many(send.call(to, name="x") for to in ("a", "b")), list[Job[str]])
    assert_type(send.enqueue_many([send.call("a"), send.call("b", "Ben")]), list[Job[str]])
    assert_type(send.enqueue_many([("a@b",), ("c@d", "Cid")]), list[Job[str]])
    assert_type(send.enqueue_many([{"to": "a@b"}], over="1h"), list[Job[str]])
    assert_type(send.using(delay=5).enqueue_many([send.call("a")]), list[Job[str]])
    assert_type(charge.enqueue_many(charge.call(Order(n), amount=n) for n in range(3)), list[Job[bool]])
    assert_type(crawl.enqueue_many([crawl.call(), crawl.call("a", "b", depth=3)]), list[Job[list[str]]])


def results() -> None:
    assert_type(send.enqueue("a@b").result(), str)
    assert_type(charge.enqueue(Order(1), amount=5).result(timeout=5), bool)
    assert_type(fetch.enqueue("x").result(0.5), int)
    assert_type(crawl.using(delay=1).enqueue("x").result(), list[str])
    assert_type(nothing.enqueue().result(), None)
    assert_type([job.result() for job in total.enqueue_many([(1,)])], list[float])


async def awaited_results() -> None:
    assert_type(await (await send.aenqueue("a@b")).aresult(), str)
    assert_type(await (await fetch.aenqueue("x")).aresult(timeout=5), int)
    assert_type([await job.aresult() for job in await crawl.aenqueue_many([()])], list[list[str]])


def flows() -> None:
    with app.flow("order", key="7") as f:
        sent = f.add(send.call("a@b"))
        assert_type(sent, Node[str])
        assert_type(sent.result, str)
        assert_type(f.add(fetch.call(sent.result), after=[sent], on_failure="stop"), Node[int])
        assert_type(f.add(fetch.call(sent.result), on_failure="go_on"), Node[int | None])
        group = f.add_all(crawl.call(sent.result, str(n)) for n in range(3))
        assert_type(group, Node[list[list[str]]])
        assert_type(f.add_all([fetch.call("x")], on_failure="go_on"), Node[list[int | None]])
        f.add(join.call([sent.result, sent.result]), after=[group])
        f.returns(group)
        mapped = f.map(fetch, ["x"], shards=3, after=[sent])
        assert_type(mapped, Node[list[int]])
        assert_type(f.chain(send.call("a@b"), fetch.call(), after=[mapped]), Node[int])
        assert_type(f.chain(f.add_all(send.call(to) for to in "ab"), join.call(), fetch.call()), Node[int])
        assert_type(f.add_all(f.chain(order.call(n), charge.call(amount=5)) for n in range(3)), Node[list[bool]])
        assert_type(f.chord([send.call("a"), sent], join.call()), Node[str])
        with f.flow("pack", after=[sent], on_failure="go_on") as g:
            assert_type(g.add(fetch.call(sent.result)), Node[int])
        assert_type(g.node, Node[Any])
    assert_type(f.handle, Flow[Any])
    assert_type(app.flows.get("x").result(), Any)


def chains() -> None:
    assert_type(app.chain(send.call("a@b")), Flow[str])
    assert_type(app.chain(send.call("a@b"), fetch.call()), Flow[int])
    assert_type(app.chain(order.call(1), charge.call(amount=5)).result(timeout=5), bool)
    assert_type(app.chain(send.call("a"), send.call(name="x"), crawl.call(depth=2), join.call()), Flow[str])
    assert_type(app.using(queue="slow", keep="1d").chain(send.call("a@b"), fetch.using(delay=5).call()), Flow[int])
    assert_type(app.group(fetch.call(str(n)) for n in range(3)), Flow[list[int]])
    assert_type(app.chord((send.call(to) for to in "ab"), join.call()), Flow[str])
    assert_type(app.map(send, ["a@b", "c@d"]), Flow[list[str]])
    assert_type(app.map(fetch.using(queue="slow"), (str(n) for n in range(3)), shards=2), Flow[list[int]])
    assert_type(app.map(crawl, "ab").result(), list[list[str]])


async def awaited_chains() -> None:
    assert_type(await (await app.achain(send.call("a@b"), fetch.call())).aresult(), int)
    assert_type(await app.agroup([fetch.call("x")]), Flow[list[int]])
    assert_type(await app.achord([send.call("x")], join.call()), Flow[str])
    assert_type(await app.amap(fetch, ["x"]), Flow[list[int]])
    async with app.flow("order") as f:
        assert_type(f.add(send.call("a@b")), Node[str])


async def plain_calls() -> None:
    assert_type(send("a@b", name="Ann"), str)
    assert_type(charge(Order(1), amount=5), bool)
    assert_type(await fetch("https://x"), int)
    assert_type(await crawl("a", "b"), list[str])
    assert_type(total(1, 2, tax=0.5), float)
    assert_type(nothing(), None)
    assert_type(Mailer.post("a@b"), int)
    assert_type(await Mailer.apost("a@b"), int)
    assert_type(planned(1, b="x"), dict[str, int])


def as_a_coroutine() -> Coroutine[Any, Any, Job[int]]:
    return fetch.aenqueue("x")


def passed_on(job: Job[str]) -> str:
    return job.result(timeout=1)


def handed_over() -> str:
    return passed_on(send.enqueue("a@b"))


def plain(order: int) -> str:
    return str(order)


async def plain_async(order: int) -> str:
    return str(order)


def steps_of_a_def() -> None:
    assert_type(step(charge, Order(1), amount=5), bool)
    assert_type(step(plain, 1), str)
    assert_type(step.named("again")(plain, 1), str)


async def steps_of_an_async_def() -> None:
    assert_type(await step(fetch, "https://x"), int)
    assert_type(await step(plain_async, 1), str)
    assert_type(await astep(plain, 1), str)
    assert_type(await astep(charge, Order(1), amount=5), bool)
    assert_type(await sleep("3d"), None)
