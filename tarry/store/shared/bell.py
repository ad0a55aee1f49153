"""Bells: how a sleeper learns that there is something to do, without asking again and again.

A bell is a hint. It may ring for nothing, and a sleeper that hears none looks by itself now and then; so no promise
rests on it. Whoever waits says for what, by a topic:

- `work:...`  a worker with room; the rest of the topic tells apart workers that serve different queues, so that one
              of each kind is woken and not all of them
- `full`      a worker without room, that only wants to hear of jobs called back
- `result`    somebody who waits for jobs to finish
- `follow`    somebody who watches jobs: also hears when they start, and how far they are

Sleeping is `arm(topic)`, then one more look, then `wait(seconds)`: what comes
between the look and the wait still rings.
"""

import contextlib
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

WORK, FULL, RESULT, FOLLOW = "work:", "full", "result", "follow"


class Bell(ABC):
    """One sleeper's bell. `wait` and `arm` belong to one thread; `poke` may come from any, and from a signal."""

    def __init__(self) -> None:
        self._hear, self._poke = socket.socketpair()
        self._hear.setblocking(False)
        self._poke.setblocking(False)

    @abstractmethod
    def arm(self, topic: str) -> None:
        """From now on a ring on the topic is heard."""

    @abstractmethod
    def disarm(self) -> None:
        """Back to work: rings are not for me."""

    def filenos(self) -> list[int]:
        """What becomes readable when it rings."""
        return [self._hear.fileno()]

    def poke(self) -> None:
        """Wakes the sleeper, from inside its process."""
        # Full: it will wake anyway. Closed: nobody sleeps here any more.
        with contextlib.suppress(OSError):
            self._poke.send(b"\0")

    def wait(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        """Sleeps until rung, poked, readable at one of `also`, or for that long; then disarms. Answers the pokes."""
        sleeper = select.poll()
        for fd in (*self.filenos(), *also):
            sleeper.register(fd, select.POLLIN)
        sleeper.poll(max(0.0, seconds) * 1000)
        self.disarm()
        return self.clear()

    def clear(self) -> bytes:
        """Forgets what rang up to now."""
        return drained(self._hear)

    def close(self) -> None:
        """No ring reaches it any more."""
        self.disarm()
        self._hear.close()
        self._poke.close()


def drained(sock: socket.socket) -> bytes:
    """All that can be read now, without waiting."""
    got = b""
    while True:
        try:
            more = sock.recv(4096)
        except (BlockingIOError, OSError):
            return got
        if not more:
            return got
        got += more


def one_of_each(topics: Iterable[tuple[int, str]]) -> list[int]:
    """Among (sleeper, topic): one for every different kind of worker with room."""
    return list({topic: who for who, topic in topics if topic.startswith(WORK)}.values())
