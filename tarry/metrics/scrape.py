"""All figures, for one reader.

What was ever counted, as counters and histograms. The store's history has it: a scrape counts nothing itself.

The figures of queues, workers, schedules and endpoints, as the store has them.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import nlargest
from importlib.metadata import version
from itertools import accumulate, filterfalse
from math import ceil

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest

from tarry.metrics.families import gauges, histogram, info
from tarry.metrics.host_families import HostFigures, host_families
from tarry.metrics.names import OTHER
from tarry.metrics.process_figures import OwnFigures
from tarry.metrics.store_figures import StoreFigures, StoreReading
from tarry.metrics.store_overview import StoreOverview
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.history.buckets import LAST, middle_of
from tarry.model.history.counting import KINDS
from tarry.model.job import State
from tarry.store.queries.hosts import Host
from tarry.store.rules.base import Tally
from tarry.store.rules.history.error_groups import decode_group
from tarry.store.rules.history.sums import OTHERS, Place, Sums, decode


def _all(queue: str) -> bool:
    return True


class Scrape(CollectorRegistry):
    """What one reader gets. host: None if this process has no master. allows: whether the reader may see that queue,
    or `*`, all of them. of_python: see `OwnFigures.collect`."""

    def __init__(
        self,
        own: OwnFigures,
        reading: StoreReading,
        host: HostFigures | None = None,
        *,
        allows: Callable[[str], bool] = _all,
        of_python: bool = True,
    ) -> None:
        super().__init__()
        self._own, self._reading, self._host = own, reading, host
        self._allows, self._of_python = allows, of_python

    def collect(self) -> Iterator[Metric]:
        """All figures, as families of samples."""
        yield info("tarry_build_info", {"version": version("tarry")})
        # What processes do, and where stores are, is nothing for those who may see only some queues.
        sees_all = self._allows("*")
        if sees_all:
            yield from self._own.collect(self._of_python)
        if self._host is not None and sees_all:
            yield from host_families(self._host)
        yield from store_families(self._reading, shows_urls=sees_all)
        # While the store is away, its last figures would look as if they were true.
        if (figures := self._reading.figures) is not None:
            yield from queue_families(figures.look, self._allows)
            yield from history_families(figures.totals, self._allows)
            yield from need_families(figures, self._allows)
            yield from error_families(figures.errors, self._allows)
            yield from circuit_families(figures, self._allows)
            if sees_all:
                yield from host_count_families(figures.look)
                yield from schedule_families(figures)

    def encode(self, accept: str) -> tuple[bytes, str]:
        """The figures as text, and its media type. accept: the header of the request; OpenMetrics where it asks for
        it."""
        encode, media_type = choose_encoder(accept)
        return encode(self), media_type

    def text(self) -> bytes:
        """The figures as node_exporter reads them from a file."""
        return generate_latest(self)


_OUTCOMES = (DONE, DEAD, CANCELLED, EXPIRED)
_LIMITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds that jobs wait or run."""
_NAMES = (*map(str, _LIMITS), "+Inf")
# Once for all scrapes: of hundreds of histograms each has up to 142 buckets.
_SECONDS = [middle_of(bucket) / SECOND for bucket in range(LAST + 1)]
_LIMIT_OF = [bisect_left(_LIMITS, seconds) for seconds in _SECONDS]

MOST_ERRORS = 50
"""Groups of errors that have a series."""
Named = Mapping[tuple[str, str], Sums]


