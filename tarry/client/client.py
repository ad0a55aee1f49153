"""What everybody calls: enqueue, look, wait, cancel, retry. The doors and the command line call the same."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from tarry.client import collected
from tarry.client.clock import Clock
from tarry.client.collected import Made
from tarry.client.delivery import Delivery
from tarry.client.follow import Follow
from tarry.client.forwarder import Forwarder
from tarry.client.handle import Handle, checked
from tarry.client.handles import Handles
from tarry.client.transaction import Transactional
from tarry.client.waiting import Waiting
from tarry.client.witness import Witness, inserted, what
from tarry.errors import BodyTooLarge, ConfigError, ResultTimeout, StoreError, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND, microseconds
from tarry.model.job import HELD, UNFINISHED, Job, State
from tarry.model.lifecycle import NotPossible, Rules
from tarry.store import ids
from tarry.store.base import Store
from tarry.tasks.call import AnyCall, arguments
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazily import asyncio
from tarry.tasks.new_job import NewJob
from tarry.tasks.options import NOW, Options, with_overrides
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.store.outbox import Outbox

MAX_BODY = 2**20
INSERTED_AT_ONCE = 5000
TIMEOUT = 5.0
"""Seconds that an enqueue waits while others' are under way."""
_TRIES = 20
_inherited: list[dict[str, Any]] = []
"""Of the parent process, kept alive on purpose: a driver that is collected might say goodbye on its connection."""


