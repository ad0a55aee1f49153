"""How the work goes: jobs that died, queues that are stuck, endpoints that fail. One host looks for all."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping

from tarry.alert.condition import MOST_DETAILS, Condition
from tarry.alert.deaths import Deaths
from tarry.config import Alerts
from tarry.model.duration import MINUTE, SECOND, spoken
from tarry.model.job import Job, State
from tarry.model.limit import TASK
from tarry.push import registry
from tarry.push.delivery.flow import FlowState as Flow
from tarry.push.endpoint.settings import Endpoint
from tarry.store import ids
from tarry.store.base import Query, Store
from tarry.store.shared.partly import there

FAILING_FOR = MINUTE
QUEUES_EVERY, REMOVED_EVERY = 15.0, 300.0
"""Seconds; more where a look takes more than a twentieth of that."""
COUNTED = 1000
LEAST_WINDOW = 15 * SECOND
"""Microseconds in which jobs die together, however often there may be messages: several looks."""


class Work:
    """Of one store. endpoints: the HTTP tasks there are now, by name. deaths: who died lately."""

    def __init__(
        self, store: Store, alerts: Alerts, endpoints: Callable[[], Mapping[str, Endpoint]], deaths: Deaths
    ) -> None:
        self._store, self._alerts, self._endpoints, self._deaths = store, alerts, endpoints, deaths
        self._stuck = _Rarely(QUEUES_EVERY)
        self._left = _Rarely(REMOVED_EVERY)

    def look(self, now: int, whole: bool) -> list[Condition]:
        """What is wrong; StoreError. whole: all of several stores are there. now: microseconds since the epoch."""
        self._deaths.look(now, whole)
        flows = {name: state for name, (state, _) in registry.read_flows(self._store).items()}
        return [
            *(self._dead(now) if self._alerts.dead else ()),
            *self._failing(flows),
            *(self._stuck.look(lambda: self._queues(now)) if self._alerts.oldest else ()),
            *self._left.look(self._removed),
        ]

    def _dead(self, now: int) -> Iterator[Condition]:
        for task, dead in self._deaths.since(now - max(self._alerts.every, LEAST_WINDOW)).items():
            if len(dead) < self._alerts.dead:
                continue
            named = shlex.quote(task)
            yield Condition(
                f"dead {task}",
                f"{task}: 1 job is dead" if len(dead) == 1 else f"{task}: {_count(len(dead))} jobs are dead",
                f"{task}: no job has died for {spoken(self._alerts.every)}",
                f"tarry jobs list --task {named} --state dead; once the cause is gone: "
                f"tarry jobs retry --task {named} --state dead",
                tuple(f"{ids.text(one.id)}: {one.reason}" for one in dead[:MOST_DETAILS]),
                task,
                calm=0,
                since=dead[0].at,
            )

    def _failing(self, flows: Mapping[str, Flow]) -> Iterator[Condition]:
        gone = registry.disabled_reasons(self._store)
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
                )

    def _queues(self, now: int) -> Iterator[Condition]:
        limit = self._alerts.oldest
        all_of_them = there(lambda: self._store.backlog(None, now, COUNTED))
        if all_of_them.count < COUNTED and now - all_of_them.oldest < limit:
            return
        held = self._held()
        for queue, paused in there(self._store.queues).items():
            backlog = there(lambda: self._store.backlog([queue], now, COUNTED))  # noqa: B023
            if not paused and now - backlog.oldest >= limit:
                old = self._find(Query((State.READY,), queue, before=now - limit, limit=COUNTED))
                free = [job for job in old if job.task not in held]
                if free or not old:
                    yield _stuck(queue, now - backlog.oldest, backlog.count, free, now)

    def _held(self) -> set[str]:
        """Tasks of which nothing starts, for which there is a reason that is told, or somebody's will."""
        limits = there(self._store.limits)
        return {name.removeprefix(TASK) for name, (limit, _) in limits.items() if limit.most == 0}

    def _removed(self) -> Iterator[Condition]:
        for task in sorted(registry.removed_with_jobs(self._store) - self._endpoints().keys()):
            waiting = self._find(Query((State.READY, State.SCHEDULED), task=task, limit=COUNTED))
            if waiting:
                yield Condition(
                    f"removed {task}",
                    f"{task} was removed, and jobs wait for it: {_count(len(waiting))}",
                    f"nothing waits any more for {task}, which was removed; or it is back",
                    f"add it again, or: tarry jobs delete --task {shlex.quote(task)}",
                    tuple(ids.text(job.id) for job in waiting[:MOST_DETAILS]),
                )

    def _find(self, query: Query) -> list[Job]:
        return there(lambda: self._store.find(query))


def _stuck(queue: str, age: int, count: int, old: list[Job], now: int) -> Condition:
    return Condition(
        f"queue {queue}",
        f"queue {queue}: the oldest job has been due for {spoken(age)}; jobs that wait: {_count(count)}",
        f"queue {queue}: no job waits for so long any more",
        "tarry status shows what workers do, tarry top how fast it goes: more workers, or a limit that is too low?",
        tuple(f"{ids.text(job.id)} {job.task}" for job in old[:MOST_DETAILS]),
        calm=MINUTE,
        since=now - age,
    )


def _count(number: int) -> str:
    return f"{number:,}" + (" or more" if number >= COUNTED else "")


class _Rarely:
    """A look that is not cheap: between two, what was seen last."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._seen: list[Condition] = []
        self._due = 0.0

    def look(self, see: Callable[[], Iterator[Condition]]) -> list[Condition]:
        began = time.monotonic()
        if began >= self._due:
            self._seen = list(see())
            took = time.monotonic() - began
            self._due = began + max(self._every, 20 * took)
        return self._seen
