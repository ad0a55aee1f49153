"""Writes a history while it happens: what producers, tasks and tests know, each event by one write to a file."""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tarry.client.bulk import find_pages
from tarry.model.flow import wiring
from tarry.model.flow.node_ids import index_of
from tarry.model.job import Job, State
from tarry.model.verdict import Cancel, Snooze
from tarry.store.queries.history_reading import totals
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.running import CurrentJob
from tarry.tasks.shield import shielded
from tarry.tasks.step_log import find_suspension
from tarry.testing.history_events import (
    Died,
    Ended,
    FinalState,
    HistoryEvent,
    HistorySum,
    NodeOf,
    Put,
    Started,
    StoreRead,
)

_READ_AT_ONCE = 1000
_MOST_FLOWS = 1_000_000


def _clock() -> int:
    return time.time_ns() // 1000


class Ledger:
    """A file of events that any number of processes add to. Nothing of it is kept in memory.

    now: the time in microseconds, as `store.time`; None: this host's clock, which is what SQLite has too.
    """

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], int] | None = None) -> None:
        self.path = Path(path)
        self.now = now or _clock

    def write(self, *events: HistoryEvent) -> None:
        """Adds events, by one write: lines of several processes do not mix. OSError, also if only a part of them could
        be written."""
        lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
        # Opened each time: so it goes on in a process that was forked, or whose descriptors a task has closed.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The rest by a second write would stand behind the lines of others.
            if os.write(file, lines) < len(lines):
                raise OSError(errno.ENOSPC, "only a part of the events was written", str(self.path))
        finally:
            os.close(file)

    def put(self, *jobs: Any, **fields: Any) -> None:
        """Jobs (handles, or their ids) were put, and that is acknowledged. fields: those of `Put` that are known."""
        at = fields.pop("at", None) or self.now()
        self.write(*(Put(job if isinstance(job, str) else job.id, at, **fields) for job in jobs))

    def record_death(self, pid: int = 0, owner: str = "") -> None:
        """A process is about to be killed, or to end."""
        self.write(Died(self.now(), owner, pid))

    def record_start(self, *jobs: CurrentJob) -> None:
        """Attempts begin: for the jobs of a batch, around which there is no middleware; `current_jobs()` has them."""
        at, pid = self.now(), os.getpid()
        attempts = (one.running.job for one in jobs)
        self.write(*(Started(ids.text(one.id), one.epoch, one.owner, at, pid, one.state_since) for one in attempts))

    def record_end(self, outcome: str, *jobs: CurrentJob) -> None:
        """Attempts ended, and the store does not know it yet."""
        at = self.now()
        attempts = (one.running.job for one in jobs)
        self.write(*(Ended(ids.text(one.id), one.epoch, one.owner, at, outcome) for one in attempts))

    def run(self, job: CurrentJob, call_next: Callable[[CurrentJob], Any]) -> Any:
        """Middleware that writes the start and the end of each attempt: `app.middleware("run")(ledger.run)`."""
        attempt = LoggedAttempt(self, job)
        return _run_async(attempt, call_next) if job.is_async else _run(attempt, call_next)

    def read_store(self, store: Store, *, drained: bool = True, kept: int | None = None) -> None:
        """What the store says at the end: the state of each job. The fields are those of `StoreRead`. StoreError."""
        for events in _batches(read_end(store, drained=drained, kept=kept)):
            self.write(*events)

    def read_flows(self, store: Store) -> None:
        """Which nodes the flows in the store have, and which of them comes after which. StoreError."""
        for events in _batches(read_flows(store)):
            self.write(*events)

    def read_sums(self, store: Store) -> None:
        """What the store's history has counted, where all puts are in the ledger. StoreError."""
        while store.history.sum_up(store.time()):
            pass
        total = totals(store.history).total
        self.write(HistorySum({name: getattr(total, name) for name in ("put", "done", "dead", "cancelled", "expired")}))


