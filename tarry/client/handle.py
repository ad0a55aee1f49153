"""The handle of a job: what an enqueue returns."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from tarry.client.follow import Event, Follow
from tarry.errors import JobCancelled, JobFailed, JobNotFound
from tarry.model.checks.unreadable import is_apart, read_note
from tarry.model.flow.node_ids import flow_of, node_id
from tarry.model.flow.wiring import added_nodes
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.tasks import progress
from tarry.tasks.arguments.codec import plain_result
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.output import Output
from tarry.tasks.progress import Progress

R = TypeVar("R")


class JobAccess(Protocol):
    """What a handle needs of its client."""

    @property
    def tasks(self) -> Mapping[str, TaskDefinition[Any, Any]]:
        """The app's tasks by name."""

    def fetch(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs as they are now; None for an unknown one."""

    def load_result(self, job: Job) -> Job:
        """A job that is done with its result, wherever that is kept."""

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        """Waits for the end of the job; None if there is none."""

    async def await_finished(self, id: bytes, timeout: float | None) -> Job | None:
        """The same, awaited."""

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        """An iterator over the changes of the job."""

    def cancel(self, id: bytes, reason: str = "") -> bool:
        """Cancels the job; False if it had finished."""

    def retry(self, id: bytes) -> bool:
        """Makes the job ready now; False if that is not possible."""


class Handle(Generic[R]):
    """A job by its id. Every property asks the store; `job.result()` waits."""

    # `__weakref__`: the forwarder refers to handles weakly.
    __slots__ = ("__weakref__", "_client", "_id", "is_new")

    def __init__(self, client: JobAccess, id: bytes, is_new: bool | None = False) -> None:
        self._client = client
        self._id = id
        self.is_new = is_new
        """True: the enqueue stored this job. False: the enqueue found this job, which holds the key. None: not known
        yet: the job is in the outbox, or waits in this process for a commit on another database."""

    def become(self, other: "Handle[R]") -> None:
        """Makes this handle stand for the same job as the other. Called once a job that had to wait is stored."""
        self._id, self.is_new = other._id, other.is_new

    @property
    def id(self) -> str:
        """The UUIDv7 in its usual form."""
        return ids.text(self._id)

    @property
    def raw_id(self) -> bytes:
        """The id as the store has it: 16 bytes. For tarry's own use."""
        return self._id

    def record(self) -> Job:
        """The whole record in the store; JobNotFound once it is deleted."""
        job = self._client.fetch([self._id])[0]
        if job is None:
            raise JobNotFound(f"no job {self.id}: it never existed, or its time of keeping is over")
        return job

    @property
    def state(self) -> State:
        """Its state; compares equal to "ready", "done" and so on."""
        return self.record().state

    @property
    def progress(self) -> Progress | None:
        """The progress that its task reported last; None if it reported none."""
        return progress.decode_progress(self.record().progress)

    @property
    def output(self) -> Output | None:
        """The last lines that its task printed and logged; None if there are none."""
        return progress.decode_output(self.record().progress)

    def result(self, timeout: float | None = None) -> R:
        """Waits up to `timeout` seconds (None: without end), and returns what the task returned.

        ResultTimeout; JobFailed if the job is dead; JobCancelled; JobNotFound once it is deleted;
        PayloadUnavailable and PayloadLost for a large result that cannot be read.
        """
        return self._value(self._client.wait(self._id, timeout))

    async def aresult(self, timeout: float | None = None) -> R:
        """The same, awaited."""
        job = await self._client.await_finished(self._id, timeout)
        # A large one is not in the store, and reading it must not block the event loop.
        is_large = job is not None and is_apart(job.note)
        return await asyncio.to_thread(self._value, job) if is_large else self._value(job)

    def follow(self, timeout: float | None = None) -> Follow:
        """Iterates over the changes of the job: `for event in job.follow()`, or `async for`.

        The first event is the job as it is now; then comes one for each change of state and progress, until the end.
        The job is read 20 times a second at most: changes in between may be missed, but never the end. ResultTimeout
        if the job has not finished after `timeout` seconds; JobNotFound once it is deleted.
        """
        return self._client.follow(self._id, timeout)

    def afollow(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """The same, for `async for` only."""
        return self.follow(timeout).__aiter__()

    def cancel(self, reason: str = "") -> bool:
        """Cancels the job. A running task is interrupted. False if the job had already finished."""
        return self._client.cancel(self._id, reason)

    def retry(self) -> bool:
        """Makes a waiting job ready now, and a finished one run again; False if it runs, or its key is taken."""
        return self._client.retry(self._id)

    async def astate(self) -> State:
        """`state`, awaited."""
        return (await self.arecord()).state

    async def aprogress(self) -> Progress | None:
        """`progress`, awaited."""
        return progress.decode_progress((await self.arecord()).progress)

    async def aoutput(self) -> Output | None:
        """`output`, awaited."""
        return progress.decode_output((await self.arecord()).progress)

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
            return cast("R", self._decode(job))
        note = read_note(job.note)
        if job.state is State.CANCELLED:
            reason = note.get("message")
            raise JobCancelled(f"{job.task} {self.id} was cancelled" + (f": {reason}" if reason else ""))
        failure = JobFailed(f"{job.task} {self.id} is dead: {note.get('type')}: {note.get('message')}")
        # As a note, so that Python prints the traceback of the task under that of the caller.
        failure.add_note(str(note.get("traceback", "")))
        raise failure

    def _decode(self, job: Job) -> Any:
        added = added_nodes(job.note)
        if added is not None:
            # Nodes that it has added to its flow stand for its result.
            indices = range(added.first, added.first + added.count)
            nodes = self._client.fetch([node_id(flow_of(job.id), index) for index in indices])
            return [self._decode(node) if node and node.state is State.DONE else None for node in nodes]
        job = self._client.load_result(job)
        # A process that does not have the task cannot know the type of its result.
        task = self._client.tasks.get(job.task)
        return task.codec.decode_result(job.note) if task else plain_result(job)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


class MakeHandle(Protocol):
    """Makes the handle of a job; a client's handles refer to that client."""

    def __call__(self, id: bytes, is_new: bool | None = False, /) -> Handle[Any]: ...


def require_handle(handle: Any) -> Handle[Any]:
    """Returns what an enqueue through middleware gave; TypeError if it is not a handle."""
    if not isinstance(handle, Handle):
        why = f"a middleware gave {type(handle).__name__}, not the job: `return call_next(job)`"
        raise TypeError(f"enqueue: {why}, awaited in an `async def`")
    return handle
