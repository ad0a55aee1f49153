"""What needs attention: found among what is known of queues, hosts, tasks and stores. The worst comes first."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from tarry.client.queue_records import QueueRecord
from tarry.keeper.keeper_records import HostRecord
from tarry.keeper.waiting_facts import StoreReader
from tarry.model.duration import SECOND
from tarry.model.values.console_paths import HOSTS, STORES, endpoint_path, jobs_path, queue_path
from tarry.operate.stores import StoreRecord
from tarry.push.health import CLOSED
from tarry.push.task_records import TaskRecord
from tarry.store.queries.hosts import PoolFigures, serving_pools
from tarry.worker.external_queues import is_external

LATE = 60.0
"""Seconds after which a ready job that nobody has taken needs attention."""
RED = ("away", "slow", "error", "no_host", "lost", "endpoint", "schedule", "flow", "dead")
"""Kinds that tell of something broken or lost, the worst first."""
ORDER = (*RED, "unserved", "full", "stopped", "late", "approval", "approvals", "paused", "advice")
"""The kinds, the worst first."""


class Concern(Struct, frozen=True):
    """Something that needs attention. kind: which sentence of the page tells it. where: the page with the way out."""

    kind: str
    name: str
    count: float
    where: str
    detail: str = ""


def find_concerns(
    queues: Sequence[QueueRecord],
    hosts: Sequence[HostRecord],
    tasks: Sequence[TaskRecord],
    stores: Sequence[StoreRecord],
    now: int,
    reader: StoreReader,
    others: Sequence[Concern] = (),
    *,
    shows_hosts: bool = True,
    slow_after: float = 0.0,
) -> list[Concern]:
    """What needs attention, the worst first; StoreError. now: by the store's clock, in microseconds. shows_hosts:
    whether the reader may know of hosts. slow_after: seconds after which an answer of a store is late; 0: none is."""
    pools = [pool for host in hosts if host.alive for pool in host.pools]

    def is_served(queue: QueueRecord) -> bool:
        # Few queues are asked for: those that nobody serves.
        return _is_served(queue, pools) or reader.ask(lambda: is_external(reader.store, queue.queue, now))

    found = [
        *others,
        *_store_concerns(stores, slow_after),
        *(_host_concerns(hosts, queues) if shows_hosts else ()),
        *_endpoint_concerns(tasks),
        *(one for queue in queues for one in _queue_concerns(queue, now / SECOND, is_served)),
    ]
    return sorted(found, key=lambda one: (ORDER.index(one.kind), -one.count, one.name))


def _is_served(queue: QueueRecord, pools: Sequence[PoolFigures]) -> bool:
    serving = serving_pools(pools, queue.queue)
    # Where some master does not tell what it serves, the settings of this server are the next best.
    return queue.served if serving is None else bool(serving)


def _queue_concerns(queue: QueueRecord, now: float, is_served: Callable[[QueueRecord], bool]) -> Iterator[Concern]:
    name, where = queue.queue, queue_path(queue.queue)
    late = now - queue.oldest_ready if queue.oldest_ready is not None else 0.0
    if queue.dead:
        yield Concern("dead", name, queue.dead, jobs_path(queue=name, state="dead"))
    if queue.paused and queue.ready:
        yield Concern("paused", name, queue.ready, where)
    elif queue.ready and not is_served(queue):
        yield Concern("unserved", name, queue.ready, where)
    elif late > LATE:
        yield Concern("late", name, late, where)
    if queue.max_waiting and queue.ready + queue.scheduled >= queue.max_waiting:
        yield Concern("full", name, queue.max_waiting, where)


def _host_concerns(hosts: Sequence[HostRecord], queues: Sequence[QueueRecord]) -> Iterator[Concern]:
    yield from (Concern("lost", host.name, host.seen, HOSTS) for host in hosts if not host.alive)
    ready = sum(queue.ready for queue in queues)
    if ready and not any(host.alive for host in hosts) and not any(queue.running for queue in queues):
        yield Concern("no_host", "", ready, HOSTS)


def _endpoint_concerns(tasks: Sequence[TaskRecord]) -> Iterator[Concern]:
    for task in tasks:
        if is_failing(task):
            where, waiting = endpoint_path(task.task), float(task.waiting or 0)
            yield Concern("endpoint", task.task, waiting, where, str(task.trouble or ""))


def is_failing(task: TaskRecord) -> bool:
    """Whether its endpoint fails, so that it gets few requests or none."""
    return task.kind == "http" and task.enabled is True and task.circuit != CLOSED


def _store_concerns(stores: Sequence[StoreRecord], slow_after: float) -> Iterator[Concern]:
    for store in stores:
        if store.trouble:
            yield Concern("away", store.url, 0, STORES, store.trouble)
        if store.latency is not None and 0 < slow_after < store.latency:
            yield Concern("slow", store.url, store.latency, STORES)
        for fact in store.facts:
            if fact.advice:
                yield Concern("advice", f"{store.url}: {fact.name}", 0, STORES, fact.advice)
