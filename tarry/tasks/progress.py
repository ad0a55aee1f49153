"""What a running job tells: how far it is, what it prints and logs; and its way from the task to the store."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, SupportsFloat

import msgspec
from msgspec import Struct

from tarry.model.job import Job
from tarry.tasks.output import Output, Tail
from tarry.tasks.shield import shielded

MARK_EVERY = 0.1
"""Seconds between two writes of progress, whatever is said in between."""
MARKED_AT_ONCE = 1_000_000
"""Bytes of output in one such write; what is over waits for the next."""
MAX_MESSAGE = 200
_ROUNDING = 1e-9

Mark = tuple[bytes, int, bytes]


class Progress(Struct, frozen=True):
    """How far a job is: a fraction from 0 to 1, and what it says of it."""

    fraction: float
    message: str = ""


class Reporter(Protocol):
    """A job that runs here, as far as what it tells goes."""

    job: Job
    said: Progress | None
    tail: Tail | None


class _Kept(Struct, array_like=True):
    """As the store keeps it."""

    fraction: float | None
    message: str
    attempt: int = 0
    left_out: int = 0
    text: str | None = None


def checked(fraction: SupportsFloat, message: str) -> Progress:
    """What a task may say; ValueError if the fraction is none. A long message is cut."""
    part = float(fraction) if isinstance(fraction, SupportsFloat) else math.nan
    if not -_ROUNDING <= part <= 1 + _ROUNDING:
        raise ValueError(f"progress({fraction!r}): a fraction from 0 to 1 is needed, such as done / total")
    return Progress(min(max(part, 0.0), 1.0), str(message)[:MAX_MESSAGE])


def written(running: Reporter) -> bytes:
    """As the store keeps it. An earlier attempt's progress stays until there is another; its output does not.

    Half a surrogate pair, as in a badly decoded file name, has no UTF-8.
    """
    said, tail, job = running.said or read(running.job.progress), running.tail, running.job
    fraction, message = (said.fraction, said.message) if said else (None, "")
    message = message.encode("utf-8", "backslashreplace").decode()
    if tail is None:
        return msgspec.json.encode((fraction, message))
    output = tail.now(job.attempt)
    return msgspec.json.encode(_Kept(fraction, message, output.attempt, output.left_out, output.text))


def read(kept: bytes) -> Progress | None:
    """What the store keeps of progress; None if nothing was said, or what stands there is not ours."""
    found = _read(kept)
    return None if found is None or found.fraction is None else Progress(found.fraction, found.message)


def output(kept: bytes) -> Output | None:
    """What the store keeps of the last attempt's output; None if there was none."""
    found = _read(kept)
    return None if found is None or found.text is None else Output(found.text, found.attempt, found.left_out)


def _read(kept: bytes) -> _Kept | None:
    try:
        return msgspec.json.decode(kept, type=_Kept) if kept else None
    except msgspec.DecodeError:
        return None


class Marks:
    """Which running jobs have told something since it was last sent. Told in any thread, sent by the pump's.

    keep_output: bytes of what each prints and logs; 0: none.
    """

    def __init__(self, wake: Callable[[], None], keep_output: int = 0) -> None:
        self.said: dict[Reporter, None] = {}
        self.keep_output = keep_output
        self._wake = wake
        self._woken = False
        self._sent = -math.inf

    def say(self, running: Reporter, progress: Progress) -> None:
        """How far it is."""
        running.said = progress
        self.tell(running)

    def tell(self, running: Reporter) -> None:
        """There is news of it. Does not wait; in the hot case takes no lock."""
        self.said[running] = None
        if not self._woken:
            with shielded:
                self._woken = True
                self._wake()

    def take(self, now: float, ended: Iterable[Reporter]) -> list[Reporter]:
        """Of whom is to be sent now: of all, if the last time is long enough ago, else of those that ended."""
        taken = [running for running in ended if self.said.pop(running, self) is None]
        if now - self._sent < MARK_EVERY:
            return taken
        self._sent = now
        # Before the first is taken, so that who says something from now on wakes the pump again.
        self._woken = False
        others = []
        while self.said:
            others.append(self.said.popitem()[0])
        others.reverse()
        room = sum(1 for _ in itertools.takewhile(lambda size: size <= MARKED_AT_ONCE, _sizes(others)))
        self.put_back(others[max(room, 1) :])
        return taken + others[: max(room, 1)]

    def put_back(self, taken: Iterable[Reporter]) -> None:
        """It could not be sent."""
        for running in taken:
            self.said.setdefault(running)

    def pause(self, now: float) -> float:
        """Seconds until the next may be sent."""
        return max(0.0, self._sent + MARK_EVERY - now)


def marks(taken: Iterable[Reporter]) -> list[Mark]:
    """As the store's `mark` takes it."""
    return [(running.job.id, running.job.epoch, written(running)) for running in taken]


def _sizes(told: Iterable[Reporter]) -> Iterator[int]:
    """How many bytes at most all up to each of them are."""
    return itertools.accumulate(running.tail.most if running.tail is not None else MAX_MESSAGE for running in told)
