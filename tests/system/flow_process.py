"""A process that runs jobs and keeps the store, for tests that kill it. Its time stands still while jobs run; when
nothing is due it goes on to the next job that is: so days take no time."""

from pathlib import Path

from tarry import App
from tarry.client.clock import FakeClock
from tarry.embedded.service import LocalWorker
from tarry.keeper.flows import FlowChores
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.moving import NEVER
from tarry.store.rules.base import Query, Store
from tarry.worker.worker import WorkerSettings

ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
A_MINUTE = 61.0
"""Seconds from one audit to the next."""


class FlowProcess:
    """Worker and keeper of an app. directory: has the time, for this process and those after it. counted: the store as
    the processes see it; plain: the same one, for what only the test asks."""

    def __init__(self, app: App, plain: Store, counted: Store, directory: Path) -> None:
        self.app, self.plain, self._store = app, plain, counted
        self._time = directory / "time"
        self.clock = FakeClock(int(self._time.read_text()))
        app._given, app._clock = counted, self.clock
        self._keeper = app.keeper(counted, self.clock)
        self._chores = FlowChores(counted, self.clock, "keeper")

    def rescue(self) -> None:
        """Brings back what a killed process had claimed."""
        self._keeper.rescue_dead()

    def work(self) -> None:
        """Runs what is due."""
        worker = LocalWorker(
            self._store,
            self.app.tasks,
            WorkerSettings({"*": 1}, threads=2, coroutines=10),
            rules=self.app.rules,
            clock=self.clock,
            until_idle=60.0,
        )
        worker.run()

    def keep(self) -> None:
        """Does what is left over, then goes on to the time of the next job; a minute if there is none."""
        self._chores.release_more()
        self._chores.tidy_flows()
        self._chores.end_late_flows()
        self._chores.resume_cancels()
        # What time alone moves.
        due = [job.due for job in self.plain.find(Query(states=ACTIVE, limit=1000)) if job.due < NEVER]
        if not due:
            self._chores.audit_flows()
        self._pass_time(max(0, min(due) - self.clock.time) / SECOND if due else A_MINUTE)

    def _pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        # Whole or not at all, whenever this process is killed.
        fresh = self._time.with_suffix(".new")
        fresh.write_text(str(self.clock.time))
        fresh.replace(self._time)


def add_line(ledger: Path, what: str) -> None:
    """Adds a line to a file, in one write: so it is there whole if this process dies."""
    with ledger.open("ab", buffering=0) as file:
        file.write(f"{what}\n".encode())
