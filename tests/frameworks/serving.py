"""A web application of a test under the server that people run it with."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0


def until(condition: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """The first true answer."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"still {answer!r} after {seconds:g} s"
        time.sleep(0.01)
    return answer


class Event(NamedTuple):
    name: str
    data: Any
    id: str
    retry: str
    comment: str


class Stream:
    """A stream of events, as a browser has it open."""

    opened: ClassVar[list["Stream"]] = []
    """Those that the test is to close."""

    def __init__(self, port: int, id: str, last_id: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        self._connection.request("GET", f"/jobs/{id}/events", headers={"Last-Event-ID": last_id} if last_id else {})
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        self.opened.append(self)

    def blocks(self) -> Iterator[Event]:
        """All that comes, until the server ends it."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            if line != "\n":
                name, _, value = line.rstrip("\n").partition(":")
                fields[name] = value.lstrip(" ")
            elif fields:
                data = json.loads(fields.get("data", "null"))
                yield Event(
                    fields.get("event", ""), data, fields.get("id", ""), fields.get("retry", ""), fields.get("", "")
                )
                fields = {}

    def events(self) -> Iterator[Event]:
        """Those with a name."""
        return (block for block in self.blocks() if block.name)

    def until_step(self, step: int) -> list[Event]:
        """The events up to the one that tells of this step."""
        seen = []
        for event in self.events():
            seen.append(event)
            if (event.data["progress"] or {}).get("message") == f"step {step}":
                return seen
        raise AssertionError(f"step {step} was not told: {seen}")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


class Server:
    """A running server, in a directory of its own."""

    def __init__(self, command: list[str], directory: Path, worker: str | None = None) -> None:
        self.directory = directory
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.processes = [self._start([word.format(port=self.port) for word in command])]
        if worker is not None:
            self.processes.append(self._start(["tarry", "-a", worker, "worker"]))
        self._walks = 0

    def _start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
        environ = ours | {"PYTHONPATH": str(ROOT)}
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command], cwd=self.directory, env=environ, stdout=log, stderr=log
            )

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes] | None:
        """Status and body; None as long as nobody answers."""
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)) as connection:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read()
        except ConnectionError:
            return None

    def walk(self, steps: int, path: str = "/jobs") -> "Walk":
        """Starts a job that waits for its gates."""
        self._walks += 1
        gates = self.directory / f"gates-{self._walks}"
        gates.mkdir()
        status, body = self.ask(f"{path}?gates={gates}&steps={steps}", "POST") or (0, b"")
        assert status == 202, body
        return Walk(self, json.loads(body)["id"], gates)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stops the server, and gives its exit status."""
        self.processes[0].send_signal(number)
        return self.processes[0].wait(LIMIT)


class Walk:
    """A job of `walk`."""

    def __init__(self, server: Server, id: str, gates: Path) -> None:
        self._server, self.id, self._gates = server, id, gates

    def allow(self, *steps: int) -> None:
        for step in steps:
            (self._gates / str(step)).touch()

    def follow(self, last_id: str | None = None) -> Stream:
        return Stream(self._server.port, self.id, last_id)


@contextmanager
def serving(command: list[str], directory: Path, worker: str | None = None) -> Iterator[Server]:
    """A server that answers, until the end of the block."""
    server = Server(command, directory, worker)
    try:
        until(lambda: server.ask("/"))
        yield server
    finally:
        for process in server.processes:
            process.kill()
            process.wait()
