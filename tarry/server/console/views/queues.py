"""Queues: all of them, and one."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tarry.keeper.keeper_records import LimitRecord
from tarry.keeper.waiting_facts import StoreReader, limit_holders, running_jobs
from tarry.metrics.store_overview import StoreOverview
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.limit import QUEUE
from tarry.operate.jobs import JobsQuery, list_jobs
from tarry.operate.limits import EVERY_QUEUE, LimitsQuery, list_limits
from tarry.operate.queues import (
    QueuePath,
    get_queue,
    list_queues,
    pause_queue,
    purge_queue,
    reset_bound,
    resume_queue,
    set_bound,
)
from tarry.server.console.act import ConsoleAct
from tarry.server.console.charts.coming import coming_chart
from tarry.server.console.charts.history import history_charts
from tarry.server.console.charts.ranges import RangeQuery
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.console.views.queue_shares import read_first, shares_of
from tarry.server.http.method import ApiCall
from tarry.store.queries.hosts import PoolFigures, serving_pools
from tarry.worker.external_queues import is_external

_SHOWN = 20
"""Jobs of a queue that its page lists."""


class QueueTask(Struct, frozen=True):
    """The jobs of one task in a queue."""

    task: str
    scheduled: int = 0
    ready: int = 0
    running: int = 0
    dead: int = 0


class ServingPool(Struct, frozen=True):
    """A pool of a master that runs, and serves the queue."""

    host: str
    pool: PoolFigures
    share: float | None = None
    """The part of the pool's starts that the queue has while all of its queues have work; None: the pool serves
    whatever has jobs, all alike."""


@console_page("/queues", "queues.html")
def queues_page(call: ApiCall) -> PageData:
    """All queues."""
    return {"queues": list_queues.handler(call).queues, "counted": call.look().now / SECOND}


@console_page("/queues/{queue}", "queue.html")
def queue_page(call: ApiCall, path: QueuePath, query: RangeQuery) -> PageData:
    """One queue: its figures, jobs that wait, who works on it, and the limits that concern it."""
    name, client = path.queue, call.service.client
    queue = get_queue.handler(call, path)
    look, now = call.look(), client.clock.now()
    tasks = queue_tasks(look, name)
    waiting = list_jobs.handler(call, JobsQuery([State.READY], name, limit=_SHOWN)).jobs if queue.ready else []
    running = limit_holders(running_jobs(StoreReader(client.store), now), QUEUE + name)
    first = read_first(StoreReader(client.store), name) if queue.ready else []
    own, others = _limits(call, name, {task.task for task in tasks})
    return {
        "queue": queue,
        "history": history_charts(call, query.range, queue=name),
        "coming": coming_chart(call, name),
        "counted": look.now / SECOND,
        "tasks": tasks,
        "waiting": waiting,
        "shares": shares_of(first, name),
        "looked_at": len(first),
        "running": running,
        "limit": own,
        "other_limits": others,
        # What pools do is for all queues: who may not see those is told what the settings say.
        "serving": pools_that_serve(look, name) if call.allows(EVERY_QUEUE) else None,
        "is_external": StoreReader(client.store).ask(lambda: is_external(client.store, name, now)),
    }


def queue_tasks(look: StoreOverview, queue: str) -> list[QueueTask]:
    """The tasks whose jobs are in the queue, by name."""
    shown = QueueTask.__struct_fields__
    found: dict[str, dict[str, int]] = {}
    for tally in look.counts:
        if tally.queue == queue and tally.state in shown:
            found.setdefault(tally.task, {})[str(tally.state)] = tally.count
    return [QueueTask(task, **counts) for task, counts in sorted(found.items())]


def pools_that_serve(look: StoreOverview, queue: str) -> list[ServingPool] | None:
    """The pools of all masters that run and serve the queue; None: some master does not tell."""
    return None if None in (found := list(_pools(look, queue))) else [one for one in found if one is not None]


def share_of(pool: PoolFigures, queue: str) -> float | None:
    """See `ServingPool`."""
    if queue not in (pool.queues or ()):
        return None
    return (
        pool.weights.get(queue, 0) / (sum(pool.weights.values()) or 1) if pool.weights else 1 / len(pool.queues or ())
    )


def _pools(look: StoreOverview, queue: str) -> Iterator[ServingPool | None]:
    for host in look.hosts:
        if host.is_alive and (pools := serving_pools(host.pools, queue)) is not None:
            yield from (ServingPool(host.name, pool, share_of(pool, queue)) for pool in pools)
        elif host.is_alive:
            yield None


def _limits(call: ApiCall, queue: str, tasks: set[str]) -> tuple[LimitRecord | None, Sequence[LimitRecord]]:
    """The queue's own limit, and those of tasks whose jobs are in it."""
    found = {one.limit: one for one in list_limits.handler(call, LimitsQuery()).limits}
    return found.pop(QUEUE + queue, None), [one for one in found.values() if one.limit.partition(":")[2] in tasks]


PAGES: tuple[ConsolePage, ...] = (queues_page, queue_page)
ACTS = (
    ConsoleAct(pause_queue, "Queue {queue} is paused: none of its jobs starts."),
    ConsoleAct(resume_queue, "Queue {queue} is resumed."),
    ConsoleAct(set_bound, "The bound of queue {queue} is set."),
    ConsoleAct(reset_bound, "The bound is what settings say."),
    ConsoleAct(purge_queue, "The purge has begun.", lambda one: f"/operations/{one.id}"),
)
