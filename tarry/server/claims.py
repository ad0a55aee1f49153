"""Jobs taken by programs that are not tarry's workers, in whatever language they are written.

A program that asks over HTTP holds its jobs by their id and epoch: it prolongs their leases itself, and any server
process settles them. A program with a connection, as in beanstalk, has its jobs held by this process.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.client.client import Client
from tarry.errors import Busy, Draining, JobNotFound, NotHeld
from tarry.keeper.death_hooks import DeathHooks
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.outcome import Outcome, Returned
from tarry.server.claim_loop import ClaimLoop
from tarry.server.claim_requests import (
    ChangeRequest,
    Check,
    ExtendRequest,
    ProgressRequest,
    Rule,
    TakenJobRequest,
    give_back,
    require_held,
    unknown_job,
)
from tarry.server.takers import ClaimResult, ClaimTicket
from tarry.store.rules.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.progress import Progress

MOST_WAITING = 10_000
"""Takers that wait for jobs, and requests that wait for their call; any more are told to come again."""
MOST_HELD = 100_000
"""Jobs that one process holds for others."""


Allows = Callable[[str], bool]
"""Whether a caller may take jobs of a queue."""


class Claims:
    """Of one process and one event loop, on whose thread everything is called and every reply comes. Each call is
    batched with those that wait at the same moment.

    store: where the jobs are; default: the client's. As that of a worker, it need not sync to the disk what it writes:
    what a power cut undoes is done again. owns_store: `close` closes it. app_queues: the queues of the app's own tasks;
    workers that serve "*" go on to serve them. Default: those of the client's tasks. hooks: calls `on_failure` and
    `on_dead` of tasks that have these.
    """

    def __init__(
        self,
        client: Client,
        store: Store | None = None,
        *,
        owns_store: bool = False,
        app_queues: Callable[[], Collection[str]] | None = None,
        hooks: DeathHooks | None = None,
    ) -> None:
        self._client, self.store, self._owns_store = client, store or client.store, owns_store
        self._app_queues = app_queues or (lambda: {task.queue for task in list(client.tasks.values())})
        self._hooks = hooks or DeathHooks(client.tasks, client.store)
        self._starting = threading.Lock()
        self._loop: ClaimLoop | None = None
        self._is_closed = False

    # For programs that hold their jobs by id and epoch

    async def claim(self, queues: Sequence[str], *, limit: int, lease: int, wait: float) -> list[Job]:
        """Takes up to `limit` jobs of these queues, waiting up to `wait` seconds for the first. Busy, Draining,
        StoreError.

        lease: microseconds for which the jobs are theirs; after that, and before twice as long, the keeper brings back
        those that are neither settled nor extended, and the attempt counts as a time-out.
        """
        future: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()
        resolve = _resolver(future)

        def reply(answer: ClaimResult) -> None:
            if future.cancelled() and isinstance(answer, list):
                self.give_back(answer)
            resolve(answer)

        ticket = self._wait(ClaimTicket(queues, limit, lease, reply, self._forget), wait)
        try:
            return await future
        except asyncio.CancelledError:
            # The caller was cancelled, perhaps with an answer on its way: its client is gone.
            ticket.cancel()
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            raise

    async def settle(
        self, id: bytes, epoch: int, outcome: Outcome, allows: Allows = lambda queue: True
    ) -> tuple[Job, Change]:
        """Ends the attempt with this outcome, by the rules of the task; returns the job as it was and what has become
        of it. NotHeld, JobNotFound, Busy, Draining, StoreError.

        allows: whether the caller may do this with a queue.
        """
        loop, check = self._open(), _make_check(epoch, allows)

        def rule(job: Job, now: int) -> Change:
            check(job)
            return lifecycle.after(job, kept, self._client.rules(job.task, job.queue), now, loop.clock.unsure)

        kept = await self._keep_large(id, outcome, check)
        future: asyncio.Future[tuple[Job, Change]] = asyncio.get_running_loop().create_future()
        self._ask(ChangeRequest(id, rule, _resolver(future), kept, epoch))
        return await future

    async def _keep_large(self, id: bytes, outcome: Outcome, check: Check) -> Outcome:
        """The outcome with a reference in place of a large result."""
        if not isinstance(outcome, Returned) or len(outcome.value) <= self.store.keeps_apart_over:
            return outcome

        def keep() -> Outcome:
            (job,) = self.store.get([id])
            # For a job that is not theirs nothing is written.
            with contextlib.suppress(NotHeld, JobNotFound):
                if job is not None:
                    check(job)
                    return replace(outcome, value=self.store.keep_result(job, outcome.value))
            return outcome

        return await asyncio.to_thread(keep)

    async def extend(self, id: bytes, epoch: int, lease: int, allows: Allows = lambda queue: True) -> None:
        """Prolongs the lease: the job is theirs for `lease` microseconds from now at least. Errors as of `settle`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ask(ExtendRequest(id, epoch, lease, _make_check(epoch, allows), _resolver(future)))
        await future

    async def progress(self, id: bytes, epoch: int, value: Progress, allows: Allows = lambda queue: True) -> None:
        """Stores how far the job is. Errors as of `settle`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ask(ProgressRequest(id, epoch, encode_progress(value), _make_check(epoch, allows), _resolver(future)))
        await future

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Gives back jobs that were claimed and did not reach their taker; no attempt is counted."""
        # Draining: their lease ends by itself.
        with contextlib.suppress(Draining):
            self._open().ask(*map(give_back, jobs))

    # For programs whose jobs this process holds

    def take(
        self, queues: Sequence[str], reply: Callable[[Job | Exception | None], None], wait: float | None = None
    ) -> ClaimTicket:
        """Takes one job, the most urgent band first; `reply` gets it once it is there. Busy, Draining.

        This process holds the job until `change` settles it. wait: seconds after which `reply` gets None, 0: after one
        look; None: it waits until there is a job, or until `cancel` of the ticket.
        """
        if self.held >= MOST_HELD:
            raise Busy(f"this server holds {self.held} jobs already: finish some of them")
        return self._wait(ClaimTicket(queues, 1, None, lambda answer: reply(_single(answer)), self._forget), wait)

    def change(
        self, id: bytes, rule: Rule, reply: Callable[[Job | Exception], None], outcome: Outcome | None = None
    ) -> None:
        """Makes the change that the rule of the lifecycle says, of any job. Busy, Draining.

        reply: gets the job as it was before, a held one without its arguments, or an error: that of the rule,
        JobNotFound, or a StoreError. The rule may be called again if the job has changed meanwhile. outcome: how an
        attempt ended, for the log and the hooks; None: nothing is to be told.
        """
        self._ask(ChangeRequest(id, rule, lambda answer: reply(_before(answer)), outcome))

    @contextlib.contextmanager
    def reservation(self) -> Iterator[Callable[[Job], None]]:
        """For another thread that claims a job in the name of `owner`: gives what holds it then, as one that was taken.
        If its call ends with a StoreError, what it may have brought is given back. Draining."""
        if self._loop is None or self._is_closed:
            raise Draining("this server is ending: ask again")
        with self._loop.reservation() as hold:
            yield hold

    @property
    def is_broken(self) -> bool:
        """Whether no jobs can be taken or settled by this process any more."""
        return self._loop is not None and self._loop.is_broken

    @property
    def owner(self) -> str:
        """The owner of the jobs that this process holds."""
        return self._open().held.owner

    @property
    def held(self) -> int:
        """How many jobs this process holds."""
        return 0 if self._loop is None else len(self._loop.held)

    @property
    def waiting(self) -> int:
        """How many takers wait."""
        return 0 if self._loop is None else self._loop.waiting

    def close(self) -> None:
        """Tells all who wait that this server ends, and gives back the jobs that this process holds. Blocks for some
        seconds at most."""
        with self._starting:
            self._is_closed = True
            loop = self._loop
        if loop is not None:
            loop.close()
        self._hooks.close()
        if self._owns_store:
            self.store.close()

    def _wait(self, ticket: ClaimTicket, wait: float | None) -> ClaimTicket:
        loop = self._open()
        if loop.waiting >= MOST_WAITING:
            raise Busy(f"{loop.waiting} wait for jobs already: ask again later")
        ticket.sees_last = wait is not None and wait <= 0
        if wait is not None and wait > 0:
            ticket.limit_wait(asyncio.get_running_loop().call_later(wait, loop.see_last, ticket))
        loop.wait(ticket)
        return ticket

    def _forget(self, ticket: ClaimTicket) -> None:
        self._open().forget(ticket)

    def _ask(self, request: TakenJobRequest) -> None:
        loop = self._open()
        if loop.pending >= MOST_WAITING:
            raise Busy(f"{loop.pending} requests wait for the store already: ask again")
        loop.ask(request)

    def _open(self) -> ClaimLoop:
        if self._loop is None:
            with self._starting:
                if self._is_closed:
                    raise Draining("this server is ending: ask again")
                if self._loop is None:
                    here, client = asyncio.get_running_loop(), self._client
                    self._loop = ClaimLoop(self.store, here, client.rules, self._app_queues, self._hooks)
        return self._loop


def encode_progress(value: Progress) -> bytes:
    """Progress as the store keeps it."""
    return msgspec.json.encode((value.fraction, value.message))


def _make_check(epoch: int, allows: Allows) -> Check:
    def check(job: Job) -> None:
        # First: who may not do this does not even learn that there is such a job.
        if not allows(job.queue):
            raise unknown_job(job.id)
        require_held(job, epoch)

    return check


def _resolver(future: "asyncio.Future[Any]") -> Callable[[Any], None]:
    def resolve(answer: Any) -> None:
        # The caller may have been cancelled.
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return resolve


def _single(answer: ClaimResult) -> Job | Exception | None:
    return answer if isinstance(answer, Exception) else next(iter(answer), None)


def _before(answer: Exception | tuple[Job, Change]) -> Job | Exception:
    return answer if isinstance(answer, Exception) else answer[0]
