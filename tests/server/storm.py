"""`python -m tests.server.storm PORT COUNT HELD SECONDS HEX`: opens so many connections at once, sends the bytes on
each, and listens until no more than HELD are open, for so long at most. Prints as JSON how often which first line came,
and whether the connection then ended; holds the others until stdin ends."""

import contextlib
import json
import resource
import selectors
import socket
import sys
import time
from collections import Counter

SETTLED, QUIET = 0.5, 17.0
"""Seconds without news after which no more are awaited: if no more are open than were to be, and else."""
# A kernel that has no place for a connection lets its client try again: after 1, 3, 7, 15 and 31 s.


class Storm:
    """Connections that are opened at once."""

    def __init__(self, port: int, count: int, held: int, sent: bytes) -> None:
        self._held, self._sent, self._selector = held, sent, selectors.DefaultSelector()
        self._said: dict[socket.socket, bytes] = {}
        self._told: Counter[str] = Counter()
        for _ in range(count):
            connected = socket.socket()
            connected.setblocking(False)
            connected.connect_ex(("127.0.0.1", port))
            self._selector.register(connected, selectors.EVENT_WRITE)
        self._unconnected = count

    def run(self, seconds: float) -> dict[str, int]:
        """How often which first line came, and how it went on: `open`, `closed` or an error."""
        end = time.monotonic() + seconds
        quiet_at = end
        while (now := time.monotonic()) < min(end, quiet_at):
            events = self._selector.select(0.1)
            if events or self._unconnected:
                quiet_at = now + QUIET
            elif len(self._said) <= self._held:
                quiet_at = min(quiet_at, now + SETTLED)
            for key, _ in events:
                self._step(key.fileobj)  # type: ignore[arg-type]
        held = Counter(_first_line(said, "open") for said in self._said.values())
        held["|unconnected"] = self._unconnected
        return dict(held + self._told)

    def _step(self, connected: socket.socket) -> None:
        try:
            if connected not in self._said:
                self._said[connected] = b""
                self._unconnected -= 1
                # Whoever is shut out may have been told why all the same.
                with contextlib.suppress(OSError):
                    connected.send(self._sent)
                self._selector.modify(connected, selectors.EVENT_READ)
                return
            more = connected.recv(65536)
        except OSError as error:
            self._end(connected, type(error).__name__)
            return
        self._said[connected] += more
        if not more:
            self._end(connected, "closed")

    def _end(self, connected: socket.socket, how: str) -> None:
        self._told[_first_line(self._said.pop(connected), how)] += 1
        self._selector.unregister(connected)
        connected.close()


def _first_line(said: bytes, how: str) -> str:
    first, _, _ = said.decode("latin-1").partition("\r\n")
    return f"{first}|{how}"


def main(port: int, count: int, held: int, seconds: float, sent: bytes) -> None:
    """The whole storm."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    storm = Storm(port, count, held, sent)
    print(json.dumps(storm.run(seconds)), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), bytes.fromhex(sys.argv[5]))
