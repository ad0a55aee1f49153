"""Scripts of what clients send, and what a server of the beanstalkd protocol answers."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

LIMIT = 60.0
"""Seconds for any answer."""
TRIES = 5
"""How often a script is run at most if the machine is too slow for it."""
CLOSE, HALF_CLOSE, EOF = "<close>", "<half close>", "<end>"
_CHUNK = re.compile(rb"(?:OK|RESERVED \d+|FOUND \d+) (\d+)\r\n")
_NUMBER = re.compile(rb"(?:(?<=INSERTED )|(?<=RESERVED )|(?<=FOUND )|(?<=\nid: ))\d+")
_OWN = re.compile(
    rb"(?<=\n)(pid|version|rusage-[us]time|uptime|id|hostname|os|platform|binlog-[a-z-]+|total-connections"
    rb"|current-connections): [^\n]*"
)
"""What is each server's own. The probe that looks whether a server is up is one of its connections."""
_FIELD = re.compile(rb"(?<=\n)([a-z-]+): ([^\n]*)")
_LONG, _SLOW = 20, 10
"""Seconds: of a span that is longer than the one, up to the other may have passed since it began."""


@dataclass
class Step:
    """client: its name, connected when it first occurs. send: with {1} for the number of the first job that was seen.
    answers: how many to read then. until: a pattern; it is sent anew until the last answer has it, and of that answer
    only this is compared."""

    client: str
    send: str
    answers: int = 1
    until: str = ""


@dataclass(frozen=True)
class Script:
    """timeouts: how many jobs run out of their time in it. If more do, the machine was too slow, and it says nothing
    about the server."""

    steps: list[Step]
    timeouts: int = 0


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
        try:
            for step in steps:
                self._do(step)
            for name, client in self._clients.items():
                # Whatever was sent too much would come before this answer.
                self.said.append(self._normal(client.ask("list-tube-used\r\n"), "") + name.encode())
        finally:
            for client in self._clients.values():
                client.close()
        return self.said

    def timeouts(self) -> int:
        """How many jobs ran out of their time since the server began, as it says itself."""
        with socket_client(self.connect()) as client:
            found = re.search(rb"\njob-timeouts: (\d+)\n", client.ask("stats\r\n"))
        assert found is not None
        return int(found[1])

    def delete_all(self) -> None:
        """Deletes the jobs that were seen, once they are given back by the connections that are gone."""
        end = time.monotonic() + LIMIT
        with socket_client(self.connect()) as client:
            for number in map(bytes.decode, self._numbers):
                while client.ask(f"peek {number}\r\n") != b"NOT_FOUND\r\n":
                    client.ask(f"delete {number}\r\n")
                    assert time.monotonic() < end, f"job {number} is not given back"

    def _do(self, step: Step) -> None:
        client = self._clients.get(step.client)
        if client is None:
            client = self._clients[step.client] = Client(self.connect())
        if step.send == CLOSE:
            self._clients.pop(step.client).close()
        elif step.send == EOF:
            assert client.answer() == b"", "the connection goes on"
            self._clients.pop(step.client).close()
        elif step.until:
            self.said += self._asked_until(client, step)
        else:
            if step.send == HALF_CLOSE:
                client.half_close()
            else:
                client.send(self._filled_in(step.send))
            self.said += [self._normal(client.answer(), step.send) for _ in range(step.answers)]

    def _asked_until(self, client: Client, step: Step) -> list[bytes]:
        end = time.monotonic() + LIMIT
        while True:
            client.send(self._filled_in(step.send))
            *before, last = [self._normal(client.answer(), step.send) for _ in range(step.answers)]
            if found := re.search(step.until.encode(), last):
                return [*before, found[0]]
            if time.monotonic() > end:
                raise TimeoutError(f"waited {LIMIT:g} s for {step.until}; the last answer: {last!r}")
            time.sleep(0.005)

    def _filled_in(self, text: str) -> bytes:
        def number(match: re.Match[str]) -> str:
            return self._numbers[int(match[1]) - 1].decode()

        return re.sub(r"\{(\d+)\}", number, text).encode("latin-1")

    def _normal(self, answer: bytes, asked: str) -> bytes:
        if b"\nuptime: " in answer:
            # Of the server, without what is its own, as the `id` that may begin with a digit.
            return b"OK " + _OWN.sub(rb"\1", answer.partition(b"\r\n")[2])
        for number in _NUMBER.findall(answer):
            if number not in self._numbers:
                self._numbers.append(number)
        numbered = _NUMBER.sub(lambda match: b"#%d" % (self._numbers.index(match[0]) + 1), answer)
        if not answer.startswith(b"OK"):
            return numbered
        # The length depends on the length of numbers; `Client.answer` has checked it.
        _, _, text = numbered.partition(b"\r\n")
        if b"\n- " not in text:
            return b"OK " + _stats(text)
        # The order of all tubes is that of their making, which a store does not keep.
        return b"OK " + (b"\n".join(sorted(text.split(b"\n"))) if "list-tubes\r\n" in asked else text)


def _stats(text: bytes) -> bytes:
    """All values of one job or tube but times."""
    values = dict(_FIELD.findall(text))
    span = values.get({b"reserved": b"ttr", b"delayed": b"delay"}.get(values.get(b"state", b""), b"pause"), b"0")
    for name in (b"time-left", b"pause-time-left"):
        left = values.get(name, b"-1")
        if int(span) > _LONG and 0 < int(span) - int(left) <= _SLOW:
            text = text.replace(b"\n%b: %b\n" % (name, left), b"\n%b: just begun\n" % name)
    # beanstalkd 1.12 has names without the quotes of 1.13.
    return re.sub(rb"(?<=\nage: )\d+", b"?", re.sub(rb'\n(name|tube): "(.*)"', rb"\n\1: \2", text))


@contextmanager
def socket_client(connected: socket.socket) -> Iterator[Client]:
    """A client, for a while."""
    client = Client(connected)
    try:
        yield client
    finally:
        client.close()


def run_in_time(
    script: Script, serve: Callable[[], AbstractContextManager[Callable[[], socket.socket]]]
) -> list[bytes]:
    """What a server answers to the script. serve: begins a server, and gives what connects to it.

    Jobs have to be reserved and ended in their time, of one second at times. Where the machine is too slow for that,
    the server counts a time-out that the script has not; then it is run anew, with another server.
    """
    tries_left = TRIES
    while True:
        tries_left -= 1
        with serve() as connect:
            talk, error = Talk(connect), None
            try:
                talk.run(script.steps)
            except (TimeoutError, AssertionError, IndexError) as raised:
                error = raised
            timeouts = talk.timeouts()
            if timeouts <= script.timeouts or not tries_left:
                if error is not None:
                    raise error
                return [*talk.said, b"%d time-outs" % timeouts]
            talk.delete_all()


def steps(*each: tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, str]) -> Script:
    """A script from tuples, in which no job runs out of its time."""
    return Script([Step(*one) for one in each])


def timing_out(count: int, script: Script) -> Script:
    """The script, in which so many jobs run out of their time."""
    return replace(script, timeouts=count)
