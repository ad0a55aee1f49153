"""What the process of a kill point does: puts jobs of each kind, and runs them, until all have ended.

It tells in a ledger, a line for each, what was acknowledged and what its tasks do. Its time stands still while jobs
run; when nothing is due it goes on to the next job that is.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from tarry import App, QueueFull, Retry, current_job, current_jobs, step
from tarry.client.bounds import declare_bounds
from tarry.client.clock import FakeClock
from tarry.client.handle import Handle
from tarry.embedded.service import LocalWorker
from tarry.errors import StoreError
from tarry.model.bound import Bound
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.moving import NEVER
from tarry.store.opening import open_store
from tarry.store.outbox import Outbox
from tarry.store.rules import ids, owner
from tarry.store.rules.base import Query, Store
from tarry.store.rules.entry import Entry
from tarry.store.shards.mover import Mover
from tarry.store.shards.sharded import ShardedStore
from tarry.tasks.running import CurrentJob
from tarry.testing.history_events import HistoryEvent
from tarry.testing.ledger import Ledger as HistoryLedger
from tarry.worker.worker import WorkerSettings

START = 1_800_000_000 * SECOND
TAKEN_OVER = START + 300 * SECOND
"""When the next process begins: leases have run out, and nothing that ended is pruned yet."""
KEY, BOUNDED = "k7", 3
PARENTS = {"a": "", "b": "a", "c": "a", "d": "bc", "e": "d"}
"""The nodes of the flow, each with those before it."""
ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
MOST_ROUNDS = 60
LIMIT = 60.0
"""Seconds for which a call may fail, since its file does."""
T = TypeVar("T")

app = App(retry=Retry(3, base=1))


class Ledger(HistoryLedger):
    """Lines in a file outside of tarry, each in one write: words, and the events of a history. fd: opened to append;
    none of its calls is counted."""

    def __init__(self, fd: int, now: Callable[[], int]) -> None:
        super().__init__("", now)
        self.fd = fd

    def add(self, *words: str) -> None:
        """Adds a line of words."""
        os.write(self.fd, f"{' '.join(words)}\n".encode())

    def write(self, *events: HistoryEvent) -> None:
        os.write(self.fd, b"".join(msgspec.json.encode(event) + b"\n" for event in events))


ledger: Ledger
"""Of this process, which sets it."""
names: Sequence[str]
"""What errors are to name: the files, or the address of a server."""
has_own_work_store = False
"""Whether worker and keeper have a store of their own, which is not durable, as those of a master have."""


@contextmanager
def _telling(*what: str) -> Iterator[None]:
    for one in what:
        ledger.add("start", one)
    yield
    for one in what:
        ledger.add("end", one)


@app.middleware("run")
def _record(job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
    return ledger.run(job, call_next)


@app.task(name="note")
def note(what: str) -> str:
    with _telling(what):
        return what


@app.task(name="fail_once")
def fail_once(what: str) -> None:
    with _telling(what):
        if current_job().attempt == 1:
            raise ValueError("the first attempt is to fail")


@app.task(name="limited", limit=1)
def limited(what: str) -> None:
    with _telling(what):
        pass


@app.task(name="batch", batch=5, wait=0)
def batch(all: list[str]) -> None:
    ledger.record_start(*current_jobs())
    with _telling(*all):
        pass
    ledger.record_end("done", *current_jobs())


@app.task(name="order")
def order(what: str) -> None:
    with _telling(what):
        step(_charge, what)
        step(_ship, what)


@app.task(name="node")
def node(what: str, *before: str) -> str:
    with _telling(f"node-{what}"):
        return what


@app.task(name="tick", cron="* * * * *")
def tick() -> None:
    with _telling("tick"):
        pass


def _charge(what: str) -> None:
    ledger.add("step", "charge", what)


def _ship(what: str) -> None:
    ledger.add("step", "ship", what)


class Host:
    """A process that does what a master's processes do: worker and keeper. urls: its store, or its shards."""

    def __init__(self, directory: Path, urls: Sequence[str], now: int, fd: int) -> None:
        global ledger, names
        names = ["outbox.db", *map(_name, urls)]
        self.clock = FakeClock(now)
        ledger = Ledger(fd, self.clock.now)
        self._urls = urls
        self.store = self._open(durable=True)
        # What a worker does need not survive a power cut.
        self._work_store = self._open(durable=False) if has_own_work_store else self.store
        app._given, app._clock = self.store, self.clock
        app._outbox_given = directory / "outbox.db"

    def _open(self, durable: bool) -> Store:
        store = insist(lambda: open_store(list(self._urls) if len(self._urls) > 1 else self._urls[0], durable))
        # Holds and leases go by the time of the story, too.
        store.time = self.clock.now  # type: ignore[method-assign]
        return store

    def declare(self) -> None:
        """Sets limits and bounds, as each worker does at its start."""
        insist(lambda: app.declare_limits(self.store))
        insist(lambda: declare_bounds(self.store, {"bounded": Bound(BOUNDED)}))

    def run(self) -> None:
        """Goes on until nothing is left that time alone does not bring."""
        for _ in range(MOST_ROUNDS):
            keeper = app.keeper(self._work_store, self.clock)
            keeper.tick()
            keeper.close()
            self._work()
            active = insist(lambda: self.store.find(Query(states=ACTIVE, limit=1000)))
            due = [job.due for job in active if job.due < NEVER]
            if not due and not insist(lambda: outbox().content().jobs):
                return
            self.clock.time = max(self.clock.time, min(due, default=0))
        raise AssertionError(f"jobs do not end: {self.store.find(Query(states=ACTIVE, limit=10))}")

    def close(self) -> None:
        app.close()
        self.store.close()
        if self._work_store is not self.store:
            self._work_store.close()

    def _work(self) -> None:
        settings = WorkerSettings({"*": 1}, threads=1, coroutines=0)
        LocalWorker(self._work_store, app.tasks, settings, rules=app.rules, clock=self.clock, until_idle=60.0).run()


