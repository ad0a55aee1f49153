"""Deliveries on uvloop, whose transports and errors are its own."""

import asyncio
import contextlib
import socket

import pytest
import uvloop

from tarry.config.config import Pool
from tarry.embedded import service
from tarry.errors import ConfigError
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.http_sender import HttpRequest, SendCancelled, SendLimits
from tarry.push.http.response import HttpResponse
from tests.push.fixture import DeliveryFixture
from tests.push.sending import open_connections, sender, until
from tests.push.server import Server, hang
from tests.push.test_sender import BROKEN, SENT_AND_LOST
from tests.worker.bench import finished


def send(url: str, limits: SendLimits, times: int = 1) -> HttpResponse | Failure:
    async def work() -> HttpResponse | Failure:
        sending = sender()
        for _ in range(times):
            got = await sending.send(HttpRequest("POST", url, (), b"{}"), limits)
        await sending.close()
        return got

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def test_a_connection_is_used_again(server: Server) -> None:
    assert isinstance(send(server.url("/", "hooks.example"), SendLimits(), 5), HttpResponse)
    assert [seen.connection for seen in server.seen] == [0] * 5


@pytest.mark.parametrize("case", SENT_AND_LOST)
def test_what_was_sent_and_not_answered_is_maybe_delivered(server: Server, case: str) -> None:
    script, why, told = SENT_AND_LOST[case]
    server.says("/", script)
    got = send(server.url(), SendLimits(1, 0.5))
    assert isinstance(got, Failure)
    assert (got.kind, got.sent) == (why, True)
    assert told in got.reason


@pytest.mark.parametrize("case", BROKEN)
def test_an_answer_that_breaks_off_has_its_status(server: Server, case: str) -> None:
    server.says("/", BROKEN[case])
    got = send(server.url(), SendLimits(1, 0.5))
    assert isinstance(got, Failure)
    assert (got.kind, got.sent, got.status) == (FailureKind.BROKEN, True, 503)


def test_nobody_listens() -> None:
    with Server() as server:
        url = server.url()
    got = send(url, SendLimits())
    assert isinstance(got, Failure)
    assert (got.kind, got.sent, got.reason.endswith("refuses the connection")) == (FailureKind.REFUSED, False, True)


def test_who_does_not_connect_in_time_has_sent_nothing() -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listening.getsockname()[1]
        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=15))
        got = send(f"http://127.0.0.1:{port}/", SendLimits(10, 0.2))
    assert isinstance(got, Failure)
    assert (got.kind, got.sent) == (FailureKind.CONNECT_TIMEOUT, False)


def test_to_cancel_ends_the_request(server: Server) -> None:
    server.says("/", hang)

    async def work() -> None:
        sending = sender()
        task = asyncio.create_task(sending.send(HttpRequest("POST", server.url(), (), b"{}"), SendLimits(60, 50)))
        await until(lambda: len(server.seen) == 1)
        task.cancel()
        with pytest.raises(SendCancelled) as cancelled:
            await task
        assert cancelled.value.sent
        await until(lambda: not open_connections(server.port))
        await sending.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def test_a_worker_delivers_on_it(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    delivery.deliver(uvloop=True)
    assert {finished(delivery.app.enqueue("hook", {"n": n})) for n in range(20)} == {"done"}
    assert len(delivery.server.seen) == 20


def test_a_pool_says_so_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.worker_settings(Pool(uvloop=True), 1000).uvloop
    monkeypatch.setattr(service, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"\[pools.default\] uvloop is not installed: pip install 'tarry\[uvloop\]'"):
        service.worker_settings(Pool(uvloop=True), 1000)
