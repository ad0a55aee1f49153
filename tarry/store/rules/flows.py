"""The verbs for flows and signals, and what each promises. `conformance/flows` proves it for every store.

1. A flow is stored whole or not at all; the same flow sent twice is one.
2. A blocked node is never claimed. The change that ends its last parent releases it, once, in the same call: up to
   `RELEASED_AT_ONCE` nodes at once, and those that are left by `tend`.
3. A change of a node that is not made does nothing to its flow.
4. A flow has ended if, and only if, none of its nodes is active (`FlowRow.active`).
5. A finished node is kept as long as its flow.
"""

import contextlib
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import OtherDatabase, StoreError
from tarry.model.duration import MINUTE
from tarry.model.flow.node_ids import flow_id, index_of
from tarry.model.flow.signal import Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow, GateRow, Phase
from tarry.model.job import Job, State
from tarry.model.outcome import outcome_note
from tarry.store.rules.name_pattern import fits

log = logging.getLogger("tarry.store")

# As with promotions: a bound, so that the cost of a call is bounded too.
RELEASED_AT_ONCE = 1000
"""How many nodes are released in one call at most."""
FLOWS_AT_ONCE = 100
"""Of how many flows nodes are released in one call of `release_more` at most."""
WOKEN_AT_ONCE = 1000
"""How many jobs a signal wakes in one transaction."""
STORED_AT_ONCE = 1000
"""A flow with more nodes is stored in parts."""
STORING_TIME = 10 * MINUTE
"""After so long a flow that is not stored whole is deleted."""
KEPT_NODES = 200_000
"""How many nodes of ended flows are kept; then the flows that ended first are deleted, whatever their time."""

_random = random.SystemRandom()


FLOW_TASK = "flow:"
"""What the task of a root begins with; the name of the flow follows."""


def abandoned(row: FlowRow) -> FlowRow:
    """A flow that was not stored whole in time, as it ends."""
    note = outcome_note("Abandoned", "it was not stored whole")
    return replace(row, active=0, ends=State.CANCELLED, note=note)


def deleted_meanwhile() -> StoreError:
    """The error of who stores nodes of a flow that is gone."""
    error = StoreError("storing the flow took so long that it was deleted meanwhile; send it again, as a new one")
    error.stored = False
    return error


class NewFlow(Struct, frozen=True):
    """A flow to store. The ids of root and nodes are those of `StoreFlows.new_id` and `node_ids.node_id`."""

    root: Job
    """Blocked, task `flow:` and the name, with the key of the flow if it has one."""
    flow: FlowRow
    """RUNNING, with the numbers that it has once it is stored."""
    nodes: Sequence[Job]
    """All but the root, by index. Those that wait for none are ready or scheduled, the others blocked."""
    gates: Sequence[GateRow] = ()
    """Those with several parents."""


def frame_of(new: NewFlow, now: int) -> NewFlow:
    """The first part of a large flow: all but its nodes. Those that wait for none are in gates that are open already,
    so that `tend` releases them once the flow runs."""
    gates = list(new.gates)
    for job in new.nodes:
        index = index_of(job.id)
        if job.state is State.BLOCKED:
            continue
        if gates and gates[-1].next >= 0 and gates[-1].first + gates[-1].count == index:
            gates[-1] = replace(gates[-1], count=gates[-1].count + 1)
        else:
            gates.append(GateRow(new.flow.id, index, 1, 0, index))
    return NewFlow(new.root, replace(new.flow, phase=Phase.STORING, at=now), (), gates)


class FlowQuery(Struct, frozen=True):
    """Which flows somebody wants to see; a field left out matches all. The answer has the newest first."""

    phases: tuple[Phase, ...] = ()
    name: str | None = None
    key: str | None = None
    at_before: int | None = None
    """`FlowRow.at` is before this time. Cheap, with phases."""
    before: bytes = b""
    """Only flows with a smaller id: the last one of the page before; empty: from the newest."""
    limit: int = 100
    queues: tuple[str, ...] = ()
    """Only of roots whose queue fits one of these patterns (`shop-*`); empty: of all."""

    def matches(self, row: FlowRow) -> bool:
        """Whether the query finds this flow; `row` has its root, if that is there."""
        task, key = (row.root.task, row.root.key) if row.root else (None, None)
        return (
            (not self.phases or row.phase in self.phases)
            and (self.name is None or task == FLOW_TASK + self.name)
            and self.key in (None, key)
            and (not self.queues or (row.root is not None and fits(self.queues, row.root.queue)))
            and (self.at_before is None or row.at < self.at_before)
            and (not self.before or row.id < self.before)
        )


