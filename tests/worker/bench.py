"""What the tests of the engine stand on: an app on a store of its own, and workers that end with the test."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tarry import App, State
from tarry.store.rules.base import Store
from tarry.worker.worker import Worker, WorkerSettings

LIMIT = 30.0
"""Seconds that a busy machine may take for anything here."""


def until(condition: Callable[[], Any], seconds: float = LIMIT) -> None:
    """Waits for the condition to come true, and fails if it does not."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(0.002)


def wait_for(event: threading.Event) -> None:
    """Waits for the event, and fails if it is not set in time."""
    assert event.wait(LIMIT), f"not set within {LIMIT:g} s"


def note(job: Any) -> dict[str, str]:
    """What the job keeps about how its last attempt ended."""
    told: dict[str, str] = json.loads(job.record().note)
    return told


def finished(job: Any) -> State:
    """Its last state."""
    until(lambda: job.state.finished)
    state: State = job.state
    return state


class ThreadWorker(Worker):
    """A worker whose main loop runs in a thread."""

    thread: threading.Thread

    def start(self) -> "ThreadWorker":
        self.thread = threading.Thread(target=self.run, name="test-worker")
        self.thread.start()
        return self

    def end(self) -> None:
        self.stop()
        self.thread.join(LIMIT)
        assert not self.thread.is_alive(), "the worker did not end"


class Bench:
    """An app, and what works for it."""

    def __init__(self, app: App, connect: Callable[[], Store]) -> None:
        self.app = app
        self.connect = connect
        self.gates: list[threading.Event] = []
        self.at_last: list[Callable[[], None]] = []
        """Called when no worker works any more."""
        self._workers: list[ThreadWorker] = []
        self._stores: list[Store] = []

    def store(self) -> Store:
        """A connection that is closed with the test."""
        self._stores.append(self.connect())
        return self._stores[-1]

    def idle(self, *, app: App | None = None, store: Store | None = None, **settings: Any) -> ThreadWorker:
        """A worker that was not started."""
        app = app or self.app
        store = store or self.store()
        return ThreadWorker(store, app.tasks, WorkerSettings(**settings), rules=app.rules, main_thread=False)

    def work(self, *, app: App | None = None, store: Store | None = None, **settings: Any) -> ThreadWorker:
        """A worker that works until the test ends."""
        worker = self.idle(app=app, store=store, **settings).start()
        self._workers.append(worker)
        return worker

    def gate(self) -> threading.Event:
        """Something for tasks to wait for; opened when the test ends, whatever it came to."""
        self.gates.append(threading.Event())
        return self.gates[-1]

    def close(self) -> None:
        for gate in self.gates:
            gate.set()
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.end()
        for action in self.at_last:
            action()
        self.app.close()
        for store in self._stores:
            store.close()
