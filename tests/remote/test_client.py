"""`tarry.Client` against a real server on a real socket."""

import asyncio
import contextlib
import datetime
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tarry
from tarry import (
    App,
    ArgumentError,
    Client,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueFull,
    ResultTimeout,
    Retry,
    StoreUnavailable,
    TenantFull,
    current_job,
)
from tarry.client.bounds import declare_bounds
from tarry.errors import Busy, ConfigError, NotAuthenticated, StoreAway, TarryError
from tarry.model.bound import Bound
from tarry.model.overrides import retry_of
from tarry.store.rules.base import Want
from tarry.tasks.progress import Progress
from tests.server.test_asgi import served
from tests.worker.bench import LIMIT


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="fail", retry=None)
    def fail() -> None:
        raise ValueError("no")

    yield app
    app.close()


@pytest.fixture
def url(app: App) -> Iterator[str]:
    with served(tarry.asgi(app)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def test_a_job_from_put_to_result(app: App, client: Client) -> None:
    job = client.named("add").enqueue(1, 2)
    assert job.is_new
    assert job.state == "ready"
    assert app.get(job.id).record().body == b"[1,2]"
    with pytest.raises(ResultTimeout, match=r"has not finished after 0\.05 s"):
        job.result(0.05)
    with app.running():
        assert job.result(20) == 3
        assert client.enqueue("add", a=4, b=5).result(20) == 9
    assert client.get(job.id).record()["note"] == 3


def test_how_a_job_ends_otherwise(app: App, client: Client) -> None:
    dead, unwanted = client.enqueue("fail"), client.enqueue("add", 1)
    assert unwanted.cancel("no longer") is True
    assert unwanted.cancel() is False
    app.drain()
    with pytest.raises(JobFailed, match="ValueError: no"):
        dead.result(5)
    with pytest.raises(JobCancelled, match="no longer"):
        unwanted.result(5)
    assert unwanted.retry() is True
    app.drain()
    assert unwanted.result(5) == 1


def test_all_options_arrive(app: App, client: Client) -> None:
    task = client.named("add")
    rule = Retry(7, "exponential", base=2, cap="1h", jitter=0.5, only=["ValueError"], within="1d")
    job = task.using(
        delay=datetime.timedelta(hours=1),
        key="k",
        priority=-3,
        queue="slow",
        expires="2h",
        timeout=5,
        retry=rule,
        labels={"customer": "7"},
    ).enqueue(1)
    stored = app.get(job.id).record()
    assert stored.labels == {"customer": "7"}
    assert (stored.key, stored.priority, stored.queue, stored.state) == ("k", -3, "slow", "scheduled")
    assert 3590e6 < stored.due - stored.created < 3610e6
    found = retry_of(stored.headers, Retry(0))
    assert [getattr(found, name) for name in ("limit", "base", "cap", "jitter", "only", "within")] == [
        getattr(rule, name) for name in ("limit", "base", "cap", "jitter", "only", "within")
    ]
    assert task.using(key="k").enqueue(2).is_new is False
    assert task.using(key="k", running="cancel").enqueue(3).is_new is False
    assert app.get(job.id).record().body == b"[3]", "it waits, so it is replaced"
    assert retry_of(app.get(task.using(retry=None).enqueue(1).id).record().headers, rule).attempts == 1
    at = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)
    assert app.get(task.using(at=at, retry=Retry(backoff=[1, "2m"])).enqueue(1).id).record().due == at.timestamp() * 1e6
    with pytest.raises(ValueError, match="delay= and at="):
        task.using(delay=1, at=at)
    with pytest.raises(TypeError, match="connection="):
        task.using(connection=object())


def test_many_at_once(app: App, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.remote.remote_client.CHUNK", 30)
    jobs = client.named("add").enqueue_many([(number, 1) for number in range(99)] + [{"a": 99, "b": 1}])
    assert len({job.id for job in jobs}) == 100
    app.drain()
    assert [job.result(5) for job in jobs] == list(range(1, 101))


def test_many_over_a_time(app: App, client: Client) -> None:
    task = client.named("add")
    at_once, then = (app.get(job.id).record() for job in task.enqueue_many([(1,), {"a": 2}], over="1h"))
    assert (at_once.state, then.state) == ("ready", "scheduled")
    assert abs(then.due - at_once.due - 1800e6) < 5e6
    at = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)
    jobs = task.using(at=at).enqueue_many([(1,), (2,)], over=datetime.timedelta(seconds=10))
    assert [app.get(job.id).record().due for job in jobs] == [at.timestamp() * 1e6, at.timestamp() * 1e6 + 5e6]
    with pytest.raises(ValueError, match="over"):
        task.enqueue_many([(1,)], over=-1)


def test_awaited(app: App, client: Client) -> None:
    async def story() -> None:
        async with app.running(), client:
            jobs = await asyncio.gather(*(client.aenqueue("add", number) for number in range(10)))
            assert await asyncio.gather(*(job.aresult(20) for job in jobs)) == list(range(10))
            assert await jobs[0].astate() == "done"
            assert await jobs[0].aretry() is True
            assert (await client.named("add").aenqueue_many([(1,)]))[0].is_new
            assert await (await client.named("add").using(delay=60).aenqueue(1)).acancel() is True

    asyncio.run(story())


