"""Virtual time, the events of all processes in their order, and choices drawn from the seed."""

import contextlib
import heapq
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeVar
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from tarry.model.duration import SECOND
from tarry.store.rules import flows, ids
from tarry.store.shared import backoff, deadline
from tarry.tasks.durable import modes
from tarry.tasks.running import current

T = TypeVar("T")
START = 1_800_000_000 * SECOND
"""The store's time at which a run begins."""
MOST_EVENTS = 150_000
"""Of a run; most have some ten thousand."""
STEADY_START = 10_000 * SECOND
LOOK = 0.02
"""Seconds between two looks at a flag."""


class Died(BaseException):
    """Unwinds the code of a process that was killed inside of a call."""


class Violation(BaseException):
    """Something that tarry promises does not hold. No code of tarry catches it."""


class SimulatedProcess(Protocol):
    """Whose event it is."""

    name: str
    is_dead: bool
    frozen_until: int

    def steady(self) -> int:
        """Microseconds of its host's clock that cannot be set."""

    def wall(self) -> int:
        """Microseconds of its host's wall clock."""


class Fiber(greenlet):  # type: ignore[misc]
    """Code of a process that can wait in the middle of a call, while others run."""

    process: SimulatedProcess
    limit: float | None = None
    """Until when its calls of the store may take, as `deadline` keeps it for a thread."""


class Event(NamedTuple):
    """Something that happens at a moment. number: of two at once, the first is the one that was planned first."""

    at: int
    number: int
    process: SimulatedProcess | None
    lane: str
    action: Callable[[], None]


