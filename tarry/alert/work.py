"""Checks the work: jobs that died, queues that are stuck, endpoints that fail, hosts that vanished, schedules that made
no job. One host checks for all."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from tarry.alert.condition import MOST_DETAILS, Condition
from tarry.alert.deaths import Deaths
from tarry.alert.new_errors import new_error_conditions
from tarry.alert.stored_schedules import stored_schedule_conditions
from tarry.config.config import Alerts
from tarry.keeper import schedule_state
from tarry.model.duration import MINUTE, SECOND, format_duration
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import Job, State
from tarry.model.limit import TASK
from tarry.model.schedules.schedule import LEFT_OUT
from tarry.model.values.console_paths import HOSTS, endpoint_path, jobs_path, queue_path, schedule_path
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.history.sums import ERRORS
from tarry.store.rules.partial_result import reachable_part

FAILING_FOR, LOST_FOR = MINUTE, MINUTE
"""Microseconds that it must hold before it is reported."""
QUEUES_EVERY, ERRORS_EVERY, REMOVED_EVERY, HOSTS_EVERY, SCHEDULES_EVERY = 15.0, 5.0, 300.0, 15.0, 15.0
"""Seconds between two checks; longer if a check takes more than a twentieth of that."""
COUNTED = 1000
# Several checks, however short `alerts.every` is: else a check could miss a death.
MIN_WINDOW = 15 * SECOND
"""Microseconds over which deaths are counted at least."""


class WorkChecks:
    """Checks of one store. endpoints: the current HTTP tasks by name. deaths: the jobs that died lately."""

    def __init__(
        self, store: Store, alerts: Alerts, endpoints: Callable[[], Mapping[str, Endpoint]], deaths: Deaths
    ) -> None:
        self._store, self._alerts, self._endpoints, self._deaths = store, alerts, endpoints, deaths
        self._throttled_queues = _Throttle(QUEUES_EVERY)
        self._throttled_removed = _Throttle(REMOVED_EVERY)
        self._throttled_errors = _Throttle(ERRORS_EVERY)
        self._throttled_hosts = _Throttle(HOSTS_EVERY)
        self._throttled_schedules = _Throttle(SCHEDULES_EVERY)

    def check(self, now: int, complete: bool) -> list[Condition]:
        """What is wrong. complete: all shards are available. now: microseconds since the epoch. StoreError."""
        self._deaths.refresh(now, complete)
        return [
            *(self._dead_conditions(now) if self._alerts.dead else ()),
            *(self._throttled_errors.check(lambda: self._error_conditions(now)) if self._alerts.new_errors else ()),
            *(self._endpoint_conditions() if self._endpoints() else ()),
            *(self._throttled_queues.check(lambda: self._queue_conditions(now)) if self._alerts.oldest else ()),
            *self._throttled_removed.check(self._removed_conditions),
            *(self._throttled_hosts.check(lambda: self._host_conditions(now)) if self._alerts.lost_hosts else ()),
            *self._throttled_schedules.check(
                lambda: chain(self._schedule_conditions(), stored_schedule_conditions(self._store))
            ),
        ]

    def _dead_conditions(self, now: int) -> Iterator[Condition]:
        for task, dead in self._deaths.since(now - max(self._alerts.every, MIN_WINDOW)).items():
            if len(dead) < self._alerts.dead:
                continue
            named = shlex.quote(task)
            yield Condition(
                f"dead {task}",
                f"{task}: 1 job is dead" if len(dead) == 1 else f"{task}: {_format_count(len(dead))} jobs are dead",
                f"{task}: no job has died for {format_duration(self._alerts.every)}",
                f"tarry jobs list --task {named} --state dead; once the cause is gone: "
                f"tarry jobs retry --task {named} --state dead",
                tuple(f"{ids.text(one.id)}: {one.reason}" for one in dead[:MOST_DETAILS]),
                task,
                where=jobs_path(task=task, state=State.DEAD.value),
                # The deaths of the whole period are counted, so none of them is recent when the condition is gone.
                calm=0,
                since=dead[0].at,
            )

    def _error_conditions(self, now: int) -> Iterator[Condition]:
        window = max(self._alerts.every, MIN_WINDOW)
        cells = reachable_part(lambda: self._store.history.read(ERRORS, 0, 1))
        return new_error_conditions(cells, now - window, window)

    def _endpoint_conditions(self) -> Iterator[Condition]:
        flows = {name: state for name, (state, _) in endpoint_cells.read_flows(self._store).items()}
        gone = endpoint_cells.disabled_reasons(self._store)
        for name, endpoint in self._endpoints().items():
            named, flow = shlex.quote(name), flows.get(name)
            if endpoint.enabled and flow is not None and flow.opened:
                yield Condition(
                    f"endpoint {name}",
                    f"{name}: {endpoint.url.origin} fails, and is called only now and then",
                    f"{name}: {endpoint.url.origin} answers again",
                    "see to the endpoint; what waits goes on by itself. tarry tasks shows how much that is",
                    (flow.why,),
                    name,
                    where=endpoint_path(name),
                    holds=FAILING_FOR,
                )
            elif not endpoint.enabled and name in gone:
                yield Condition(
                    f"disabled {name}",
                    f"{name} was disabled by its endpoint's answer",
                    f"{name}: somebody has seen to it since it was disabled",
                    f"once it is back: tarry tasks edit {named} enabled=true",
                    (gone[name],),
                    name,
                    where=endpoint_path(name),
                )

    def _queue_conditions(self, now: int) -> Iterator[Condition]:
        limit = self._alerts.oldest
        total = reachable_part(lambda: self._store.backlog(None, now, COUNTED))
        # All waiting jobs were counted and none is old: no queue need be asked.
        if total.count < COUNTED and now - total.oldest < limit:
            return
        stopped = self._stopped_tasks()
        for queue, paused in reachable_part(self._store.queues).items():
            backlog = reachable_part(lambda: self._store.backlog([queue], now, COUNTED))  # noqa: B023
            # The jobs of a paused queue wait on purpose; those of a broadcast for a host that is gone expire.
            if not paused and not is_own_queue(queue) and now - backlog.oldest >= limit:
                old = self._find(Query((State.READY,), queue, before=now - limit, limit=COUNTED))
                free = [job for job in old if job.task not in stopped]
                if free or not old:
                    yield _stuck_queue(queue, now - backlog.oldest, backlog.count, free, now)

    def _stopped_tasks(self) -> set[str]:
        """Tasks whose limit is 0."""
        # None of their jobs starts, so a long wait is no problem to report.
        # Either their endpoint fails, which has its own condition, or somebody stopped them on purpose.
        limits = reachable_part(self._store.limits)
        return {name.removeprefix(TASK) for name, (limit, _) in limits.items() if limit.most == 0}

    def _removed_conditions(self) -> Iterator[Condition]:
        for task in sorted(endpoint_cells.removed_with_jobs(self._store) - self._endpoints().keys()):
            waiting = self._find(Query((State.READY, State.SCHEDULED), task=task, limit=COUNTED))
            if waiting:
                yield Condition(
                    f"removed {task}",
                    f"{task} was removed, and jobs wait for it: {_format_count(len(waiting))}",
                    f"nothing waits any more for {task}, which was removed; or it is back",
                    f"add it again, or: tarry jobs delete --task {shlex.quote(task)}",
                    tuple(ids.text(job.id) for job in waiting[:MOST_DETAILS]),
                    where=jobs_path(task=task),
                )

    def _host_conditions(self, now: int) -> Iterator[Condition]:
        for host in list_hosts(self._store, now):
            if not host.is_alive:
                yield Condition(
                    f"host {host.instance}",
                    f"host {host.name} is lost: its master {host.pid} has given no sign of life",
                    f"host {host.name}: its master {host.pid} is back, another runs in its place, or a day has passed",
                    "its jobs run on other hosts once its leases have ended. On it: tarry status, then tarry start",
                    where=HOSTS,
                    # A service manager starts it again at once.
                    holds=LOST_FOR,
                    since=host.seen,
                )

    def _schedule_conditions(self) -> Iterator[Condition]:
        for name, (state, _) in schedule_state.read(self._store).items():
            last = state.runs[-1] if state.runs else None
            if last is not None and last.is_missed and not state.paused:
                how = "left out, since nothing ran then" if last.end == LEFT_OUT else "refused: the log says why"
                yield Condition(
                    f"schedule {name}",
                    f"schedule {name}: its last tick made no job, it was {how}",
                    f"schedule {name} makes jobs again",
                    f"tarry schedules show {shlex.quote(name)}; to make up for it: tarry schedules run "
                    f"{shlex.quote(name)}",
                    where=schedule_path(name),
                    since=last.tick,
                )

    def _find(self, query: Query) -> list[Job]:
        return reachable_part(lambda: self._store.find(query))


def _stuck_queue(queue: str, age: int, count: int, old: list[Job], now: int) -> Condition:
    return Condition(
        f"queue {queue}",
        f"queue {queue}: the oldest job has been due for {format_duration(age)};"
        f" jobs that wait: {_format_count(count)}",
        f"queue {queue}: no job waits for so long any more",
        "tarry status shows what workers do, tarry top how fast it goes: more workers, or a limit that is too low?",
        tuple(f"{ids.text(job.id)} {job.task}" for job in old[:MOST_DETAILS]),
        where=queue_path(queue),
        calm=MINUTE,
        since=now - age,
    )


def _format_count(number: int) -> str:
    return f"{number:,}" + (" or more" if number >= COUNTED else "")


class _Throttle:
    """Runs an expensive check only once in a while; between two runs it returns the last result."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._conditions: list[Condition] = []
        self._due = 0.0

    def check(self, check: Callable[[], Iterator[Condition]]) -> list[Condition]:
        began = time.monotonic()
        if began >= self._due:
            self._conditions = list(check())
            took = time.monotonic() - began
            self._due = began + max(self._every, 20 * took)
        return self._conditions
