"""Streams of events, from a real server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.errors import StoreAway
from tarry.server import event_streams
from tarry.store.rules import ids
from tests.server.http.serving import RunningServer, served, until
from tests.server.http.test_operating import MailOnly

Told = tuple[str, Any]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "TICK", 0.05)


@pytest.fixture
def server(app: App) -> Iterator[RunningServer]:
    @app.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    with served(app) as server:
        yield server


@contextmanager
def listen(server: RunningServer, **query: Any) -> Iterator[Iterator[Told]]:
    """The events of a stream: their names and data; for each comment ("", its text)."""
    with server.client.stream("GET", "/v1/events", params=query) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


def _events(response: httpx.Response) -> Iterator[Told]:
    name = ""
    for line in response.iter_lines():
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            yield name, json.loads(value)
        elif line.startswith(":"):
            yield "", value


def test_jobs_are_followed_to_their_ends(server: RunningServer) -> None:
    app = server.service.app
    one, other = app.tasks["send"].enqueue_many([(1,), (2,)])
    with listen(server, job=[one.id, other.id]) as events:
        first = {data["id"]: (name, data["state"]) for name, data in (next(events), next(events))}
        assert first == {one.id: ("job", "ready"), other.id: ("job", "ready")}
        one.cancel("not wanted")
        name, data = next(events)
        assert (name, data["id"], data["state"], data["message"]) == ("job", one.id, "cancelled", "not wanted")
        assert app.client.forget(ids.parse(other.id))
        assert next(events) == ("gone", {"id": other.id})
        assert list(events) == [("end", {})]
    until(lambda: server.service.streams.open == 0)


def test_the_jobs_of_a_filter_are_watched(server: RunningServer) -> None:
    app = server.service.app
    send = app.tasks["send"]
    job = send.enqueue(1)
    send.using(queue="other").enqueue(2)
    with listen(server, queue="mail") as events:
        assert next(events)[1]["id"] == job.id
        later = send.using(delay="1h").enqueue(3)
        name, data = next(events)
        assert (name, data["id"], data["state"]) == ("job", later.id, "scheduled")
        # It leaves the filter by its end.
        job.cancel()
        assert next(events)[1]["state"] == "cancelled"
        app.client.forget(ids.parse(later.id))
        assert next(events) == ("gone", {"id": later.id})


def test_the_queues_are_watched(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    app = server.service.app
    look = type(server.service.look)
    read = look.read
    monkeypatch.setattr(look, "read", lambda self, kept_for=0: read(self, 0))
    with listen(server) as events:
        name, data = next(events)
        assert (name, data["queue"], data["ready"]) == ("queue", "mail", 0)
        app.tasks["send"].enqueue(1)
        name, data = next(events)
        assert (name, data["queue"], data["ready"]) == ("queue", "mail", 1)


def test_a_quiet_stream_says_that_it_is_there_and_ends_in_time(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT", 0.1)
    with listen(server, queue="mail", seconds=0.5) as events:
        told = list(events)
    assert told[0] == ("", "still here")
    assert told[-1] == ("end", {})


def test_streams_end_when_the_server_does(server: RunningServer) -> None:
    with listen(server, queue="mail") as events:
        until(lambda: server.service.streams.open == 1)
        server.service.drain()
        assert list(events) == [("end", {})]
    assert server.client.get("/readyz").status_code == 503


def test_there_is_a_bound_for_streams_and_those_that_went_do_not_count(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "MOST_STREAMS", 2)
    with listen(server, queue="mail"), listen(server, queue="mail"):
        until(lambda: server.service.streams.open == 2)
        refused = server.client.get("/v1/events?queue=mail")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert server.service.streams.refused == 1
    # The clients are gone, amid their streams.
    until(lambda: server.service.streams.open == 0)
    with listen(server, queue="mail", seconds=0) as events:
        assert list(events) == [("end", {})]


def test_a_stream_goes_on_when_the_store_is_back(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    app = server.service.app
    with listen(server, queue="mail") as events:
        until(lambda: server.service.streams.open == 1)
        tries = list[int]()

        def away(query: object) -> None:
            tries.append(1)
            raise StoreAway("away")

        with monkeypatch.context() as patch:
            patch.setattr(app.client.store, "find", away)
            until(lambda: len(tries) > 1)
        job = app.tasks["send"].enqueue(1)
        assert next(events)[1]["id"] == job.id


def test_what_is_refused(server: RunningServer) -> None:
    job = server.service.app.tasks["send"].enqueue(1)
    nobody = ids.text(ids.uuid7())
    for query, status in (
        (f"job={job.id}&queue=mail", 422),
        ("job=nine", 422),
        (f"job={nobody}", 404),
        ("state=lost", 422),
        ("seconds=-1", 422),
        ("&".join(f"job={nobody}" for _ in range(101)), 422),
    ):
        assert server.client.get(f"/v1/events?{query}").status_code == status, query
    assert server.client.head("/v1/events").status_code == 200
    assert server.service.streams.open == 0


def test_a_caller_hears_only_of_its_queues(app: App) -> None:
    @app.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    other = send.using(queue="other").enqueue(1)
    mine = send.enqueue(2)
    with served(app, MailOnly()) as server:
        for query in ({"task": "send"}, {}):
            with listen(server, seconds=0, **query) as events:
                told = [data.get("id", data.get("queue")) for name, data in events if name != "end"]
                assert told == [mine.id if query else "mail"]
        assert server.client.get(f"/v1/events?job={other.id}").status_code == 404
        assert server.client.get("/v1/events?queue=other").status_code == 403
