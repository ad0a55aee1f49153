"""What comes after a commit makes no call raise: a wake-up that cannot be sent, and further calls of a store that has
gone away since."""

import errno
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tarry import App
from tarry.client.enqueue_listener import JobEvent
from tarry.errors import StoreError
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.flow_row import Phase
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import flows
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery
from tarry.store.shared.wakeup.board import WakeupBoard
from tests.store.away_store import AwayStore

MOST_CALLS = 30


def flow(app: App, nodes: int = 2) -> Any:
    with app.flow("both") as f:
        for number in range(nodes):
            f.add(app.tasks["add"].call(number))
    return f.handle


ACTS: dict[str, Callable[[App], Any]] = {
    "enqueue": lambda app: app.tasks["add"].enqueue(1),
    "many": lambda app: app.tasks["add"].enqueue_many([(1,), (2,), (3,)]),
    "bounded": lambda app: app.tasks["bounded"].enqueue(1),
    "keyed": lambda app: app.tasks["add"].using(key="new").enqueue(1),
    "replaced": lambda app: app.tasks["add"].using(key="k", delay=60, on_duplicate="replace").enqueue(2),
    "postponed": lambda app: app.tasks["add"].using(key="k", delay=90, on_duplicate="postpone").enqueue(1),
    "flow": flow,
}


def prepare(app: App) -> None:
    app.task(name="add")(lambda number: None)
    app.task(name="bounded", queue="bounded")(lambda number: None)
    app.tasks["add"].using(key="k", delay=30).enqueue(1)


@pytest.mark.parametrize("act", ACTS)
def test_a_wake_up_that_cannot_be_sent(app: App, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(app)
    start = threading.Thread.start

    def no_descriptor(self: WakeupBoard, create: bool = False) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    def no_room(self: threading.Thread) -> None:
        if self.name in ("tarry-notify", "tarry-wakeup"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(WakeupBoard, "_board", no_descriptor)
    monkeypatch.setattr(threading.Thread, "start", no_room)
    for _ in range(7):  # more than are told at once
        ACTS[act](app)


class Listener:
    def on_accepted(self, jobs: Sequence[Job], changed: bool = False) -> None: ...

    def on_manual_change(self, jobs: Sequence[Job], what: JobEvent) -> None: ...


def whole(store: Store) -> tuple[list[Job], list[bytes]]:
    """The jobs and flows that are stored whole."""
    kept = [row.id for row in store.flows.find(FlowQuery(limit=100)) if row.phase is not Phase.STORING]
    jobs = store.find(Query(limit=100))
    return [job for job in jobs if not is_node(job.id) or flow_of(job.id) in kept], kept


@pytest.mark.parametrize("act", [*ACTS, "large flow"])
@pytest.mark.parametrize("listened", [False, True])
def test_a_store_that_has_gone_away_since(act: str, listened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "STORED_AT_ONCE", 2)
    for number in range(MOST_CALLS):
        memory = MemoryStore()
        store = AwayStore(memory)
        app = App(store, closures=True)
        prepare(app)
        if listened:
            app.client.listener = app.client._duplicates._listener = Listener()
        before, store.left = whole(memory), number
        try:
            flow(app, 5) if act == "large flow" else ACTS[act](app)
            error = None
        except StoreError as raised:
            error = raised
        assert (error is None) == (whole(memory) != before), f"away after {number} calls: {error!r}"
        if not store.was_away:
            return
    raise AssertionError("more calls than are looked at")
