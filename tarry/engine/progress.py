"""How far a job says that it is: what is said, and its way from the task that says it to the store."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, SupportsFloat

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from tarry.engine.running import Running

MARK_EVERY = 0.1
"""Seconds between two writes of progress, whatever is said in between."""
MAX_MESSAGE = 200
_ROUNDING = 1e-9

Mark = tuple[bytes, int, bytes]


class Progress(Struct, frozen=True):
    """How far a job is: a fraction from 0 to 1, and what it says of it."""

    fraction: float
    message: str = ""


def checked(fraction: SupportsFloat, message: str) -> Progress:
    """What a task may say; ValueError if the fraction is none. A long message is cut."""
    part = float(fraction) if isinstance(fraction, SupportsFloat) else math.nan
    if not -_ROUNDING <= part <= 1 + _ROUNDING:
        raise ValueError(f"progress({fraction!r}): a fraction from 0 to 1 is needed, such as done / total")
    return Progress(min(max(part, 0.0), 1.0), str(message)[:MAX_MESSAGE])


def written(progress: Progress) -> bytes:
    """As the store keeps it. Half a surrogate pair, as in a badly decoded file name, has no UTF-8."""
    message = progress.message.encode("utf-8", "backslashreplace").decode()
    return msgspec.json.encode((progress.fraction, message))


def read(kept: bytes) -> Progress | None:
    """What the store keeps; None if nothing was said, or what stands there is not ours."""
    try:
        return Progress(*msgspec.json.decode(kept, type=tuple[float, str])) if kept else None
    except msgspec.DecodeError:
        return None


class Marks:
    """What running jobs said since it was last sent: the newest of each. Said in any thread, sent by the pump's."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.said: dict[Running, Progress] = {}
        self._wake = wake
        self._woken = False
        self._sent = -math.inf

    def say(self, running: "Running", progress: Progress) -> None:
        """Does not wait, and takes no lock: an interruption may hit at any point."""
        self.said[running] = progress
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self, now: float, ended: "Iterable[Running]") -> "dict[Running, Progress]":
        """What is to be sent now: all, if the last time is long enough ago, else what those said that ended."""
        if now - self._sent < MARK_EVERY:
            return {running: self.said.pop(running) for running in ended if running in self.said}
        self._sent = now
        # Before the first is taken, so that who says something from now on wakes the pump again.
        self._woken = False
        taken = {}
        while self.said:
            running, progress = self.said.popitem()
            taken[running] = progress
        return taken

    def put_back(self, taken: "Mapping[Running, Progress]") -> None:
        """It could not be sent; what was said since then is newer."""
        for running, progress in taken.items():
            self.said.setdefault(running, progress)

    def pause(self, now: float) -> float:
        """Seconds until the next may be sent."""
        return max(0.0, self._sent + MARK_EVERY - now)


def marks(taken: "Mapping[Running, Progress]") -> list[Mark]:
    """As the store's `mark` takes it."""
    return [(running.job.id, running.job.epoch, written(progress)) for running, progress in taken.items()]