class NodeLane(Struct, frozen=True):
    """A lane in which a job of a flow waits."""

    task: str
    lane: str
    is_counted: bool
    """The task has a number for each key, so that all jobs of the lane have to be where they are counted."""


class StoreFlows(ABC):
    """The flows and signals of a store. Several threads and processes may use it at once."""

    def new_id(self, name: str, key: str | None = None, lanes: Collection[NodeLane] = ()) -> bytes:
        """An id for a new flow. A store of several shards makes one of the shard of the key, or of the lanes of its
        jobs in which jobs are counted; ConfigError if these do not live on one shard."""
        return flow_id(time.time_ns() // 1_000_000, _random.getrandbits(42))

    def insert(self, new: NewFlow, now: int) -> bytes:
        """Stores the flow, all or none. Returns the id of the flow that lives: its own, also if it was stored before;
        or that of the unfinished flow of the same name that holds its key, and then nothing is stored.

        A large flow is stored in parts, and none of its nodes runs before the last part. A flow whose client died in
        between is deleted by `tend`. StoreError: it took so long that this has happened, or the flow that holds the key
        is still being stored; nothing is stored.
        """
        is_small = len(new.nodes) <= STORED_AT_ONCE
        return self.require_whole(new, self._insert(new, now) if is_small else self._insert_in_parts(new, now))

    def require_whole(self, new: NewFlow, stored_id: bytes) -> bytes:
        """Returns the flow that lives in place of a new one; StoreError if another client has not stored it whole yet:
        should that client be dead, the flow would never run."""
        row = None if stored_id == new.root.id else self.get(stored_id)
        if row is None or row.phase is not Phase.STORING:
            return stored_id
        error = StoreError(
            f"another client is storing flow {UUID(bytes=stored_id)} with the key {new.root.key!r}: send it again; if"
            f" that client has died, the key is free {STORING_TIME // MINUTE} minutes later"
        )
        error.stored = False
        raise error

    def _insert_in_parts(self, new: NewFlow, now: int) -> bytes:
        stored_id = self._insert(frame_of(new, now), now)
        row = self.get(stored_id)
        # Another one holds the key; or a lost answer hid that all was stored.
        if stored_id != new.root.id or row is None or row.phase is not Phase.STORING:
            return stored_id
        blocked = [replace(job, state=State.BLOCKED) for job in new.nodes]
        for start in range(0, len(blocked), STORED_AT_ONCE):
            self._insert_nodes(blocked[start : start + STORED_AT_ONCE])
        if not self.change(FlowChange(stored_id, Phase.STORING, Phase.RUNNING, at=new.flow.at), now):
            raise deleted_meanwhile()
        return stored_id

    def begin(self, new: NewFlow, now: int) -> None:
        """Releases the first nodes of a large flow that was just stored; the keeper would a second later. Raises no
        StoreError."""
        # No error may leave this: the flow is stored.
        with contextlib.suppress(StoreError):
            for _ in range(1 + len(new.nodes) // RELEASED_AT_ONCE if len(new.nodes) > STORED_AT_ONCE else 0):
                if not self.release_more(now):
                    break

    @abstractmethod
    def _insert(self, new: NewFlow, now: int) -> bytes:
        """`insert` in one transaction. If the root is there already, it changes nothing."""

    @abstractmethod
    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        """Stores nodes of one flow, blocked; those that are there already stay as they are. StoreError if the flow is
        gone, and then none is stored: nobody would ever delete them."""

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        """Stores nodes of one flow that were added while it runs, blocked, where the flow lives; those that are there
        already stay as they are. Their indices are of `grow`. StoreError if the flow is gone."""
        self._insert_nodes(jobs)

    def check_lanes(self, flow: bytes, lanes: Collection[NodeLane]) -> None:
        """ConfigError if jobs in these lanes cannot be added to the flow: see `new_id`."""
        return

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        """`insert` through the caller's own connection, in one part: stored if, and only if, the caller commits. Errors
        as those of `Store.insert_within`."""
        raise OtherDatabase("this store cannot take part in a transaction of yours")

    @abstractmethod
    def grow(self, flow: bytes, count: int) -> int | None:
        """Gives out `count` more indices of a flow; returns the first. None: the flow has ended, is gone, or would have
        more than MAX_NODES."""

    @abstractmethod
    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        """Up to `limit` nodes of a flow with a greater index than `after`, by index, without the root. states: only
        those; empty: all. Cheap, but with states it may look at all nodes of the flow."""

    @abstractmethod
    def find(self, query: FlowQuery) -> list[FlowRow]:
        """The flows that match, the newest first, each with its root. May look at all flows of the phases."""

    @abstractmethod
    def get(self, flow: bytes) -> FlowRow | None:
        """The row of a flow, without its root."""

    @abstractmethod
    def change(self, change: FlowChange, now: int) -> bool:
        """Makes the change if it is valid, and returns whether it was. As with the end of a node, gates may open by it,
        and the flow may end."""

    def tend(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        """Does one bounded part of what is left to do: `release_more`, or else `tidy`. Returns whether there may be
        more."""
        return self.release_more(now, limit) or self.tidy(now, limit)

    @abstractmethod
    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        """Releases up to `limit` nodes whose gates are open, whatever the number of gates, of one flow after the other:
        the next call begins with the next flow. If there are none, it goes on with a signal whose sender has died.
        Returns whether there may be more to do. Cheap if there is nothing."""

    @abstractmethod
    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        """Deletes up to `limit` nodes of a flow that has been kept long enough, or of one that was never stored whole;
        else old signals. Returns whether there may be more to do. Cheap if there is nothing."""

    def signal(self, signal: Signal, now: int) -> int:
        """Keeps a signal, and makes jobs ready that await it; returns how many. 0, and nothing is done, if its address
        has this id already. Many are woken in pieces: where that breaks off, `tend` goes on."""
        woken, more = self._send(signal, now)
        # Each piece begins behind the one before.
        while more:
            try:
                some, more = self._wake_more(signal.name, signal.key, now)
            except StoreError as error:
                # No error may leave this: the signal is kept.
                where = signal.name, signal.key
                log.warning("signal %r %r: the keeper goes on to wake the jobs that wait: %s", *where, error)
                return woken
            woken += some
        return woken

    @abstractmethod
    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        """Keeps a signal and wakes up to WOKEN_AT_ONCE jobs, in one transaction: how many, and whether there may be
        more, for `_wake_more`."""

    @abstractmethod
    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        """The next piece for the last signal of an address, as `_send`; (0, False) if none is left."""

    @abstractmethod
    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        """The signals of an address with a greater number than `after`, by number. job: who asks, since each shard
        counts by itself."""

    @abstractmethod
    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        """The jobs that wait for a signal whose name begins with the prefix, by name, key and job. after: only those
        that come after this one, which may have gone. For people."""


class NoFlows(StoreFlows):
    """Of a store that keeps no flows. Nothing is there to read; StoreError for what would write."""

    def _insert(self, new: NewFlow, now: int) -> bytes:
        raise StoreError("this store keeps no flows")

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        raise StoreError("this store keeps no flows")

    def grow(self, flow: bytes, count: int) -> int | None:
        return None

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        return []

    def find(self, query: FlowQuery) -> list[FlowRow]:
        return []

    def get(self, flow: bytes) -> FlowRow | None:
        return None

    def change(self, change: FlowChange, now: int) -> bool:
        return False

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return False

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return False

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        raise StoreError("this store keeps no signals")

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        return 0, False

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        return []

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        return []
