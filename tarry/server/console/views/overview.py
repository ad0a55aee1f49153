"""The first page: how much there is, and what needs attention."""

import time
from collections.abc import Iterator, Sequence

from tarry.keeper.keeper_records import HostRecord
from tarry.keeper.waiting_facts import StoreReader
from tarry.model.duration import DAY, SECOND
from tarry.model.job import State
from tarry.model.values.console_paths import error_path
from tarry.operate.errors import ErrorsQuery, list_errors
from tarry.operate.hosts import host_records
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.queues import list_queues
from tarry.operate.stores import list_stores
from tarry.operate.tasks import TaskQuery, list_tasks
from tarry.server.console.charts.coming import coming_chart, drain_times
from tarry.server.console.charts.history import history_charts
from tarry.server.console.charts.ranges import RangeQuery
from tarry.server.console.concerns.concern_groups import MOST_SHOWN, group_concerns
from tarry.server.console.concerns.concerns import Concern, find_concerns, is_failing
from tarry.server.console.concerns.flow_concerns import flow_concerns, without_flows
from tarry.server.console.concerns.setting_concerns import setting_concerns
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.console.put_off import COOKIE, DAYS, read_put_off
from tarry.server.http.method import ApiCall
from tarry.store.queries.deploys import SINCE_DEPLOY

_STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)
_SHOWN = 10
"""Queues that are listed."""
_NEW_FOR = 7 * DAY / SECOND
"""Seconds for which an error is new, at most."""


@console_page("/", "overview.html")
def overview_page(call: ApiCall, query: RangeQuery) -> PageData:
    """How much there is, and what needs attention."""
    queues = list_queues.handler(call).queues
    # Hosts and stores are for all queues: who may not see those sees none of them.
    sees_all = call.allows(EVERY_QUEUE)
    hosts = host_records(call)
    client = call.service.client
    now, reader = client.clock.now(), StoreReader(client.store)
    next_due = reader.ask(client.store.next_due) if sees_all else None
    fullest = sorted(queues, key=lambda queue: (-queue.ready, queue.queue))[:_SHOWN]
    return {
        "history": history_charts(call, query.range),
        "totals": {state.value: sum(getattr(queue, state.value) for queue in queues) for state in _STATES},
        "counted": call.look().now / SECOND,
        "next_due": None if next_due is None else next_due / SECOND,
        "coming": coming_chart(call),
        "queues": fullest,
        "drains": drain_times(call, fullest),
        "queue_count": len(queues),
        "hosts": hosts if sees_all else [],
        "shows_hosts": sees_all,
        **_attention(call, hosts, sees_all, now, reader),
    }


def _error_concerns(call: ApiCall, now: float, resting: set[str]) -> Iterator[Concern]:
    """Errors that are new since the last deploy, which is not long ago. resting: HTTP tasks whose endpoint has a line
    already."""
    for one in list_errors.handler(call, ErrorsQuery(new_since=SINCE_DEPLOY, muted=False, limit=MOST_SHOWN)).errors:
        if one.id and one.first > now - _NEW_FOR and not (one.tasks and one.tasks.keys() <= resting):
            yield Concern("error", f"{one.type}: {one.message}", one.count, error_path(one.id), one.place)


def _attention(call: ApiCall, hosts: Sequence[HostRecord], sees_all: bool, now: int, reader: StoreReader) -> PageData:
    """What needs attention, without what the reader has put off."""
    counts, tasks = call.look().counts, list_tasks.handler(call, TaskQuery()).tasks
    now_s = now / SECOND
    resting = {task.task for task in tasks if is_failing(task)}
    others = [*_error_concerns(call, now_s, resting), *flow_concerns(call, now_s), *setting_concerns(call, tasks)]
    groups = group_concerns(
        find_concerns(
            [without_flows(queue, counts) for queue in list_queues.handler(call).queues],
            hosts,
            tasks,
            list_stores.handler(call).stores if sees_all else [],
            now,
            reader,
            others,
            shows_hosts=sees_all,
            slow_after=call.app.config.alerts.latency / SECOND,
        )
    )
    until = read_put_off(call.request.cookies.get(COOKIE), time.time())
    shown = [one for one in groups if not one.is_put_off(until)]
    return {"concerns": shown, "most_members": MOST_SHOWN, "put_off": len(groups) - len(shown), "days": DAYS}


PAGES: tuple[ConsolePage, ...] = (overview_page,)
