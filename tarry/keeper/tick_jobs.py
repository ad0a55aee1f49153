"""The jobs of ticks of schedules in the store, many in one call."""

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.errors import StoreError, TarryError
from tarry.keeper.cron import KEY_KEPT_FOR
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.schedules.schedule import REFUSED, ScheduledRun
from tarry.model.schedules.stored import StoredSchedule
from tarry.tasks.arguments.options import Options
from tarry.tasks.definition import TaskDefinition

log = logging.getLogger("tarry.cron")

Stored = Handle[Any] | Exception
"""A stored job, or why it is not. Of a StoreError: not yet."""


class TickPlan(Struct, frozen=True):
    """What is to be done for a schedule that is due."""

    name: str
    before: StoredSchedule
    after: StoredSchedule
    """How far it has come then, without the runs of these ticks."""
    ticks: Sequence[int]
    """Those that become jobs."""
    task: TaskDefinition[Any, Any] | None
    """None: there are no ticks."""

    def options(self, tick: int) -> Options:
        """Those of a tick's job."""
        definition = self.after.definition
        due = (tick + definition.delay(self.name, tick)) / SECOND
        key = definition.schedule(self.name).key(tick)
        given = asdict(definition.options)
        return Options(at=due, key=key, unique_for=KEY_KEPT_FOR, keeps_attempts=True, **given)


class Made(Struct, frozen=True):
    """What became of the ticks of a plan."""

    runs: list[ScheduledRun]
    """Of the ticks that are over, in their order."""
    failure: StoreError | None
    """Why those behind them are to be tried again."""


def insert(client: Client, plans: Sequence[TickPlan]) -> list[Made]:
    """What became of the ticks of each plan. Raises StoreError if all are to be tried again."""
    calls = [(plan, tick) for plan in plans for tick in plan.ticks]
    made = iter(_insert_calls(client, calls))
    return [_made(plan, [next(made) for _ in plan.ticks]) for plan in plans]


def _made(plan: TickPlan, stored: Sequence[Stored]) -> Made:
    runs: list[ScheduledRun] = []
    for tick, each in zip(plan.ticks, stored, strict=True):
        if isinstance(each, StoreError):
            # The next try finds those behind it that are stored, by their keys.
            return Made(runs, each)
        runs.append(_run(plan.name, tick, each))
    return Made(runs, None)


def _run(name: str, tick: int, stored: Stored) -> ScheduledRun:
    if isinstance(stored, Handle):
        return ScheduledRun(tick, stored.id)
    # It would come at each try, so the tick is given up: arguments that do not fit any more, or the app's middleware.
    log.error("schedule %s: %s", name, stored, exc_info=None if isinstance(stored, TarryError) else stored)
    return ScheduledRun(tick, end=REFUSED)


def _insert_calls(client: Client, calls: Sequence[tuple[TickPlan, int]]) -> list[Stored]:
    found: list[Stored | None] = []
    jobs: list[Job] = []
    options: list[Options] = []
    for plan, tick in calls:
        given, task = plan.options(tick), plan.task
        try:
            if task is not None and task.app_hooks.has_enqueue_hooks:
                found.append(client.enqueue(task, *task.codec.decode(plan.after.definition.body), given))
                continue
            jobs.append(client.make_job(plan.after.definition.task, plan.after.definition.body, given))
        except Exception as error:  # of the functions of the task and the app
            found.append(error)
            continue
        options.append(given)
        found.append(None)
    stored = iter(client.insert_each(jobs, options)) if jobs else iter(())
    return [next(stored) if each is None else each for each in found]
