"""Where the stories happen: each gets its turn when it asked for it, and what arrives is told as it does."""

import contextlib
import heapq
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

from examples.shop import account
from examples.shop.account import Account, Promise
from examples.shop.clock import Clock
from examples.shop.server import Arrival, Server
from tarry import App
from tarry.errors import TarryError

LOOK = 0.25
"""Seconds between two looks whether all jobs have ended."""


class Story:
    """One of them: what it tells, and what it expects."""

    def __init__(self, name: str, clock: Clock, say: Callable[[str], object]) -> None:
        self.name, self.clock, self._say = name, clock, say
        self.promises: dict[str, Promise] = {}
        self._jobs: list[Any] = []
        self._faults: list[str] = []

    def tell(self, moment: float, text: str, right: object = True, late: float | None = None) -> None:
        """What happens at that moment. right: whether it went as it should."""
        after = "" if late is None else f"{1000 * late:+.0f} ms"
        self._say(f"{self.name:<12}{self.clock.spoken(moment):<14}{after:>9}  {text}")
        if not right:
            self._faults.append(f"this did not work: {text}")

    def fails(self, why: str) -> None:
        """It cannot go on."""
        self._faults.append(why)

    def expect(self, job: Any, what: str, *moments: float) -> None:
        """The job's attempts arrive at these moments; without any, none does."""
        self.promises[job.id] = Promise(what, self.clock, moments, {})
        self._jobs.append(job)

    def arrived(self, arrival: Arrival, promise: Promise) -> None:
        """Notes it, and tells it."""
        again = arrival.attempt in promise.arrivals
        promise.take(arrival)
        moment = promise.moment(arrival.attempt)
        text = f"{promise.what}{', again, since its worker died' if again else ''}: {arrival.answer}"
        if moment is None:
            self.tell(0, f"{text} (this was not planned)")
        else:
            late = self.clock.late(moment, arrival.at) if again else promise.late(arrival.attempt)
            self.tell(moment, text, late=late)

    def over(self) -> bool:
        """Nothing of it will arrive any more."""
        self._jobs = [job for job in self._jobs if not job.state.finished]
        return not self._jobs

    def account(self) -> Account:
        """The sum of it."""
        return account.of(self.name, list(self.promises.values()), self._faults)


class Stage:
    """Of one run. What arrives is told apart by the job's id, which is the request's `webhook-id`."""

    def __init__(self, app: App, server: Server, say: Callable[[str], object]) -> None:
        self._app, self._server, self._say = app, server, say
        self._stories: list[Story] = []
        self._acts: list[tuple[float, int]] = []
        """When which story goes on, the next one first."""
        self._plots: list[Iterator[float]] = []

    def task(self, name: str) -> Any:
        """The HTTP task of that name; UnknownTask."""
        return self._app.named(name)

    def begin(self, name: str, clock: Clock, plot: "Callable[[Stage, Story], Iterator[float]]") -> None:
        """A story, from its first act on."""
        story = Story(name, clock, self._say)
        heapq.heappush(self._acts, (clock.at(0).timestamp(), len(self._stories)))
        self._stories.append(story)
        self._plots.append(plot(self, story))

    def play(self, until: float) -> list[Account]:
        """To the end of all stories, or until then (seconds since the epoch)."""
        while time.time() < until and not self._over():
            self._act()
            self._hear()
        return [story.account() for story in self._stories]

    def _over(self) -> bool:
        return not self._acts and all(story.over() for story in self._stories) and self._server.arrivals.empty()

    def _act(self) -> None:
        """Whose moment has come, goes on."""
        while self._acts and self._acts[0][0] <= time.time():
            _, number = heapq.heappop(self._acts)
            story = self._stories[number]
            try:
                moment = next(self._plots[number], None)
            except TarryError as error:
                story.fails(str(error))
                continue
            if moment is not None:
                heapq.heappush(self._acts, (story.clock.at(moment).timestamp(), number))

    def _hear(self) -> None:
        """What arrives until the next act, or until it is time to look whether all is over."""
        pause = min(self._acts[0][0] - time.time(), LOOK) if self._acts else LOOK
        with contextlib.suppress(queue.Empty):
            arrival = self._server.arrivals.get(timeout=max(pause, 0.001))
            for story in self._stories:
                if promise := story.promises.get(arrival.job):
                    story.arrived(arrival, promise)
