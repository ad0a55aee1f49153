"""Connections: how they end, and clients that do not behave."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.client.group_commit import CommitBounds
from tarry.errors import StoreAway
from tarry.model.job import State
from tarry.server.beanstalk import beanstalk_connection
from tarry.server.beanstalk.pauses import TubePauses
from tarry.store.rules.base import Query
from tests.server.beanstalk.serving import LIMIT, ServedDoor, serving
from tests.server.beanstalk.talking import Client


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    yield app
    app.close()


@pytest.fixture
def door(app: App) -> Iterator[ServedDoor]:
    with serving(app) as door:
        yield door


def until(look: Callable[[], Any], what: str) -> None:
    """Waits for that."""
    end = time.monotonic() + LIMIT
    while not look():
        assert time.monotonic() < end, f"waited {LIMIT:g} s for {what}"
        time.sleep(0.005)


def number(answer: bytes) -> str:
    """Of the job of an answer."""
    return answer.split()[1].decode()


def in_states(app: App, *states: State) -> int:
    """How many jobs are in one of these."""
    return len(app.client.store.find(Query(states, limit=10_000)))


def test_a_drop_gives_back_what_was_reserved_and_counts_nothing(app: App, door: ServedDoor) -> None:
    first, second = door.client(), door.client()
    for at in range(5):
        first.ask(f"put {at} 0 100 1\r\nx\r\n")
    taken = [first.ask("reserve\r\n") for _ in range(5)]
    first.close()
    assert [number(second.ask("reserve-with-timeout 10\r\n")) for _ in range(5)] == [number(each) for each in taken]
    assert b"releases: 0\n" in second.ask(f"stats-job {number(taken[0])}\r\n")
    second.close()
    until(lambda: in_states(app, State.READY) == 5, "all to be ready")


def test_a_client_that_leaves_while_it_waits_gets_nothing(app: App, door: ServedDoor) -> None:
    for _ in range(20):
        gone = door.client()
        gone.send(b"reserve\r\n")
        gone.close()
    client = door.client()
    until(lambda: b"current-waiting: 0\n" in client.ask("stats\r\n"), "them to be gone")
    client.ask("put 0 0 100 1\r\nx\r\n")
    assert client.ask("reserve-with-timeout 10\r\n").startswith(b"RESERVED")


def test_a_unix_socket(app: App, tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    with serving(app, listening) as door:
        client = door.client()
        assert client.ask("put 0 0 1 1\r\nx\r\n").startswith(b"INSERTED")


def test_a_server_that_ends_gives_back_what_it_holds(app: App) -> None:
    with serving(app) as door:
        client = Client(door.connect())
        client.ask("put 0 0 100 1\r\nx\r\n")
        client.ask("reserve\r\n")
        waiting = door.client()
        waiting.ask("watch other\r\n")
        waiting.send(b"reserve\r\n")
    assert client.answer() == b""
    client.close()
    assert in_states(app, State.READY) == 1


def test_a_draining_server_takes_no_puts(app: App, door: ServedDoor) -> None:
    client = door.client()
    client.ask("put 0 0 100 1\r\nx\r\n")
    door.service.ring.close()
    assert client.ask("put 0 0 100 1\r\nx\r\n") == b"DRAINING\r\n"
    taken = client.ask("reserve\r\n")
    assert client.ask(f"delete {number(taken)}\r\n") == b"DELETED\r\n"


def test_a_draining_server_gives_no_job_and_waits_for_those_it_gave(app: App, door: ServedDoor) -> None:
    client = door.client()
    client.send(b"put 0 0 100 1\r\nx\r\n" * 2)
    assert [client.answer()[:9] for _ in range(2)] == [b"INSERTED "] * 2
    taken = client.ask("reserve\r\n")
    assert door.listener is not None
    draining = asyncio.run_coroutine_threadsafe(door.listener.drain(LIMIT), door.loop)
    until(lambda: client.ask("touch 7\r\n") == b"NOT_FOUND\r\n", "the connection to be as it was")
    assert client.ask(f"delete {number(taken)}\r\n") == b"DELETED\r\n"
    # Another process gives it, and there it is not the job of a connection that ends.
    assert client.ask("reserve\r\n") == b""
    draining.result(LIMIT)
    assert in_states(app, State.READY) == 1


def test_a_connection_that_comes_while_the_server_drains_ends_too(app: App, door: ServedDoor) -> None:
    """One that the kernel had accepted already: asyncio makes it known after the listening socket is closed."""
    client, listener = door.client(), door.listener
    assert listener is not None
    client.send(b"put 0 0 100 1\r\nx\r\nreserve\r\n")
    _, taken = client.answer(), client.answer()
    draining = asyncio.run_coroutine_threadsafe(listener.drain(LIMIT), door.loop)
    until(lambda: listener.is_draining, "the end to begin")
    ours, theirs = socket.socketpair()
    door.call(door.loop.connect_accepted_socket(lambda: beanstalk_connection.BeanstalkConnection(listener), theirs))
    assert Client(ours).answer() == b""
    ours.close()
    assert client.ask(f"delete {number(taken)}\r\n") == b"DELETED\r\n"
    client.send(b"quit\r\n")
    draining.result(LIMIT)


def test_a_full_ring_is_out_of_memory_and_nothing_told_is_lost(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(app) as door:
        monkeypatch.setattr(door.service.ring, "_bounds", CommitBounds(tickets=3))
        clients = [door.client() for _ in range(40)]
        for _ in range(20):
            for client in clients:
                client.send(b"put 0 0 100 4\r\nbody\r\n")
        answers = [client.answer() for _ in range(20) for client in clients]
        stored = [each for each in answers if each.startswith(b"INSERTED")]
        assert set(answers) - set(stored) <= {b"OUT_OF_MEMORY\r\n"}
        asking = door.client()
        assert all(asking.ask(f"peek {number(each)}\r\n").startswith(b"FOUND") for each in stored)
        assert in_states(app, State.READY) == len(stored) > 0


def test_a_store_that_is_away(door: ServedDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    client = door.client()

    def away(*_: Any, **__: Any) -> Any:
        raise StoreAway("away")

    for store in (door.service.client.store, door.service.claims.store):
        for verb in ("exchange", "get", "counts", "find"):
            monkeypatch.setattr(store, verb, away)
    monkeypatch.setattr(door.service.client, "insert_each", lambda jobs, options: [StoreAway("away") for _ in jobs])
    assert client.ask("put 0 0 100 1\r\nx\r\n") == b"OUT_OF_MEMORY\r\n"
    assert client.ask("peek 77\r\n") == b"INTERNAL_ERROR\r\n"
    assert client.ask("stats\r\n") == b"INTERNAL_ERROR\r\n"
    assert client.ask("delete 77\r\n") == b"INTERNAL_ERROR\r\n"
    monkeypatch.undo()
    until(lambda: client.ask("put 0 0 100 1\r\nx\r\n").startswith(b"INSERTED"), "the store to be back")


@pytest.mark.parametrize("end", ["delete {}", "release {} 0 0", "bury {} 0"])
def test_a_job_whose_end_fails_stays_reserved(door: ServedDoor, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    client, other = door.client(), door.client()
    put = number(client.ask("put 0 0 100 1\r\nx\r\n"))
    assert client.ask("reserve-with-timeout 1\r\n").startswith(b"RESERVED")
    with away(door, monkeypatch):
        assert client.ask(f"{end.format(put)}\r\n") == b"INTERNAL_ERROR\r\n"
        assert client.ask(f"touch {put}\r\n") == b"TOUCHED\r\n"
    client.close()
    assert other.ask("reserve-with-timeout 10\r\n").startswith(f"RESERVED {put} ".encode())
    assert other.ask(f"delete {put}\r\n") == b"DELETED\r\n"


def test_an_end_that_failed_may_be_sent_again(door: ServedDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    client = door.client()
    put = number(client.ask("put 0 0 100 1\r\nx\r\n"))
    assert client.ask("reserve-with-timeout 1\r\n").startswith(b"RESERVED")
    with away(door, monkeypatch):
        assert client.ask(f"delete {put}\r\n") == b"INTERNAL_ERROR\r\n"
    until(lambda: client.ask(f"delete {put}\r\n") == b"DELETED\r\n", "the store to be back")


def test_a_connection_that_ends_while_its_end_fails_holds_nothing(
    door: ServedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = door.client()
    put = number(client.ask("put 0 0 100 1\r\nx\r\n"))
    assert client.ask("reserve-with-timeout 1\r\n").startswith(b"RESERVED")
    is_called, may_fail = threading.Event(), threading.Event()

    def fails(*_: Any, **__: Any) -> Any:
        is_called.set()
        assert may_fail.wait(LIMIT)
        raise StoreAway("away")

    monkeypatch.setattr(door.service.claims.store, "exchange", fails)
    client.send(f"delete {put}\r\n".encode())
    assert is_called.wait(LIMIT)
    client.close()
    may_fail.set()
    monkeypatch.undo()
    assert door.client().ask("reserve-with-timeout 10\r\n").startswith(f"RESERVED {put} ".encode())


@contextmanager
def away(door: ServedDoor, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store of those who take jobs is away."""

    def fails(*_: Any, **__: Any) -> Any:
        raise StoreAway("away")

    with monkeypatch.context() as patched:
        patched.setattr(door.service.claims.store, "exchange", fails)
        yield


