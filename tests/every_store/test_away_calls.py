"""Every call of an app whose server has gone away ends in an error that `tarry` exports."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tarry
from tarry import App, Job, StoreUnavailable
from tests.away.proxy import Proxy, behind_proxy
from tests.servers.fixtures import empty_server

SERVERS = {"redis": "?timeout=200ms", "postgres": "&timeout=200ms", "mariadb": "?timeout=0.2"}


class Away:
    """An app whose store is gone, and a job and a flow that it has stored before."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.app, self.proxy = App(url, closures=True), proxy
        self.send = self.app.task(name="send")(_nothing)
        self.job: Job[Any] = self.send.using(key="ann").enqueue()
        self.flow = self.app.group([self.send.call()])


def _nothing() -> None: ...


def _listed(away: Away) -> Any:
    return list(away.app.jobs(state="ready"))


def _flow(away: Away) -> Any:
    with away.app.flow("order") as flow:
        flow.add(away.send.call())


CALLS: dict[str, Callable[[Away], Any]] = {
    "enqueue": lambda away: away.send.enqueue(),
    "aenqueue": lambda away: away.send.aenqueue(),
    "enqueue_many": lambda away: away.send.enqueue_many([(), ()]),
    "enqueue by name": lambda away: away.app.enqueue("send"),
    "enqueue with a key": lambda away: away.send.using(key="ann").enqueue(),
    "broadcast": lambda away: away.send.broadcast(),
    "by_key": lambda away: away.send.by_key("ann"),
    "state": lambda away: away.job.state,
    "astate": lambda away: away.job.astate(),
    "progress": lambda away: away.job.progress,
    "output": lambda away: away.job.output,
    "cancel": lambda away: away.job.cancel(),
    "acancel": lambda away: away.job.acancel(),
    "retry": lambda away: away.job.retry(),
    "jobs": _listed,
    "jobs.count": lambda away: away.app.jobs(state="ready").count(),
    "jobs.first": lambda away: away.app.jobs(state="ready").first(),
    "jobs.cancel": lambda away: away.app.jobs(state="ready").cancel(),
    "jobs.retry": lambda away: away.app.jobs(state="ready").retry(),
    "jobs.delete": lambda away: away.app.jobs(state="dead").delete(),
    "flow": _flow,
    "group": lambda away: away.app.group([away.send.call()]),
    "flow.state": lambda away: away.flow.state,
    "flow.cancel": lambda away: away.flow.cancel(),
    "flow.retry": lambda away: away.flow.retry(),
    "signal": lambda away: away.app.signal("review", key="7"),
    "approve": lambda away: away.app.approve("refund", key="7", by="ann"),
    "drain": lambda away: away.app.drain(timeout=1),
}


@pytest.fixture(params=SERVERS)
def away(request: pytest.FixtureRequest) -> Iterator[Away]:
    url, proxy = behind_proxy(empty_server(request, request.param))
    one = Away(url + SERVERS[request.param], proxy)
    proxy.refuses()
    yield one
    one.app.close()
    proxy.close()


def test_each_call_to_a_server_that_is_away_ends_in_a_public_error(away: Away) -> None:
    for name, call in CALLS.items():
        with pytest.raises(StoreUnavailable) as caught:
            _call(call, away)
        kind = type(caught.value)
        assert getattr(tarry, kind.__name__, None) is kind, name
        assert "\n" not in str(caught.value), name


def _call(call: Callable[[Away], Any], away: Away) -> None:
    answer = call(away)
    if inspect.isawaitable(answer):
        asyncio.run(_awaited(answer))


async def _awaited(answer: Any) -> Any:
    return await answer
