"""The process of tests/system/test_flow_crash.py: it stores flows, runs their jobs and keeps the store, until all of
them have ended. Whatever another process of this kind was killed at, it goes on with that.

    python -m tests.system.flow_story STORE DIRECTORY KILL_AT before|after

The time stands still while jobs run. When nothing is due it goes on to the next job that is: so days take no time. The
directory has the time, and the ledger of what was done, a line for each. Prints how many calls of the store it made.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from tarry.client.clock import FakeClock
from tarry.client.flows.handle import FlowHandle
from tarry.embedded.service import LocalWorker
from tarry.errors import StoreError
from tarry.keeper.flows import FlowChores
from tarry.model.duration import SECOND
from tarry.model.flow.flow import FlowRow, Phase
from tarry.model.job import Job, State
from tarry.model.moving import NEVER
from tarry.store.base import Query, Store
from tarry.store.flows import flows as verbs
from tarry.store.flows.flows import FlowQuery
from tarry.store.opening import open_store
from tarry.worker.worker import WorkerSettings
from tests.system import flow_tasks
from tests.system.flow_tasks import FLOWS, app
from tests.system.killing_store import KillingStore

ENDS = {"big": State.DONE, "undone": State.DEAD, "mended": State.DONE, "withdrawn": State.CANCELLED}
"""The flows, and how each ends."""
KEY, KEPT = "7", "500d"
STORED_AT_ONCE, RELEASED_AT_ONCE = 15, 6
"""Small, so that the big flow is stored and released in several pieces."""
ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
MOST_ROUNDS = 100
A_MINUTE = 61.0
"""Seconds from one audit to the next."""


class Story:
    """The flows, and what happens to them. `_plain` is the store without counting, for what only the story asks."""

    def __init__(self, plain: Store, store: Store, directory: Path) -> None:
        self._plain, self._store = plain, store
        self._time, self._is_mended = directory / "time", directory / "mended"
        self._clock = FakeClock(int(self._time.read_text()))
        flow_tasks.directory = directory
        app._given, app._clock = store, self._clock
        self._keeper = app.keeper(store, self._clock)
        self._chores = FlowChores(store, self._clock, "keeper")

    def run(self) -> None:
        """Goes on until all flows have ended as they should."""
        for _ in range(MOST_ROUNDS):
            # What a killed process had claimed.
            self._keeper.rescue_dead()
            self._act()
            self._work()
            self._keep()
            if all(self._state(name) is end for name, end in ENDS.items()):
                return
        raise AssertionError(f"the flows do not end: {[self._flow(name) for name in ENDS]}")

    # What people do

    def _act(self) -> None:
        """Does what is not done yet."""
        for name in ENDS:
            if self._flow(name) is None:
                # An earlier process may have died while it stored it; then its key is free after some minutes.
                with contextlib.suppress(StoreError):
                    with app.using(keep=KEPT).flow(name, key=KEY) as flow:
                        FLOWS[name](flow)
                    assert self._flow(name) is not None, f"{name} is not stored, although nothing said so"
        if self._plain.flows.awaiting("review", 1):
            app.signal("review", key=KEY, value="good", id="the review of 7")
        mended = self._flow("mended")
        if mended is not None and self._state("mended") is State.DEAD:
            self._is_mended.touch()
            self._handle(mended).retry()
        withdrawn = self._flow("withdrawn")
        if withdrawn is not None and any(node.state is State.DONE for node in self._handle(withdrawn).nodes()):
            self._handle(withdrawn).cancel("no longer wanted")

    def _flow(self, name: str) -> FlowRow | None:
        """The flow, once it is stored whole."""
        rows = self._plain.flows.find(FlowQuery(name=name))
        return next((row for row in rows if row.phase is not Phase.STORING and b"Abandoned" not in row.note), None)

    def _state(self, name: str) -> State | None:
        row = self._flow(name)
        return row.ends if row is not None and row.phase is Phase.ENDED else None

    def _handle(self, row: FlowRow) -> FlowHandle[Any]:
        return app.flows.get(row.id)

    # What processes do

    def _work(self) -> None:
        """Runs what is due."""
        worker = LocalWorker(
            self._store,
            app.tasks,
            WorkerSettings({"*": 1}, threads=2, coroutines=10),
            rules=app.rules,
            clock=self._clock,
            until_idle=60.0,
        )
        worker.run()

    def _keep(self) -> None:
        """Does what is left over, then goes on to the time of the next job; a minute if there is none."""
        self._chores.tend_flows()
        self._chores.steer_flows()
        active = self._active()
        if not active:
            self._chores.audit_flows()
            self._pass_time(A_MINUTE)
        elif later := min(job.due for job in active):
            self._pass_time(max(0, later - self._clock.time) / SECOND)

    def _active(self) -> list[Job]:
        """What time alone moves."""
        return [job for job in self._plain.find(Query(states=ACTIVE, limit=1000)) if job.due < NEVER]

    def _pass_time(self, seconds: float) -> None:
        """Moves the time on, for this process and those after it."""
        self._clock.advance(seconds)
        # Whole or not at all, whenever this process is killed.
        fresh = self._time.with_suffix(".new")
        fresh.write_text(str(self._clock.time))
        fresh.replace(self._time)


def main(url: str, directory: str, kill_at: str, moment: str) -> None:
    """See the top of the file."""
    verbs.STORED_AT_ONCE, verbs.RELEASED_AT_ONCE = STORED_AT_ONCE, RELEASED_AT_ONCE
    with contextlib.closing(open_store(url)) as plain:
        store = KillingStore(plain, int(kill_at), moment == "after")
        Story(plain, store, Path(directory)).run()
    print(store.calls)


if __name__ == "__main__":
    main(*sys.argv[1:])
