"""The stacks of a worker that goes on: the keeper asks, the master passes the question on, and sends back the answer.

The worker itself tells of its threads and coroutines. If it does not, some thread never lets go of the interpreter:
then C code in a signal handler writes the stacks of the threads.
"""

from collections.abc import Iterator

from msgspec import Struct

from tarry.runtime.child_process import ChildProcess
from tarry.runtime.pipe import PipeMessage
from tarry.runtime.processes import Processes
from tarry.runtime.stack_dump import WRITE_TIMEOUT

ANSWER_TIMEOUT = 2.0
"""Seconds that a worker gets to tell."""
MAX_DUMP = 32_000
"""Characters of the stacks of all threads."""
_MOST = 16
"""So many requests are under way at once."""


class _PendingStack(Struct):
    """pid: of the worker. signal_at: when the worker itself is not awaited any more; 0: it has the signal. read_at:
    when its threads have surely been written then. Both by the monotonic clock."""

    id: str
    pid: int
    signal_at: float
    read_at: float


class LiveStacks:
    """The requests that are under way, and messages that the keeper has for workers."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._requests: list[_PendingStack] = []

    def handle(self, sender: ChildProcess, message: PipeMessage, now: float) -> None:
        """Handles a message of a child that is about stacks, or is for a worker; ignores others."""
        if sender.is_keeper and isinstance(message.get("to"), int):
            self._pass_on(message, now)
        elif "stack" in message and isinstance(message.get("jobs"), dict):
            sender.note_threads(message, now)
            coroutines = {str(job): str(stack) for job, stack in message["jobs"].items()}
            # Of all that wait for this worker: it was asked once for them.
            for request in [one for one in self._requests if one.pid == sender.pid]:
                self._answer(request, str(message.get("threads", "")), coroutines)

    def advance(self, now: float) -> None:
        """Goes on with the requests whose time has come."""
        for request in list(self._requests):
            child = self._find(request.pid)
            if request.signal_at and now >= request.signal_at:
                request.signal_at = 0.0
                if child is not None:
                    child.write_stacks()
            if now >= request.read_at:
                self._answer(request, "" if child is None else child.written_stacks(), {})

    def wake_times(self) -> Iterator[float]:
        """When `advance` will have something to do."""
        for request in self._requests:
            yield request.signal_at or request.read_at

    def _pass_on(self, message: PipeMessage, now: float) -> None:
        child = self._find(message["to"])
        if child is None:
            return
        is_asked = any(request.pid == child.pid for request in self._requests)
        if "stack" not in message or not is_asked:
            child.send({name: value for name, value in message.items() if name != "to"})
        if "stack" in message and len(self._requests) < _MOST:
            signal_at = now + ANSWER_TIMEOUT
            self._requests.append(_PendingStack(str(message["stack"]), child.pid, signal_at, signal_at + WRITE_TIMEOUT))

    def _answer(self, request: _PendingStack, threads: str, coroutines: dict[str, str]) -> None:
        self._requests.remove(request)
        child = self._find(request.pid)
        jobs = {} if child is None else child.stacks_of_jobs(threads)
        answer = {"stack": request.id, "threads": threads[:MAX_DUMP], "jobs": coroutines | jobs}
        for keeper in self._processes.ready_keepers():
            keeper.send(answer)

    def _find(self, pid: int) -> ChildProcess | None:
        """The worker with that pid that has not been killed."""
        workers = (child for child in self._processes.workers() if child.role.pool and child.is_ready)
        return next((child for child in workers if child.pid == pid and not child.kill_reason), None)