def put_all() -> None:
    """Puts jobs of each kind; each is in the ledger once it is acknowledged."""
    _put("one", lambda: note.enqueue("one"))
    _put_many([f"many{n}" for n in range(4)], note.enqueue_many)
    _put("keyed", lambda: note.using(key=KEY).enqueue("keyed"))
    for number in range(BOUNDED + 1):
        _put(f"bounded{number}", lambda: note.using(queue="bounded").enqueue(f"bounded{number}"))  # noqa: B023
    _put_many(["limited0", "limited1"], limited.enqueue_many)
    _put("fails", lambda: fail_once.enqueue("fails"))
    _put_many(["batch0", "batch1", "batch2"], batch.enqueue_many)
    _put("order", lambda: order.enqueue("order"))
    with _losing("diamond"):
        with app.flow("diamond") as flow:
            nodes: dict[str, Any] = {}
            for name, before in PARENTS.items():
                nodes[name] = flow.add(node.call(name, *(nodes[one].result for one in before)))
        ledger.add("flow", flow.handle.id)


def keep_in_outbox() -> None:
    """Keeps jobs in the outbox, as an enqueue does while the store is away."""
    for what in ("away0", "away1"):
        job = app.client.make_job("note", b'["%s"]' % what.encode())
        with _losing(what):
            outbox().keep([Entry(job)])
            ledger.add("put", what, ids.text(job.id))
            ledger.put(ids.text(job.id))


def outbox() -> Outbox:
    """That of the app, which has one."""
    assert app.outbox is not None
    return app.outbox


def _put(what: str, enqueue: Callable[[], Handle[Any]]) -> None:
    with _losing(what):
        _acknowledge(what, _sent(enqueue))


def _put_many(all: Sequence[str], enqueue: Callable[[list[Any]], list[Handle[Any]]]) -> None:
    with _losing(*all):
        for what, handle in zip(all, _sent(lambda: enqueue([(what,) for what in all])), strict=True):
            _acknowledge(what, handle)


def _acknowledge(what: str, handle: Handle[Any]) -> None:
    ledger.add("put", what, handle.id)
    ledger.put(handle)


def _sent(enqueue: Callable[[], T]) -> T:
    """What it returns; it is sent once more if that fails."""
    try:
        return enqueue()
    except QueueFull:
        raise
    except StoreError as error:
        _check_text(error)
        return cast("T", error.send_again())


@contextmanager
def _losing(*all: str) -> Iterator[None]:
    """What could not be put is told as lost: nobody acknowledged it. refused: it is surely not stored."""
    try:
        yield
    except QueueFull:
        pass
    except StoreError as error:
        _check_text(error)
        for what in all:
            ledger.add("refused" if error.stored is False else "lost", what)


def insist(call: Callable[[], T]) -> T:
    """What it answers, once the fault is gone, and a shard that failed is asked again."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            return call()
        except StoreError as error:
            _check_text(error)
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _check_text(error: StoreError) -> None:
    """An error names the file or the server that it is about."""
    if not any(name in str(error) for name in names):
        ledger.add("unnamed", type(error).__name__, str(error).replace("\n", " "))


def _name(url: str) -> str:
    parts = urlsplit(url)
    return f":{parts.port}" if parts.port else parts.path.rpartition("/")[2]


def on_one(directory: Path, urls: Sequence[str], fd: int) -> None:
    """On one store: everything is put, and run; a minute passes, in which the schedule ticks."""
    host = Host(directory, urls, START, fd)
    host.declare()
    put_all()
    keep_in_outbox()
    host.run()
    host.clock.advance(61)
    host.run()
    host.close()


def moved(directory: Path, urls: Sequence[str], fd: int) -> None:
    """On one file, then a second shard is added: jobs move to it, and both are run."""
    host = Host(directory, urls[:1], START, fd)
    host.declare()
    put_all()
    host.close()
    host = Host(directory, urls, START + SECOND, fd)
    move(host.store)
    host.declare()
    host.run()
    host.close()


def move(store: Store) -> None:
    """Moves jobs to the shards where they belong."""
    assert isinstance(store, ShardedStore)
    mover = Mover(store, owner.new_name())
    insist(mover.run)


def urls_of(story: str, directory: Path) -> list[str]:
    """The files of a story that is not on a server."""
    names = {"file": ["jobs"], "shards": ["jobs", "more"]}[story]
    return [f"sqlite:///{directory}/{name}.db" for name in names]


def story_on(urls: Sequence[str]) -> Callable[[Path, Sequence[str], int], None]:
    """What is done with such stores."""
    return moved if len(urls) > 1 else on_one
