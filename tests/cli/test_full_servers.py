"""Servers with a share of the connections each: nobody is refused while one of them has room, whoever is one too many
is told so."""

import contextlib
import time
from collections.abc import Iterator
from socket import socket

import pytest

from tests.cli.project import Project, until
from tests.cli.serving import open_socket, read_all, serve
from tests.servers.server import free_port

BOUND, CLIENTS = 40, 36
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIST = b"list-tube-used\r\n"
PROCESSES = pytest.mark.parametrize("processes", [1, 4, {"min": 1, "max": 4}], ids=["one", "four", "one to four"])


@contextlib.contextmanager
def clients(port: int, count: int) -> Iterator[list[socket]]:
    """So many connections, opened at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open_socket(port)) for _ in range(count)]


def first_lines(each: list[socket], sent: bytes) -> list[bytes]:
    """What each is told on a request."""
    for one in each:
        one.sendall(sent)
    return [one.recv(65536).partition(b"\r\n")[0] for one in each]


@PROCESSES
def test_nobody_is_refused_while_a_process_has_room(project: Project, processes: object) -> None:
    tubes = free_port()
    bounds = {"processes": processes, "max_connections": BOUND, "beanstalk": f"127.0.0.1:{tubes}"}
    port = serve(project, **bounds)
    with clients(port, CLIENTS) as http, clients(tubes, CLIENTS) as beanstalk:
        assert first_lines(http, GET) == [b"HTTP/1.1 200 OK"] * CLIENTS
        assert first_lines(beanstalk, LIST) == [b"USING default"] * CLIENTS
        with clients(port, BOUND - CLIENTS) as rest, clients(tubes, BOUND - CLIENTS) as rest_of_tubes:
            assert first_lines(rest, GET) == [b"HTTP/1.1 200 OK"] * len(rest)
            assert first_lines(rest_of_tubes, LIST) == [b"USING default"] * len(rest)
            _are_refused(port, tubes)
            # What waits for another process must cost nothing.
            assert first_lines(http, GET) == [b"HTTP/1.1 200 OK"] * CLIENTS
        until(lambda: sum(child.held for child in project.children("server")) == 2 * CLIENTS)
        with clients(port, 1) as one, clients(tubes, 1) as tube:
            assert first_lines(one, GET) + first_lines(tube, LIST) == [b"HTTP/1.1 200 OK", b"USING default"]
        until(lambda: sum(child.failed for child in project.children("server")) == 4)
        assert " refused\n" in project.said("status") + "\n"


def _are_refused(port: int, tubes: int) -> None:
    began = time.monotonic()
    with clients(port, 2) as http, clients(tubes, 2) as beanstalk:
        for one in http:
            told = read_all(one)
            assert told.startswith(b"HTTP/1.1 503 "), told
            assert b"retry-after: " in told
        assert [read_all(one) for one in beanstalk] == [b"", b""]
    assert time.monotonic() - began < 10
