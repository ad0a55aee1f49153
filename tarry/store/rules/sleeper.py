"""Wake-ups: how a sleeper learns that there is something to do, without polling.

A wake-up is a hint. It may come without a reason, and a sleeper that gets none looks by itself now and then; so no
promise depends on it. A sleeper says by a topic what it waits for:

- `work:...`  a worker with room; the rest of the topic is the same for workers that serve the same queues: one of each
              kind is woken, and not all of them
- `full`      a worker without room; it only waits for jobs that are called back
- `result`    a caller that waits for jobs to finish
- `follow`    a caller that watches jobs: also wakes when they start, and when they report progress

To sleep: `listen(topic)`, look once more for work, then `wait(seconds)`. An event between the look and the wait still
wakes.
"""

import contextlib
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TypeVar

from tarry.errors import StoreError
from tarry.model.wake import WakeReason

WORK, FULL, RESULT, FOLLOW = "work:", "full", "result", "follow"

Sleeper = TypeVar("Sleeper", bound=Hashable)

_HEARD = {
    FULL: frozenset({WakeReason.RECALL}),
    RESULT: frozenset({WakeReason.RESULT}),
    FOLLOW: frozenset({WakeReason.RESULT, WakeReason.STEP}),
}
_HEARD_BY_WORKERS = frozenset({WakeReason.WORK, WakeReason.RECALL})


def heard_reasons(topic: str) -> frozenset[WakeReason]:
    """The reasons that wake a sleeper on the topic."""
    # All other topics begin with `work:`.
    return _HEARD.get(topic, _HEARD_BY_WORKERS)


def choose_sleepers(sleepers: Iterable[tuple[Sleeper, str]], reasons: Collection[WakeReason]) -> list[Sleeper]:
    """Which sleepers to wake. sleepers: each with its topic."""
    # For work, one of each kind is enough: all of them would claim at once, and most would get nothing.
    chosen: dict[Hashable, Sleeper] = {}
    for sleeper, topic in sleepers:
        if heard := heard_reasons(topic).intersection(reasons):
            chosen.setdefault(topic if heard == {WakeReason.WORK} else sleeper, sleeper)
    return list(chosen.values())


class SelfPipe:
    """Wakes a thread of this process that polls; from any thread, and from a signal handler."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        # `wake` must never block: a signal handler may call it.
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Makes it readable."""
        # If the buffer is full, the thread wakes anyway. If the socket is closed, no thread is left to wake.
        with contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def clear(self) -> bytes:
        """Takes the bytes that were written up to now."""
        # One read takes them all, unless there are thousands, and those only end the next sleep early.
        with contextlib.suppress(OSError):
            return self._reader.recv(4096)
        return b""

    def close(self) -> None:
        """Closes it; `wake` does nothing from now on."""
        self._reader.close()
        self._writer.close()


class Wakeup(ABC):
    """One sleeper. `listen` and `wait` belong to one thread; `wake` may come from any, and from a signal handler."""

    def __init__(self) -> None:
        self._pipe = SelfPipe()

    @abstractmethod
    def listen(self, topic: str) -> None:
        """From now on, events on the topic wake the sleeper."""

    @abstractmethod
    def ignore(self) -> None:
        """From now on, only `wake` wakes the sleeper."""

    def filenos(self) -> list[int]:
        """The descriptors that become readable when the sleeper is woken."""
        return [self._pipe.fileno()]

    def wake(self) -> None:
        """Wakes the sleeper, from inside its process."""
        self._pipe.wake()

    def wait(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        """Sleeps until woken, until one of `also` is readable, or for so many seconds; then stops listening. Returns
        one byte for each `wake`."""
        woken = self.sleep(seconds, also)
        self.ignore()
        return woken

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        """As `wait`, but goes on listening, unless an event woke it."""
        # Not `select`: that fails for descriptors above 1023.
        poll = select.poll()
        for fd in (*self.filenos(), *also):
            poll.register(fd, select.POLLIN)
        woken = poll.poll(max(0.0, seconds) * 1000)
        return self.clear() if woken else b""

    def is_listening(self) -> bool:
        """Whether the next event still wakes it. False if that is not known."""
        return False

    def is_receiving(self) -> bool:
        """Whether events from all hosts surely arrive, so that its sleeper need not look often. False if that is not
        known."""
        return False

    def clear(self) -> bytes:
        """Forgets the wake-ups up to now."""
        return self._pipe.clear()

    def close(self) -> None:
        """Closes the sleeper; nothing wakes it any more."""
        self.ignore()
        self._pipe.close()


class JoinedWakeup(Wakeup):
    """Several sleepers as one."""

    # An error of one store must not keep the others from waking the sleeper.

    def __init__(self, parts: Sequence[Wakeup] = ()) -> None:
        super().__init__()
        self.parts = parts

    def listen(self, topic: str) -> None:
        for part in self.parts:
            with contextlib.suppress(StoreError):
                part.listen(topic)

    def ignore(self) -> None:
        for part in self.parts:
            with contextlib.suppress(StoreError):
                part.ignore()

    def is_listening(self) -> bool:
        return all(part.is_listening() for part in self.parts)

    def is_receiving(self) -> bool:
        # One hears what the others do not, as a board only of this host.
        return any(part.is_receiving() for part in self.parts)

    def filenos(self) -> list[int]:
        return [*super().filenos(), *(fd for part in self.parts for fd in part.filenos())]

    def clear(self) -> bytes:
        # All parts are emptied, also if one fails: a byte left over would end the next sleep at once.
        woken = b""
        for part in self.parts:
            with contextlib.suppress(StoreError):
                woken += part.clear()
        return woken + super().clear()

    def close(self) -> None:
        super().close()
        for part in self.parts:
            with contextlib.suppress(StoreError):
                part.close()


def drain(sock: socket.socket) -> bytes:
    """The bytes that can be read now; does not wait."""
    got = b""
    while True:
        try:
            more = sock.recv(4096)
        except (BlockingIOError, OSError):
            return got
        if not more:
            return got
        got += more
