"""The stacks of a worker that goes on: the keeper asks, the master has the worker write them, and sends them back.

Threads are written by C code in a signal handler, also while one of them never lets go of the interpreter. Coroutines
that wait are on no thread: the worker itself tells of these, if it can.
"""

from collections.abc import Iterator

from msgspec import Struct

from tarry.runtime.child_process import ChildProcess
from tarry.runtime.pipe import Message
from tarry.runtime.processes import Processes
from tarry.runtime.stacks.dump import WRITE_TIMEOUT

ANSWER_TIMEOUT = 1.0
"""Seconds that a worker gets to tell of its coroutines."""
MAX_DUMP = 32_000
"""Characters of the stacks of all threads."""
_MOST = 16
"""So many requests are under way at once."""


class _Request(Struct):
    """pid: of the worker. read_at: when its threads have surely been written. give_up_at: when nothing more is awaited.
    Both by the monotonic clock."""

    id: str
    pid: int
    read_at: float
    give_up_at: float
    coroutines: dict[str, str] | None = None
    """By job; None: the worker has not told yet."""


class LiveStacks:
    """The requests that are under way, and messages that the keeper has for workers."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._requests: list[_Request] = []

    def handle(self, sender: ChildProcess, message: Message, now: float) -> None:
        """Handles a message of a child that is about stacks, or is for a worker; ignores others."""
        if sender.is_keeper and isinstance(message.get("to"), int):
            self._pass_on(message, now)
        elif "stack" in message and isinstance(message.get("jobs"), dict):
            for request in self._requests:
                if (request.id, request.pid) == (message["stack"], sender.pid):
                    request.coroutines = {str(job): str(stack) for job, stack in message["jobs"].items()}

    def advance(self, now: float) -> None:
        """Answers the requests whose time has come."""
        for request in list(self._requests):
            if now >= request.give_up_at or (now >= request.read_at and request.coroutines is not None):
                self._requests.remove(request)
                self._answer(request)

    def wake_times(self) -> Iterator[float]:
        """When `advance` will have something to do."""
        for request in self._requests:
            yield request.read_at
            yield request.give_up_at

    def _pass_on(self, message: Message, now: float) -> None:
        child = self._find(message["to"])
        if child is None:
            return
        child.send({name: value for name, value in message.items() if name != "to"})
        if "stack" in message and len(self._requests) < _MOST:
            child.write_stacks()
            self._requests.append(_Request(str(message["stack"]), child.pid, now + WRITE_TIMEOUT, now + ANSWER_TIMEOUT))

    def _answer(self, request: _Request) -> None:
        child = self._find(request.pid)
        dump, jobs = ("", {}) if child is None else child.written_stacks()
        answer = {"stack": request.id, "threads": dump[:MAX_DUMP], "jobs": (request.coroutines or {}) | jobs}
        for keeper in self._processes.ready_keepers():
            keeper.send(answer)

    def _find(self, pid: int) -> ChildProcess | None:
        """The worker with that pid that has not been killed."""
        workers = (child for child in self._processes.workers() if child.role.pool and child.is_ready)
        return next((child for child in workers if child.pid == pid and not child.kill_reason), None)
