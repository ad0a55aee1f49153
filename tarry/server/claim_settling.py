"""What becomes of the jobs that were taken: from requests to changes, and from the store's answers to replies."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from tarry.client.clock import Clock
from tarry.errors import NotHeld, StoreError, StoreUnavailable
from tarry.keeper.death_hooks import DeathHooks
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.server.claim_requests import (
    AttemptRequest,
    ChangeRequest,
    ExtendRequest,
    ProgressRequest,
    ReplyCallback,
    TakenJobRequest,
    unknown_job,
)
from tarry.server.held_jobs import HeldJobs, OutsideOwners
from tarry.store.rules import ids, kept_places
from tarry.store.rules.base import Exchange, Store
from tarry.store.rules.partial_result import partial_result
from tarry.tasks.lazy_asyncio import asyncio
from tarry.worker.worker_log import EventLog

_TRIES = 5


class Replies:
    """Gathers replies, and gives them together to the event loop on whose thread they are called."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = loop
        self._pending: list[tuple[ReplyCallback, Any]] = []

    def add(self, reply: ReplyCallback, value: Any) -> None:
        """Calls `reply(value)` at the next `send`."""
        self._pending.append((reply, value))

    def fail_unanswered(self, requests: Iterable[TakenJobRequest], error: Exception) -> None:
        """Answers with the error those of the requests that got no answer since the last `send`."""
        answered = {id(reply) for reply, _ in self._pending}
        for request in requests:
            if id(request.reply) not in answered:
                self.add(request.reply, error)

    def send(self) -> None:
        """Has the event loop call them."""
        # One call for all: each wakes the loop through its socket.
        if self._pending:
            pending, self._pending = self._pending, []
            # RuntimeError: the loop was closed, and nobody waits there any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_call_all, pending)


def _call_all(pending: Sequence[tuple[ReplyCallback, Any]]) -> None:
    loop = asyncio.get_running_loop()
    for reply, value in pending:
        # The error of one must not cost the others their answers.
        try:
            reply(value)
        except Exception as error:
            loop.call_exception_handler({"message": "a reply about a job failed", "exception": error})


class PreparedChange(Struct, eq=False):
    """A request, with the job as it was seen and the change that the rule makes of it."""

    request: ChangeRequest
    job: Job
    change: Change


