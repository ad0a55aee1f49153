"""What everybody calls: enqueue, look, wait, cancel, retry. The doors and the command line call the same."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tarry.engine.batcher import Batcher
from tarry.engine.clock import Clock
from tarry.engine.handle import Handle
from tarry.engine.task import NOW, Call, Options, Task
from tarry.engine.waiting import Waiting
from tarry.errors import BodyTooLarge, ResultTimeout
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import microseconds
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible, Rules
from tarry.store import ids
from tarry.store.base import Store

MAX_BODY = 2**20
INSERTED_AT_ONCE = 5000
_TRIES = 20


class Client:
    """An app's way to one store. Safe from threads and coroutines."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, Task[Any, Any]],
        *,
        clock: Clock | None = None,
        max_body: int = MAX_BODY,
        rules: Callable[[str, str], Rules] = lambda task, queue: lifecycle.DEFAULT,
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.clock = clock or Clock(store.time)
        self.max_body = max_body
        self.rules = rules
        self._batcher: Batcher[Job, bytes] = Batcher(store.insert)
        self._waiting = Waiting(store)

    def enqueue(
        self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options = NOW
    ) -> Handle[Any]:
        """Keeps one call; returns when the store has it for sure."""
        job = self._job(task, task.codec.encode(args, kwargs), options)
        lives = self._batcher.do(job)
        return Handle(self, lives, lives == job.id)

    async def aenqueue(
        self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options = NOW
    ) -> Handle[Any]:
        """The same, awaited."""
        job = self._job(task, task.codec.encode(args, kwargs), options)
        lives = await self._batcher.ado(job)
        return Handle(self, lives, lives == job.id)

    def enqueue_many(self, task: Task[Any, Any], calls: Iterable[Call], options: Options = NOW) -> list[Handle[Any]]:
        """Keeps many calls, thousands a round trip. All are checked before the first is stored."""
        encode = task.codec.encode
        bodies = [encode((), call) if isinstance(call, Mapping) else encode(call, {}) for call in calls]
        return self.put([self._job(task, body, options) for body in bodies])

    async def aenqueue_many(
        self, task: Task[Any, Any], calls: Iterable[Call], options: Options = NOW
    ) -> list[Handle[Any]]:
        """The same, awaited."""
        return await asyncio.to_thread(self.enqueue_many, task, calls, options)

    def job(self, name: str, body: bytes, options: Options = NOW) -> Job:
        """A new job by the task's name, its arguments encoded already: checked where this app knows the task, taken
        as they are where only a worker does."""
        task = self.tasks.get(name)
        if task is None:
            return self._placed(name, body, options, options.queue or "default", 0, None)
        task.codec.decode(body)
        return self._job(task, body, options)

    def put(self, jobs: Sequence[Job]) -> list[Handle[Any]]:
        """Stores jobs made by `job`."""
        handles: list[Handle[Any]] = []
        for start in range(0, len(jobs), INSERTED_AT_ONCE):
            part = jobs[start : start + INSERTED_AT_ONCE]
            lives = self.store.insert(part)
            handles += [Handle(self, id, id == job.id) for id, job in zip(lives, part, strict=True)]
        return handles

    def get(self, id: str | bytes) -> Handle[Any]:
        """A job by its id; ValueError if that is no id at all."""
        return Handle(self, ids.parsed(id) if isinstance(id, str) else id)

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        """The job once it is finished; None if there is none; ResultTimeout."""
        job = self.store.get([id])[0]
        if job is None or job.state.finished:
            return job
        return _in_time(*self._waiting.wait(id, timeout), id, timeout)

    async def await_end(self, id: bytes, timeout: float | None) -> Job | None:
        """The same, awaited."""
        return _in_time(*await self._waiting.await_end(id, timeout), id, timeout)

    def cancel(self, id: bytes, reason: str = "") -> bool:
        """Ends a job that is not finished; the worker that runs it is told."""
        job = self._change(id, lambda job, now: lifecycle.cancelled(job, self.rules(job.task, job.queue), now, reason))
        if job is not None and job.state is State.RUNNING:
            self.store.ring_recall()
        return job is not None

    def retry(self, id: bytes) -> bool:
        """Makes a job ready now, with all its attempts anew if it had finished."""
        return self._change(id, lifecycle.kicked) is not None

    def forget(self, id: bytes) -> bool:
        """Deletes the record of a job that does not run."""
        return self._change(id, lambda job, now: lifecycle.forgotten(job)) is not None

    def close(self) -> None:
        """Gives back the store and the threads."""
        self._batcher.close()
        self.store.close()

    def _change(self, id: bytes, rule: Callable[[Job, int], Change]) -> Job | None:
        """Look, decide, apply, and again if the job changed in between: the job as it was when the change was made;
        None if the rules refuse, or there is none."""
        seen: Job | None = None
        for _ in range(_TRIES):
            job = self.store.get([id])[0]
            if job is None or job == seen:
                return None
            now = self.clock.now()
            try:
                change = rule(job, now)
            except NotPossible:
                return None
            if self.store.apply([change], now)[0]:
                return job
            seen = job
        return None

    def _job(self, task: Task[Any, Any], body: bytes, options: Options) -> Job:
        queue = options.queue or task.queue
        return self._placed(task.name, body, options, queue, task.priority, task.expires)

    def _placed(self, name: str, body: bytes, options: Options, queue: str, priority: int, expires: Any) -> Job:
        if len(body) > self.max_body:
            raise BodyTooLarge(f"{name}: the arguments take {len(body)} bytes; max_body is {self.max_body}")
        now = self.clock.now()
        due = max(options.due(now), 0)
        within = expires if options.expires is None else options.expires
        return Job(
            self.store.mint(name, options.key),
            name,
            body,
            queue,
            priority if options.priority is None else options.priority,
            due,
            lifecycle.placed(due, now),
            since=now,
            expires=0 if within is None else due + microseconds(within),
            key=options.key,
        )


def _in_time(finished: bool, job: Job | None, id: bytes, timeout: float | None) -> Job | None:
    if not finished:
        raise ResultTimeout(f"job {ids.text(id)} has not finished after {timeout:g} s")
    return job
