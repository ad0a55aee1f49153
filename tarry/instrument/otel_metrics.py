"""OpenTelemetry: the metrics of enqueues and attempts, and those of the whole store from whoever has the keeper.

The names are those of OpenTelemetry's semantic conventions for messaging, where these have one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tarry.app import App
from tarry.client.handle import Handle
from tarry.errors import StoreError
from tarry.metrics.store_overview import CachedOverview, OverviewStore, StoreOverview
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import State
from tarry.model.retry import qualified_name
from tarry.store.rules.base import Tally
from tarry.tasks.new_job import NewJob
from tarry.tasks.running import CurrentJob
from tarry.worker.run import attempt_report

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 60.0, 300.0, 1800.0)
"""Those of the conventions, and longer ones: jobs may take an hour."""
MOST_QUEUES = 500
"""Queues that have figures of their own. The others have none."""

Attributes = Mapping[str, str]


class MessagingMeters:
    """The middleware for enqueues and for runs."""

    def __init__(self, meter: Meter) -> None:
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Attempts that ran.")
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long an enqueue took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long an attempt took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def send(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        """Middleware of an enqueue."""
        if job.is_async:
            return self._asend(job, call_next)
        with self._measure_publish(job):
            handle: Handle[Any] = call_next(job)
        return handle

    def run(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        """Middleware of a run."""
        if job.is_async:
            return self._arun(job, call_next)
        began = time.perf_counter()
        try:
            value = call_next(job)
        except BaseException as error:
            self._ran(job, began, attempt_report.failure_error(job.running, None, error))
            raise
        self._ran(job, began, attempt_report.failure_error(job.running, value, None))
        return value

    async def _asend(self, job: NewJob, call_next: Callable[[NewJob], Any]) -> Any:
        with self._measure_publish(job):
            return await call_next(job)

    async def _arun(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        began = time.perf_counter()
        try:
            value = await call_next(job)
        except BaseException as error:
            self._ran(job, began, attempt_report.failure_error(job.running, None, error))
            raise
        self._ran(job, began, attempt_report.failure_error(job.running, value, None))
        return value

    @contextmanager
    def _measure_publish(self, job: NewJob) -> Iterator[None]:
        began = time.perf_counter()
        attributes = _attributes("send", job.task, job.queue)
        try:
            yield
        except BaseException as error:
            attributes["error.type"] = qualified_name(type(error))
            raise
        finally:
            self._sent.add(1, attributes)
            self._operation.record(time.perf_counter() - began, attributes)

    def _ran(self, job: CurrentJob, began: float, failure: BaseException | None) -> None:
        attributes = _attributes("process", job.task, job.queue)
        if failure is not None:
            attributes["error.type"] = qualified_name(type(failure))
        self._consumed.add(1, attributes)
        self._process.record(time.perf_counter() - began, attributes)


def _attributes(operation: str, task: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "tarry",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "tarry.task": task,
    }


class StoreGauges:
    """Observable gauges of the whole store. Every process with a keeper shows the same: take the greatest of them."""

    def __init__(self, app: App, meter: Meter) -> None:
        self._app = app
        self._opened: tuple[OverviewStore, CachedOverview] | None = None
        meter.create_observable_gauge(
            "tarry.queue.depth", [self._depth], "{job}", "Jobs in the store, by their queue and state."
        )
        meter.create_observable_gauge(
            "tarry.queue.oldest", [self._oldest], "s", "For how long the oldest ready job of a queue has been due."
        )

    def start(self) -> None:
        """Shows them from now on. Only a process with a keeper does, else each worker would read the whole store."""
        if self._opened is None:
            store = OverviewStore(self._app.connection)
            self._opened = store, CachedOverview(store)

    def close(self) -> None:
        """Shows them no more."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def _depth(self, options: CallbackOptions) -> Iterable[Observation]:
        for queue, tallies in self._by_queue(self._read()).items():
            for state in State:
                number = sum(tally.count for tally in tallies if tally.state is state)
                yield Observation(number, {"messaging.destination.name": queue, "tarry.state": state.value})

    def _oldest(self, options: CallbackOptions) -> Iterable[Observation]:
        look = self._read()
        for queue, tallies in self._by_queue(look).items():
            ready = [tally.oldest for tally in tallies if tally.state is State.READY]
            age = max(0, look.now - min(ready)) / SECOND if look is not None and ready else 0.0
            yield Observation(age, {"messaging.destination.name": queue})

    def _read(self) -> StoreOverview | None:
        opened = self._opened
        try:
            return opened[1].read() if opened is not None else None
        except StoreError:
            # The last figures would look as if they were true.
            return None

    @staticmethod
    def _by_queue(look: StoreOverview | None) -> Mapping[str, list[Tally]]:
        found: dict[str, list[Tally]] = {}
        for tally in sorted(look.counts, key=lambda tally: tally.queue) if look is not None else ():
            if not is_own_queue(tally.queue) and (tally.queue in found or len(found) < MOST_QUEUES):
                found.setdefault(tally.queue, []).append(tally)
        return found
