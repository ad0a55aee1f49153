"""Flows whose nodes do not fit together."""

from tests.typing.shop import app, charge, crawl, fetch, join, order, send


def nodes() -> None:
    with app.flow("order") as f:
        sent = f.add(send.call("a@b"))
        fetched = f.add(fetch.call(sent.result))
        f.add(send.call(fetched.result))  # error
        f.add(join.call(sent.result))  # error
        f.add(join.call([fetched.result]))  # error
        f.add(send.call())  # error
        f.add(send)  # error
        f.add(send.call("a@b"), after=sent)  # error
        f.add(send.call("a@b"), after=[sent.result])  # error
        f.add(send.call("a@b"), on_failure="never")  # error
        perhaps = f.add(send.call("a@b"), on_failure="go_on")
        f.add(fetch.call(perhaps.result))  # error
        group = f.add_all([fetch.call("x")])
        f.add(join.call(group.result))  # error
        f.add_all([send.call()])  # error
        f.add_all(send.call("a"))  # error
        f.map(fetch, [1])  # error
        f.map(charge, [1])  # error
        f.chain(fetch.call("x"), send.call())  # error
        f.chain(f.add_all([fetch.call("x")]), join.call())  # error
        f.chain(group, fetch.call())  # error
        f.add_all([sent.result])  # error
        f.chord([fetched], join.call())  # error
        f.flow("pack", after=sent)  # error
        f.flow("pack", on_failure="never")  # error


def chains() -> None:
    app.chain(fetch.call("x"), send.call())  # error
    app.chain(send.call("x"), fetch.call(), send.call())  # error
    app.chain(order.call(1), charge.call())  # error
    app.chain(order.call(1), fetch.call())  # error
    app.chain(send.call(), fetch.call())  # error
    app.chain(fetch.call("x"), send.using(delay=5).call())  # error
    app.chain(send.using(delay=5).call())  # error
    send.using(delay=5).call(7)  # error
    a: str = app.chain(send.call("x"), fetch.call()).result()  # error
    app.group([send.call()])  # error
    b: list[str] = app.group([fetch.call("x")]).result()  # error
    app.chord([fetch.call("x")], join.call())  # error
    app.chord([crawl.call("x")], join.call())  # error
    c: int = app.chord([send.call("x")], join.call()).result()  # error
    app.map(fetch, [7])  # error
    app.map(fetch, "x", shards="3")  # error
    app.map(charge, [order(1)])  # error
    app.map(len, ["x"])  # error
    d: list[str] = app.map(fetch, ["x"]).result()  # error
    app.flow("order", on_failure="never")  # error
    app.flow()  # error
    send.broadcast(7)  # error
    send.using(per="rack").broadcast("a@b")  # error
    e: dict[str, str] = send.using(per="worker").broadcast("a@b").result()  # error
    print(a, b, c, d, e)


async def awaited() -> None:
    await app.achain(fetch.call("x"), send.call())  # error
    a: str = await (await app.achain(send.call("x"), fetch.call())).aresult()  # error
    await app.agroup([send.call()])  # error
    await app.achord([fetch.call("x")], join.call())  # error
    await app.amap(fetch, [7])  # error
    print(a)
