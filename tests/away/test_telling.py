"""People hear soon of a store that is away, by default settings; and of short outages afterwards, once."""

import time
from collections.abc import Iterator

import pytest

from tarry.alert import alarms
from tarry.alert.alert_message import Message
from tarry.alert.alert_settings import AlertSettings
from tarry.alert.monitor import Monitor, MonitoredApp
from tarry.config.config import Alerts
from tarry.model.duration import HOUR, SECOND
from tarry.push.endpoint.recipient import Recipient
from tarry.store.opening import open_store
from tarry.store.shared import backoff
from tests.away.proxy import Proxy
from tests.away.waiters import NoStorage
from tests.servers.redis import RedisServer
from tests.worker.bench import until

SEEN, TOLD = 3.0, 10.0
"""Seconds."""


class MonitoredStore:
    """A watch over a store behind a proxy, and what it tells."""

    def __init__(self, server: RedisServer) -> None:
        self.proxy = Proxy(server.port)
        self.url = f"redis://127.0.0.1:{self.proxy.port}/0"
        self.subjects: list[str] = []
        app = MonitoredApp("it", lambda: (open_store(self.url), True), dict, lambda: [1])
        self.monitor = Monitor(
            app, AlertSettings(Alerts(), (Recipient.parse("ops@example.org"),)), self._send, NoStorage()
        )
        self.monitor.start()
        until(lambda: self.monitor._is_leader)

    def _send(self, to: Recipient, message: Message) -> None:
        self.subjects.append(message.subject.partition(": ")[2])

    def sees_outage(self) -> bool:
        return f"away {self.url}" in self.monitor._local_alarms.state.open

    def close(self) -> None:
        self.monitor.close()
        self.proxy.close()


@pytest.fixture
def monitored(redis_server: RedisServer) -> Iterator[MonitoredStore]:
    redis_server.empty()
    # Without persistence the server itself would be worth a message, and for five minutes there would be no other.
    redis_server.call("CONFIG", "SET", "appendonly", "yes")
    monitored = MonitoredStore(redis_server)
    yield monitored
    monitored.proxy.passes()
    monitored.close()
    redis_server.call("CONFIG", "SET", "appendonly", "no")


@pytest.mark.parametrize("outage", [Proxy.refuses, Proxy.is_silent])
def test_an_outage_is_seen_and_told_soon(monitored: MonitoredStore, outage: object) -> None:
    began = time.monotonic()
    outage(monitored.proxy)  # type: ignore[operator]
    until(monitored.sees_outage)
    assert time.monotonic() - began < SEEN
    until(lambda: monitored.subjects)
    assert time.monotonic() - began < TOLD
    assert monitored.subjects == [f"{monitored.url} is away"]


def test_short_outages_are_told_together_afterwards(monitored: MonitoredStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(alarms, "BRIEF_AFTER", HOUR)
    for _ in range(2):
        monitored.proxy.refuses()
        until(monitored.sees_outage)
        monitored.proxy.passes()
        until(lambda: not monitored.sees_outage())
    assert monitored.subjects == []
    monkeypatch.setattr(alarms, "BRIEF_AFTER", 0)
    monkeypatch.setattr(monitored.monitor._dispatcher, "_group", SECOND)
    until(lambda: monitored.subjects, 90)
    (subject,) = monitored.subjects
    assert subject.startswith(f"over: {monitored.url} was away 2 times, for ")
