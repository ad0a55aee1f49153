"""Programs at the doors of a master, each in a thread: they put, take and finish all the time, and note what befell
them."""

import contextlib
import http.client
import itertools
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

HEADERS = {"Content-Type": "application/json"}
WAIT = 20.0


class DoorProgram:
    """Repeats its step until it is closed; a step that raises is a trouble."""

    def __init__(self, port: int, pause: float) -> None:
        """pause: seconds between two steps."""
        self.port, self._pause = port, pause
        self.trouble: list[BaseException] = []
        self.done: Counter[str] = Counter()
        """What was acknowledged to it, and how often."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def step(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Closes its connection."""

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                self.step()
            except (OSError, AssertionError, http.client.HTTPException) as error:
                self.trouble.append(error)
        self.leave()


class HttpProgram(DoorProgram):
    """With one connection, for as long as the server keeps it."""

    def __init__(self, port: int, pause: float) -> None:
        super().__init__(port, pause)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)

    def leave(self) -> None:
        self._connection.close()

    def post(self, path: str, body: object, status: int = 200) -> Any:
        self._connection.request("POST", path, msgspec.json.encode(body), HEADERS)
        answer = self._connection.getresponse()
        said = answer.read()
        assert answer.status == status, (answer.status, said)
        return msgspec.json.decode(said)


class HttpPutter(HttpProgram):
    """Puts for a queue that no Python worker serves; `done` has the ids. keeps: its connection."""

    def __init__(self, port: int, pause: float, keeps: bool) -> None:
        super().__init__(port, pause)
        self._keeps = keeps

    def step(self) -> None:
        self.done[self.post("/v1/jobs", {"task": "outside", "queue": "outside", "body": 1}, 201)["id"]] += 1
        if not self._keeps:
            self._connection.close()


class HttpTaker(HttpProgram):
    """Claims and finishes what the putters put."""

    def step(self) -> None:
        for job in self.post("/v1/queues/outside/claim", {"limit": 10, "wait": 0.5})["jobs"]:
            self.post(f"/v1/jobs/{job['id']}/finish", {"epoch": job["epoch"]})
            self.done[job["id"]] += 1


class Closed(Exception):
    """The server closed the connection instead of an answer."""


class BeanstalkProgram(DoorProgram):
    """Connects anew when the server ends the connection, and sends again what was not answered."""

    names = itertools.count()

    def __init__(self, port: int, pause: float) -> None:
        super().__init__(port, pause)
        self._socket: socket.socket | None = None
        self._buffer = b""
        self.closed = 0

    def leave(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""

    def ask(self, command: bytes) -> bytes:
        """The first line of the answer; Closed."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), WAIT)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(command)
        return self.line()

    def line(self) -> bytes:
        """The next line; Closed."""
        assert self._socket is not None
        while b"\r\n" not in self._buffer:
            more = b""
            with contextlib.suppress(ConnectionResetError):
                more = self._socket.recv(65536)
            if not more:
                self.leave()
                self.closed += 1
                raise Closed
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line


class BeanstalkPutter(BeanstalkProgram):
    """Puts bodies that nobody else puts; `done` has them."""

    def step(self) -> None:
        body = b"%08d" % next(self.names)
        while True:
            with contextlib.suppress(Closed):
                answer = self.ask(b"put 0 0 60 8\r\n%s\r\n" % body)
                assert answer.startswith(b"INSERTED "), answer
                self.done[body.decode()] += 1
                return


class BeanstalkTaker(BeanstalkProgram):
    """Reserves and deletes; `done` has the bodies."""

    def step(self) -> None:
        try:
            answer = self.ask(b"reserve-with-timeout 1\r\n")
        except Closed:
            return
        if answer == b"TIMED_OUT":
            return
        assert answer.startswith(b"RESERVED "), answer
        body = self.line()
        # It has a job: now the connection may not be ended.
        try:
            assert self.ask(b"delete %s\r\n" % answer.split()[1]) == b"DELETED"
        except Closed as error:
            raise AssertionError(f"closed while {body!r} was reserved") from error
        self.done[body.decode()] += 1


@contextlib.contextmanager
def running(programs: Sequence[DoorProgram]) -> Iterator[None]:
    """Lets them run for as long as the block."""
    for each in programs:
        each.start()
    try:
        yield
    finally:
        for each in programs:
            each.end()


def acknowledged(programs: Sequence[DoorProgram]) -> Counter[str]:
    """What was acknowledged to these, and how often."""
    return sum((each.done for each in programs), Counter())


def troubles(programs: Sequence[DoorProgram]) -> list[str]:
    """What befell them, in words."""
    return [f"{type(each).__name__}: {error!r}" for each in programs for error in each.trouble]