def test_a_slow_reader_is_held_up_and_loses_nothing(door: ServedDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beanstalk_connection, "WRITE_AHEAD", 4096)
    connected = door.connect()
    client = door.client(connected)
    put = client.ask("put 0 0 100 60000\r\n" + "x" * 60000 + "\r\n")
    count = 200
    client.send(f"peek {number(put)}\r\n".encode() * count)
    assert all(client.answer().startswith(b"FOUND") for _ in range(count))
    assert client.ask("list-tube-used\r\n") == b"USING default\r\n"


def test_what_comes_too_fast_is_not_read(door: ServedDoor) -> None:
    client = door.client()
    client.send(b"reserve-with-timeout 3\r\n")
    connected = client._socket
    connected.settimeout(0.5)
    # The kernel's buffers and the door's own take some of it.
    with pytest.raises(TimeoutError):
        connected.sendall(b"list-tube-used\r\n" * 2**24)
    client.close()
    other = door.client()
    until(lambda: b"current-connections: 1\n" in other.ask("stats\r\n"), "it to be gone")


def test_garbage_ends_nobody(door: ServedDoor) -> None:
    for piece in (b"\0" * 1000, bytes(range(256)) * 100, b"put 1 1 1 4294967295\r\n" + b"x" * 10**6, b"\r\n" * 10**4):
        client = door.client()
        client.send(piece)
        client.close()
    client = door.client()
    assert client.ask("put 0 0 100 1\r\nx\r\n").startswith(b"INSERTED")
    until(lambda: b"current-connections: 1\n" in client.ask("stats\r\n"), "the others to be gone")


