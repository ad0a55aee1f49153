"""Hosts that tick: each with its own connection to one store, and its own idea of the app."""

from collections.abc import Mapping
from typing import Any

from tarry import App
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.keeper import schedule_state
from tarry.keeper.cron import ScheduleTicker, schedules_of
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Returned
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.schedule import Schedule
from tarry.store.rules.base import BANDS, Query, Store, Want

NOON = 1_800_014_400 * SECOND
"""2027-01-15, 12:00 UTC."""
NOTHING_KEPT = Rules(keep_done=0)
WANTS = [Want("default", band, 100) for band in BANDS]


def shop(**settings: Any) -> App:
    """An app with one task that has a schedule."""
    app = App("memory://", closures=True)

    @app.task(name="report", **settings)
    def report(shop: str = "all") -> None: ...

    return app


class TickingHost:
    """A ticker with its own connection and its own idea of the app."""

    def __init__(
        self, store: Store, clock: FakeClock, app: App, calendars: Mapping[str, Calendar] | None = None
    ) -> None:
        self.store, self.clock, self.calendars = store, clock, calendars or {}
        self.client = Client(store, app.tasks, clock=clock, rules=lambda task, queue: NOTHING_KEPT)
        self.ticker = ScheduleTicker(self.client, self.calendars)

    def tick(self) -> float:
        return self.ticker.tick()

    def schedule(self, name: str = "report") -> Schedule:
        return schedules_of(self.client.tasks, self.calendars)[name]

    def jobs(self) -> list[Job]:
        return sorted(self.store.find(Query(limit=10_000)), key=lambda job: (job.due, job.task, job.body))

    def dues(self) -> list[int]:
        """Of all jobs, in seconds from noon."""
        return [(job.due - NOON) // SECOND for job in self.jobs()]

    def state(self, name: str = "report") -> schedule_state.ScheduleState:
        return schedule_state.read(self.store)[name][0]

    def work(self) -> int:
        """Runs what is ready; how many jobs that were."""
        jobs = self.store.claim(WANTS, 1000, "me", 30 * SECOND, self.clock.now())
        changes = [lifecycle.after(job, Returned(), NOTHING_KEPT, self.clock.now()) for job in jobs]
        assert all(self.store.apply(changes, self.clock.now()))
        return len(jobs)

    def prune(self) -> None:
        self.store.prune(self.clock.now(), 10**9)