class Settler:
    """Belongs to the thread of `ClaimLoop`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        held: HeldJobs,
        owners: OutsideOwners,
        replies: Replies,
        hooks: DeathHooks | None,
    ) -> None:
        self._store, self._clock, self._held, self._owners, self._replies = store, clock, held, owners, replies
        self._hooks = hooks
        self._events = EventLog()

    def prepare(self, requests: Sequence[TakenJobRequest]) -> list[PreparedChange]:
        """The changes to make; the other requests are done here, and those that are not possible are answered.
        StoreError: none of them is."""
        if not requests:
            return []
        found, now = self._find(requests), self._clock.now()
        prepared: list[PreparedChange] = []
        attempts: list[tuple[AttemptRequest, Job]] = []
        ended: list[tuple[bytes, int]] = []
        for request, job in found:
            try:
                if isinstance(request, ChangeRequest):
                    prepared.append(PreparedChange(request, job, request.rule(job, now)))
                else:
                    request.check(job)
                    attempts.append((request, job))
            except Exception as error:
                # Also a fault of a rule: it must not end the thread.
                self._replies.add(request.reply, error)
                if isinstance(request, ChangeRequest) and request.epoch and isinstance(error, NotHeld):
                    ended.append((request.id, request.epoch))
        self._do_attempts(attempts, now)
        self._free_places(ended, now)
        return prepared

    def record(self, prepared: Sequence[PreparedChange], answer: Exchange) -> list[ChangeRequest]:
        """Answers those whose change the store has made, and returns those that have to be tried again, since their
        job had changed."""
        again, now = [], self._clock.now()
        for at, (one, is_made) in enumerate(zip(prepared, answer.valid, strict=True)):
            if is_made:
                self._record_made(one, now)
            elif at in answer.missing:
                self._replies.add(one.request.reply, StoreUnavailable(answer.away))
            else:
                self._held.drop(one.job.id)
                one.request.tries += 1
                if one.request.tries < _TRIES:
                    again.append(one.request)
                else:
                    text = f"job {ids.text(one.job.id)} changes all the time: look at it again"
                    self._replies.add(one.request.reply, NotHeld(text))
        return again

    def fail(self, requests: Iterable[TakenJobRequest], error: Exception) -> None:
        """Answers these with the error."""
        for request in requests:
            self._replies.add(request.reply, error)

    def _record_made(self, one: PreparedChange, now: int) -> None:
        job, change, outcome = one.job, one.change, one.request.outcome
        self._held.drop(job.id)
        self._owners.note_end(job.owner)
        if outcome is not None:
            self._events.record_end(job, outcome, change, now)
            if self._hooks is not None:
                self._hooks.notify([(job, change)])
        self._replies.add(one.request.reply, (job, change))

    def _find(self, requests: Sequence[TakenJobRequest]) -> list[tuple[TakenJobRequest, Job]]:
        """The requests with their jobs: as this process holds them, or as the store has them now."""
        jobs: dict[bytes, Job | None] = {}
        for request in requests:
            jobs[request.id] = self._held.get(request.id) if isinstance(request, ChangeRequest) else None
        asked = [id for id, job in jobs.items() if job is None]
        stored, away = partial_result(lambda: self._store.get(asked)) if asked else ([], None)
        jobs.update(zip(asked, stored, strict=True))
        errors = {} if away is None else {asked[at]: error for at, error in away.missing.items()}
        found: list[tuple[TakenJobRequest, Job]] = []
        for request in requests:
            if (job := jobs[request.id]) is not None:
                found.append((request, job))
            else:
                self._replies.add(request.reply, errors.get(request.id, unknown_job(request.id)))
        return found

    def _do_attempts(self, attempts: Sequence[tuple[AttemptRequest, Job]], now: int) -> None:
        """Prolongs leases and stores progress: one call for each owner and lease."""
        extends: dict[tuple[str, int], list[ExtendRequest]] = {}
        reports: dict[str, list[ProgressRequest]] = {}
        for request, job in attempts:
            if isinstance(request, ExtendRequest):
                extends.setdefault((job.owner, request.lease), []).append(request)
            else:
                reports.setdefault(job.owner, []).append(request)
        for (owner, lease), some in extends.items():
            self._try(some, lambda: self._extend(owner, lease, some, now))  # noqa: B023
        for owner, those in reports.items():
            self._try(those, lambda: self._report(owner, those))  # noqa: B023

    def _free_places(self, ended: Sequence[tuple[bytes, int]], now: int) -> None:
        """Others may have ended the jobs before these attempts. Then they kept places under limits until now."""
        # Else they end with their leases.
        with contextlib.suppress(StoreError):
            kept_places.free_outside(self._store, ended, now)

    def _try(self, requests: Sequence[AttemptRequest], call: Callable[[], None]) -> None:
        try:
            call()
        except StoreError as error:
            self.fail(requests, error)

    def _extend(self, owner: str, lease: int, requests: Sequence[ExtendRequest], now: int) -> None:
        # Twice, since the store does nothing while half of what is asked for is left.
        lost = set(self._store.extend(owner, [(one.id, one.epoch) for one in requests], 2 * lease, now))
        for one in requests:
            text = f"attempt {one.epoch} of job {ids.text(one.id)} is over; drop what was done for it"
            self._replies.add(one.reply, NotHeld(text) if one.id in lost else None)

    def _report(self, owner: str, requests: Sequence[ProgressRequest]) -> None:
        self._store.save_progress(owner, [(one.id, one.epoch, one.progress) for one in requests])
        for one in requests:
            self._replies.add(one.reply, None)