def test_puts_of_one_client_are_committed_together(door: ServedDoor) -> None:
    client = door.client()
    client.send(b"".join(b"put %d 0 100 4\r\nbody\r\n" % (at % 7) for at in range(5000)))
    numbers = [number(client.answer()) for _ in range(5000)]
    assert len(set(numbers)) == 5000
    assert numbers == sorted(numbers, key=int)
    assert b"current-jobs-ready: 5000\n" in client.ask("stats-tube default\r\n")


def test_jobs_of_python_are_taken_and_ended(app: App, door: ServedDoor) -> None:
    @app.task(queue="mixed", timeout=77)
    def hello(name: str) -> str:
        return name

    handle = hello.enqueue("ann")
    client = door.client()
    client.ask("watch mixed\r\n")
    client.ask("use mixed\r\n")
    seen = client.ask("peek-ready\r\n")
    taken = client.ask("reserve\r\n")
    assert number(taken) == number(seen)
    assert b"ann" in taken
    assert b"\nttr: 77\n" in client.ask(f"stats-job {number(taken)}\r\n")
    assert client.ask(f"release {number(taken)} 1024 100\r\n") == b"RELEASED\r\n"
    assert client.ask(f"kick-job {number(taken)}\r\n") == b"KICKED\r\n"
    client.ask("reserve\r\n")
    assert client.ask(f"delete {number(taken)}\r\n") == b"DELETED\r\n"
    assert handle.state == State.DONE


def test_a_pause_ends_though_its_process_is_gone(app: App) -> None:
    with serving(app) as door:
        client = door.client()
        client.ask("put 0 0 100 1\r\nx\r\n")
        assert client.ask("pause-tube default 1\r\n") == b"PAUSED\r\n"
    assert app.client.store.queues()["default"]
    pauses = TubePauses(app.client.store)
    until(lambda: pauses.get("default", app.client.clock.now()) is None, "the pause to be over")
    with serving(app) as door:
        assert door.client().ask("reserve-with-timeout 10\r\n").startswith(b"RESERVED")


def test_bodies_are_as_large_as_the_server_says(app: App) -> None:
    with serving(app, max_job_size=10) as door:
        client = door.client()
        assert client.ask("put 0 0 1 11\r\nhello world\r\n") == b"JOB_TOO_BIG\r\n"
        assert client.ask("put 0 0 1 10\r\nhelloworld\r\n").startswith(b"INSERTED")
        assert b"max-job-size: 10\n" in client.ask("stats\r\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"%b /path HTTP/1.1\r\nHost: 127.0.0.1:11300\r\n\r\n" % method
        for method in (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE", b"CONNECT")
    ]
    + [
        b"POST /" + b"x" * 5000 + b" HTTP/1.1\r\n",
        # The beginning of a line that is not recognized, and what each browser sends next.
        b"BREW " + b"x" * 5000 + b" HTTP/1.1\r\nhost: localhost\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda sent: sent[:12].decode("latin-1"),
)
def test_a_web_page_drives_nothing(app: App, door: ServedDoor, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    for _ in range(2):
        client = door.client()
        client.send(sent + b"\r\npause-tube default 60\r\nput 0 0 1 1\r\nx\r\n")
        answers = iter(client.answer, b"")
        assert set(answers) <= {b"BAD_FORMAT\r\n", b"UNKNOWN_COMMAND\r\n"}
    assert in_states(app, State.READY) == 0
    assert app.client.store.queues() == {}
    said = [record.message for record in caplog.records if "HTTP or TLS" in record.message]
    assert len(said) == 1


def test_a_real_request_of_a_browser_gets_no_answer(door: ServedDoor) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"http://127.0.0.1:{door.port}/", content=b"\r\npause-tube default 4000000000\r\n")


def test_a_pause_lasts_a_week_at_most(door: ServedDoor) -> None:
    client = door.client()
    assert client.ask("pause-tube default 4000000000\r\n") == b"PAUSED\r\n"
    assert b"\npause: 604800\n" in client.ask("stats-tube default\r\n")