def test_a_job_tells_how_far_it_is(app: App, client: Client) -> None:
    @app.task(name="far")
    def far(name: str) -> None:
        print(f"hello {name}")
        current_job().progress(0.5, "half")

    # A parameter may be called as one of ours.
    job = client.enqueue("far", name="ann")
    assert (job.progress, job.output) == (None, None)
    app.drain()
    assert job.progress == Progress(0.5, "half")
    assert job.output is not None
    assert job.output.text.startswith("hello ann")

    async def story() -> None:
        assert await job.aprogress() == job.progress
        assert await job.aoutput() == job.output

    asyncio.run(story())


def test_a_running_job_is_not_made_ready(app: App, client: Client) -> None:
    job = client.enqueue("add", 1)
    assert app.client.store.claim([Want("default", 0, 1)], 1, "one|x.1:2:3:1", 10**12, app.client.clock.now())
    assert job.retry() is False


def test_many_who_wait_take_nothing_from_others(app: App, client: Client) -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        jobs = [await client.named("add").using(delay=3600).aenqueue(number) for number in range(20)]
        waiting = [asyncio.ensure_future(job.aresult()) for job in jobs]
        async with asyncio.timeout(LIMIT):
            assert await jobs[0].acancel()
            with pytest.raises(JobCancelled):
                await waiting[0]
        for one in waiting[1:]:
            one.cancel()
        with pytest.raises(ResultTimeout):
            await jobs[1].aresult(0.05)
        await asyncio.gather(*(job.acancel() for job in jobs))
        await asyncio.wait(waiting, timeout=LIMIT)
        assert all(one.cancelled() for one in waiting[1:])

    asyncio.run(story())


def test_what_the_server_refuses(app: App, url: str, client: Client) -> None:
    with pytest.raises(ArgumentError, match="x"):
        client.enqueue("add", x=1)
    with pytest.raises(ArgumentError, match="by position or by name"):
        client.enqueue("add", 1, b=2)
    with pytest.raises(JobNotFound):
        client.get("0190d0d0-0000-7000-8000-000000000000").result(1)
    with pytest.raises(ValueError, match="badly formed"):
        client.get("nothing")
    declare_bounds(app.client.store, {"default": Bound(1)})
    app.client.queues._read_at = 0.0
    client.enqueue("add", 1)
    with pytest.raises(QueueFull, match="queue default is full") as caught:
        client.enqueue("add", 2)
    assert (caught.value.stored, caught.value.retry_after >= 1) == (False, True)
    declare_bounds(app.client.store, {"default": Bound(2)})
    app.client.queues._read_at = 0.0
    assert caught.value.send_again().is_new
    with Client(url + "/elsewhere") as lost, pytest.raises(ConfigError, match="there is nothing here"):
        lost.enqueue("add", 1)


def test_a_full_tenant_is_refused_by_its_own_error(app: App, client: Client) -> None:
    @app.task(name="bill", limit_by=lambda account: account, max_waiting=1)
    def bill(account: str) -> None: ...

    client.enqueue("bill", "ann")
    with pytest.raises(TenantFull, match="each:bill=ann is full: 1 of its jobs") as caught:
        client.enqueue("bill", "ann")
    assert (caught.value.stored, caught.value.retry_after >= 1) == (False, True)
    assert client.enqueue("bill", "bob").is_new


def test_no_server() -> None:
    with pytest.raises(StoreAway, match="is a server running there") as caught:
        Client("http://127.0.0.1:1").enqueue("add", 1)
    assert caught.value.stored is False
    for wrong in ("127.0.0.1:7800", "ftp://a", "http://user@a", "http://a?b"):
        with pytest.raises(ConfigError):
            Client(wrong)


class Scripted(http.server.BaseHTTPRequestHandler):
    """Does with each request what `script` says."""

    protocol_version = "HTTP/1.1"
    script: list[Callable[["Scripted", bytes], None]]
    seen: list[tuple[str | None, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.headers["Idempotency-Key"], body))
        self.script.pop(0)(self, body)

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self, body: bytes = b'{"id":"x","is_new":true}', status: int = 201) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True


