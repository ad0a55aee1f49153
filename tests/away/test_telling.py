"""People hear soon of a store that is away, by default settings; and of short outages afterwards, once."""

import time
from collections.abc import Iterator

import pytest

from tarry.alert import alarms
from tarry.alert.message import Message
from tarry.alert.monitor import App, Watch
from tarry.alert.settings import Terms
from tarry.config import Alerts
from tarry.model.duration import SECOND
from tarry.push.endpoint.recipient import Recipient
from tarry.store.opening import open_store
from tests.away.proxy import Proxy
from tests.away.waiters import Nowhere
from tests.engine.bench import until
from tests.servers.redis import RedisServer

SEEN, TOLD = 3.0, 10.0
"""Seconds."""


class Watched:
    """A watch over a store behind a proxy, and what it tells."""

    def __init__(self, server: RedisServer) -> None:
        self.proxy = Proxy(server.port)
        self.url = f"redis://127.0.0.1:{self.proxy.port}/0"
        self.subjects: list[str] = []
        app = App("it", lambda: (open_store(self.url), True), dict, lambda: [1])
        self.watch = Watch(app, Terms(Alerts(), (Recipient.parse("ops@example.org"),)), self._send, Nowhere())
        self.watch.start()
        until(lambda: self.watch._leads)

    def _send(self, to: Recipient, message: Message) -> None:
        self.subjects.append(message.subject.partition(": ")[2])

    def sees(self) -> bool:
        return f"away {self.url}" in self.watch._here.kept.open

    def close(self) -> None:
        self.watch.close()
        self.proxy.close()


@pytest.fixture
def watched(redis_server: RedisServer) -> Iterator[Watched]:
    redis_server.empty()
    # Without persistence the server itself would be worth a message, and for five minutes there would be no other.
    redis_server.call("CONFIG", "SET", "appendonly", "yes")
    watched = Watched(redis_server)
    yield watched
    watched.proxy.passes()
    watched.close()
    redis_server.call("CONFIG", "SET", "appendonly", "no")


@pytest.mark.parametrize("outage", [Proxy.refuses, Proxy.is_silent])
def test_an_outage_is_seen_and_told_soon(watched: Watched, outage: object) -> None:
    began = time.monotonic()
    outage(watched.proxy)  # type: ignore[operator]
    until(watched.sees)
    assert time.monotonic() - began < SEEN
    until(lambda: watched.subjects)
    assert time.monotonic() - began < TOLD
    assert watched.subjects == [f"{watched.url} is away"]


def test_short_outages_are_told_together_afterwards(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "BRIEF_AFTER", 25 * SECOND)
    for _ in range(2):
        watched.proxy.refuses()
        until(watched.sees)
        watched.proxy.passes()
        until(lambda: not watched.sees(), 30)
    assert watched.subjects == []
    until(lambda: watched.subjects, 90)
    (subject,) = watched.subjects
    assert subject.startswith(f"over: {watched.url} was away 2 times, for ")
