"""What the cases of the suite share."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from django.test import TransactionTestCase

from tarry.django import compat
from tarry.django.app import close_apps
from tarry.store.rules.base import Query


class StoreCase(TransactionTestCase):
    """Without a transaction around each test, so that what is enqueued can be run. The store is empty at first."""

    def setUp(self) -> None:
        super().setUp()
        store = self.app.client.store
        while jobs := store.find(Query(limit=100)):
            for job in jobs:
                self.app.client.cancel(job.id)
                assert self.app.client.forget(job.id)

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        close_apps()

    @property
    def backend(self) -> Any:
        return compat.task_backends["default"]

    @property
    def app(self) -> Any:
        return self.backend.app

    def run_jobs(self) -> None:
        """Runs what is due until nothing is left."""
        self.app.drain(timeout=30)

    def done(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a job that has run."""
        result = task.enqueue(*args, **kwargs)
        self.run_jobs()
        result.refresh()
        return result


@contextlib.contextmanager
def heard(*signals: Any) -> Iterator[list[Any]]:
    """What is sent meanwhile: the signal, the status of the result, the kind of the error that is being handled."""
    said: list[Any] = []

    def receive(signal: Any, sender: Any, task_result: Any, **more: Any) -> None:
        error = sys.exc_info()[0]
        said.append((names[signal], str(task_result.status), error and error.__name__, sender.__name__))

    names = {
        compat.task_enqueued: "enqueued", compat.task_started: "started", compat.task_finished: "finished",
    }  # fmt: skip
    for signal in signals or names:
        signal.connect(receive, weak=False)
    try:
        yield said
    finally:
        for signal in signals or names:
            signal.disconnect(receive)
