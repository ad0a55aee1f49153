"""The store of an app during a test, and its client: both do all they do at once, in the calling thread."""

import itertools
import random
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tarry.client.batcher import Batcher
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.client.follow import Follow
from tarry.client.handle import Handle
from tarry.errors import ResultTimeout
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store import ids
from tarry.store.memory import MemoryStore
from tarry.tasks.call import AnyCall
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.options import NOW, Options

if TYPE_CHECKING:
    from tarry.app import App

_RANDOM_BITS = 62


class Record(MemoryStore):
    """A memory store that remembers what was enqueued, also when it is over and forgotten."""

    def __init__(self, app: "App", clock: FakeClock) -> None:
        super().__init__(clock.now)
        self._app = weakref.ref(app)
        self._clock = clock
        self._tails = itertools.count(random.getrandbits(_RANDOM_BITS - 1))
        self.enqueued: dict[bytes, Job] = {}
        """Each job as it was before its first attempt."""

    @property
    def app(self) -> "App":
        """Whose it is."""
        app = self._app()
        assert app is not None
        return app

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        lives = super().insert(jobs)
        for job, id in zip(jobs, lives, strict=True):
            if id == job.id:
                self.enqueued.setdefault(id, job)
        return lives

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        """Where the library tells of the commit, that is waited for; what else is in a transaction counts as done."""
        session = getattr(sys.modules.get("sqlalchemy.orm"), "Session", None)
        if hasattr(connection, "on_commit") or (session is not None and isinstance(connection, session)):
            return super().insert_within(connection, jobs)
        return self.insert(jobs)

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        made = super().apply(changes, now)
        for change, valid in zip(changes, made, strict=True):
            # A later enqueue with its key may have replaced or postponed it.
            if valid and not change.epoch and change.to is not None and not change.to.finished:
                (job,) = self.get([change.id])
                if job is not None:
                    self.enqueued[job.id] = job
        return made

    def mint(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """By the clock of the test: when a job was made, its id tells."""
        value = self._clock.now() // 1000 << 80 | 0x7 << 76 | 0b10 << _RANDOM_BITS | next(self._tails)
        return value.to_bytes(16, "big")


class Listener(Protocol):
    """Who runs the jobs of a test."""

    def arrived(self) -> None:
        """Something was enqueued."""

    async def aarrived(self) -> None:
        """The same, awaited."""

    def working(self) -> bool:
        """Whether jobs run by themselves."""


class AtOnce(Batcher[Job, bytes]):
    """Collects nothing: no thread, and no lock that a job run at once could wait for."""

    def __init__(self, call: Callable[[list[Job]], list[bytes]], stage: Listener) -> None:
        super().__init__(call)
        self._stage = stage

    def do(self, item: Job, end: float | None = None) -> bytes:
        (id,) = self._call([item])
        self._stage.arrived()
        return id

    async def ado(self, item: Job) -> bytes:
        (id,) = self._call([item])
        await self._stage.aarrived()
        return id


class DirectClient(Client):
    """What enqueues and asks during a test. Nothing of it starts a thread, and nothing waits for what cannot come."""

    def __init__(self, stage: Listener, store: Record, *args: Any, **kwargs: Any) -> None:
        super().__init__(store, *args, **kwargs)
        self._stage = stage
        self._delivery.batcher = AtOnce(store.insert, stage)

    def put(self, jobs: Sequence[Job], options: Options = NOW) -> list[Handle[Any]]:
        handles = super().put(jobs, options)
        self._stage.arrived()
        return handles

    async def aput(self, jobs: Sequence[Job], options: Options = NOW) -> list[Handle[Any]]:
        handles = await super().aput(jobs, options) if options.connection is not None else super().put(jobs, options)
        await self._stage.aarrived()
        return handles

    async def aenqueue_many(
        self, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options = NOW
    ) -> list[Handle[Any]]:
        if task.around.sends or options.connection is not None:
            return await super().aenqueue_many(task, calls, options)
        return await self.aput(self._jobs(task, calls, options), options)

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        self._refuse_to_wait(id)
        return super().wait(id, timeout)

    async def await_end(self, id: bytes, timeout: float | None) -> Job | None:
        if self._refuse_to_wait(id):
            return super().wait(id, timeout)
        return await super().await_end(id, timeout)

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        self._refuse_to_wait(id)
        return super().follow(id, timeout)

    def _refuse_to_wait(self, id: bytes) -> bool:
        """ResultTimeout where nobody works and the job is not finished; True if it is, or there is none."""
        (job,) = self.store.get([id])
        if job is None or job.state.finished:
            return True
        if not self._stage.working():
            raise ResultTimeout(f"job {ids.text(id)} is {job.state}, and nobody runs it: call jobs.drain() first")
        return False