class LoggedAttempt:
    """One attempt, with its lines in a ledger."""

    def __init__(self, ledger: Ledger, job: CurrentJob) -> None:
        self.job = job
        self._ledger = ledger
        self._has_begun = self._has_ended = False
        self._outcome = "interrupted"

    def begin(self) -> None:
        """Writes that it began."""
        # A line that an interrupt cuts off would say less than was done.
        with shielded:
            self._ledger.record_start(self.job)
            self._has_begun = True

    def note_value(self, value: Any) -> None:
        """Notes what it returned."""
        self._outcome = "snoozed" if isinstance(value, Snooze) else "cancelled" if isinstance(value, Cancel) else "done"

    def note_error(self, error: BaseException) -> None:
        """Notes what it raised."""
        if find_suspension(error) is not None:
            self._outcome = "suspended"
        elif isinstance(error, Exception):
            self.note_value(error)
            self._outcome = "failed" if self._outcome == "done" else self._outcome

    def end(self) -> None:
        """Writes that it ended, if it began."""
        try:
            with shielded:
                self._write_end()
        except Interrupted:
            # It came before the block: an attempt is interrupted once at most.
            self._write_end()
            raise

    def _write_end(self) -> None:
        if self._has_begun and not self._has_ended:
            self._has_ended = True
            self._ledger.record_end(self._outcome, self.job)


def _run(attempt: LoggedAttempt, call_next: Callable[[CurrentJob], Any]) -> Any:
    try:
        attempt.begin()
        value = call_next(attempt.job)
        attempt.note_value(value)
        return value
    except BaseException as error:
        attempt.note_error(error)
        raise
    finally:
        attempt.end()


async def _run_async(attempt: LoggedAttempt, call_next: Callable[[CurrentJob], Any]) -> Any:
    try:
        attempt.begin()
        value = await call_next(attempt.job)
        attempt.note_value(value)
        return value
    except BaseException as error:
        attempt.note_error(error)
        raise
    finally:
        attempt.end()


def read_end(store: Store, *, drained: bool = True, kept: int | None = None) -> Iterator[HistoryEvent]:
    """What `Ledger.read_store` writes, for a history that is in no file."""
    for jobs in find_pages(store, Query()):
        yield from (FinalState(ids.text(job.id), job.state, job.epoch) for job in jobs)
    yield StoreRead(store.time(), drained, kept)


class _FlowNode(NamedTuple):
    id: str
    is_blocked: bool
    tells: list[int]
    """The indices of the nodes that wait for it."""


def read_flows(store: Store) -> Iterator[NodeOf]:
    """The nodes of all flows, and which of the others each comes after. StoreError."""
    for row in store.flows.find(FlowQuery(limit=_MOST_FLOWS)):
        nodes = {index_of(job.id): _read_node(job) for job in _nodes(store, row.id)}
        parents: dict[int, list[str]] = {}
        for index in sorted(_find_woken(nodes)):
            for child in nodes[index].tells:
                parents.setdefault(child, []).append(nodes[index].id)
        for index, node in nodes.items():
            yield NodeOf(ids.text(row.id), node.id, tuple(parents.get(index, ())))


def _nodes(store: Store, flow: bytes) -> Iterator[Job]:
    after = 0
    while nodes := store.flows.nodes(flow, after, _READ_AT_ONCE):
        yield from nodes
        after = index_of(nodes[-1].id)


def _read_node(job: Job) -> _FlowNode:
    links, _ = wiring.unwrap(job.body)
    gates = links.tells if links is not None else ()
    tells = [child for gate in gates for child in range(gate.first, gate.first + gate.count)]
    return _FlowNode(ids.text(job.id), job.state is State.BLOCKED, tells)


def _find_woken(nodes: Mapping[int, _FlowNode]) -> set[int]:
    """The nodes that have been released, or may be. A process that dies while it adds nodes leaves some that nobody
    waits for and nothing releases."""
    found = {index for index, node in nodes.items() if not node.is_blocked}
    new = found
    while new:
        new = {child for index in new for child in nodes[index].tells if child in nodes} - found
        found = found | new
    return found


def _batches(events: Iterator[HistoryEvent] | Iterator[NodeOf]) -> Iterator[list[HistoryEvent]]:
    while batch := list(islice(events, _READ_AT_ONCE)):
        yield batch
