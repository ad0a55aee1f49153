"""The figures of queues, workers, schedules and endpoints, as the store has them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import filterfalse

from prometheus_client.core import Metric

from tarry.metrics.families import gauges
from tarry.metrics.names import OTHER
from tarry.metrics.store_figures import StoreFigures, StoreReading
from tarry.metrics.store_overview import StoreOverview
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import State
from tarry.store.base import Tally
from tarry.store.hosts import Host

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
    names = sorted(filter(allows, filterfalse(is_own_queue, by_queue.keys() | look.paused.keys())))
    label = _labels(names)
    depth = defaultdict[tuple[str, ...], float](float)
    oldest, workers, paused = dict[tuple[str], float](), dict[tuple[str], float](), dict[tuple[str], float]()
    for name in names:
        queue, tallies = label[name], by_queue.get(name, ())
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


def circuit_families(figures: StoreFigures, allows: QueueFilter) -> Iterator[Metric]:
    """Whether each endpoint is sent what is for it."""
    seen = sorted(name for name, circuit in figures.circuits.items() if allows(circuit.queue))
    yield from gauges(
        {"tarry_push_circuit_open": {(name,): float(figures.circuits[name].is_open) for name in seen[:MOST_NAMED]}}
    )


def _labels(names: Collection[str]) -> Mapping[str, str]:
    """The label of each queue."""
    return {name: name if number < MOST_QUEUES else OTHER for number, name in enumerate(names)}


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
