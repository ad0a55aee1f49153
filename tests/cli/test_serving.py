"""A real master with real servers: over reloads and deaths every request is answered, and bounds hold."""

import contextlib
import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tarry.store.rules import ids
from tests.cli.project import Project, alive, until
from tests.cli.serving import HEAD, JOB, answers, open_socket, put, putters, read_all, serve


def test_no_request_fails_over_reloads(project: Project) -> None:
    port = serve(project, processes=2)
    before = set(project.pids("server"))
    with putters(port) as each:
        for number in range(1, 6):
            os.kill(project.board().pid, signal.SIGHUP)
            until(lambda wanted=number: project.board().notice.done >= wanted)  # type: ignore[misc]
    assert project.board().notice.trouble == ""
    until(lambda: not any(alive(pid) for pid in before))
    assert [one.trouble for one in each] == [[], [], [], []]
    put_ids = [id for one in each for id in one.ids]
    assert len(put_ids) > 100
    assert {ids.text(job.id) for job in project.jobs()} == set(put_ids)


def test_what_was_acknowledged_outlives_a_killed_server(project: Project) -> None:
    port = serve(project, processes=1)
    with putters(port) as each:
        for _ in range(2):
            (pid,) = until(lambda: project.pids("server"))
            many = sum(len(one.ids) for one in each)
            until(lambda: sum(len(one.ids) for one in each) > many + 20)  # noqa: B023 - called before it changes
            os.kill(pid, signal.SIGKILL)
            until(lambda: project.pids("server") not in ([], [pid]))  # noqa: B023
    acknowledged = [id for one in each for id in one.ids]
    # A request that the dead server had read may have been stored without an answer.
    assert len(project.jobs()) >= len(acknowledged)
    for id in acknowledged:
        project.job(id)
    assert not [error for one in each for error in one.trouble if isinstance(error, ConnectionRefusedError)]


def test_a_request_that_is_open_at_a_stop_is_answered(project: Project) -> None:
    port = serve(project)
    other = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with open_socket(port) as slow, contextlib.closing(other):
        slow.sendall(HEAD % len(JOB) + JOB[:10])
        # The server has the connection once it answers another.
        put(port, other)
        (pid,) = project.pids("server")
        os.kill(project.board().pid, signal.SIGQUIT)
        # The master's state comes before the signal to the server.
        until(lambda: _is_last(other))
        slow.sendall(JOB[10:])
        answer = read_all(slow)
    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert b"connection: close" in answer.lower()
    until(lambda: not alive(pid))
    assert len(project.jobs()) == 2


def _is_last(connection: http.client.HTTPConnection) -> bool:
    """Whether the server answers, and says that it closes the connection."""
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    return answer.getheader("Connection") == "close"


def test_a_long_poll_does_not_hold_up_a_stop(project: Project) -> None:
    port = serve(project, drain="30s")
    id = put(port)
    with open_socket(port) as waiting:
        waiting.sendall(f"GET /v1/jobs/{id}/result?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        put(port)
        began = time.monotonic()
        project.said("stop")
        assert read_all(waiting).startswith(b"HTTP/1.1 ")
    assert time.monotonic() - began < 15


def test_connections_beyond_the_bound_are_told_so(project: Project) -> None:
    port = serve(project, max_connections=3, max_connections_per_address=2)
    kept = [open_socket(port) for _ in range(2)]
    for one in kept:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
    with open_socket(port) as third:
        third.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = read_all(third)
    assert told.startswith(b"HTTP/1.1 503 "), told
    assert b"retry-after: " in told
    kept.pop().close()
    until(lambda: answers(port))
    for one in kept:
        one.close()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Sl", b"HTTP/1.1 408 "),
        (HEAD % 100 + b"{", b"HTTP/1.1 408 "),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 400_000, b"HTTP/1.1 431 "),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: x\r\n" * 200, b"HTTP/1.1 431 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HTTP/1.1 400 "),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\0garbage\r\n\r\n", b"HTTP/1.1 "),
    ],
)
def test_who_is_slow_or_sends_too_much_is_shut_out(bounded: int, sent: bytes, told: bytes) -> None:
    with open_socket(bounded) as connection:
        with contextlib.suppress(ConnectionError):  # it may not read all of it
            connection.sendall(sent)
        answer = read_all(connection)
    assert answer.startswith(told), answer
    assert answers(bounded)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server that waits for nobody."""
    project = Project(tmp_path_factory.mktemp("bounded"))
    yield serve(project, read_timeout=0.3, keep_alive=1)
    project.close()


def test_an_idle_connection_is_closed(bounded: int) -> None:
    with open_socket(bounded) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_a_unix_socket_serves_and_goes(project: Project) -> None:
    serve(project, http="unix:run/http.sock")
    path = project.directory / "run" / "http.sock"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    project.said("stop")
    assert not path.exists()


def test_status_shows_the_servers_and_where_they_listen(project: Project) -> None:
    port = serve(project, processes=2, max_connections=10)
    with open_socket(port) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        until(lambda: sum(child.held for child in project.children("server")) == 1)
        until(lambda: sum(child.processed for child in project.children("server")) == 1)
        lines = project.said("status").splitlines()
        facts, top = project.facts("status"), project.said("top", "--once")
    assert f"http at 127.0.0.1:{port}" in lines
    assert sorted(line.split()[-2] for line in lines if line.startswith("server ")) == ["0", "1"]
    assert facts["notice"]["listening"] == {"http": [f"127.0.0.1:{port}"]}
    assert "1 connection" in top


def test_servers_follow_their_connections(project: Project) -> None:
    port = serve(project, processes={"min": 1, "max": 2, "calm": "1s"}, max_connections=8)
    kept = [open_socket(port) for _ in range(4)]
    until(lambda: len(project.pids("server")) == 2)
    for one in kept:
        one.close()
    until(lambda: len(project.pids("server")) == 1)
    assert "server: 2 servers wanted instead of 1: all are full" in project.log()


def test_an_address_that_is_taken_fails_the_start_with_one_line(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        project.settings(f'[server]\nhttp = "{there}"\n')
        said = project.refused("start")
    assert said.startswith(f"http cannot listen at {there} (Address already in use): set server.http to another ")
