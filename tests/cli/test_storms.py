"""Thousands of connections at once: those that are too many are told so or closed, and nothing is left of them."""

import contextlib
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cli.project import Project, until
from tests.cli.serving import answers, open_socket, put, read_all, serve
from tests.push.certificates import Authority
from tests.servers.server import free_port

STORM, HELD = 5000, 300
MB = 2**20
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
KEPT = GET.replace(b"close", b"keep-alive")
BOUNDS = {"processes": 1, "max_connections": HELD, "max_connections_per_address": 0}


@contextlib.contextmanager
def storm(port: int, sent: bytes, seconds: float = 45.0, held: int = HELD) -> Iterator[dict[str, int]]:
    """STORM connections, of which so many are to stay open; those that do are held as long as the block. What each was
    told."""
    command = [sys.executable, "-m", "tests.server.storm", str(port), str(STORM), str(held), str(seconds), sent.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told: dict[str, int] = json.loads(process.stdout.readline())
        assert sum(told.values()) == STORM
        yield told


def ended(told: dict[str, int], first: str = "") -> int:
    """How many connections were ended after that first line."""
    return sum(told.get(f"{first}|{how}", 0) for how in ("closed", "ConnectionResetError", "BrokenPipeError"))


def survives(project: Project, hit: Callable[[], None]) -> None:
    """Does it twice: the server process stays, and gives back all descriptors and memory that it took."""
    (pid,) = project.pids("server")
    # As on a host that allows no more than it needs.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (2 * HELD + 256, 2 * HELD + 256))
    # The first time it opens what it keeps, such as the store's connections, and gets the memory that it needs.
    hit()
    until(lambda: _connections(pid) == 0)
    files, memory = _files(pid), _resident(pid)
    hit()
    until(lambda: _connections(pid) == 0)
    assert _files(pid) <= files + 2
    assert _resident(pid) < memory + 32 * MB
    assert project.pids("server") == [pid]


def _files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _connections(pid: int) -> int:
    """How many TCP connections the process has."""
    inodes = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] != "0A"}
    return len(inodes & {_socket(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")})


def _socket(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path).removeprefix("socket:[").removesuffix("]")
    return ""


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_http_tells_those_that_are_too_many(project: Project) -> None:
    port = serve(project, **BOUNDS)

    def hit() -> None:
        with storm(port, KEPT) as told:
            assert told["HTTP/1.1 200 OK|open"] == HELD
            # On a busy machine some have not sent their request yet when another wants their place.
            late = ended(told, "HTTP/1.1 408 Request Timeout")
            assert ended(told, "HTTP/1.1 503 Service Unavailable") + late == STORM - HELD
            assert late < STORM / 2
        until(lambda: answers(port))
        put(port)

    survives(project, hit)


def test_beanstalk_closes_those_that_are_too_many(project: Project) -> None:
    port = free_port()
    serve(project, beanstalk=f"127.0.0.1:{port}", **BOUNDS)

    def hit() -> None:
        with storm(port, b"list-tube-used\r\n") as told:
            assert told["USING default|open"] == HELD
            assert ended(told) == STORM - HELD
        until(lambda: _ask(port, b"put 0 0 9 1\r\nx\r\nquit\r\n").startswith(b"INSERTED "))

    survives(project, hit)


def _ask(port: int, sent: bytes) -> bytes:
    with open_socket(port) as connection:
        connection.sendall(sent)
        return read_all(connection)


def test_handshakes_that_never_end_are_bounded_and_ended(project: Project) -> None:
    authority = Authority(project.directory)
    port = serve(project, certificate=str(authority.sign(["localhost"])), read_timeout=0.5, **BOUNDS)
    context = ssl.create_default_context(cadata=authority.pem.decode())

    def hit() -> None:
        # Half of a hello.
        with storm(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", held=0) as told:
            assert ended(told) == STORM
            # Those were ended after read_timeout, and all others at once.
            assert _greeted(port, context)

    survives(project, hit)


def test_while_handshakes_hang_others_are_served(project: Project) -> None:
    authority = Authority(project.directory)
    port = serve(project, certificate=str(authority.sign(["localhost"])), read_timeout=60, **BOUNDS)
    context = ssl.create_default_context(cadata=authority.pem.decode())
    hanging = [open_socket(port) for _ in range(HELD - 1)]
    assert _greeted(port, context)
    hanging.append(open_socket(port))
    with open_socket(port) as more:
        more.settimeout(10)
        assert read_all(more) == b""
    for each in hanging:
        each.close()
    until(lambda: _greeted(port, context))


def _greeted(port: int, context: ssl.SSLContext) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
            connection = context.wrap_socket(raw, server_hostname="localhost")
            with connection:
                connection.sendall(GET)
                return read_all(connection).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False
