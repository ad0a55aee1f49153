"""Producers and a worker at work on one store, with an account of what was acknowledged and what ran."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from tarry import App, State
from tarry.errors import StoreError, StoreUnavailable
from tests.servers.redis import until


class Load:
    """At work from entering on; leaving it, all that was acknowledged has run and is settled, or the test fails."""

    def __init__(self, url: str, *, replica: bool = False, producers: int = 2) -> None:
        self.app = App(url, closures=True)
        self.acknowledged: list[int] = []
        self.ran: Counter[int] = Counter()
        self.errors: list[StoreError] = []
        self._stop = threading.Event()
        self._ending = ExitStack()
        task = self.app.task(self.run)
        self._put: Callable[[int], object] = task.using(durable="replica").enqueue if replica else task.enqueue
        self._threads = [threading.Thread(target=self._produce, args=(n, producers)) for n in range(producers)]

    def run(self, number: int) -> None:
        """The job: counts itself."""
        self.ran[number] += 1

    def __enter__(self) -> "Load":
        self._ending.callback(self.app.close)
        self._ending.enter_context(self.app.running(threads=2))
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._ending:
            self._stop.set()
            for thread in self._threads:
                thread.join()
            if kind is None:
                until(lambda: not self.lost, "all that was acknowledged to run")
                until(lambda: not self._left(), "all that was stored to be settled")

    @property
    def lost(self) -> set[int]:
        """What was acknowledged and has not run."""
        return set(self.acknowledged) - self.ran.keys()

    def goes_on(self, more: int = 50) -> None:
        """Returns once more was acknowledged, and all of that has run."""
        had = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= had + more, f"more jobs than {had}: {self.errors[-1:]}")
        new = set(self.acknowledged[had : had + more])
        until(lambda: new <= self.ran.keys(), "jobs to run")

    def _produce(self, number: int, step: int) -> None:
        while not self._stop.is_set():
            number += step
            try:
                self._put(number)
            except StoreError as error:
                self.errors.append(error)
                self._stop.wait(0.01)
            else:
                self.acknowledged.append(number)

    def _left(self) -> bool:
        try:
            tallies = self.app.client.store.counts()
        except StoreUnavailable:
            return True
        return any(tally.state in (State.READY, State.RUNNING) for tally in tallies)