class World:
    """without: names of choices that are left out, as if they had not been drawn."""

    def __init__(self, seed: int, without: frozenset[str] = frozenset()) -> None:
        self.seed, self.without = seed, without
        self.now = START
        self.log: list[str] = []
        self.broken = ""
        """What does not hold, also where the code of a job has caught the error that says so."""
        self.chosen: list[str] = []
        """The names of the choices that did something: those that can be left out."""
        self._hub = getcurrent()
        self._events: list[Event] = []
        self._busy: dict[str, list[Event]] = {}
        """The lanes of processes that are inside of a call, with the events that wait for them."""
        self._waiting: dict[Fiber, None] = {}
        self._count = 0
        self._until = START
        """Up to when `run_until` goes on now."""

    # Choices

    def draw(self, name: str) -> float:
        """A number from 0 to below 1, the same for a name in each run of this seed."""
        digest = blake2b(f"{self.seed}:{name}".encode(), digest_size=7).digest()
        return int.from_bytes(digest, "big") / 2**56

    def between(self, name: str, least: float, most: float) -> float:
        """A number of this range."""
        return least + (most - least) * self.draw(name)

    def happens(self, name: str, chance: float) -> bool:
        """Whether it happens; it does not if it is left out."""
        return self.draw(name) < chance and self.keeps(name)

    def keeps(self, name: str) -> bool:
        """Whether a part of the plan is not left out."""
        if name in self.without:
            return False
        self.chosen.append(name)
        return True

    def one_of(self, name: str, *values: T) -> T:
        """One of these values: what differs from seed to seed, and is the same throughout a run."""
        return values[int(self.draw(f"seed:{name}") * len(values))]

    # Time

    def note(self, text: str) -> None:
        """Adds a line to the log."""
        self.log.append(f"{(self.now - START) / SECOND:11.6f} {text}")

    def at(self, moment: float, process: SimulatedProcess | None, action: Callable[[], None], lane: str = "") -> None:
        """Does it at that moment; never if the process is dead by then. While the process is inside of a call that was
        made in the same lane, it waits: a lane is a thread."""
        self._count += 1
        heapq.heappush(self._events, Event(max(round(moment), self.now), self._count, process, lane, action))

    def after(
        self, seconds: float, process: SimulatedProcess | None, action: Callable[[], None], lane: str = ""
    ) -> None:
        """Does it in so many seconds."""
        self.at(self.now + seconds * SECOND, process, action, lane)

    def run_until(self, moment: int) -> None:
        """Does what is due until then."""
        self._until = moment
        while self._events and self._events[0].at <= moment:
            event = heapq.heappop(self._events)
            if self._count > MOST_EVENTS:
                raise Violation("it is busy for ever")
            self.now = max(self.now, event.at)
            if event.process is None:
                event.action()
            elif event.process.frozen_until > self.now:
                self.at(event.process.frozen_until, event.process, event.action, event.lane)
            elif not event.process.is_dead:
                self._begin(event.process, event)
            if self.broken:
                raise Violation(self.broken)
        self.now = max(self.now, moment)

    def wait(self, seconds: float) -> None:
        """Lets the others go on for so long, in the middle of a call. Died."""
        fiber = getcurrent()
        assert isinstance(fiber, Fiber)
        if fiber.process.is_dead:
            raise Died
        end = round(self.now + seconds * SECOND)
        if end <= self._until and (not self._events or self._events[0].at > end):
            # Nobody does anything meanwhile: no need to leave the call, which costs more.
            self._count, self.now = self._count + 1, max(end, self.now)
            return
        self.after(seconds, None, lambda: self._resume(fiber))
        fiber.limit, deadline._here.end = deadline._here.end, None
        self._waiting[fiber] = None
        self._hub.switch()
        deadline._here.end = fiber.limit
        if fiber.process.is_dead:
            raise Died

    @property
    def current(self) -> SimulatedProcess | None:
        """The process whose code runs now."""
        fiber = getcurrent()
        return fiber.process if isinstance(fiber, Fiber) else None

    def end(self) -> None:
        """Unwinds what is inside of calls."""
        for fiber in list(self._waiting):
            fiber.process.is_dead = True
            self._go_on(fiber)

    def _begin(self, process: SimulatedProcess, event: Event) -> None:
        lane = f"{process.name}/{event.lane}"
        if lane in self._busy:
            self._busy[lane].append(event)
            return
        self._busy[lane] = []
        fiber = Fiber(lambda: self._run(process, lane, event.action))
        fiber.process = process
        fiber.switch()

    def _run(self, process: SimulatedProcess, lane: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Died:
            self.note(f"{process.name} was inside of a call")
        finally:
            for event in self._busy.pop(lane):
                self.at(self.now, event.process, event.action, event.lane)

    def _resume(self, fiber: Fiber) -> None:
        if fiber.process.frozen_until > self.now and not fiber.process.is_dead:
            self.at(fiber.process.frozen_until, None, lambda: self._resume(fiber))
        elif fiber in self._waiting:
            self._go_on(fiber)

    def _go_on(self, fiber: Fiber) -> None:
        self._waiting.pop(fiber)
        fiber.switch()
        deadline._here.end = None


class SimulatedTime:
    """The module `time`, as the process that runs sees it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic_ns(self) -> int:
        return self._steady() * 1000

    def clock_gettime_ns(self, clock: int) -> int:
        return self._steady() * 1000

    def monotonic(self) -> float:
        return self._steady() / SECOND

    perf_counter = monotonic

    def time_ns(self) -> int:
        process = self._world.current
        return (self._world.now if process is None else process.wall()) * 1000

    def time(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._world.wait(seconds)

    def _steady(self) -> int:
        process = self._world.current
        return self._world.now - START + STEADY_START if process is None else process.steady()


class SimulatedFlag:
    """In place of a thread's `Flag`: who waits for it lets the others go on."""

    def __init__(self, world: World) -> None:
        self._world, self._is_set = world, False

    def set(self) -> None:
        self._is_set = True

    def wait(self, seconds: float) -> bool:
        end = self._world.now + seconds * SECOND
        while not self._is_set and self._world.now < end:
            self._world.wait(min(LOOK, (end - self._world.now) / SECOND))
            running = current.get()
            if running is not None and running.interrupt is not None:
                raise running.interrupt
        is_set, self._is_set = self._is_set, False
        return is_set


def _users_of_time() -> list[tuple[dict[str, Any], str]]:
    """The modules of tarry that have the real module `time`, and under which name."""
    return [
        (vars(module), name)
        for key, module in list(sys.modules.items())
        if key == "tarry" or key.startswith("tarry.")
        for name in ("time", "clock")
        if vars(module).get(name) is time
    ]


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Inside, tarry's code has the time of the world, and the same random numbers for the same seed."""
    simulated, before = SimulatedTime(world), random.getstate()
    names = _users_of_time()
    real_random = flows._random
    logging.disable(logging.CRITICAL)
    try:
        for scope, name in names:
            scope[name] = simulated
        random.seed(world.seed)
        backoff._chance.seed(world.seed)
        ids._random.seed(world.seed)
        ids._last_ms = ids._last_tail = 0
        flows._random = random.Random(world.seed)  # type: ignore[assignment]
        with patch.object(modes, "Flag", lambda: SimulatedFlag(world)):
            yield
        late = [scope["__name__"] for scope, _ in _users_of_time()]
        assert not late, f"import these before a run, else they have the real time: {late}"
    finally:
        for scope, name in names:
            scope[name] = time
        flows._random = real_random
        ids._random.seed()
        ids._last_ms = ids._last_tail = 0
        random.setstate(before)
        backoff._chance.seed()
        logging.disable(logging.NOTSET)
