"""What a process counts of itself. Other parts of it add what they count."""

import os
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import disable_created_metrics

from tarry.metrics.families import gauges
from tarry.metrics.names import METRICS

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

disable_created_metrics()  # type: ignore[no-untyped-call]


class OwnFigures:
    """The figures of this process. Any thread may use it."""

    def __init__(self) -> None:
        self._process = str(os.getpid())
        self._of_python = CollectorRegistry()
        ProcessCollector(registry=self._of_python)
        self._read: dict[str, dict[tuple[str, ...], Callable[[], float]]] = {}

    def show(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Shows a figure of `names`. read: must be quick, and is called in any thread. labels: the values of its
        labels, but for that of `process`."""
        first = (self._process,) if "process" in METRICS[name].labels else ()
        self._read.setdefault(name, {})[*first, *labels] = read

    def collect(self, of_python: bool = True) -> Iterator[Metric]:
        """The figures now. of_python: also those that any process of Python has, such as its memory."""
        if of_python:
            yield from self._of_python.collect()
        for name, reads in list(self._read.items()):
            yield from gauges({name: {labels: read() for labels, read in reads.items()}})


class RequestFigures(OwnFigures):
    """The figures of a process with an HTTP door."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = CollectorRegistry()
        requests, seconds = "tarry_http_requests_total", "tarry_http_request_duration_seconds"
        self._requests = Counter(requests, METRICS[requests].about, METRICS[requests].labels, registry=self._counters)
        self._seconds = Histogram(
            seconds, METRICS[seconds].about, METRICS[seconds].labels, buckets=_BUCKETS, registry=self._counters
        )
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

    def collect(self, of_python: bool = True) -> Iterator[Metric]:
        """As of OwnFigures, and the requests."""
        yield from super().collect(of_python)
        yield from self._counters.collect()
