"""The store and the client of an app during a test. They do everything in the calling thread."""

import itertools
import random
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.client.follow import Follow
from tarry.client.group_commit import GroupCommit
from tarry.client.handle import Handle
from tarry.client.live_workers import BroadcastTarget, Per
from tarry.errors import QueueFull, ResultTimeout
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.duration import Duration
from tarry.model.flow import wiring
from tarry.model.flow.node_ids import flow_id
from tarry.model.flow.own_queues import own_queue
from tarry.model.job import RELATIVE, Job, State
from tarry.store.memory.flows import MemoryFlows
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import NOTHING
from tarry.store.rules.flows import NewFlow, NodeLane
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.tasks.call import AnyCall
from tarry.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from tarry.app import App

_RANDOM_BITS = 62
_FLOW_BITS = 42
TEST_QUEUE = own_queue("test|")
"""The queue of the only host that broadcasts find in a test, which is its only worker, too."""


class RecordingStore(MemoryStore):
    """A memory store that remembers all enqueued jobs, also after they are deleted."""

    def __init__(self, app: "App", clock: FakeClock) -> None:
        super().__init__(clock.now)
        # The backend keeps stores in a weak dictionary by app: a strong reference here would keep the app alive.
        self._app = weakref.ref(app)
        self._clock = clock
        # A counter, not random: the clock stands still, and ids must still sort in the order of the enqueues.
        self._tails = itertools.count(random.getrandbits(_RANDOM_BITS - 1))
        self.enqueued: dict[bytes, Job] = {}
        """Each job by its id, as it was before its first attempt."""
        self.flows = RecordingFlows(self, self._lock, self._index, self._insert_all, self._lane_of, self._hub.wake)

    @property
    def app(self) -> "App":
        """The app whose store this is."""
        app = self._app()
        assert app is not None
        return app

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        stored = super().insert(jobs)
        for job, id in zip(jobs, stored, strict=True):
            if id == job.id:
                self.enqueued.setdefault(id, job)
        return stored

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        stored = super().insert_bounded(jobs, bounds, now, freed, key_bounds)
        for job, id in zip(jobs, stored, strict=True):
            if id == job.id:
                self.enqueued.setdefault(job.id, job)
        return stored

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        done = super().supersede(change, job, now)
        if done:
            self.enqueued.setdefault(job.id, job)
        return done

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        """Inserts at once, as if the caller had committed; if the library reports commits, the job waits for that."""
        session = getattr(sys.modules.get("sqlalchemy.orm"), "Session", None)
        if hasattr(connection, "on_commit") or (session is not None and isinstance(connection, session)):
            return super().insert_within(connection, jobs)
        return self.insert(jobs)

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        valid = super().apply(changes, now)
        for change, is_valid in zip(changes, valid, strict=True):
            # An enqueue with the same key replaced or postponed the job.
            if is_valid and not change.epoch and change.to is not None and not change.to.finished:
                (job,) = self.get([change.id])
                if job is not None:
                    self.enqueued[job.id] = job
        return valid

    def new_id(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """A UUIDv7 by the clock of the test, since it contains the time."""
        value = self._clock.now() // 1000 << 80 | 0x7 << 76 | 0b10 << _RANDOM_BITS | next(self._tails)
        return value.to_bytes(16, "big")

    def new_flow_id(self) -> bytes:
        """The same for a flow."""
        return flow_id(self._clock.now() // 1000, next(self._tails) % 2**_FLOW_BITS)


class RecordingFlows(MemoryFlows):
    """The flows of a `RecordingStore`."""

    def __init__(self, store: RecordingStore, *args: Any) -> None:
        super().__init__(*args)
        # Weak, so that the store is freed without the garbage collector.
        self._store = weakref.proxy(store)

    def new_id(self, name: str, key: str | None = None, lanes: Collection[NodeLane] = ()) -> bytes:
        return bytes(self._store.new_flow_id())

    def insert(self, new: NewFlow, now: int) -> bytes:
        id = super().insert(new, now)
        if id == new.root.id:
            self._store.enqueued |= {job.id: _as_enqueued(job) for job in new.nodes}
        return id

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        super().add_nodes(jobs)
        self._store.enqueued |= {job.id: _as_enqueued(job) for job in jobs}

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        """As `RecordingStore.insert_within`."""
        session = getattr(sys.modules.get("sqlalchemy.orm"), "Session", None)
        if hasattr(connection, "on_commit") or (session is not None and isinstance(connection, session)):
            return super().insert_within(connection, new, now)
        return self.insert(new, now)


def _as_enqueued(job: Job) -> Job:
    """A node as a plain job: without its wiring, and with a time that does not count from its release."""
    due = job.state_since + job.due if job.state is State.BLOCKED and job.due < RELATIVE else job.due
    return replace(job, body=wiring.arguments(job.body), due=due)


class JobDrainer(Protocol):
    """Runs the jobs of a test."""

    def on_enqueue(self) -> None:
        """Called after each enqueue."""

    async def aon_enqueue(self) -> None:
        """The same, awaited."""

    def has_workers(self) -> bool:
        """Whether workers run jobs beside the test."""


class UnbatchedInsert(GroupCommit[Job, bytes]):
    """Calls the store for each job, in the calling thread."""

    # Without a lock: a job that runs inline may enqueue, inside the enqueue that runs it.

    def __init__(self, call: Callable[[list[Job]], list[bytes]], drainer: JobDrainer) -> None:
        super().__init__(call)
        self._drainer = drainer

    def do(self, item: Job, end: float | None = None) -> bytes:
        (id,) = self._call([item])
        self._drainer.on_enqueue()
        return id

    async def ado(self, item: Job) -> bytes:
        (id,) = self._call([item])
        await self._drainer.aon_enqueue()
        return id


class DirectClient(Client):
    """The client during a test. It starts no thread, and does not wait for what cannot come."""

    def __init__(self, drainer: JobDrainer, store: RecordingStore, *args: Any, **kwargs: Any) -> None:
        super().__init__(store, *args, **kwargs)
        self._drainer = drainer
        self._inserter.batcher = UnbatchedInsert(store.insert, drainer)

    def insert_jobs(self, jobs: Sequence[Job], options: Options = NO_OPTIONS) -> list[Handle[Any]]:
        handles = super().insert_jobs(jobs, options)
        self._drainer.on_enqueue()
        return handles

    async def ainsert_jobs(self, jobs: Sequence[Job], options: Options = NO_OPTIONS) -> list[Handle[Any]]:
        # Not in another thread, as the client does it: jobs that run inline belong in the thread of the test.
        handles = (
            await super().ainsert_jobs(jobs, options)
            if options.connection is not None
            else super().insert_jobs(jobs, options)
        )
        await self._drainer.aon_enqueue()
        return handles

    def insert_flow(self, new: NewFlow, connection: Any = None) -> Handle[Any]:
        root = super().insert_flow(new, connection)
        self._drainer.on_enqueue()
        return root

    async def ainsert_flow(self, new: NewFlow, connection: Any = None) -> Handle[Any]:
        # In the thread of the test, as `ainsert_jobs`.
        within = connection is not None
        root = await super().ainsert_flow(new, connection) if within else super().insert_flow(new)
        await self._drainer.aon_enqueue()
        return root

    def find_targets(self, per: Per) -> list[BroadcastTarget]:
        return [BroadcastTarget("test", "test", TEST_QUEUE)]

    async def aenqueue_many(
        self,
        task: TaskDefinition[Any, Any],
        calls: Iterable[AnyCall[Any]],
        options: Options = NO_OPTIONS,
        over: Duration | None = None,
    ) -> list[Handle[Any]]:
        if task.app_hooks.has_enqueue_hooks or options.connection is not None:
            return await super().aenqueue_many(task, calls, options, over)
        return await self.ainsert_jobs(self.factory.make_many(task, calls, options, over), options)

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        # The job can only finish if somebody runs it; a test must not hang.
        self._check_wait(id)
        return super().wait(id, timeout)

    async def await_finished(self, id: bytes, timeout: float | None) -> Job | None:
        if self._check_wait(id):
            # Finished already, so this does not block the loop.
            return super().wait(id, timeout)
        return await super().await_finished(id, timeout)

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        self._check_wait(id)
        return super().follow(id, timeout)

    def _check_wait(self, id: bytes) -> bool:
        """True if the job is finished or there is none; ResultTimeout if it is not finished and no worker runs."""
        (job,) = self.store.get([id])
        if job is None or job.state.finished:
            return True
        if not self._drainer.has_workers():
            raise ResultTimeout(f"job {ids.text(id)} is {job.state}, and nobody runs it: call jobs.drain() first")
        return False