@pytest.fixture
def scripted() -> Iterator[tuple[type[Scripted], str]]:
    handler = type("OneScripted", (Scripted,), {"script": [], "seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_lost_answer_is_sent_again_under_the_same_name(scripted: tuple[type[Scripted], str]) -> None:
    handler, url = scripted
    handler.script += [lambda it, body: it.hang_up(), lambda it, body: it.answer()]
    with Client(url) as client:
        with pytest.raises(StoreUnavailable) as caught:
            client.enqueue("add", 1)
        assert caught.value.stored is None
        assert caught.value.send_again().id == "x"
    assert len(handler.seen) == 2
    assert handler.seen[0] == handler.seen[1]
    assert handler.seen[0][0]


def test_a_connection_that_was_closed_while_idle_is_replaced(scripted: tuple[type[Scripted], str]) -> None:
    handler, url = scripted

    def answer_and_close(it: Scripted, body: bytes) -> None:
        it.answer()
        it.hang_up()

    handler.script += [answer_and_close, lambda it, body: it.answer()]
    with Client(url) as client:
        client.enqueue("add", 1)
        assert client.enqueue("add", 2).id == "x"
    assert len({name for name, _ in handler.seen}) == 2


def test_connections_are_kept_open(scripted: tuple[type[Scripted], str]) -> None:
    handler, url = scripted
    ports: set[int] = set()

    def note(it: Scripted, body: bytes) -> None:
        ports.add(it.client_address[1])
        it.answer()

    handler.script += [note] * 20
    with Client(url, "secret") as client:
        for number in range(20):
            client.enqueue("add", number)
    assert len(ports) == 1


def test_a_request_that_outlives_its_client_leaves_no_connection_open(scripted: tuple[type[Scripted], str]) -> None:
    handler, url = scripted
    client = Client(url)

    def answer_late(it: Scripted, body: bytes) -> None:
        client.close()
        it.answer()

    handler.script.append(answer_late)
    assert client.enqueue("add", 1).id == "x"
    assert not client._connections._idle


@pytest.mark.parametrize(
    ("name", "kind"), [("not-authenticated", NotAuthenticated), ("busy", Busy), ("new-one", TarryError)]
)
def test_problems_become_errors(scripted: tuple[type[Scripted], str], name: str, kind: type[Exception]) -> None:
    handler, url = scripted
    problem = b'{"type":"urn:tarry:problem:%s","detail":"so it is","retry_after":7.5}' % name.encode()
    handler.script.append(lambda it, body: it.answer(problem, 418))
    with Client(url) as client, pytest.raises(kind, match="so it is") as caught:
        client.enqueue("add", 1)
    assert getattr(caught.value, "retry_after", 7.5) == 7.5


def test_a_part_of_many_was_refused(scripted: tuple[type[Scripted], str]) -> None:
    handler, url = scripted
    part = (
        b'[{"id":"a","is_new":true},{"error":{"type":"urn:tarry:problem:queue-full","detail":"full","stored":false}}]'
    )
    whole = b'[{"id":"a","is_new":false},{"id":"b","is_new":true}]'
    handler.script += [lambda it, body: it.answer(part, 207), lambda it, body: it.answer(whole)]
    with Client(url) as client:
        with pytest.raises(QueueFull, match="full") as caught:
            client.named("add").enqueue_many([(1,), (2,)])
        assert caught.value.stored is None
        assert [job.id for job in caught.value.send_again()] == ["a", "b"]
    assert handler.seen[0] == handler.seen[1]


@pytest.mark.parametrize(("status", "kind"), [(502, StoreUnavailable), (404, ConfigError)])
def test_another_program_answers(scripted: tuple[type[Scripted], str], status: int, kind: type[Exception]) -> None:
    handler, url = scripted
    handler.script.append(lambda it, body: it.answer(b"<html>", status))
    with Client(url) as client, pytest.raises(kind, match=f"answered {status}, and not as tarry does"):
        client.enqueue("add", 1)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_that_goes_on_and_on_ends_with_the_timeout(first: bytes, again: bytes) -> None:
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        with connected, contextlib.suppress(OSError):
            connected.sendall(first)
            while not ended.wait(0.02):
                connected.sendall(again)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=drip, args=(listener,))
        server.start()
        try:
            with Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5) as client:
                began = time.monotonic()
                with pytest.raises(StoreUnavailable, match="timed out"):
                    client.methods.list_queues()
                assert time.monotonic() - began < LIMIT
        finally:
            ended.set()
            server.join(LIMIT)


def test_methods_of_operators_are_called_by_name(app: App, client: Client) -> None:
    job = client.enqueue("add", 1)
    assert client.methods.list_queues().queues[0].queue == "default"
    assert client.methods.pause_queue(queue="default").paused is True
    assert client.methods.set_limit(limit="queue:default", at_once=5).at_once == 5
    assert client.methods.reset_limit(limit="queue:default") is None
    assert client.methods.set_bound(queue="a/b", max_waiting=2).max_waiting == 2
    assert [one.id for one in client.methods.list_jobs(state=["ready"], limit=5).jobs] == [job.id]
    assert client.methods.move_job(id=job.id, queue="mail").queue == "mail"
    assert client.methods.cancel_job(id=job.id, reason="no").cancelled
    with pytest.raises(JobNotFound):
        client.methods.show_job(id="0" * 32)
    with pytest.raises(TypeError, match="pause_queue takes no paused"):
        client.methods.pause_queue(queue="default", paused=True)
    with pytest.raises(TypeError, match="pause_queue needs queue"):
        client.methods.pause_queue()
    with pytest.raises(AttributeError, match="no method fly"):
        client.methods.fly()
