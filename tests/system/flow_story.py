"""The process of tests/system/test_flow_crash.py: it stores flows, runs their jobs and keeps the store, until all of
them have ended. Whatever another process of this kind was killed at, it goes on with that.

    python -m tests.system.flow_story STORE DIRECTORY KILL_AT before|after

The directory has the time, and the ledger of what was done, a line for each. Prints how many calls of the store it
made.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from tarry.client.flows.flow_handle import FlowHandle
from tarry.errors import StoreError
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import State
from tarry.store.opening import open_store
from tarry.store.rules import flows as verbs
from tarry.store.rules.base import Store
from tarry.store.rules.flows import FlowQuery
from tarry.testing.ledger import Ledger
from tests.system import flow_tasks
from tests.system.flow_process import FlowProcess
from tests.system.flow_tasks import FLOWS, app
from tests.system.killing_store import KillingStore

ENDS = {"big": State.DONE, "undone": State.DEAD, "mended": State.DONE, "withdrawn": State.CANCELLED}
"""The flows, and how each ends."""
KEY, KEPT = "7", "500d"
STORED_AT_ONCE, RELEASED_AT_ONCE = 15, 6
"""Small, so that the big flow is stored and released in several pieces."""
MOST_ROUNDS = 100


class Story(FlowProcess):
    """The flows, and what happens to them."""

    def __init__(self, plain: Store, counted: Store, directory: Path) -> None:
        super().__init__(app, plain, counted, directory)
        self._is_mended = directory / "mended"
        flow_tasks.directory = directory
        app.middleware("run")(Ledger(directory / "history", self.clock.now).run)

    def run(self) -> None:
        """Goes on until all flows have ended as they should."""
        for _ in range(MOST_ROUNDS):
            self.rescue()
            self._act()
            self.work()
            self.keep()
            if all(self._state(name) is end for name, end in ENDS.items()):
                return
        raise AssertionError(f"the flows do not end: {[self._flow(name) for name in ENDS]}")

    def _act(self) -> None:
        """Does what is not done yet."""
        for name in ENDS:
            if self._flow(name) is None:
                # An earlier process may have died while it stored it; then its key is free after some minutes.
                with contextlib.suppress(StoreError):
                    with app.using(keep=KEPT).flow(name, key=KEY) as flow:
                        FLOWS[name](flow)
                    assert self._flow(name) is not None, f"{name} is not stored, although nothing said so"
        if self.plain.flows.awaiting("review", 1):
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
        rows = self.plain.flows.find(FlowQuery(name=name))
        return next((row for row in rows if row.phase is not Phase.STORING and b"Abandoned" not in row.note), None)

    def _state(self, name: str) -> State | None:
        row = self._flow(name)
        return row.ends if row is not None and row.phase is Phase.ENDED else None

    def _handle(self, row: FlowRow) -> FlowHandle[Any]:
        return app.flows.get(row.id)


def main(url: str, directory: str, kill_at: str, moment: str) -> None:
    """See the top of the file."""
    verbs.STORED_AT_ONCE, verbs.RELEASED_AT_ONCE = STORED_AT_ONCE, RELEASED_AT_ONCE
    with contextlib.closing(open_store(url)) as plain:
        store = KillingStore(plain, int(kill_at), moment == "after")
        Story(plain, store, Path(directory)).run()
    print(store.calls)


if __name__ == "__main__":
    main(*sys.argv[1:])
