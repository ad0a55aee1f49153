"""The first page: how much there is, and what needs attention."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tarry.client.queue_records import QueueRecord
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.hosts import list_all_hosts
from tarry.door.http.method import ApiCall
from tarry.door.http.queues import list_queues
from tarry.door.http.tasks import TaskQuery, list_tasks
from tarry.keeper.records import HostRecord
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.push.health import CLOSED
from tarry.push.task_records import TaskRecord

LATE = 60.0
"""Seconds after which a ready job that nobody has taken needs attention."""
_STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)


class Concern(Struct, frozen=True):
    """Something that needs attention. kind: which sentence of the page tells it. where: the page with the way out."""

    kind: str
    name: str
    count: float
    where: str


@console_page("/", "overview.html")
def overview_page(call: ApiCall) -> PageData:
    """How much there is, and what needs attention."""
    queues = list_queues.handler(call).queues
    hosts = list_all_hosts.handler(call).hosts
    tasks = list_tasks.handler(call, TaskQuery()).tasks
    now = call.service.client.clock.now() / SECOND
    return {
        "totals": {state.value: sum(getattr(queue, state.value) for queue in queues) for state in _STATES},
        "queues": sorted(queues, key=lambda queue: (-queue.ready, queue.queue))[:10],
        "queue_count": len(queues),
        "hosts": hosts,
        "concerns": [*_queue_concerns(queues, now), *_host_concerns(hosts), *_endpoint_concerns(tasks)],
    }


def _queue_concerns(queues: Sequence[QueueRecord], now: float) -> Iterator[Concern]:
    for queue in queues:
        name, where = queue.queue, f"/queues/{queue.queue}"
        late = now - queue.oldest_ready if queue.oldest_ready is not None else 0.0
        if queue.dead:
            yield Concern("dead", name, queue.dead, f"/jobs?queue={name}&state=dead")
        if queue.paused and queue.ready:
            yield Concern("paused", name, queue.ready, where)
        elif queue.ready and not queue.served:
            yield Concern("unserved", name, queue.ready, where)
        elif late > LATE:
            yield Concern("late", name, late, where)
        if queue.max_waiting and queue.ready + queue.scheduled >= queue.max_waiting:
            yield Concern("full", name, queue.max_waiting, where)


def _host_concerns(hosts: Sequence[HostRecord]) -> Iterator[Concern]:
    for host in hosts:
        if not host.alive:
            yield Concern("lost", host.name, host.seen, "/hosts")


def _endpoint_concerns(tasks: Sequence[TaskRecord]) -> Iterator[Concern]:
    for task in tasks:
        if task.kind == "http" and task.circuit != CLOSED:
            yield Concern("endpoint", task.task, float(task.waiting or 0), f"/tasks/{task.task}")


PAGES: tuple[ConsolePage, ...] = (overview_page,)
