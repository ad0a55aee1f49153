"""A store that fails once, at the n-th call, for tests of code that has to survive that.

Run the same steps with n = 1, 2, 3 ... until `calls` stays below n: then every call has failed once.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from tarry.errors import QueueFull, StoreUnavailable
from tarry.model.bound import Bound
from tarry.model.change import Change
from tarry.model.flow.signal import Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.rules.base import NOTHING, Backlog, Diagnostic, Exchange, Query, Store, Tally, Want
from tarry.store.rules.flows import RELEASED_AT_ONCE, FlowQuery, NewFlow, StoreFlows
from tarry.store.rules.history.gauges import QueueSample
from tarry.store.rules.history.history import TAKEN_AT_ONCE, JournalHistory, StoreHistory, Taken
from tarry.store.rules.history.sums import Place
from tarry.store.rules.sleeper import Wakeup
from tarry.store.rules.waiting import CappedCount, ReadyBefore, WaitingCounts

Asked = ParamSpec("Asked")
T = TypeVar("T")


class FlakyStore(Store):
    """Passes all verbs to the inner store; call number `fail_at` raises StoreUnavailable, the others do not.

    after: False: nothing was done when it fails; True: it was done and only the reply is lost. Calls are counted from
    1, over all verbs that read or write jobs, queues and names; wake-ups, ids and closing neither count nor fail.
    """

    def __init__(self, store: Store, fail_at: int, after: bool) -> None:
        self.url = store.url
        self.calls = 0
        """How many calls were made up to now."""
        self._store, self._fail_at, self._after = store, fail_at, after
        self._lock = threading.Lock()
        self.history = FlakyHistory(store.history, self._call)
        self.flows = FlakyFlows(store.flows, self._call)
        self.waiting = FlakyWaiting(store.waiting, self._call)

    def _call(self, verb: Callable[Asked, T], *args: Asked.args, **kwargs: Asked.kwargs) -> T:
        with self._lock:
            # Under the lock: calls come from several threads, and exactly one must fail.
            self.calls += 1
            fails = self.calls == self._fail_at
        if fails and not self._after:
            raise StoreUnavailable(f"{self.url}: call {self._fail_at} was made to fail; send it again")
        answer = verb(*args, **kwargs)
        if fails:
            raise StoreUnavailable(f"{self.url}: the reply to call {self._fail_at} was lost; send it again")
        return answer

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        return self._call(self._store.insert, jobs)

    def insert_bounded(
        self, jobs: Sequence[Job], bounds: Mapping[str, Bound], now: int, freed: Collection[str] = ()
    ) -> list[bytes | QueueFull]:
        return self._call(self._store.insert_bounded, jobs, bounds, now, freed)

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        return self._call(self._store.oldest_waiting, queue, limit)

    def insert_within(
        self, connection: Any, jobs: Sequence[Job], bounds: Mapping[str, Bound] = NOTHING, now: int = 0
    ) -> list[bytes]:
        return self._call(self._store.insert_within, connection, jobs, bounds, now)

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self._call(self._store.claim, wants, limit, owner, lease, now)

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self._call(self._store.apply, changes, now)

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        return self._call(self._store.exchange, changes, wants, limit, owner, lease, now)

    def next_due(self) -> int | None:
        return self._call(self._store.next_due)

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        return self._call(self._store.extend, owner, held, lease, now)

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        return self._call(self._store.reclaim, now, of, limit)

    def owners(self) -> list[str]:
        return self._call(self._store.owners)

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        return self._call(self._store.hold, name, owner, until, now)

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        return self._call(self._store.get, ids)

    def find(self, query: Query) -> list[Job]:
        return self._call(self._store.find, query)

    def id_behind(self, after: bytes, count: int) -> bytes | None:
        return self._call(self._store.id_behind, after, count)

    def counts(self) -> list[Tally]:
        return self._call(self._store.counts)

    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        return self._call(self._store.expiring, start, end, limit)

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        return self._call(self._store.prune, now, most_bytes, limit, by_queue)

    def pause(self, queue: str, paused: bool) -> None:
        self._call(self._store.pause, queue, paused)

    def queues(self) -> dict[str, bool]:
        return self._call(self._store.queues)

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        return self._call(self._store.backlog, queues, now, most)

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        return self._call(self._store.save_progress, owner, marks)

    def limit(self, name: str, limit: Limit | None) -> None:
        self._call(self._store.limit, name, limit)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        return self._call(self._store.limits)

    def recount(self, now: int) -> int:
        return self._call(self._store.recount, now)

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        return self._call(self._store.kv_list, prefix)

    def kv_get(self, name: str) -> bytes | None:
        return self._call(self._store.kv_get, name)

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        return self._call(self._store.kv_cas, name, value, was)

    def time(self) -> int:
        return self._call(self._store.time)

    def diagnostics(self) -> list[Diagnostic]:
        return self._call(self._store.diagnostics)

    def wakeup(self) -> Wakeup:
        return self._store.wakeup()

    def wake_for_recall(self) -> None:
        self._store.wake_for_recall()

    def new_id(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        return self._store.new_id(task, key, lane)

    def close(self) -> None:
        self._store.close()


class FlakyFlows(StoreFlows):
    """The flows of the inner store; each part of a call that is made of several may fail by itself."""

    def __init__(self, flows: StoreFlows, call: Callable[..., Any]) -> None:
        self._flows, self._call = flows, call

    def new_id(self, name: str, key: str | None = None, limited: Collection[str] = ()) -> bytes:
        return self._flows.new_id(name, key, limited)

    def _insert(self, new: NewFlow, now: int) -> bytes:
        return bytes(self._call(self._flows._insert, new, now))

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        self._call(self._flows._insert_nodes, jobs)

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        self._call(self._flows.add_nodes, jobs)

    def check_limited(self, flow: bytes, limited: Collection[str]) -> None:
        self._call(self._flows.check_limited, flow, limited)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        return bytes(self._call(self._flows.insert_within, connection, new, now))

    def grow(self, flow: bytes, count: int) -> int | None:
        first: int | None = self._call(self._flows.grow, flow, count)
        return first

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        return list(self._call(self._flows.nodes, flow, after, limit, states))

    def find(self, query: FlowQuery) -> list[FlowRow]:
        return list(self._call(self._flows.find, query))

    def get(self, flow: bytes) -> FlowRow | None:
        row: FlowRow | None = self._call(self._flows.get, flow)
        return row

    def change(self, change: FlowChange, now: int) -> bool:
        return bool(self._call(self._flows.change, change, now))

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return bool(self._call(self._flows.release_more, now, limit))

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return bool(self._call(self._flows.tidy, now, limit))

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        woken, more = self._call(self._flows._send, signal, now)
        return woken, more

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        woken, more = self._call(self._flows._wake_more, name, key, now)
        return woken, more

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        return list(self._call(self._flows.signals, job, name, key, after))

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        return list(self._call(self._flows.awaiting, prefix, limit, after))


class FlakyHistory(JournalHistory):
    """Calls of the history of the inner store, each of which may fail. Of several stores' history, whole verbs do."""

    def __init__(self, history: StoreHistory, call: Callable[..., Any]) -> None:
        self._history, self._call = history, call

    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        if isinstance(self._history, JournalHistory):
            return super().sum_up(now, limit)
        return int(self._call(self._history.sum_up, now, limit))

    def sample(self, now: int, store: Any, read: Callable[[Any], Mapping[str, QueueSample]]) -> None:
        if isinstance(self._history, JournalHistory):
            super().sample(now, store, read)
        else:
            self._call(self._history.sample, now, store, read)

    def number(self) -> int:
        assert isinstance(self._history, JournalHistory)
        return int(self._call(self._history.number))

    def take(self, limit: int) -> Taken:
        assert isinstance(self._history, JournalHistory)
        taken: Taken = self._call(self._history.take, limit)
        return taken

    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        assert isinstance(self._history, JournalHistory)
        return bool(self._call(self._history.fold, taken, cells))

    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        cells: dict[Place, bytes] = self._call(self._history.read, resolution, start, end)
        return cells

    def unsummed(self, limit: int) -> list[bytes]:
        records: list[bytes] = self._call(self._history.unsummed, limit)
        return records

    def drop(self, resolution: int, before: int) -> int:
        return int(self._call(self._history.drop, resolution, before))


class FlakyWaiting(WaitingCounts):
    """Counts of the waiting jobs of the inner store, each of which may fail."""

    def __init__(self, waiting: WaitingCounts, call: Callable[..., Any]) -> None:
        self._waiting, self._call = waiting, call

    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        counts: list[CappedCount] = self._call(self._waiting.due, bounds, queues, most)
        return counts

    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        counts: dict[int, CappedCount] = self._call(self._waiting.bands, queue, most)
        return counts

    def before(self, job: Job, most: int) -> CappedCount:
        count: CappedCount = self._call(self._waiting.before, job, most)
        return count

    def _before(self, job: Job, most: int) -> ReadyBefore:
        raise NotImplementedError("the inner store counts: see `before`")
