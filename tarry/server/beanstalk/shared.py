"""What all connections of the beanstalk door of one process share, and what it needs of the rest of the server."""

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.errors import Busy, Draining, StoreError
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.server.beanstalk.command_parser import MAX_JOB_SIZE
from tarry.server.beanstalk.job_mapping import by_holder, ttr_of
from tarry.server.beanstalk.numbers import JobNumbers
from tarry.server.beanstalk.pauses import TubePauses
from tarry.server.beanstalk.tubes import Tubes
from tarry.server.claim_requests import Rule
from tarry.server.external_marks import ExternalMarks
from tarry.server.identity.access import DoorAccess
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

R = TypeVar("R")
log = logging.getLogger("tarry.server")

DEFAULT_TUBE = "default"
"""Which clients use and watch that say nothing else; it is always there."""


class TakeTicket(Protocol):
    """A wait for a job."""

    def cancel(self) -> None:
        """Ends the wait: no reply follows, and a job that is on its way is given back."""


class JobTaking(Protocol):
    """The jobs that this process holds for its clients, as `door.claims.Claims`. All of it is called on the event
    loop's thread, and replies there."""

    @property
    def owner(self) -> str:
        """The owner of the jobs, in the store."""

    def take(
        self, queues: Sequence[str], reply: Callable[[Job | Exception | None], None], wait: float | None = None
    ) -> TakeTicket:
        """Waits up to `wait` seconds (None: without end) for a job; replies with None if the time is over. Busy,
        Draining."""

    def reservation(self) -> AbstractContextManager[Callable[[Job], None]]:
        """In any thread: while a job is claimed in the name of `owner`; gives what holds it then. Draining."""

    def change(self, id: bytes, rule: Rule, reply: Callable[[Job | Exception], None]) -> None:
        """Makes the change that the rule gives for the job as it is now; replies with the job as it was
        before, or an error. Busy, Draining."""


class PutTaking(Protocol):
    """The puts that wait for their commit, as `door.put_batcher.PutBatcher`."""

    def put(
        self,
        jobs: Sequence[Job],
        options: Sequence[Options],
        reply: Callable[[list[Handle[Any] | Exception]], None],
        deadline: float | None = None,
    ) -> None:
        """Stores the jobs, and replies on the event loop's thread."""


class Service(Protocol):
    """What the door needs of the server, as `door.service.DoorService`."""

    @property
    def client(self) -> Client:
        """The app's client."""

    @property
    def ring(self) -> PutTaking:
        """Where jobs are put."""

    @property
    def claims(self) -> JobTaking:
        """Where jobs are taken."""

    async def start(self) -> None:
        """Opens the store. StoreError."""

    async def run(self, call: Callable[[], R], /) -> R:
        """Makes a blocking call in a thread. Busy, Draining."""


class Held(Struct):
    """A job that a connection has reserved. Times are those of the event loop's clock, in seconds."""

    job: Job
    ttr: int
    ends: float
    """When its time to run is over."""


class TubeCounts(Struct):
    """What this process counted for a tube since it started."""

    jobs: int = 0
    deletes: int = 0
    pauses: int = 0


