"""The handle of a job on a server."""

import time
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tarry.errors import JobCancelled, JobFailed, ResultTimeout
from tarry.model.checks.decoders import convert_to, decode_json
from tarry.model.job import State
from tarry.remote.problems import StateConflict
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.output import Output
from tarry.tasks.progress import Progress

LONGEST_WAIT = 20.0
"""Seconds of one request that waits for a result. Proxies end longer ones."""
LONGEST_AWAIT = 5.0
"""The same where it is awaited: so long its thread waits for nothing if the coroutine is cancelled."""


class JobServer(Protocol):
    """What a handle needs of its client."""

    def call(self, method: str, path: str, body: Any = None, longer: float = 0.0) -> bytes:
        """The body of the server's answer; TarryError."""

    async def acall(self, method: str, path: str, body: Any = None, longer: float = 0.0) -> bytes:
        """The same, awaited."""


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

    @property
    def progress(self) -> Progress | None:
        """The progress that its task reported last; None if it reported none."""
        return convert_to(Progress | None, self.record()["progress"])

    @property
    def output(self) -> Output | None:
        """The last lines that its task printed and logged; None if there are none."""
        return convert_to(Output | None, self.record()["output"])

    def result(self, timeout: float | None = None) -> Any:
        """Waits up to `timeout` seconds (None: without end), and returns what the task returned, as JSON has it.

        ResultTimeout; JobFailed if the job is dead; JobCancelled; JobNotFound; StoreUnavailable.
        """
        end = _end(timeout)
        while True:
            wait = _next_wait(end, LONGEST_WAIT)
            found = _found(self._server.call("GET", self._result_path(wait), longer=wait))
            if found.finished:
                return self._value(found)
            self._check_time(end, timeout)

    async def aresult(self, timeout: float | None = None) -> Any:
        """`result`, awaited."""
        end = _end(timeout)
        while True:
            wait = _next_wait(end, LONGEST_AWAIT)
            found = _found(await self._server.acall("GET", self._result_path(wait), longer=wait))
            if found.finished:
                return self._value(found)
            self._check_time(end, timeout)

    def cancel(self, reason: str = "") -> bool:
        """Cancels the job. A running task is interrupted. False if the job had already finished."""
        answer = self._server.call("POST", f"/v1/jobs/{self.id}/cancel", {"reason": reason})
        return bool(msgspec.json.decode(answer)["cancelled"])

    def retry(self) -> bool:
        """Makes a waiting job ready now, and a finished one run again; False if it runs, or its key is taken."""
        try:
            self._server.call("POST", f"/v1/jobs/{self.id}/retry")
        except StateConflict:
            return False
        return True

    async def arecord(self) -> dict[str, Any]:
        """`record`, awaited."""
        return await asyncio.to_thread(self.record)

    async def astate(self) -> State:
        """`state`, awaited."""
        return State((await self.arecord())["state"])

    async def aprogress(self) -> Progress | None:
        """`progress`, awaited."""
        return await asyncio.to_thread(lambda: self.progress)

    async def aoutput(self) -> Output | None:
        """`output`, awaited."""
        return await asyncio.to_thread(lambda: self.output)

    async def acancel(self, reason: str = "") -> bool:
        """`cancel`, awaited."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self) -> bool:
        """`retry`, awaited."""
        return await asyncio.to_thread(self.retry)

    def _result_path(self, wait: float) -> str:
        return f"/v1/jobs/{self.id}/result?wait={wait:.3f}"

    def _check_time(self, end: float | None, timeout: float | None) -> None:
        if end is not None and time.monotonic() >= end:
            raise ResultTimeout(f"job {self.id} has not finished after {timeout:g} s")

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


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _next_wait(end: float | None, most: float) -> float:
    return most if end is None else max(0.0, min(most, end - time.monotonic()))


def _found(answer: bytes) -> ResultFound:
    return decode_json(answer, ResultFound)
