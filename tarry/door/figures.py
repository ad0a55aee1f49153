"""The figures that Prometheus reads: those of the store, and those of this server process."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import filterfalse, islice

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.metrics import disable_created_metrics

from tarry.door.store_look import StoreLook
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.history.buckets import middle_of
from tarry.model.history.counting import KINDS
from tarry.model.job import State
from tarry.store.base import Tally
from tarry.store.history.sums import Place, Sums, decode

# More would be a burden for whoever keeps them.
MOST_QUEUES = 1000
"""Queues that have figures of their own."""
_LIMITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds that jobs wait or run."""
_HELP = {
    PUT: "New jobs",
    DONE: "Jobs that were done",
    FAILED: "Attempts that failed and after which their job comes again",
    DEAD: "Jobs that ended dead",
    CANCELLED: "Jobs that were cancelled",
    EXPIRED: "Jobs that did not start in time",
}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

disable_created_metrics()  # type: ignore[no-untyped-call]


class DoorFigures:
    """What this process counts of itself. Other parts of it add what they count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._read: list[Callable[[], Metric]] = []
        self._process = str(os.getpid())
        self._requests = Counter(
            "tarry_http_requests",
            "Requests that were answered",
            ("process", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tarry_http_request_seconds",
            "From a request's head to its answer's",
            ("process", "method"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count_request(self, method: str, status: int, began: float) -> None:
        """Counts a request. method: the name of the API's method; empty: there is none. began: by perf_counter."""
        counted = self._counted.get((method, status))
        if counted is None:
            # Looking them up by their labels takes longer than counting; there are few of them.
            counted = self._counted[method, status] = (
                self._requests.labels(self._process, method, str(status)),
                self._seconds.labels(self._process, method),
            )
        counted[0].inc()
        counted[1].observe(time.perf_counter() - began)

    def add_gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Shows a figure that goes up and down. read: must be quick, and is called in any thread."""

        def family() -> Metric:
            found = GaugeMetricFamily(name, about, labels=("process",))
            found.add_metric((self._process,), read())
            return found

        self._read.append(family)

    def add_counter(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Shows a count that only grows; its name without `_total`. read: as of a gauge."""

        def family() -> Metric:
            found = CounterMetricFamily(name, about, labels=("process",))
            found.add_metric((self._process,), read())
            return found

        self._read.append(family)

    def collect(self) -> Iterator[Metric]:
        """The figures now."""
        yield from self.registry.collect()
        for read in list(self._read):
            yield read()


class Scrape(CollectorRegistry):
    """What one reader gets. look: None if the store cannot be read. totals: what was ever counted. allows: whether the
    reader may see that queue."""

    def __init__(
        self,
        figures: DoorFigures,
        look: StoreLook | None,
        totals: Mapping[Place, bytes],
        allows: Callable[[str], bool],
    ) -> None:
        super().__init__()
        self._figures, self._look, self._totals, self._allows = figures, look, totals, allows

    def collect(self) -> Iterator[Metric]:
        """All figures, as families of samples."""
        info = InfoMetricFamily("tarry_build", "The version of tarry")
        info.add_metric((), {"version": version("tarry")})
        yield info
        yield GaugeMetricFamily("tarry_store_up", "Whether the store could be read", float(self._look is not None))
        yield from self._figures.collect()
        if self._look is not None:
            yield from _queue_families(self._look, self._allows)
            yield from _pool_families(self._look)
            yield from _history_families(self._totals, self._allows)


def _queue_families(look: StoreLook, allows: Callable[[str], bool]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("tarry_jobs", "Jobs in the store", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "tarry_oldest_ready_seconds", "For how long the oldest ready job has been due", labels=("queue",)
    )
    paused = GaugeMetricFamily("tarry_queue_paused", "Whether the queue is paused", labels=("queue",))
    names = sorted(filterfalse(is_own_queue, {tally.queue for tally in look.counts} | look.paused.keys()))
    by_queue = defaultdict[str, list[Tally]](list)
    for tally in look.counts:
        by_queue[tally.queue].append(tally)
    for queue in islice(filter(allows, names), MOST_QUEUES):
        tallies = by_queue.get(queue, ())
        for state in State:
            jobs.add_metric((queue, state.value), sum(tally.count for tally in tallies if tally.state is state))
        ready = [tally.oldest for tally in tallies if tally.state is State.READY]
        # 0 where none is ready: a series that comes and goes would be no reason for an alert to end.
        oldest.add_metric((queue,), max(0, look.now - min(ready)) / SECOND if ready else 0)
        paused.add_metric((queue,), float(look.paused.get(queue, False)))
    yield from (jobs, oldest, paused)


def _pool_families(look: StoreLook) -> Iterable[Metric]:
    labels = ("host", "pid", "pool")
    workers = GaugeMetricFamily("tarry_workers", "Workers that are ready to take jobs", labels=labels)
    busy = GaugeMetricFamily("tarry_workers_busy", "Workers that run a job now", labels=labels)
    memory = GaugeMetricFamily("tarry_workers_memory_bytes", "Memory of the workers", labels=labels)
    processed = CounterMetricFamily("tarry_attempts", "Attempts of the present workers", labels=labels)
    failed = CounterMetricFamily("tarry_attempts_failed", "Of these, the ones that failed", labels=labels)
    for host in look.hosts:
        for pool in host.pools if host.is_alive else ():
            where = (host.name, str(host.pid), pool.name)
            workers.add_metric(where, pool.workers)
            busy.add_metric(where, pool.busy)
            memory.add_metric(where, pool.memory)
            processed.add_metric(where, pool.processed)
            failed.add_metric(where, pool.failed)
    return workers, busy, memory, processed, failed


def _history_families(totals: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Iterator[Metric]:
    """What was ever counted: by queue and task; times by queue only, as each has a series for each of its limits."""
    cells = {place: decode(cell) for place, cell in sorted(totals.items()) if allows(place.queue)}
    by_queue = defaultdict[str, Sums](Sums)
    for place, sums in cells.items():
        by_queue[place.queue].add(sums)
    for kind, about in _HELP.items():
        family = CounterMetricFamily(f"tarry_jobs_{KINDS[kind]}", about, labels=("queue", "task"))
        for place, sums in cells.items():
            family.add_metric((place.queue, place.task), sums.kinds.get(kind, 0))
        yield family
    waited = HistogramMetricFamily(
        "tarry_job_wait_seconds", "From when jobs were due to their start", labels=("queue",)
    )
    ran = HistogramMetricFamily("tarry_job_run_seconds", "How long attempts ran", labels=("queue",))
    for queue, sums in by_queue.items():
        waited.add_metric((queue,), *_limits_and_sum(sums.waited))
        ran.add_metric((queue,), *_limits_and_sum(sums.ran))
    yield from (waited, ran)


def _limits_and_sum(buckets: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """How many durations are within each of _LIMITS, and their sum in seconds; both to within an eighth."""
    seconds = [(middle_of(bucket) / SECOND, number) for bucket, number in buckets.items()]
    within = [(str(limit), sum(number for middle, number in seconds if middle <= limit)) for limit in _LIMITS]
    total = sum(number for _, number in seconds)
    return [*within, ("+Inf", total)], sum(middle * number for middle, number in seconds)
