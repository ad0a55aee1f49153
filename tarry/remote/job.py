"""The handle of a job on a server."""

import time
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tarry.errors import JobCancelled, JobFailed, ResultTimeout
from tarry.model.job import State
from tarry.tasks.lazy_asyncio import asyncio

LONGEST_WAIT = 20.0
"""Seconds of one request that waits for a result. Proxies end longer ones."""


class JobServer(Protocol):
    """What a handle needs of its client."""

    def call(self, method: str, path: str, body: Any = None, longer: float = 0.0) -> bytes:
        """The body of the server's answer; TarryError."""


class ResultFound(Struct):
    """The answer to a question for a result."""

    state: State
    finished: bool
    result: Any = None
    error: Any = None


class RemoteJob:
    """A job by its id. Every property asks the server; `result()` waits."""

    def __init__(self, server: JobServer, id: str, is_new: bool | None = False) -> None:
        self._server, self.id = server, id
        self.is_new = is_new
        """True: the enqueue stored this job. False: it found this job. None: the server keeps it for its store."""

    def record(self) -> dict[str, Any]:
        """All that the server tells of it, as `GET /v1/jobs/{id}`; JobNotFound once it is deleted."""
        found: dict[str, Any] = msgspec.json.decode(self._server.call("GET", f"/v1/jobs/{self.id}"))
        return found

    @property
    def state(self) -> State:
        """Its state; compares equal to "ready", "done" and so on."""
        return State(self.record()["state"])

    def result(self, timeout: float | None = None) -> Any:
        """Waits up to `timeout` seconds (None: without end), and returns what the task returned, as JSON has it.

        ResultTimeout; JobFailed if the job is dead; JobCancelled; JobNotFound; StoreUnavailable.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = LONGEST_WAIT if end is None else max(0.0, min(LONGEST_WAIT, end - time.monotonic()))
            answer = self._server.call("GET", f"/v1/jobs/{self.id}/result?wait={wait:.3f}", longer=wait)
            found = msgspec.json.decode(answer, type=ResultFound)
            if found.finished:
                return self._value(found)
            if end is not None and time.monotonic() >= end:
                raise ResultTimeout(f"job {self.id} has not finished after {timeout:g} s")

    def cancel(self, reason: str = "") -> bool:
        """Cancels the job. A running task is interrupted. False if the job had already finished."""
        answer = self._server.call("POST", f"/v1/jobs/{self.id}/cancel", {"reason": reason})
        return bool(msgspec.json.decode(answer)["cancelled"])

    def retry(self) -> None:
        """Makes a waiting job ready now, and a finished one run again; TarryError if it runs, or its key is taken."""
        self._server.call("POST", f"/v1/jobs/{self.id}/retry")

    async def arecord(self) -> dict[str, Any]:
        """`record`, awaited."""
        return await asyncio.to_thread(self.record)

    async def astate(self) -> State:
        """`state`, awaited."""
        return State((await self.arecord())["state"])

    async def aresult(self, timeout: float | None = None) -> Any:
        """`result`, awaited. Takes a thread of the loop's executor while it waits."""
        return await asyncio.to_thread(self.result, timeout)

    async def acancel(self, reason: str = "") -> bool:
        """`cancel`, awaited."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self) -> None:
        """`retry`, awaited."""
        await asyncio.to_thread(self.retry)

    def _value(self, found: ResultFound) -> Any:
        if found.state is State.DONE:
            return found.result
        error: dict[str, Any] = found.error if isinstance(found.error, dict) else {}
        if found.state is State.CANCELLED:
            reason = error.get("message")
            raise JobCancelled(f"job {self.id} was cancelled" + (f": {reason}" if reason else ""))
        failure = JobFailed(f"job {self.id} is dead: {error.get('type')}: {error.get('message')}")
        failure.add_note(str(error.get("traceback", "")))
        raise failure

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"
