"""Masters that serve HTTP, and clients of them."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.cli.project import Project
from tests.servers.server import free_port

JOB = msgspec.json.encode({"task": "app.add", "args": [1, 2]})
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def serve(project: Project, **settings: object) -> int:
    """A master that serves HTTP with these settings of [server]; returns the port."""
    port = free_port()
    lines = "".join(f"{name} = {_toml(value)}\n" for name, value in {"http": f"127.0.0.1:{port}", **settings}.items())
    project.settings(f"[pools.default]\nqueues = ['none']\n[server]\n{lines}")
    project.serve()
    return port


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return msgspec.json.encode(value).decode()


def put(port: int, connection: http.client.HTTPConnection | None = None) -> str:
    """Puts a job, and returns its id."""
    ours = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        ours.request("POST", "/v1/jobs", JOB, {"Content-Type": "application/json"})
        answer = ours.getresponse()
        body = answer.read()
    finally:
        if connection is None:
            ours.close()
    assert answer.status == 201, (answer.status, body)
    found: dict[str, Any] = msgspec.json.decode(body)
    return str(found["id"])


class Putter:
    """Puts all the time, in a thread; on one connection as long as the server keeps it, or on a new one each time."""

    def __init__(self, port: int, keeps: bool) -> None:
        self.ids: list[str] = []
        self.trouble: list[BaseException] = []
        self._port, self._keeps, self._over = port, keeps, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20) if self._keeps else None
        # Some hundred a second, with the pauses that leave the servers the processor.
        while not self._over.wait(0.003):
            try:
                self.ids.append(put(self._port, connection))
            except (OSError, AssertionError, http.client.HTTPException) as error:
                self.trouble.append(error)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def putters(port: int) -> Iterator[list[Putter]]:
    found = [Putter(port, keeps) for keeps in (True, True, False, False)]
    try:
        yield found
    finally:
        for one in found:
            one.close()


def open_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65536):
            found += more
    return found


def answers(port: int) -> bool:
    with open_socket(port) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return read_all(connection).startswith(b"HTTP/1.1 200 ")