class BeanstalkDoor:
    """Numbers, counters and the store's time, for all connections."""

    def __init__(
        self,
        service: Service,
        loop: asyncio.AbstractEventLoop,
        *,
        max_job_size: int = MAX_JOB_SIZE,
        access: DoorAccess | None = None,
    ) -> None:
        """access: knows the tokens that clients have to send; None: they need none."""
        self.access = access
        client = service.client
        self.ring, self.claims, self.client, self.loop = service.ring, service.claims, client, loop
        self.max_job_size = min(max_job_size, client.factory.max_body)
        self.numbers = JobNumbers(client.store)
        self.tubes, self.pauses = Tubes(client.store), TubePauses(client.store)
        self.is_draining = self._takes_slots = False
        self.held: dict[int, Held] = {}
        """What all connections of this process have reserved, by number."""
        self.uses: Counter[str] = Counter()
        self.watches: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()
        """How many connections use, watch and wait for a tube."""
        self.counts: Counter[str] = Counter()
        """Commands by verb, and what else is counted for all."""
        self.by_tube: dict[str, TubeCounts] = {}
        self.started = loop.time()
        self.instance = os.urandom(8).hex()
        self._marks = ExternalMarks(lambda: {task.queue for task in list(client.tasks.values())})
        self._service = service
        self._browser_logged_at = -_LOGGED_EVERY
        self._calls: set[asyncio.Task[None]] = set()

    def now(self) -> int:
        """The store's time in microseconds, without asking the store."""
        # The service measures it ahead of need, so that no connection waits for the store.
        return self.client.clock.now()

    async def maintain(self) -> None:
        """To be done every few seconds. StoreError."""
        await self._service.run(self._maintain)

    def mark_tube(self, tube: str, then: Callable[[], None]) -> None:
        """Calls `then` once workers that serve "*" leave out the tube, into which somebody is about to put."""
        self._marks.note_used((tube,))
        if not self._marks.due((tube,)):
            then()
            return
        # If the mark fails, so does the put, or the next one marks.
        self.call(lambda: self._marks.mark(self.client.store, (tube,), self.now()), lambda _: then())

    def new_id(self) -> bytes:
        """The id of a new job, which has a number. StoreUnavailable while there are no numbers."""
        if self.numbers.is_short and not self._takes_slots:
            self._takes_slots = True
            self.call(self.numbers.take_slots, self._on_slots)
        return self.numbers.new_id()

    def _on_slots(self, _: object) -> None:
        self._takes_slots = False

    def _maintain(self) -> None:
        if self.numbers.is_due:
            self.numbers.take_slots()
        self.pauses.resume_due(self.now())

    def call(self, call: Callable[[], R], reply: Callable[[R | Exception], None]) -> None:
        """Makes a call that blocks in a thread; replies on the event loop's thread."""

        async def run() -> None:
            answer: R | Exception
            try:
                answer = await self._service.run(call)
            except Exception as error:
                answer = error
            reply(answer)

        # Kept: the event loop itself refers to its tasks weakly.
        task = self.loop.create_task(run())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def change(self, job: Job, rule: Rule, reply: Callable[[Job | Exception], None]) -> None:
        """Makes the change of a job that a connection had reserved; replies with the job as it was, or an error."""
        self.change_any(job.id, by_holder(job, rule), reply)

    def give_back(self, job: Job, rule: Rule) -> None:
        """Gives back a job that a connection had reserved, if need be later: this process would hold it for ever."""

        def reply(changed: Job | Exception) -> None:
            if isinstance(changed, StoreError | Busy):
                self.loop.call_later(_AGAIN_AFTER, self.give_back, job, rule)

        self.change(job, rule, reply)

    def change_any(self, id: bytes, rule: Rule, reply: Callable[[Job | Exception], None]) -> None:
        """Makes the change of a job that no connection of this process has reserved."""
        try:
            self.claims.change(id, rule, reply)
        except (Busy, Draining) as error:
            # At its end the server gives back all that it holds.
            reply(error)

    def resume_after(self, seconds: float) -> None:
        """Looks after so many seconds for tubes whose pause is over."""
        self.loop.call_later(seconds, self.resume_due)

    def resume_due(self) -> None:
        """Looks now for tubes whose pause is over, and for the time when to look again."""
        self.call(lambda: self.pauses.resume_due(self.now()), lambda _: None)

    def log_browser(self) -> None:
        """A client spoke HTTP or TLS. A page may try it again and again: it is told once a minute."""
        now = self.loop.time()
        if now >= self._browser_logged_at + _LOGGED_EVERY:
            self._browser_logged_at = now
            log.warning("beanstalk: a client that speaks HTTP or TLS was cut off: was a web page to use this port?")

    def rules(self, job: Job) -> Rules:
        """How long the job is kept once it has ended."""
        return self.client.rules(job.task, job.queue)

    def timeout(self, job: Job) -> float | None:
        """Seconds, as the job's task says; None if it says nothing or is not known here."""
        task = self.client.tasks.get(job.task)
        return None if task is None else task.timeout

    def tube(self, name: str) -> TubeCounts:
        """The counts of a tube."""
        counts = self.by_tube.get(name)
        if counts is None:
            # Clients may name any number of tubes; those that nobody uses now are forgotten.
            if len(self.by_tube) >= _TUBES_MOST:
                self.by_tube = {each: kept for each, kept in self.by_tube.items() if self.is_used(each)}
            counts = self.by_tube[name] = TubeCounts()
        return counts

    def is_used(self, tube: str) -> bool:
        """Whether a connection of this process uses or watches the tube."""
        return tube in self.uses or tube in self.watches

    def is_known(self, tube: str) -> bool:
        """Whether there is such a tube, also without jobs."""
        return tube == DEFAULT_TUBE or self.is_used(tube)

    def used_tubes(self) -> set[str]:
        """The tubes that connections of this process use or watch."""
        return {*self.uses, *self.watches}

    def seconds_left(self, number: int, job: Job) -> int:
        """Whole seconds until a reserved job is given back, or a delayed one is ready; 0 for any other."""
        now, held = self.now(), self.held.get(number)
        if job.state is State.RUNNING and held is not None:
            return _whole_seconds(held.ends - self.loop.time())
        if job.state is State.RUNNING:
            # Another process holds it; whether it was touched, only that one knows.
            return _whole_seconds(ttr_of(job, self.timeout(job)) - (now - job.state_since) / SECOND)
        is_delayed = job.state is State.SCHEDULED
        return _whole_seconds((job.due - self.client.clock.unsure - now) / SECOND) if is_delayed else 0


def _whole_seconds(left: float) -> int:
    # Of 10 seconds that have just begun, 9 are left, as beanstalkd has it.
    # The clock is a float, and its error grows with the time: 2**32 seconds are allowed.
    return max(0, math.ceil(left - 0.001) - 1)


def add(counter: Counter[str], name: str, by: int) -> None:
    """Adds to a counter that must not keep names that nobody counts any more."""
    counter[name] += by
    if not counter[name]:
        del counter[name]


_TUBES_MOST = 10_000
_AGAIN_AFTER = 1.0
_LOGGED_EVERY = 60.0
