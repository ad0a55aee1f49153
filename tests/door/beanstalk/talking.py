"""Scripts of what clients send, and what a server of the beanstalkd protocol answers."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

LIMIT = 10.0
"""Seconds for any answer."""
CLOSE, HALF_CLOSE, EOF = "<close>", "<half close>", "<end>"
_CHUNK = re.compile(rb"(?:OK|RESERVED \d+|FOUND \d+) (\d+)\r\n")
_NUMBER = re.compile(rb"(?:(?<=INSERTED )|(?<=RESERVED )|(?<=FOUND )|(?<=\nid: ))\d+")
_TIMES = re.compile(
    rb"(?<=\n)(age|pid|version|rusage-[us]time|uptime|id|hostname|os|platform|binlog-[a-z-]+|total-connections"
    rb"|current-connections|current-tubes|total-jobs|cmd-[a-z-]+|current-[a-z-]+|job-timeouts): [^\n]*"
)


@dataclass
class Step:
    """client: its name, connected when it first occurs. send: with {1} for the number of the first job that was seen.
    answers: how many to read then."""

    client: str
    send: str
    answers: int = 1


class Client:
    """One connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(LIMIT)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """As a whole."""
        self._socket.sendall(data)

    def half_close(self) -> None:
        """Sends nothing more."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Drops the connection."""
        self._socket.close()

    def answer(self) -> bytes:
        """The next whole one; empty at the end of the connection."""
        while b"\r\n" not in self._buffer:
            if not self._more():
                return b""
        line = self._buffer[: self._buffer.index(b"\r\n") + 2]
        chunk = _CHUNK.fullmatch(line)
        end = len(line) + (int(chunk[1]) + 2 if chunk else 0)
        while len(self._buffer) < end:
            if not self._more():
                return b""
        whole, self._buffer = self._buffer[:end], self._buffer[end:]
        return whole

    def ask(self, command: str) -> bytes:
        """Sends a command and returns its answer."""
        self.send(command.encode("latin-1"))
        return self.answer()

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self._buffer += data
        return bool(data)


@dataclass
class Talk:
    """Runs a script; `said` has what the server answered, with jobs numbered as they were first seen."""

    connect: Callable[[], socket.socket]
    said: list[bytes] = field(default_factory=list)
    _clients: dict[str, Client] = field(default_factory=dict)
    _numbers: list[bytes] = field(default_factory=list)

    def run(self, steps: list[Step]) -> list[bytes]:
        """What was answered, in the order of the steps."""
        with ExitStack() as stack:
            for step in steps:
                self._do(step)
            for name, client in self._clients.items():
                stack.callback(client.close)
                # Whatever was sent too much would come before this answer.
                self.said.append(self._normal(client.ask("list-tube-used\r\n")) + name.encode())
        return self.said

    def _do(self, step: Step) -> None:
        client = self._clients.get(step.client)
        if client is None:
            client = self._clients[step.client] = Client(self.connect())
        if step.send == CLOSE:
            self._clients.pop(step.client).close()
            return
        if step.send == HALF_CLOSE:
            client.half_close()
        elif step.send == EOF:
            assert client.answer() == b"", "the connection goes on"
            self._clients.pop(step.client).close()
            return
        else:
            client.send(self._filled_in(step.send))
        self.said += [self._normal(client.answer()) for _ in range(step.answers)]

    def _filled_in(self, text: str) -> bytes:
        def number(match: re.Match[str]) -> str:
            return self._numbers[int(match[1]) - 1].decode()

        return re.sub(r"\{(\d+)\}", number, text).encode("latin-1")

    def _normal(self, answer: bytes) -> bytes:
        for number in _NUMBER.findall(answer):
            # An instance has an `id`, too, which is no number.
            if number not in self._numbers:
                self._numbers.append(number)
        numbered = _NUMBER.sub(lambda match: b"#%d" % (self._numbers.index(match[0]) + 1), answer)
        if answer.startswith(b"OK"):
            _, _, text = numbered.partition(b"\r\n")
            # The length depends on the length of numbers; `Client.answer` has checked it.
            return b"OK " + _sorted_list(text) if b"\n- " in text else b"OK " + self._stats(text)
        return numbered

    def _stats(self, text: bytes) -> bytes:
        # Of one job or tube all values are compared but times; of the server the names only.
        if b"\nuptime: " in text:
            return _TIMES.sub(rb"\1", text)
        # beanstalkd 1.12 has names without the quotes of 1.13.
        return re.sub(rb"(?<=\nage: )\d+", b"?", re.sub(rb'\n(name|tube): "(.*)"', rb"\n\1: \2", text))


def _sorted_list(text: bytes) -> bytes:
    """A list of tubes: their order is that of their making, which a store does not keep."""
    return b"\n".join(sorted(text.split(b"\n")))


def steps(*each: tuple[str, str] | tuple[str, str, int]) -> list[Step]:
    """A script from tuples."""
    return [Step(*one) for one in each]


def connections(connect: Callable[[], socket.socket]) -> Iterator[Client]:
    """New clients without end."""
    while True:
        yield Client(connect())