class Client:
    """An app's way to one store. Safe from threads and coroutines."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        *,
        clock: Clock | None = None,
        max_body: int = MAX_BODY,
        rules: Callable[[str, str], Rules] = lambda task, queue: lifecycle.DEFAULT,
        timeout: float | None = TIMEOUT,
        outbox: "Outbox | None" = None,
        witness: Witness | None = None,
    ) -> None:
        self.store = store
        self.witness = witness
        self.tasks = tasks
        self.clock = clock or Clock(store.time)
        self.max_body = max_body
        self.rules = rules
        self._handles = Handles(self, store, self.clock.now, witness)
        self.forwarder = None if outbox is None else self.forwards(outbox)
        self._delivery = Delivery(store, self.insert, self._handles, self.put, self.forwarder, timeout)
        self._transactional = Transactional(store, self._handles, self.put)
        self._waiting = Waiting(store, self.look)
        if self.forwarder is not None and self.forwarder.outbox.content().jobs:
            self.forwarder.start()

    def inherit(self, heir: "Callable[[], Client]") -> None:
        """In a forked child: what this client has is the parent's, and is only kept alive. Whoever has this client, as
        each handle does, uses that of `heir` from now on."""
        _inherited.append(dict(self.__dict__))
        self.__dict__.clear()
        self.__dict__["_heir"] = heir

    if not TYPE_CHECKING:  # else every misspelt attribute would pass

        def __getattr__(self, name: str) -> Any:
            """Only asked for what is not there: in a forked child, for all."""
            heir = self.__dict__.get("_heir")
            if heir is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(heir(), name)

    def enqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options = NOW,
        headers: bytes | None = None,
    ) -> Handle[Any]:
        """Keeps one call; returns when the store has it for sure. headers: as they are to be kept, if the call has
        been through the app's middleware already."""
        if headers is None and task.around.sends:
            return checked(task.around.enqueue_chain[False](NewJob(task, args, kwargs, options, self._send, False)))
        lane = task.lane and task.lane(args, kwargs)
        body = task.codec.encode(args, kwargs)
        with shielded:
            job = self._job(task, body, options, lane, headers or b"")
            if options.connection is not None:
                return self._transactional.put([job], options)[0]
            if options.durable is not None:
                return self.put([job], options)[0]
            return self._delivery.put(job, options)

    async def aenqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options = NOW,
        headers: bytes | None = None,
    ) -> Handle[Any]:
        """The same, awaited."""
        if headers is None and task.around.sends:
            return checked(
                await task.around.enqueue_chain[True](NewJob(task, args, kwargs, options, self._asend, True))
            )
        lane = task.lane and task.lane(args, kwargs)
        body = task.codec.encode(args, kwargs)
        with shielded:
            job = self._job(task, body, options, lane, headers or b"")
        if options.connection is not None:
            return (await self._transactional.aput([job], options))[0]
        if options.durable is not None:
            return (await self.aput([job], options))[0]
        return await self._delivery.aput(job, options)

    def enqueue_many(
        self, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options = NOW
    ) -> list[Handle[Any]]:
        """Keeps many calls, thousands a round trip. All are checked before the first is stored."""
        if task.around.sends:
            return collected.stored(Made(self.made, self._handles), self.put, task, calls, options)
        return self.put(self._jobs(task, calls, options), options)

    async def aenqueue_many(
        self, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options = NOW
    ) -> list[Handle[Any]]:
        """The same, awaited."""
        if task.around.sends:
            return await collected.astored(Made(self.made, self._handles), self.aput, task, calls, options)
        if options.connection is not None:
            return await self._transactional.aput(self._jobs(task, calls, options), options)
        return await asyncio.to_thread(self.enqueue_many, task, calls, options)

    def made(self, new: NewJob) -> Job:
        """The job that came through the middleware."""
        task, args, kwargs = new.of, new.args, new.kwargs
        body, lane = task.codec.encode(args, kwargs), task.lane and task.lane(args, kwargs)
        headers = new.packed()
        with shielded:
            return self._job(task, body, new.options, lane, headers)

    def _send(self, new: NewJob) -> Handle[Any]:
        return self.enqueue(new.of, new.args, new.kwargs, new.options, new.packed())

    async def _asend(self, new: NewJob) -> Handle[Any]:
        return await self.aenqueue(new.of, new.args, new.kwargs, new.options, new.packed())

    def job(self, name: str, body: bytes, options: Options = NOW) -> Job:
        """A new job by the task's name, its arguments encoded already: checked where this app knows the task, taken
        as they are where only a worker does."""
        task = self.tasks.get(name)
        if task is None:
            own = with_overrides(name, b"", options) if options.overrides else b""
            with shielded:
                return self._placed(name, body, options, options.queue or "default", 0, None, None, own)
        args, kwargs = task.codec.decode(body)
        lane = task.lane and task.lane(args, kwargs)
        with shielded:
            return self._job(task, body, options, lane)

    def put(self, jobs: Sequence[Job], options: Options = NOW) -> list[Handle[Any]]:
        """Stores jobs made by `job` with these options."""
        with shielded:
            return self._put(jobs, options)

    def _put(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        if options.connection is not None:
            return self._transactional.put(jobs, options)
        if options.durable is not None and not self.store.confirms:
            raise ConfigError(f"{self.store.url} has no replica that could confirm a job: leave out durable=")
        jobs, handles = list(jobs), list[Handle[Any]]()
        for start in range(0, len(jobs), INSERTED_AT_ONCE):
            part = jobs[start : start + INSERTED_AT_ONCE]
            try:
                handles += self._delivery.put_all(part, options)
            except StoreError as error:
                # Some may have been put elsewhere, under other ids.
                jobs[start : start + INSERTED_AT_ONCE] = part
                error.again = lambda: self.put(jobs, options)
                error.stored = error.stored if start == 0 else None
                raise
        if options.durable is not None:
            # Where they are: one may have been put elsewhere than its first id says.
            self.store.confirm([replace(job, id=handle._id) for job, handle in zip(jobs, handles, strict=True)])
        return handles

    async def aput(self, jobs: Sequence[Job], options: Options = NOW) -> list[Handle[Any]]:
        """The same, awaited."""
        if options.connection is not None:
            return await self._transactional.aput(jobs, options)
        return await asyncio.to_thread(self.put, jobs, options)

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """`Store.insert`, of which the witness is told."""
        insert = self.store.insert
        return insert(jobs) if self.witness is None else inserted(insert, self.witness, jobs)

    def forwards(self, outbox: "Outbox") -> Forwarder:
        """What brings to the store what lies in that outbox."""
        return Forwarder(self.store, self.insert, self._handles, outbox)

    def get(self, id: str | bytes) -> Handle[Any]:
        """A job by its id; ValueError if that is no id at all."""
        return self._handles.of(ids.parsed(id) if isinstance(id, str) else id)

    def look(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs by id; one that still lies in the outbox as it is there. StoreUnavailable."""
        with shielded:
            return self.store.get(ids) if self.forwarder is None else self.forwarder.look(ids)

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        """The job once it is finished; None if there is none; ResultTimeout. A store that is away is waited for."""
        with shielded:
            over, job = self._over(id)
            return job if over else self._in_time(*self._waiting.wait(id, timeout), id, timeout)

    async def await_end(self, id: bytes, timeout: float | None) -> Job | None:
        """The same, awaited."""
        over, job = await asyncio.to_thread(self._over, id)
        return job if over else self._in_time(*await self._waiting.await_end(id, timeout), id, timeout)

    def _over(self, id: bytes) -> tuple[bool, Job | None]:
        """Whether there is nothing to wait for, as far as can be said now."""
        try:
            job = self.look([id])[0]
        except StoreUnavailable:
            return False, None
        return job is None or job.state.finished, job

    def _in_time(self, finished: bool, job: Job | None, id: bytes, timeout: float | None) -> Job | None:
        if not finished:
            why = self._waiting.trouble
            unasked = f"; the store cannot be asked: {why}" if why else ""
            raise ResultTimeout(f"job {ids.text(id)} has not finished after {timeout:g} s{unasked}")
        return job

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        """The job as it goes: to iterate over."""
        return Follow(lambda: self._waiting, id, timeout)

    def cancel(self, id: bytes, reason: str = "") -> bool:
        """Ends a job that is not finished; the worker that runs it is told."""
        return self.cancelled(id, reason) is not None

    def cancelled(self, id: bytes, reason: str = "") -> Job | None:
        """The same; the job as it was before, None if it had finished or there is none."""
        with shielded:
            job = self._change(id, lambda job, now: self.cancellation(job, now, reason))
            if job is not None and job.state is State.RUNNING:
                self.store.ring_recall()
        return job

    def cancellation(self, job: Job, now: int, reason: str = "") -> Change:
        """What cancels that job; NotPossible."""
        task = self.tasks.get(job.task)
        said = task.parting(job, reason) if task is not None and task.steered else reason
        return lifecycle.cancelled(job, self.rules(job.task, job.queue), now, said)

    def retry(self, id: bytes) -> bool:
        """Makes a job ready now, with all its attempts anew if it had finished."""
        with shielded:
            return self._change(id, lifecycle.kicked) is not None

    def forget(self, id: bytes) -> bool:
        """Deletes the record of a job that does not run."""
        with shielded:
            return self._change(id, lambda job, now: lifecycle.forgotten(job)) is not None

    def close(self) -> None:
        """Gives back the store and the threads."""
        if self.forwarder is not None:
            self.forwarder.close()
        self._delivery.close()
        self._waiting.close()
        self.store.close()

    def _change(self, id: bytes, rule: Callable[[Job, int], Change]) -> Job | None:
        """Look, decide, apply, and again if the job changed in between: the job as it was when the change was made;
        None if the rules refuse, or there is none."""
        seen: Job | None = None
        for _ in range(_TRIES):
            job = self.store.get([id])[0] if self.forwarder is None else self.forwarder.arrived(id)
            if job is None or job == seen:
                return None
            now = self.clock.now()
            try:
                change = rule(job, now)
            except NotPossible:
                return None
            if self.store.apply([change], now)[0]:
                if self.witness is not None:
                    self.witness.done_by_hand([job], what(change))
                return job
            seen = job
        return None

    def _jobs(self, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options) -> list[Job]:
        encode, lane = task.codec.encode, task.lane
        given = [arguments(task, call) for call in calls]
        bodies = [(encode(*each), lane and lane(*each)) for each in given]
        with shielded:
            first = [self._job(task, body, options, line) for body, line in bodies[:1]]
            return first + [self._alike(first[0], body, line) for body, line in bodies[1:]]

    def _alike(self, job: Job, body: bytes, lane: str | None) -> Job:
        """Another of many jobs: put at the same moment, in the same way."""
        if len(body) > self.max_body:
            self._too_large(job.task, body)
        return replace(job, id=self.store.mint(job.task, job.key, lane), body=body, lane=lane)

    def _now(self) -> int:
        try:
            return self.clock.now()
        except StoreUnavailable:
            if self.forwarder is None:
                raise
            # Never asked since this process began. What is kept for later may be due by the clock of this host.
            return time.time_ns() // 1000

    def _too_large(self, name: str, body: bytes) -> NoReturn:
        raise BodyTooLarge(f"{name}: the arguments take {len(body)} bytes; max_body is {self.max_body}")

    def _job(
        self, task: TaskDefinition[Any, Any], body: bytes, options: Options, lane: str | None, headers: bytes = b""
    ) -> Job:
        queue = options.queue or task.queue
        if task.due_after and options.delay is None and options.at is None:
            options = replace(options, delay=task.due_after / SECOND)
        if options is not NOW and options.overrides:
            headers = task.overridden(headers, options)
        job = self._placed(task.name, body, options, queue, task.priority, task.expires, lane, headers)
        return replace(job, headers=task.headed(headers, job.due)) if task.steered else job

    def _placed(
        self,
        name: str,
        body: bytes,
        options: Options,
        queue: str,
        priority: int,
        expires: Any,
        lane: str | None,
        headers: bytes = b"",
    ) -> Job:
        if len(body) > self.max_body:
            self._too_large(name, body)
        now = self._now()
        due = max(options.due(now, self.clock.unsure), 0)
        within = expires if options.expires is None else options.expires
        key = options.held_key
        return Job(
            self.store.mint(name, key, lane),
            name,
            body,
            queue,
            priority if options.priority is None else options.priority,
            due,
            lifecycle.placed(due, now),
            since=now,
            expires=0 if within is None else due + microseconds(within),
            key=key,
            unique=UNFINISHED if key is None else options.unique,
            holds=0 if key is None else HELD,
            lane=lane,
            headers=headers,
        )