def history_families(totals: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Iterator[Metric]:
    """The store bounds how many pairs of queue and task have sums of their own: `sums.MOST_NAMES`."""
    cells = _by_names(totals, allows)
    yield from _counters(cells)
    waited = _together((queue, sums) for (queue, _), sums in cells.items())
    yield histogram(
        "tarry_job_wait_seconds", {(queue,): _limits_and_sum(sums.waited) for queue, sums in waited.items()}
    )
    ran = {names: _limits_and_sum(sums.ran) for names, sums in cells.items()}
    yield histogram("tarry_job_duration_seconds", ran)
    pushed = _together((task, sums) for (_, task), sums in cells.items() if sums.statuses)
    attempts = {(task, status): number for task, sums in pushed.items() for status, number in _classes(sums).items()}
    yield from gauges({"tarry_push_attempts_total": attempts})


def error_families(cells: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Iterator[Metric]:
    """Of the groups of errors those that were seen last."""
    found = [(place, decode_group(cell)) for place, cell in cells.items() if place.task and allows(place.queue)]
    newest = nlargest(MOST_ERRORS, found, key=lambda one: one[1].last)
    yield from gauges({"tarry_errors_total": {(place.queue, place.task): group.count for place, group in newest}})


def _by_names(totals: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Named:
    """The sums by queue and task, as labels have them."""
    found = defaultdict[tuple[str, str], Sums](Sums)
    for place, cell in sorted(totals.items()):
        if allows(place.queue) and (place.task or place.queue == OTHERS):
            # A queue or a task may really be named so: then these are added up.
            found[place.queue or OTHER, place.task or OTHER].add(decode(cell))
    return found


def _counters(cells: Named) -> Iterator[Metric]:
    def of(kind: int) -> dict[tuple[str, ...], float]:
        return {names: sums.kinds.get(kind, 0) for names, sums in cells.items()}

    outcomes = {(*names, KINDS[kind]): number for kind in _OUTCOMES for names, number in of(kind).items()}
    yield from gauges(
        {
            "tarry_jobs_enqueued_total": of(PUT),
            "tarry_jobs_total": outcomes,
            "tarry_job_retries_total": of(FAILED),
        }
    )


def _together(named: Iterable[tuple[str, Sums]]) -> Mapping[str, Sums]:
    found = defaultdict[str, Sums](Sums)
    for name, sums in named:
        found[name].add(sums)
    return found


def _classes(sums: Sums) -> Mapping[str, int]:
    """How many answers there were of each class of status. Those that often come are there from the start, so that
    the first failure is an increase, too."""
    found = dict.fromkeys(("2xx", "4xx", "5xx"), 0)
    for status, number in sums.statuses.items():
        name = f"{status // 100}xx" if 100 <= status < 600 else OTHER
        found[name] = found.get(name, 0) + number
    return found


def _limits_and_sum(buckets: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """How many durations are within each of _LIMITS, and their sum in seconds; both to within an eighth."""
    counts = [0] * (len(_LIMITS) + 1)
    for bucket, number in buckets.items():
        counts[_LIMIT_OF[bucket]] += number
    return list(zip(_NAMES, accumulate(counts), strict=True)), sum(
        _SECONDS[bucket] * number for bucket, number in buckets.items()
    )


# More would be a burden for whoever keeps them.
MOST_QUEUES = 500
"""Queues that have figures of their own, by name; all others are the queue `other` together."""
MOST_NAMED = 500
"""Schedules, and HTTP tasks, that have figures of their own. The others have none."""

QueueFilter = Callable[[str], bool]
"""Whether the reader may see a queue."""


def store_families(reading: StoreReading, shows_urls: bool) -> Iterator[Metric]:
    """Whether each store answers, and how fast. shows_urls: by their URLs; else by their numbers, from 1."""
    labels = {url: url if shows_urls else str(number) for number, url in enumerate(reading.pings, 1)}
    pings = {labels[url]: seconds for url, seconds in reading.pings.items()}
    yield from gauges(
        {
            "tarry_store_up": {(url,): float(seconds is not None) for url, seconds in pings.items()},
            "tarry_store_ping_seconds": {(url,): seconds for url, seconds in pings.items() if seconds is not None},
        }
    )


def queue_families(look: StoreOverview, allows: QueueFilter) -> Iterator[Metric]:
    """Depth, age and workers of each queue."""
    by_queue = defaultdict[str, list[Tally]](list)
    for tally in look.counts:
        by_queue[tally.queue].append(tally)
    label = _queue_labels(look, allows)
    depth = defaultdict[tuple[str, ...], float](float)
    oldest, workers, paused = dict[tuple[str], float](), dict[tuple[str], float](), dict[tuple[str], float]()
    for name, queue in label.items():
        tallies = by_queue.get(name, ())
        for state in State:
            depth[queue, state.value] += sum(tally.count for tally in tallies if tally.state is state)
        # 0 where none is ready: a series that comes and goes would be no reason for an alert to end.
        oldest[queue,] = max(oldest.get((queue,), 0.0), _oldest(tallies, look.now))
        paused[queue,] = max(paused.get((queue,), 0.0), float(look.paused.get(name, False)))
        workers[queue,] = max(workers.get((queue,), 0.0), _workers_for(name, look.hosts))
    yield from gauges(
        {
            "tarry_queue_depth": depth,
            "tarry_oldest_seconds": oldest,
            "tarry_queue_paused": paused,
            "tarry_queue_workers": workers,
        }
    )


DONE_WITHIN = 60.0
"""Seconds within which what is ready should be done."""


def need_families(figures: StoreFigures, allows: QueueFilter) -> Iterator[Metric]:
    """How many jobs of each queue should run at once. Nothing while a part of the store is away: whoever adds hosts by
    this must not take some away then."""
    if not figures.totals:
        return
    look, label = figures.look, _queue_labels(figures.look, allows)
    running, seconds = dict.fromkeys(label.values(), 0), dict.fromkeys(label.values(), 0.0)
    means = _mean_durations(_by_names(figures.totals, allows))
    for tally in look.counts:
        queue = label.get(tally.queue, "")
        if queue and tally.state is State.RUNNING:
            running[queue] += tally.count
        elif queue and tally.state is State.READY and not look.paused.get(tally.queue, False):
            # Nothing is known of a queue of which no attempt has ended: one worker has to begin.
            seconds[queue] += tally.count * means[queue] if queue in means else DONE_WITHIN
    needed = {(queue,): running[queue] + ceil(seconds[queue] / DONE_WITHIN) for queue in running}
    yield from gauges({"tarry_queue_workers_needed": needed})


def _mean_durations(cells: Named) -> Mapping[str, float]:
    """Seconds that attempts ran, by queue; without those of which none has ended."""
    ran = _together((queue, sums) for (queue, _), sums in cells.items())
    return {queue: _limits_and_sum(sums.ran)[1] / sum(sums.ran.values()) for queue, sums in ran.items() if sums.ran}


def host_count_families(look: StoreOverview) -> Iterator[Metric]:
    """How many masters there are."""
    alive = sum(host.is_alive for host in look.hosts)
    yield from gauges({"tarry_hosts": {("alive",): alive, ("lost",): len(look.hosts) - alive}})


def schedule_families(figures: StoreFigures) -> Iterator[Metric]:
    """When each schedule ticked last, and when it is to tick next."""
    records = {name: figures.schedules[name] for name in sorted(figures.schedules)[:MOST_NAMED]}
    names = [(name, (name,)) for name in records]
    yield from gauges(
        {
            "tarry_schedule_last_run_timestamp_seconds": {at: records[name].last or 0 for name, at in names},
            "tarry_schedule_next_run_timestamp_seconds": {at: records[name].next or 0 for name, at in names},
            "tarry_schedule_paused": {at: float(records[name].paused) for name, at in names},
            "tarry_schedule_missed_ticks": {at: figures.missed.get(name, 0) for name, at in names},
        }
    )
    # Sums: people may put very many.
    stored = figures.stored
    yield from gauges(
        {
            "tarry_stored_schedules": {(): stored.number},
            "tarry_stored_schedules_missed": {(): stored.missed_now},
            "tarry_stored_schedules_missed_ticks_total": {(): stored.missed_ticks},
            "tarry_stored_schedules_last_run_timestamp_seconds": {(): stored.last},
            "tarry_stored_schedules_next_run_timestamp_seconds": {(): stored.next},
        }
    )


def circuit_families(figures: StoreFigures, allows: QueueFilter) -> Iterator[Metric]:
    """Whether each endpoint is sent what is for it."""
    seen = sorted(name for name, circuit in figures.circuits.items() if allows(circuit.queue))
    yield from gauges(
        {"tarry_push_circuit_open": {(name,): float(figures.circuits[name].is_open) for name in seen[:MOST_NAMED]}}
    )


def _labels(names: Collection[str]) -> Mapping[str, str]:
    """The label of each queue."""
    return {name: name if number < MOST_QUEUES else OTHER for number, name in enumerate(names)}


def _queue_labels(look: StoreOverview, allows: QueueFilter) -> Mapping[str, str]:
    """The label of each queue that has jobs, or was paused, by its name."""
    names = {tally.queue for tally in look.counts} | look.paused.keys()
    return _labels(sorted(filter(allows, filterfalse(is_own_queue, names))))


def _oldest(tallies: Collection[Tally], now: int) -> float:
    ready = [tally.oldest for tally in tallies if tally.state is State.READY]
    return max(0, now - min(ready)) / SECOND if ready else 0.0


def _workers_for(queue: str, hosts: Collection[Host]) -> int:
    return sum(
        pool.workers
        for host in hosts
        if host.is_alive
        for pool in host.pools
        if pool.queues is not None and (queue in pool.queues or "*" in pool.queues)
    )
