"""Connections: used again, closed under us, cancelled, closed; many at once; and in a worker."""

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyreqwest.client import Client

from tarry import App
from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.response import MOST_BODY, HttpResponse
from tarry.push.http.tls_client import ClientKey, ClientPool, client_builder
from tarry.store.memory.store import MemoryStore
from tarry.worker.run.loop import _cancel_the_rest
from tests.push.certificates import Authority
from tests.push.sending import HEAD, expect_answer, open_connections, run, sender, until
from tests.push.server import Connection, Server, answer, end_before_answer, hang, raw, then_hang
from tests.worker.bench import Bench, finished
from tests.worker.bench import until as waited


def test_a_connection_is_used_again(server: Server) -> None:
    async def work(sending: Sender) -> None:
        for _ in range(5):
            await sending.send(HttpRequest("POST", server.url("/", "hooks.example")), SendLimits())

    run(work)
    assert {seen.connection for seen in server.seen} == {0}


def test_after_a_body_that_was_not_read_whole_the_connection_is_not_used_again(server: Server) -> None:
    server.says("/long", answer(200, b"x" * 300 * MOST_BODY))

    async def work(sending: Sender) -> None:
        await sending.send(HttpRequest("POST", server.url("/long")), SendLimits())
        await sending.send(HttpRequest("POST", server.url("/")), SendLimits())

    run(work)
    assert [seen.connection for seen in server.seen] == [0, 1]


def test_connections_that_were_closed_under_us_cost_nothing(server: Server) -> None:
    """After each answer the server ends the connection, without having said so."""
    server.says("/", raw(HEAD + b"Content-Length: 2\r\n\r\nok", Connection.end))

    async def work(sending: Sender) -> None:
        for n in range(5):
            got = await sending.send(HttpRequest("POST", server.url(), (), b"%d" % n), SendLimits())
            assert isinstance(got, HttpResponse)
            await until(lambda: not open_connections(server.port))

    run(work)
    assert [seen.connection for seen in server.seen] == [0, 1, 2, 3, 4]


def test_an_end_that_crosses_a_request_is_not_hidden_and_nothing_arrives_twice(server: Server) -> None:
    server.says("/", raw(HEAD + b"Content-Length: 2\r\n\r\nok", Connection.end))

    async def work(sending: Sender) -> list[HttpResponse | Failure]:
        return [await sending.send(HttpRequest("POST", server.url(), (), b"%d" % n), SendLimits()) for n in range(50)]

    got = run(work)
    assert all(isinstance(one, HttpResponse) or (one.kind is FailureKind.CLOSED and one.sent) for one in got)
    assert [b"%d" % n for n, one in enumerate(got) if isinstance(one, HttpResponse)] == [
        seen.body for seen in server.seen
    ]


def test_what_a_kept_connection_may_have_taken_is_not_sent_again(server: Server) -> None:
    server.says("/end", end_before_answer)

    async def work(sending: Sender) -> HttpResponse | Failure:
        await sending.send(HttpRequest("POST", server.url("/")), SendLimits())
        return await sending.send(HttpRequest("POST", server.url("/end")), SendLimits())

    got = run(work)
    assert isinstance(got, Failure)
    assert (got.kind, got.sent) == (FailureKind.CLOSED, True)
    assert server.paths() == ["/", "/end"]
    assert server.seen[0].connection == server.seen[1].connection


async def cancelled(sending: "asyncio.Task[object]", server: Server) -> None:
    """And the server sees that nobody is there any more."""
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await until(lambda: server.ended == 1)


def test_to_cancel_ends_the_wait_at_once_and_the_request_within_its_time(server: Server) -> None:
    server.says("/", hang)

    async def work(sending: Sender) -> None:
        task = asyncio.create_task(sending.send(HttpRequest("POST", server.url(), (), b"{}"), SendLimits(2, 1)))
        await until(lambda: len(server.seen) == 1)
        await cancelled(task, server)

    run(work)


