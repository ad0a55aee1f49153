"""The client of a store: enqueue, query, wait, cancel, retry. The app, the command line and the HTTP API call it."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tarry.client.acting import sign_change
from tarry.client.bounds import BoundedQueues
from tarry.client.clock import Clock
from tarry.client.duplicates import DuplicateResolver
from tarry.client.enqueue_listener import EnqueueListener, JobEvent, insert_and_notify
from tarry.client.follow import Follow
from tarry.client.forwarder import Forwarder, Insert
from tarry.client.handle import Handle, require_handle
from tarry.client.insert_many import PendingJobs
from tarry.client.inserter import Inserter, own_error
from tarry.client.job_factory import JobFactory, encode_call
from tarry.client.live_workers import BroadcastTarget, Per, find_targets
from tarry.client.transaction import TransactionalInserter
from tarry.client.waiting import Waiter, Waiting
from tarry.errors import ResultTimeout, StoreError, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.change import Change
from tarry.model.checks.unreadable import is_apart
from tarry.model.duration import Duration
from tarry.model.job import Job, State, order_label
from tarry.model.lifecycle import NotPossible, Rules
from tarry.model.limit import Limit
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.flows import NewFlow
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.tasks.call import AnyCall
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.new_job import NewJob
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.store.outbox import Outbox
    from tarry.store.queries.schedule_room import ScheduleRoom

MAX_BODY = 2**20
TIMEOUT = 5.0
"""Seconds that an enqueue takes at most."""
_TRIES = 20
# Kept on purpose: a driver whose connection is collected might close the parent's connection too.
_inherited: list[dict[str, Any]] = []
"""The state of clients of the parent process."""


class Client:
    """An app's way to one store. Safe from threads and coroutines."""

    max_schedules = 0
    """How many schedules the store may keep; 0: any number. Set before the first is put."""

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
        listener: EnqueueListener | None = None,
        bounds: Mapping[str, Bound] | None = None,
        limits: Mapping[str, Limit] = {},
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.listener = listener
        self.clock = clock or Clock(store.time)
        self.rules = rules
        self.factory = JobFactory(store, tasks, self.clock, max_body=max_body, has_outbox=bool(outbox), limits=limits)
        self._make_handle = partial(Handle, self)
        self.queues = BoundedQueues(store, self.clock.now, listener, bounds, self._declared_for_key)
        self._duplicates = DuplicateResolver(store, self.queues.insert, self.clock.now, listener, self._make_way)
        self.forwarder = None if outbox is None else self.make_forwarder(outbox)
        self._inserter = Inserter(
            store,
            self._with_listener(self.queues.insert),
            duplicates=self._duplicates,
            make_handle=self._make_handle,
            insert_again=self.insert_jobs,
            forwarder=self.forwarder,
            timeout=timeout,
        )
        self._transactional = TransactionalInserter(
            store, self._inserter.resolve, self._make_handle, insert_later=self.insert_jobs, queues=self.queues
        )
        self._waiting = Waiting(store, self.fetch)
        # An earlier process may have left jobs in the outbox.
        if self.forwarder is not None and self.forwarder.outbox.content().jobs:
            self.forwarder.start()

    @cached_property
    def schedule_room(self) -> "ScheduleRoom":
        """Asked before a new schedule is stored."""
        from tarry.store.queries.schedule_room import ScheduleRoom  # noqa: PLC0415 - few put schedules

        return ScheduleRoom(self.store, self.max_schedules)

    def _declared_for_key(self, task: str) -> int | None:
        known = self.tasks.get(task)
        return None if known is None else known.max_waiting

    def inherit(self, heir: "Callable[[], Client]") -> None:
        """Called in a forked child: hands over to the client that `heir` returns.

        Whatever refers to this client, as each handle does, uses the heir from now on.
        """
        # The connections are the parent's: two processes that use one connection mix up their answers.
        _inherited.append(dict(self.__dict__))
        self.__dict__.clear()
        self.__dict__["_heir"] = heir

    if not TYPE_CHECKING:  # else every misspelt attribute would pass

        def __getattr__(self, name: str) -> Any:
            """Called for missing attributes only: after `inherit`, for all of them."""
            heir = self.__dict__.get("_heir")
            if heir is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(heir(), name)

    # Enqueue

    def enqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options = NO_OPTIONS,
    ) -> Handle[Any]:
        """Enqueues one call; returns once it is stored. ArgumentError, BodyTooLarge, StoreError."""
        # Without middleware there is nothing to pass: then the call takes the short way.
        if task.app_hooks.has_enqueue_hooks:
            new = NewJob(task, args, kwargs, options, self._send, False)
            return require_handle(task.app_hooks.enqueue_chain[False](new))
        return self._enqueue(task, args, kwargs, options)

    async def aenqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options = NO_OPTIONS,
    ) -> Handle[Any]:
        """The same, awaited."""
        if task.app_hooks.has_enqueue_hooks:
            new = NewJob(task, args, kwargs, options, self._asend, True)
            return require_handle(await task.app_hooks.enqueue_chain[True](new))
        return await self._aenqueue(task, args, kwargs, options)

    def enqueue_many(
        self,
        task: TaskDefinition[Any, Any],
        calls: Iterable[AnyCall[Any]],
        options: Options = NO_OPTIONS,
        over: Duration | None = None,
    ) -> list[Handle[Any]]:
        """Enqueues many calls, thousands a round trip. All are checked before the first is stored. over: they are due
        evenly over that time."""
        if task.app_hooks.has_enqueue_hooks:
            return self._pending_jobs().insert_many(self.insert_jobs, task, calls, options, over)
        return self.insert_jobs(self.factory.make_many(task, calls, options, over), options)

    async def aenqueue_many(
        self,
        task: TaskDefinition[Any, Any],
        calls: Iterable[AnyCall[Any]],
        options: Options = NO_OPTIONS,
        over: Duration | None = None,
    ) -> list[Handle[Any]]:
        """The same, awaited."""
        if task.app_hooks.has_enqueue_hooks:
            return await self._pending_jobs().ainsert_many(self.ainsert_jobs, task, calls, options, over)
        if options.connection is not None:
            return await self._transactional.ainsert(self.factory.make_many(task, calls, options, over), options)
        # Encoding thousands of calls would block the event loop too, so all of it runs in a thread.
        return await asyncio.to_thread(self.enqueue_many, task, calls, options, over)

    def make_job(self, name: str, body: bytes, options: Options = NO_OPTIONS) -> Job:
        """A new job of the task of that name, with encoded arguments; not stored yet. ArgumentError."""
        return self.factory.make_by_name(name, body, options)

    def insert_jobs(self, jobs: Sequence[Job], options: Options = NO_OPTIONS) -> list[Handle[Any]]:
        """Stores jobs that `make_job` made with these options; StoreError."""
        with shielded:
            if options.connection is not None:
                return self._transactional.insert(jobs, options)
            return self._inserter.insert_many(jobs, options)

    def _insert_one(self, job: Job, options: Options) -> Handle[Any]:
        with shielded:
            return self._inserter.insert_one(job, options)

    def insert_each(self, jobs: Sequence[Job], options: Sequence[Options]) -> list[Handle[Any] | Exception]:
        """Stores jobs of several callers in one call of the store, each with the options that `make_job` got; gives
        for each its handle, or the StoreError or IdempotencyError of that job alone. Not for `connection=`."""
        with shielded:
            return self._inserter.insert_each(jobs, options)

    async def ainsert_jobs(self, jobs: Sequence[Job], options: Options = NO_OPTIONS) -> list[Handle[Any]]:
        """The same, awaited."""
        if options.connection is not None:
            return await self._transactional.ainsert(jobs, options)
        return await asyncio.to_thread(self.insert_jobs, jobs, options)

    def insert_flow(self, new: NewFlow, connection: Any = None) -> Handle[Any]:
        """Stores a flow, all or none, within the transaction of `connection` if one is given; returns the handle of its
        root, or that of the unfinished flow that holds its key. StoreError, of which `send_again` stores it once."""
        with shielded:
            if connection is not None:
                return self._transactional.insert_flow(new, self.clock.now(), connection, self._store_flow)
            return self._store_flow(new)

    async def ainsert_flow(self, new: NewFlow, connection: Any = None) -> Handle[Any]:
        """The same, awaited."""
        if connection is not None:
            return await self._transactional.ainsert_flow(new, self.clock.now(), connection, self._store_flow)
        return await asyncio.to_thread(self._store_flow, new)

    def _store_flow(self, new: NewFlow) -> Handle[Any]:
        flows, now = self.store.flows, self.clock.now()
        try:
            id = flows.insert(new, now)
        except StoreError as error:
            raise own_error(error, self._make_handle(new.root.id, None), partial(self._store_flow, new)) from None
        flows.begin(new, now)
        if self.listener is not None and id == new.root.id:
            self.listener.on_accepted(new.nodes)
        return self._make_handle(id, id == new.root.id)

    def find_targets(self, per: Per) -> list[BroadcastTarget]:
        """Where the jobs of a broadcast run now; HostNotFound, StoreError."""
        return find_targets(self.store, per)

    def make_forwarder(self, outbox: "Outbox") -> Forwarder:
        """Makes a forwarder that moves the jobs of this outbox to the store."""
        # Into a full queue too: these jobs were accepted long ago, and there is nobody to be told.
        insert = self._with_listener(self.store.insert)
        return Forwarder(self.store, insert, self._duplicates, self._make_handle, outbox)

    def _with_listener(self, insert: Insert) -> Insert:
        """The same insert, of which the listener hears, if there is one."""
        return insert if self.listener is None else partial(insert_and_notify, insert, self.listener)

    def _enqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options,
        headers: bytes = b"",
    ) -> Handle[Any]:
        body, lane = encode_call(task, args, kwargs)
        options = task.with_cost(options, args, kwargs)
        with shielded:
            # Encoded before, outside the block: the user's code must stay interruptible.
            job = self.factory.make(task, body, lane, options, headers)
            if options.connection is not None:
                return self._transactional.insert([job], options)[0]
            # The batcher's calls have no options, so a job that a replica must confirm is inserted by itself.
            if options.durable is not None:
                return self._inserter.insert_one(job, options)
            return self._inserter.insert(job, options)

    async def _aenqueue(
        self,
        task: TaskDefinition[Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options,
        headers: bytes = b"",
    ) -> Handle[Any]:
        body, lane = encode_call(task, args, kwargs)
        options = task.with_cost(options, args, kwargs)
        with shielded:
            job = self.factory.make(task, body, lane, options, headers)
        if options.connection is not None:
            return (await self._transactional.ainsert([job], options))[0]
        if options.durable is not None:
            return await asyncio.to_thread(self._insert_one, job, options)
        return await self._inserter.ainsert(job, options)

    def _send(self, new: NewJob) -> Handle[Any]:
        """The end of the middleware chain."""
        return self._enqueue(new.definition, new.args, new.kwargs, new.options, new.encode_headers())

    async def _asend(self, new: NewJob) -> Handle[Any]:
        return await self._aenqueue(new.definition, new.args, new.kwargs, new.options, new.encode_headers())

    def _pending_jobs(self) -> PendingJobs:
        return PendingJobs(self.factory.make_from, self._make_handle)

    # Query and wait

    def get(self, id: str | bytes) -> Handle[Any]:
        """The handle of a job; ValueError if this is not an id."""
        return self._make_handle(ids.parse(id) if isinstance(id, str) else id)

    def fetch(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs by id, also those in the outbox; None for an unknown one. StoreUnavailable."""
        with shielded:
            return self.store.get(ids) if self.forwarder is None else self.forwarder.fetch(ids)

    def load_arguments(self, job: Job) -> Job:
        """A job with its arguments, also if they are kept outside of the store. PayloadUnavailable, PayloadLost."""
        with shielded:
            return self.store.load_arguments(job)

    def load_result(self, job: Job) -> Job:
        """A job that is done with its result, also one that is kept outside of the store. PayloadUnavailable,
        PayloadLost."""
        if not is_apart(job.note):
            return job
        with shielded:
            return self.store.load_result(job)

    def wait(self, id: bytes, timeout: float | None) -> Job | None:
        """Waits for the end of a job, also while the store is away; None if there is no such job. ResultTimeout.

        timeout: seconds; None: without end.
        """
        with shielded:
            # One read first: for a job that has finished already, no thread and no wake-up are needed.
            is_over, job = self._fetch_finished(id)
            return job if is_over else self._check_finished(*self._waiting.wait(id, timeout), id, timeout)

    async def await_finished(self, id: bytes, timeout: float | None) -> Job | None:
        """The same, awaited."""
        is_over, job = await asyncio.to_thread(self._fetch_finished, id)
        if not is_over:
            is_over, job = await self.await_end(id, timeout)
        return job if is_over else await asyncio.to_thread(self._check_finished, False, None, id, timeout)

    async def await_end(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """Waits up to `timeout` seconds for the end of a job that had not finished when it was read last: (True, the
        job or None if there is none), or (False, None)."""
        return await self._waiting.await_finished(id, timeout)

    def watch(self, id: bytes, notify: Callable[[Job | None], None]) -> Callable[[], None]:
        """Calls `notify`, in another thread, with the job as it is, at each change, and at its end; with None if there
        is none. Returns what stops that, and may be called again. May block."""
        waiting, waiter = self._waiting, Waiter(notify, follows=True)
        waiting.add(id, waiter)
        return lambda: waiting.remove(id, waiter)

    def follow(self, id: bytes, timeout: float | None) -> Follow:
        """An iterator over the changes of a job."""
        # A function, since after a fork `_waiting` is the heir's.
        return Follow(lambda: self._waiting, id, timeout)

    def _fetch_finished(self, id: bytes) -> tuple[bool, Job | None]:
        """(True, the finished job or None if there is none), or (False, ...) if the caller has to wait."""
        try:
            job = self.fetch([id])[0]
        except StoreUnavailable:
            # The wait goes on while the store is away, up to its own timeout.
            return False, None
        return job is None or job.state.finished, job

    def _check_finished(self, is_finished: bool, job: Job | None, id: bytes, timeout: float | None) -> Job | None:
        if not is_finished:
            raise ResultTimeout(self._waiting.timeout_text(id, timeout or 0.0))
        return job

    # Change

    def cancel(self, id: bytes, reason: str = "") -> bool:
        """Cancels a job; False if it has finished or there is none. A worker that runs it interrupts it."""
        return self.cancel_job(id, reason) is not None

    def cancel_job(self, id: bytes, reason: str = "") -> Job | None:
        """The same; returns the job as it was before, or None where `cancel` returns False."""
        with shielded:
            job = self._change(id, lambda job, now: self.cancel_change(job, now, reason), "cancelled")
            if job is not None and job.state is State.RUNNING:
                # Otherwise its worker learns of the cancel only at its next regular look.
                self.store.wake_for_recall()
        return job

    def cancel_change(self, job: Job, now: int, reason: str = "") -> Change:
        """The change that cancels the job; NotPossible."""
        return lifecycle.cancel(job, self.rules(job.task, job.queue), now, self._cancel_reason(job, reason))

    def _cancel_reason(self, job: Job, reason: str) -> str:
        task = self.tasks.get(job.task)
        return reason if task is None or task.runner is None else task.runner.cancel_reason(job, reason)

    def _make_way(self, job: Job, newer: Job, now: int) -> Change:
        """The change by which a running job leaves its key to a newer one; NotPossible."""
        reason = self._cancel_reason(job, f"job {ids.text(newer.id)} has taken its key")
        change = lifecycle.make_way(job, self.rules(job.task, job.queue), now, reason)
        return sign_change(job, change, "cancelled", now)

    def retry(self, id: bytes) -> bool:
        """Makes a job ready now; a finished one gets all its attempts again. False if the rules do not allow it."""
        with shielded:
            return self._change(id, lifecycle.run_now, "retried") is not None

    def move(self, id: bytes, *, due: int | None = None, queue: str | None = None, priority: int | None = None) -> bool:
        """Gives a waiting job another time (microseconds since the epoch), queue or priority; what is None stays. False
        if it does not wait."""
        with shielded:
            rule = partial(lifecycle.move, due=due, queue=queue, priority=priority)
            return self._change(id, rule, "moved") is not None

    def forget(self, id: bytes) -> bool:
        """Deletes a job that does not run."""
        with shielded:
            return self._change(id, lambda job, now: lifecycle.forget(job), "deleted") is not None

    def close(self) -> None:
        """Closes the store and ends the threads."""
        if self.forwarder is not None:
            # The store comes last: the threads above still use it.
            self.forwarder.close()
        self._inserter.close()
        self._waiting.close()
        self.store.close()

    def _change(self, id: bytes, rule: Callable[[Job, int], Change], event: JobEvent) -> Job | None:
        """Applies the rule to a job, and returns the job as it was before; None if the rule refuses or there is no job.

        Tries again if the job changed in between.
        """
        seen: Job | None = None
        # A job that changes all the time must not keep this caller for ever.
        for _ in range(_TRIES):
            job = self.store.get([id])[0] if self.forwarder is None else self.forwarder.fetch_stored(id)
            # The same job as at the last try, and yet its change was refused: another try would fail too.
            if job is None or job == seen:
                return None
            now = self.clock.now()
            try:
                change = sign_change(job, rule(job, now), event, now)
            except NotPossible:
                return None
            if self.store.apply([change], now)[0]:
                if self.listener is not None:
                    self.listener.on_manual_change([job], event)
                bring_forward_behind(self.store, [job], now)
                return job
            seen = job
        return None


def bring_forward_behind(store: Store, jobs: Iterable[Job], now: int) -> None:
    """After somebody has changed these jobs: makes those ready that had to wait for them, if their tasks are ordered.
    Where the store fails, they come by themselves, only later."""
    ordered = {label: job for job in jobs if (label := order_label(job.headers))}
    if not ordered:
        return
    from tarry.store.queries.key_order import KeyTurns  # noqa: PLC0415 - few tasks are ordered

    turns = KeyTurns(store)
    with contextlib.suppress(StoreError):
        for job in ordered.values():
            turns.bring_forward(job, now)
