"""The thread that makes all calls of the store for the takers of a process.

Whatever is asked while it is in one call is part of the next: many ends of attempts, and the claims of all who wait for
the same queues, are one exchange.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.client.group_commit import GATHER_FROM, BatchWindow
from tarry.errors import Draining, StoreError, StoreUnavailable
from tarry.keeper.death_hooks import DeathHooks
from tarry.model.job import Job
from tarry.server.claim_requests import ChangeRequest, TakenJobRequest, give_back
from tarry.server.claim_settling import PreparedChange, Replies, Settler
from tarry.server.external_marks import ExternalMarks
from tarry.server.given_jobs import GivenJobs, has_more
from tarry.server.held_jobs import LEASE, HeldJobs, OutsideOwners
from tarry.server.takers import MOST_CLAIMS, ClaimGroup, ClaimResult, ClaimTicket, TicketClaim, WaitingClaims, share_out
from tarry.store.rules.base import Exchange, Store
from tarry.store.rules.partial_result import reachable_part
from tarry.store.rules.sleeper import WORK
from tarry.store.shared.backoff import Backoff
from tarry.tasks.lazy_asyncio import asyncio
from tarry.worker.claim_plan import NO_JOBS, OVERDUE_PAUSE, seconds_until_due
from tarry.worker.exchanger import RulesFor
from tarry.worker.pump import LOOK_ANYWAY
from tarry.worker.unseen_claims import UnseenClaims

log = logging.getLogger("tarry.server")

MOST_REQUESTS = 500
"""The most requests that are settled in one call."""
CLOSES_WITHIN = 5.0
"""Seconds that the thread has for its last calls."""
IDLE = 60.0
"""Seconds that it sleeps if nobody waits and no job is held."""
PROBE_FROM = 4
"""From so many kinds of takers on, it asks first which queues have jobs."""
ASKED_AGAIN_AFTER = 1.0
LOADS = 2
"""Answers whose large arguments are read at the same time: each may have as many bytes as `[payloads] most`."""
_ENDING = "this server is ending: ask again"
_FAULT_PAUSE = 1.0


class ClaimLoop:
    """Of one process. Its thread runs from the first request until `close`. Replies come on the thread of `loop`.

    app_queues: those of the app's own tasks. hooks: of tasks whose attempt fails.
    """

    def __init__(
        self,
        store: Store,
        loop: "asyncio.AbstractEventLoop",
        rules: RulesFor,
        app_queues: Callable[[], Collection[str]],
        hooks: DeathHooks | None = None,
    ) -> None:
        self.clock = Clock(store.time, CHECKED_EVERY)
        self._backoff, self._gathering = Backoff(log, "jobs are taken again"), BatchWindow()
        self.held = HeldJobs(store, self.clock, lambda: bool(self._backoff.tries))
        self._owners, self._takers = OutsideOwners(), WaitingClaims()
        self._store, self._given, self._marks = store, GivenJobs(store, rules), ExternalMarks(app_queues)
        self._event_loop, self._replies = loop, Replies(loop)
        self._settler = Settler(store, self.clock, self.held, self._owners, self._replies, hooks)
        self._lock = threading.Lock()
        self._requests: deque[TakenJobRequest] = deque()
        self._wakeup, self._topic = store.wakeup(), f"{WORK}{self.held.owner}"
        self._asleep = self._closing = self._listens = False
        self._error: StoreError | None = None
        self._moved = 0
        """How many changes and jobs the last step had."""
        self._unseen = UnseenClaims(store, self.clock, self.held.attempts)
        self._reserving = 0
        """Calls of other threads that take jobs in the name of the holder."""
        self._look_at = 0.0
        """time.monotonic() at which all who wait are looked for again."""
        self._loads = asyncio.Semaphore(LOADS)
        self._loading: set[asyncio.Task[None]] = set()
        """Answers for which arguments are read."""
        self._thread = threading.Thread(target=self._run, name="tarry-claims", daemon=True)
        self._thread.start()

    # For the thread of the event loop

    @property
    def waiting(self) -> int:
        """How many takers wait for jobs."""
        return self._takers.count

    @property
    def pending(self) -> int:
        """How many requests wait for their call."""
        return len(self._requests)

    def ask(self, *requests: TakenJobRequest) -> None:
        """Puts requests in line; Draining."""
        with self._lock:
            self._check_open()
            self._requests.extend(requests)
            self._gathering.note(len(requests))
            self._wake()

    def wait(self, ticket: ClaimTicket) -> None:
        """The ticket waits for jobs from now on; Draining."""
        with self._lock:
            self._check_open()
            self._takers.add(ticket)
            self._gathering.note(1)
            self._wake()

    @contextlib.contextmanager
    def reservation(self) -> Iterator[Callable[[Job], None]]:
        """See `Claims.reservation`."""
        with self._lock:
            self._reserving += 1
        try:
            with self._unseen.watch(self.held.owner):
                yield self._hold
        finally:
            with self._lock:
                self._reserving -= 1
                self._wake()

    def _hold(self, job: Job) -> None:
        with self._lock:
            self.held.add([job])
            # Its lease has to be prolonged.
            self._wake()

    @property
    def is_broken(self) -> bool:
        """Whether its thread has ended, though nobody closed it."""
        return not self._closing and not self._thread.is_alive()

    def see_last(self, ticket: ClaimTicket) -> None:
        """The ticket's time is over: it gets its answer after one more look."""
        with self._lock:
            ticket.sees_last = True
            self._takers.look(ticket)
            self._wake()

    def forget(self, ticket: ClaimTicket) -> None:
        """The ticket waits no longer, and gets no reply."""
        with self._lock:
            self._takers.remove(ticket)

    def close(self) -> None:
        """Settles what was asked for, tells all who wait that this server ends, gives back the jobs that this process
        holds, and ends the thread."""
        with self._lock:
            self._closing = True
            self._wake()
        self._thread.join(CLOSES_WITHIN)

    def _check_open(self) -> None:
        if self._closing:
            raise Draining(_ENDING)

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wakeup.wake()

    # The thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
            self._end()
        finally:
            self._answer_all(Draining(_ENDING))
            self._replies.send()
            self._wakeup.close()

    def _turn(self) -> None:
        self._moved = 0
        try:
            self._wait_after(self._step())
        except Exception:
            log.critical("taking jobs", exc_info=True)
            time.sleep(_FAULT_PAUSE)

    def _wait_after(self, pause: float) -> None:
        with self._lock:
            self._gathering.expect(self._moved)
        self._replies.send()
        if self._is_worth_gathering():
            self._gathering.wait()
            return
        if pause > 0 and self._takers.count and not self._listens:
            # First listen, then look once more: a job that comes between the two is found.
            with contextlib.suppress(StoreError):
                self._wakeup.listen(self._topic)
            self._listens = True
            with self._lock:
                self._takers.look_all()
        elif pause > 0:
            self._sleep(pause)

    def _is_worth_gathering(self) -> bool:
        # Else each exchange would be for the few who came during the one before, and cost as much.
        if self._moved < GATHER_FROM or self._closing:
            return False
        with self._lock:
            # Who holds jobs by a lease has a claim of its own: those who wait already gain nothing by more who come.
            return all(group.strict for group in self._takers.due())

    def _sleep(self, pause: float) -> None:
        with self._lock:
            is_due = self._takers.cannot_wait() if self._backoff.tries else self._takers.due()
            if self._closing or self._requests or is_due:
                return
            self._asleep = True
        self._wakeup.sleep(pause)
        self._asleep = False
        # If an event woke it, it listens no more; then there may be jobs.
        self._listens = self._listens and self._wakeup.is_listening()

    def _step(self) -> float:
        """Does what there is to do; returns for how many seconds there is nothing more."""
        now = time.monotonic()
        if left := self._backoff.left(now):
            self._answer_meanwhile()
            return left
        requests: list[TakenJobRequest] = []
        try:
            # A step that has nothing to ask would end the outage.
            if self._backoff.tries:
                self._store.time()
            self._do_timed_work(now)
            requests, groups = self._take()
            prepared = self._settler.prepare(requests)
            claims = self._choose(groups)
            # The first exchange has the changes of all.
            self._exchange(prepared, claims[0] if claims else None)
            for claim in claims[1:]:
                self._exchange((), claim)
            self._backoff.succeed()
        except Exception as error:
            self._error = self._known_error(error)
            if self._backoff.fail(now):
                log.error("taking jobs: %s", self._error, exc_info=None if error is self._error else error)
            with self._lock:
                again = {id(request) for request in self._requests}
            self._replies.fail_unanswered((one for one in requests if id(one) not in again), self._error)
            return self._backoff.left(now)
        return self._pause()

    def _known_error(self, error: Exception) -> StoreError:
        # Another is a fault of ours, or of a driver. Its callers ask again, and this thread goes on.
        unknown = f"jobs cannot be taken or settled now ({type(error).__name__}); ask again"
        return error if isinstance(error, StoreError) else StoreUnavailable(unknown)

    def _pause(self) -> float:
        now = time.monotonic()
        with self._lock:
            if self._requests or self._takers.due():
                return 0.0
        pause = IDLE if not self._takers.count else max(0.0, self._look_at - now)
        pause = min(pause, self.held.seconds_to_extension(now))
        return min(pause, LOOK_ANYWAY) if self._unseen else pause

    def _do_timed_work(self, now: float) -> None:
        self.held.extend(now)
        self._owners.free_ended(self._store, now)
        # While such a call lasts, a job that it has brought is not held yet.
        if self._unseen and (unknown := self._unseen.find(now, self.held.owner if self._reserving else "")):
            with self._lock:
                self._requests.extend(self._insist(give_back(job)) for job in unknown)
        if now >= self._look_at:
            self._look_at = now + LOOK_ANYWAY
            with self._lock:
                self._takers.look_all()

    def _take(self) -> tuple[list[TakenJobRequest], list[ClaimGroup]]:
        with self._lock:
            count = min(len(self._requests), MOST_REQUESTS)
            return [self._requests.popleft() for _ in range(count)], self._takers.due()

    def _choose(self, groups: list[ClaimGroup]) -> list[TicketClaim]:
        """The claims of this turn."""
        if len(groups) >= PROBE_FROM:
            groups = self._with_jobs(groups)
        claims = []
        with self._lock:
            for group in groups[:MOST_CLAIMS]:
                if (claim := group.next_claim()) is not None:
                    claims.append(claim)
                self._takers.put_last(group)
        return claims

    def _with_jobs(self, groups: Sequence[ClaimGroup]) -> list[ClaimGroup]:
        """Those of the groups in whose queues there are jobs: two calls instead of one for each."""
        # A claim that wants nothing makes due jobs ready.
        now = self.clock.now()
        self._note_due(self._store.exchange((), [NO_JOBS], 1, self.held.owner, LEASE, now), now)
        ready = {queue for queue, paused in reachable_part(self._store.queues).items() if not paused}
        for group in groups:
            if ready.isdisjoint(group.queues):
                self._marks.mark(self._store, group.queues, now)
                self._end_look(group)
        return [group for group in groups if not ready.isdisjoint(group.queues)]

    def _exchange(self, prepared: Sequence[PreparedChange], claim: TicketClaim | None) -> None:
        if not prepared and claim is None:
            return
        name, lease, now = self.held.owner, LEASE, self.clock.now()
        wants, limit = (claim.wants, claim.limit) if claim is not None else ((), 0)
        if claim is not None:
            self._marks.mark(self._store, claim.group.queues, now)
            if claim.lease is not None:
                name, lease = self._owners.acquire(claim.lease)
        with self._unseen.watch(name) if claim is not None else contextlib.nullcontext():
            answer = self._store.exchange([one.change for one in prepared], wants, limit, name, lease, now)
        self._moved += len(prepared) + len(answer.jobs)
        again = self._settler.record(prepared, answer)
        with self._lock:
            self._requests.extendleft(reversed(again))
        if claim is not None:
            self._note_due(answer, now)
            self._hand_out(claim, name, answer, now)

    def _note_due(self, answer: Exchange, now: int) -> None:
        """Notes when the next scheduled job is due."""
        due = answer.next_due
        if due is None:
            return
        # With what is there already the takers have enough to do for a while.
        pause = OVERDUE_PAUSE if answer.jobs and not due else seconds_until_due(due, now, now)
        self._look_at = min(self._look_at, time.monotonic() + pause)

    def _hand_out(self, claim: TicketClaim, name: str, answer: Exchange, now: int) -> None:
        self._marks.note_used({job.queue for job in answer.jobs})
        jobs, others = self._given.choose(answer.jobs, now)
        claim.group.plan.record(claim.wants, answer.jobs)
        if claim.lease is None:
            self.held.add(answer.jobs)
        elif not answer.unanswered:
            self._owners.note_claim(name, claim.lease, len(answer.jobs))
        if answer.unanswered:
            self._unseen.note_loss(name, answer.jobs)
        given = share_out(claim.tickets, jobs)
        with self._lock:
            self._requests.extend(map(self._insist, others))
            for ticket in given:
                self._takers.remove(ticket)
        for ticket, got in given.items():
            reply = self._load if any(map(has_more, got)) else self._deliver
            self._replies.add(partial(reply, ticket), got)
        if len(answer.jobs) < claim.limit:
            self._end_look(claim.group)

    def _end_look(self, group: ClaimGroup) -> None:
        """There is nothing more for this group."""
        with self._lock:
            self._takers.end_look(group)
            ended = group.last_lookers()
            for ticket in ended:
                self._takers.remove(ticket)
        for ticket in ended:
            self._replies.add(partial(self._deliver, ticket), [])

    def _load(self, ticket: ClaimTicket, jobs: list[Job]) -> None:
        """On the event loop's thread: reads what is not in these jobs, then delivers them."""
        # Not on this thread, which prolongs leases: the place of large arguments may be slow.
        loading = self._event_loop.create_task(self._load_and_deliver(ticket, jobs))
        self._loading.add(loading)
        loading.add_done_callback(self._loading.discard)

    async def _load_and_deliver(self, ticket: ClaimTicket, jobs: list[Job]) -> None:
        try:
            async with self._loads:
                given, others = await asyncio.to_thread(self._given.load, jobs)
        except Exception as error:
            self._ask_if_open(*(self._insist(give_back(job)) for job in jobs))
            self._deliver(ticket, self._known_error(error))
            return
        self._ask_if_open(*map(self._insist, others))
        if self._closing and ticket.lease is None:
            # They were given back.
            self._deliver(ticket, Draining(_ENDING))
        elif given or ticket.is_over:
            self._deliver(ticket, given)
        else:
            self._wait_again(ticket)

    def _wait_again(self, ticket: ClaimTicket) -> None:
        try:
            self.wait(ticket)
        except Draining as error:
            self._deliver(ticket, error)

    def _deliver(self, ticket: ClaimTicket, answer: ClaimResult) -> None:
        """On the event loop's thread: gives the ticket its answer."""
        if not ticket.answer(answer) and isinstance(answer, list):
            self._ask_if_open(*(self._insist(give_back(job)) for job in answer))

    def _insist(self, request: ChangeRequest) -> ChangeRequest:
        """Has a request asked again while the store is away: nobody waits for its reply, and without it this process
        would hold the job for ever."""

        def reply(answer: object) -> None:
            if isinstance(answer, StoreError):
                self._event_loop.call_later(ASKED_AGAIN_AFTER, self._ask_if_open, request)

        request.reply = reply
        return request

    def _ask_if_open(self, *requests: TakenJobRequest) -> None:
        # At its end this process gives back all that it holds.
        with contextlib.suppress(Draining):
            self.ask(*requests)

    # While the store is away, and after it

    def _answer_meanwhile(self) -> None:
        """Answers those who cannot wait until the store is back."""
        error = self._error or StoreError("the store is away")
        with self._lock:
            requests = list(self._requests)
            self._requests.clear()
            ended = self._takers.cannot_wait()
            for ticket in ended:
                self._takers.remove(ticket)
        self._settler.fail(requests, error)
        for ticket in ended:
            self._replies.add(partial(self._deliver, ticket), error)

    # The end

    def _end(self) -> None:
        self._answer_all(Draining(_ENDING))
        some: list[TakenJobRequest] = []
        try:
            while self._requests:
                some = self._take()[0]
                self._exchange(self._settler.prepare(some), None)
            held = self.held.jobs()
            for at in range(0, len(held), MOST_REQUESTS):
                some = [give_back(job) for job in held[at : at + MOST_REQUESTS]]
                self._exchange(self._settler.prepare(some), None)
        except Exception as error:
            log.error("%s; the jobs that this server holds come back when their lease ends", error)
            self._replies.fail_unanswered([*some, *self._requests], self._known_error(error))

    def _answer_all(self, error: Exception) -> None:
        """Tells all who wait."""
        with self._lock:
            self._closing = True
            tickets = self._takers.remove_all()
        for ticket in tickets:
            self._replies.add(partial(self._deliver, ticket), error)
