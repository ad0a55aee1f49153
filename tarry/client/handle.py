"""What an enqueue gives back: a job, seen from outside."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from tarry.client.follow import Event, Follow
from tarry.errors import JobCancelled, JobFailed, JobNotFound
from tarry.model.job import Job, State
from tarry.store import ids
from tarry.tasks import progress
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazily import asyncio
from tarry.tasks.output import Output
from tarry.tasks.progress import Progress

R = TypeVar("R")


class JobAccess(Protocol):
    """What a handle asks of the client that made it."""

    @property
    def tasks(self) -> Mapping[str, TaskDefinition[Any, Any]]:
        """By name."""

    def look(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs as they are."""

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        """The job once it is finished."""

    async def await_end(self, id: bytes, timeout: float | None) -> Job | None:
        """The same, awaited."""

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        """The job as it goes."""

    def cancel(self, id: bytes, reason: str = "") -> bool:
        """Whether it was cancelled."""

    def retry(self, id: bytes) -> bool:
        """Whether it was made ready."""


class Handle(Generic[R]):
    """A job by its id. Every property asks the store anew; `job.result()` waits."""

    __slots__ = ("__weakref__", "_client", "_id", "is_new")

    def __init__(self, client: JobAccess, id: bytes, is_new: bool | None = False) -> None:
        self._client = client
        self._id = id
        self.is_new = is_new
        """False if the enqueue found an unfinished job with its key and returned that one. None while the job is held
        in this process until a transaction on another database is committed, or lies in the outbox."""

    def landed(self, other: "Handle[R]") -> None:
        """What was held is in the store now; this handle is that one from now on."""
        self._id, self.is_new = other._id, other.is_new

    @property
    def id(self) -> str:
        """The UUIDv7 in its usual form."""
        return ids.text(self._id)

    def record(self) -> Job:
        """Everything that the store has on it; JobNotFound once it is forgotten."""
        job = self._client.look([self._id])[0]
        if job is None:
            raise JobNotFound(f"no job {self.id}: it never existed, or its time of keeping is over")
        return job

    @property
    def state(self) -> State:
        """Where it is in its life: compares equal to "ready", "done" and so on."""
        return self.record().state

    @property
    def progress(self) -> Progress | None:
        """What its task said last of how far it is; None if it said nothing."""
        return progress.read(self.record().progress)

    @property
    def output(self) -> Output | None:
        """The last lines of what its task printed and logged, in the last attempt that did; None if none did."""
        return progress.output(self.record().progress)

    def result(self, timeout: float | None = None) -> R:
        """What the task returned, waiting for it up to `timeout` seconds (None: as long as it takes).

        ResultTimeout if it is not finished by then; JobFailed if it is dead; JobCancelled; JobNotFound once forgotten.
        """
        return self._value(self._client.wait(self._id, timeout))

    async def aresult(self, timeout: float | None = None) -> R:
        """The same, awaited."""
        return self._value(await self._client.await_end(self._id, timeout))

    def follow(self, timeout: float | None = None) -> Follow:
        """An event for the job as it is, then for every change of state and progress, until it has finished:
        `for event in job.follow()`, or `async for`.

        It looks when something moved, 20 times a second at most, so what is over sooner may be passed over, but never
        the end. ResultTimeout if it is not finished after `timeout` seconds; JobNotFound once forgotten.
        """
        return self._client.follow(self._id, timeout)

    def afollow(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """The same, for `async for` only."""
        return self.follow(timeout).__aiter__()

    def cancel(self, reason: str = "") -> bool:
        """No longer wanted. A running task is stopped; False if the job had already finished."""
        return self._client.cancel(self._id, reason)

    def retry(self) -> bool:
        """Run it now: a waiting job at once, a finished one anew; False if it runs already, or its key is taken."""
        return self._client.retry(self._id)

    async def astate(self) -> State:
        """`state`, awaited."""
        return (await self.arecord()).state

    async def aprogress(self) -> Progress | None:
        """`progress`, awaited."""
        return progress.read((await self.arecord()).progress)

    async def aoutput(self) -> Output | None:
        """`output`, awaited."""
        return progress.output((await self.arecord()).progress)

    async def arecord(self) -> Job:
        """`record`, awaited."""
        return await asyncio.to_thread(self.record)

    async def acancel(self, reason: str = "") -> bool:
        """`cancel`, awaited."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self) -> bool:
        """`retry`, awaited."""
        return await asyncio.to_thread(self.retry)

    def _value(self, job: Job | None) -> R:
        if job is None:
            raise JobNotFound(f"no job {self.id}: it never existed, or its time of keeping is over")
        if job.state is State.DONE:
            task = self._client.tasks.get(job.task)
            return cast("R", task.codec.decode_result(job.note) if task else msgspec.json.decode(job.note))
        told: dict[str, Any] = msgspec.json.decode(job.note or b"{}")
        if job.state is State.CANCELLED:
            reason = told.get("message")
            raise JobCancelled(f"{job.task} {self.id} was cancelled" + (f": {reason}" if reason else ""))
        failure = JobFailed(f"{job.task} {self.id} is dead: {told.get('type')}: {told.get('message')}")
        failure.add_note(str(told.get("traceback", "")))
        raise failure

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


def checked(handle: Any) -> Handle[Any]:
    """What an enqueue through middleware gives; TypeError if it is no job."""
    if not isinstance(handle, Handle):
        why = f"a middleware gave {type(handle).__name__}, not the job: `return call_next(job)`"
        raise TypeError(f"enqueue: {why}, awaited in an `async def`")
    return handle
