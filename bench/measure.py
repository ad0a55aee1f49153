"""What a measure is: a function that yields figures, with a limit on its time; and the list of all there are."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from msgspec import Struct

from bench.place import Bench


class Target(Struct, frozen=True):
    """What the figure should be on two cores: at least, below, or within so much of what it is compared with."""

    sign: str
    value: float

    def met(self, value: float, compared: float | None) -> bool | None:
        """None: there is nothing to compare it with."""
        match self.sign:
            case ">=":
                return value >= self.value
            case "<":
                return value < self.value
            case "=":
                return value == self.value
        return None if compared is None else value >= self.value * compared

    def __str__(self) -> str:
        return f"≥ {self.value:.0%}" if self.sign == "share" else f"{self.sign.replace('>=', '≥')} {self.value:,g}"


class Figure(Struct, frozen=True):
    """One number of one run."""

    name: str
    value: float
    unit: str
    against: str = ""
    """The name of the figure that it is shown as a share of: a raw limit, or the same with less in the store."""
    target: Target | None = None


Run = Callable[[Bench], Iterator[Figure]]


class Measure(Struct, frozen=True):
    """limit: seconds after which it is given up."""

    name: str
    limit: float
    run: Run


MEASURES: dict[str, Measure] = {}


def measure(name: str, limit: float) -> Callable[[Run], Run]:
    """Adds the function to the list."""

    def added(run: Run) -> Run:
        MEASURES[name] = Measure(name, limit, run)
        return run

    return added


class TooLong(Exception):
    """The measure did not end within its limit."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong in the main thread when the time is over."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def rate(name: str, count: int, work: Callable[[], object], against: str = "", target: Target | None = None) -> Figure:
    """How many a second, if the work is `count` of them."""
    begin = time.perf_counter()
    work()
    return Figure(name, count / (time.perf_counter() - begin), "/s", against, target)


def at_least(value: float) -> Target:
    """Not below that."""
    return Target(">=", value)


def below(value: float) -> Target:
    """Less than that."""
    return Target("<", value)


def share(value: float) -> Target:
    """Not below that share of the figure that it is compared with."""
    return Target("share", value)


def goal(bench: Bench, **by_kind: Target) -> Target | None:
    """What the figure is to be on this kind of store; None where nothing was set."""
    return by_kind.get(bench.kind)


NONE = Target("=", 0)


def percentile(values: list[float], part: float) -> float:
    """The value below which that part of the values lies; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")