def test_who_is_cancelled_while_connecting_sends_nothing(authority: Authority, certificate: Path) -> None:
    """The server accepts and shakes hands only after that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(15)
    request = HttpRequest("POST", f"https://hooks.example:{listening.getsockname()[1]}/", (), b"{}")

    def late() -> bytes:
        with listening.accept()[0] as plain:
            plain.settimeout(15)
            try:
                with context.wrap_socket(plain, server_side=True) as line:
                    return line.recv(65536)
            except OSError:  # it gave up in the middle
                return b""

    async def work(sending: Sender) -> bytes:
        task = asyncio.create_task(sending.send(request, SendLimits(20, 10)))
        await until(lambda: bool(select.select([listening], [], [], 0)[0]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await asyncio.to_thread(late)

    with listening:
        arrived = run(work, authority.pem)
    assert b"{}" not in arrived


def test_to_cancel_in_the_body_ends_the_request_too(server: Server) -> None:
    server.says("/", then_hang(HEAD + b"Content-Length: 9\r\n\r\nabc"))

    async def work(sending: Sender) -> None:
        task = asyncio.create_task(sending.send(HttpRequest("POST", server.url()), SendLimits()))
        await until(lambda: len(server.seen) == 1)
        await asyncio.sleep(0.1)
        await cancelled(task, server)

    run(work)


def test_to_close_ends_what_is_under_way(server: Server) -> None:
    server.says("/hang", hang)

    async def work() -> tuple[HttpResponse | Failure, HttpResponse | Failure]:
        sending = sender()
        task = asyncio.create_task(sending.send(HttpRequest("POST", server.url("/hang"), (), b"{}"), SendLimits(3, 1)))
        await until(lambda: len(server.seen) == 1)
        await sending.close()
        return await task, await sending.send(HttpRequest("POST", server.url("/")), SendLimits())

    under_way, after = asyncio.run(work())
    assert isinstance(under_way, Failure)
    assert isinstance(after, Failure)
    assert (under_way.kind, under_way.sent) == (FailureKind.LOCAL, True)
    assert under_way.elapsed < 3
    assert (after.kind, after.sent) == (FailureKind.LOCAL, False)


def test_to_close_closes_kept_connections(server: Server) -> None:
    async def work() -> None:
        sending = sender()
        await sending.send(HttpRequest("POST", server.url()), SendLimits())
        await sending.close()
        await until(lambda: server.ended == 1)

    asyncio.run(work())


def test_a_proxy_of_the_environment_is_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert expect_answer(server.url("/", "hooks.example")).status == 200


def test_many_are_under_way_at_once_and_none_waits_for_another(server: Server) -> None:
    """Three hundred that are not answered before all of them are there; another endpoint is as quick as ever."""
    everybody = asyncio.Event()

    async def together(line: Connection) -> None:
        if server.paths().count("/slow") == 300:
            everybody.set()
        await everybody.wait()
        await answer(200)(line)

    server.says("/slow", together)

    async def work(sending: Sender) -> None:
        slow = HttpRequest("POST", server.url("/slow", "hooks.example"), (), b"{}")
        under_way = [asyncio.create_task(sending.send(slow, SendLimits(30, 20))) for _ in range(299)]
        await until(lambda: server.paths().count("/slow") == 299)
        other = await sending.send(HttpRequest("POST", server.url("/quick", "other.example"), (), b"{}"), SendLimits())
        assert isinstance(other, HttpResponse)
        assert not any(task.done() for task in under_way)
        last = await sending.send(slow, SendLimits(30, 20))
        assert all(isinstance(one, HttpResponse) for one in [last, *await asyncio.gather(*under_way)])

    run(work)


@pytest.fixture
def secure(authority: Authority) -> Iterator[Server]:
    names = ["a.example", "b.example", *[f"h{n}.example" for n in range(6)], "127.0.0.1"]
    with Server(authority.sign(names)) as server:
        yield server


def client_key(port: int, host: str = "a.example", address: str = "127.0.0.1") -> ClientKey:
    return ClientKey(host, address, port, 5.0)


async def used(clients: ClientPool, at: ClientKey, times: int = 1) -> None:
    for _ in range(times):
        with clients.get(at) as held:
            client = held.client or await clients.wait_ready(held, 10)
            response = await client.get(f"https://{at.host}:{at.port}/").build().send()
            assert response.status == 200


def test_clients_without_a_request_are_bounded(secure: Server, authority: Authority) -> None:
    async def work() -> None:
        clients = ClientPool(client_builder(authority.pem), most_idle=2)
        for n in range(6):
            await used(clients, client_key(secure.port, f"h{n}.example"))
        assert len(clients) == 2
        await until(lambda: secure.ended == 4)
        await clients.close()
        await until(lambda: secure.ended == 6)

    asyncio.run(work())


def test_clients_with_a_request_are_not_closed_for_others(secure: Server, authority: Authority) -> None:
    async def work() -> None:
        clients = ClientPool(client_builder(authority.pem), most_idle=0)
        with clients.get(client_key(secure.port)) as held:
            client = await clients.wait_ready(held, 10)
            await used(clients, client_key(secure.port, "b.example"))
            assert (await client.get(secure.url()).build().send()).status == 200
        await clients.close()

    asyncio.run(work())


def test_clients_that_nobody_uses_are_closed_after_a_while(secure: Server, authority: Authority) -> None:
    async def work() -> None:
        clients = ClientPool(client_builder(authority.pem), idle=0.05)
        await used(clients, client_key(secure.port))
        await until(lambda: len(clients) == 0 and secure.ended == 1)
        await used(clients, client_key(secure.port))
        await clients.close()

    asyncio.run(work())


def test_many_who_want_a_client_make_one(secure: Server, authority: Authority) -> None:
    made: list[ClientKey] = []

    def build(at: ClientKey) -> Client:
        made.append(at)
        return client_builder(authority.pem)(at)

    async def work() -> None:
        clients = ClientPool(build)
        await asyncio.gather(*[used(clients, client_key(secure.port)) for _ in range(50)])
        await clients.close()

    asyncio.run(work())
    assert len(made) == 1


def test_a_client_that_cannot_be_made_is_tried_again(secure: Server, authority: Authority) -> None:
    broken = [OSError("no file descriptors")]

    def build(at: ClientKey) -> Client:
        if broken:
            raise broken.pop()
        return client_builder(authority.pem)(at)

    async def work() -> None:
        clients = ClientPool(build)
        with pytest.raises(RequestFailed, match="no client can be made: no file descriptors"):
            await used(clients, client_key(secure.port))
        await used(clients, client_key(secure.port))
        await clients.close()

    asyncio.run(work())


def test_in_a_worker(server: Server) -> None:
    """The sender belongs to the loop of the worker's thread, as that of HTTP tasks does."""
    store = MemoryStore()
    app = App(store, closures=True)
    senders: list[Sender] = []

    @app.task
    async def deliver(number: int) -> int:
        if not senders:
            senders.append(sender())
        got = await senders[0].send(
            HttpRequest("POST", server.url("/", "hooks.example"), (), b"%d" % number), SendLimits()
        )
        assert isinstance(got, HttpResponse)
        return got.status

    @app.task
    async def close() -> None:
        await senders[0].close()

    bench = Bench(app, lambda: store)
    with contextlib.closing(bench):
        bench.work(coroutines=20)
        assert {finished(job) for job in [deliver.enqueue(number) for number in range(50)]} == {"done"}
        assert finished(close.enqueue()) == "done"
    assert sorted(int(seen.body) for seen in server.seen) == list(range(50))


def test_a_loop_that_ends_with_requests_under_way_ends_cleanly(server: Server) -> None:
    """As that of a worker does: it stops, cancels what is left, and is closed; what comes later disturbs nobody."""
    server.says("/", hang)
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        sending = sender()
        for _ in range(5):
            tasks.append(
                asyncio.create_task(sending.send(HttpRequest("POST", server.url(), (), b"{}"), SendLimits(1, 1)))
            )

    def serve() -> None:
        loop.run_forever()
        loop.run_until_complete(_cancel_the_rest())
        loop.close()

    tasks: list[asyncio.Task[HttpResponse | Failure]] = []
    thread = threading.Thread(target=serve)
    thread.start()
    loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(begin())))  # type: ignore[arg-type]
    waited(lambda: len(server.seen) == 5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(15)
    assert not thread.is_alive()
    assert [task.cancelled() for task in tasks[1:]] == [True] * 5
    waited(lambda: server.ended == 5)
