"""An HTTP task: a task like any other, whose function sends one request and says by what it raises what came of it."""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tarry.client.task import AsyncTask
from tarry.errors import ArgumentError, ConfigError, StoreError
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.limit import UNLIMITED
from tarry.model.outcome import Outcome, Returned
from tarry.model.verdict import Fail, RetryAfter, Snooze
from tarry.push.delivery.body import BodyCodec, one, sent
from tarry.push.delivery.cancel import sent_before, told
from tarry.push.delivery.order import Order
from tarry.push.delivery.record import (
    MOST_TEXT,
    Record,
    first_due,
    fitted,
    interrupted,
    read,
    recorded,
    records,
    spoken,
    text,
)
from tarry.push.delivery.slots import Slots
from tarry.push.delivery.verdict import Again, Delivered, Disabled, Final, Verdict
from tarry.push.endpoint.settings import Endpoint
from tarry.push.endpoint.template import Unfit
from tarry.push.http.answer import Answer
from tarry.push.http.failure import Failure
from tarry.store import ids
from tarry.tasks import headers
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazily import asyncio
from tarry.tasks.output import Tail
from tarry.tasks.running import Running, current_job

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.push.http.sender import Limits, Request
    from tarry.push.http.sign import Signer

log = logging.getLogger("tarry.push")

DUE = "tarry-due"
"""The header of a job that tells when it was due first, in microseconds since the epoch: a retry changes `Job.due`."""
SLACK = 10.0
"""Seconds that an attempt may take longer than the endpoint's timeout, before it counts as stuck."""
UNABLE = 10
"""Seconds until a delivery is tried again that this machine could not make."""


class PutBack(Interrupted):
    """Nothing was sent: the job goes back as it was, and no attempt is used up."""


class Post(Protocol):
    """What sends, and what is known of endpoints, in the process that delivers."""

    most_result: int
    """Bytes of JSON."""
    slots: Slots
    """Whose turn it is while there are more deliveries than slots."""

    def held(self, name: str) -> float | None:
        """Seconds for which nothing is to be sent to that endpoint, 0.0 if the store sees to it; None: go on."""

    async def send(self, request: "Request", limits: "Limits") -> Answer | Failure:
        """Raises only if it is cancelled."""

    def judged(self, endpoint: Endpoint, came: Answer | Failure) -> Verdict:
        """What it means; and takes note of it for the endpoint."""

    @property
    def order(self) -> Order:
        """Who is first of a key."""

    def withdrawn(self, job: Job, sent: bool) -> None:
        """An attempt was broken off, or its outcome came too late; if that is for a cancel, the job's record is to say
        whether it was sent."""

    def now(self) -> int:
        """Microseconds since the epoch by the store's clock; waits for nothing."""


Noted = Callable[[Job, Record, bool], None]
"""Told of each attempt, and whether the job has ended with it."""


def _unnoted(job: Job, record: Record, ended: bool) -> None: ...


class HttpTask(AsyncTask[..., Any]):
    """A task that an endpoint's settings make."""

    codec_class = BodyCodec
    steered = True

    def __init__(
        self, endpoint: Endpoint, client: "Callable[[], Client]", post: Callable[[], Post], noted: Noted = _unnoted
    ) -> None:
        self.endpoint = endpoint
        most = endpoint.concurrency or UNLIMITED
        alone = {"limit": most, "rate": endpoint.rate}
        in_order = {"limit_by": self._key, "limit": 1, "limit_all": most, "rate_all": endpoint.rate}
        self._delivers = post
        delivery = Delivery(endpoint, post, noted)
        super().__init__(
            delivery.deliver,
            client,
            name=endpoint.name,
            queue=endpoint.queue,
            priority=endpoint.priority,
            timeout=endpoint.timeout + SLACK,
            retry=endpoint.schedule.retry,
            **(alone if endpoint.order is None else in_order),
        )
        self.due_after = endpoint.delay

    def headed(self, packed: bytes, due: int) -> bytes:
        """With the time when it is due first."""
        found = headers.decoded(packed)
        return headers.encoded(self.name, found | {DUE: str(due)})

    def parting(self, job: Job, reason: str) -> str:
        """With whether it was sent, where that is known already."""
        known = [] if job.state is State.RUNNING else [told(sent_before(job), False)]
        return "; ".join([reason, *known] if reason else known)

    def came_too_late(self, job: Job, printed: str, outcome: Outcome) -> None:
        """As `Post.withdrawn`. Also if we broke in on it, since the HTTP library may pass over that where it has the
        answer already; of two words on a job the first stays."""
        sent = isinstance(outcome, Returned) or any(one.sent for one in read(printed))
        with contextlib.suppress(ConfigError):
            self._delivers().withdrawn(job, sent)

    def _key(self, *args: Any, **kwargs: Any) -> str:
        """Whose turn it is; ArgumentError if the body does not say."""
        assert self.endpoint.order is not None
        try:
            return self.endpoint.order.filled(one(self.name, args, kwargs))
        except Unfit as error:
            raise ArgumentError(f"{self.name}: order: {error}") from None


class Delivery:
    """Makes the attempts at an endpoint's jobs."""

    def __init__(self, endpoint: Endpoint, post: Callable[[], Post], noted: Noted) -> None:
        self._endpoint = endpoint
        self._post = post
        self._noted = noted
        self._signed: tuple[tuple[str, ...], Signer] | None = None

    async def deliver(self, body: Any) -> dict[str, Any]:
        """Sends the job's body, or what its placeholders make of the url; what is kept of the attempt."""
        running = current_job().running
        job, post = running.job, self._post()
        if running.interrupt is not None:
            post.withdrawn(job, sent=False)
            raise PutBack
        if (pause := post.held(job.task)) is not None:
            raise Snooze(pause) if pause else PutBack
        try:
            if self._endpoint.order is None:
                return await self._attempted(running, post, body)
            return await self._in_turn(running, post, body)
        except asyncio.CancelledError as stopped:
            post.withdrawn(job, getattr(stopped, "sent", False))
            raise

    async def _in_turn(self, running: Running, post: Post, body: Any) -> dict[str, Any]:
        """If it is the first of its key; who comes back is, and who has ended is no more."""
        order, job = post.order, running.job
        try:
            pause = await order.turn(job)
        except StoreError:
            raise Snooze(1) from None
        if pause is not None:
            raise Snooze(timedelta(microseconds=pause))
        try:
            result = await self._attempted(running, post, body)
        except (RetryAfter, Snooze):
            try:
                await order.stays(job)
            except StoreError as error:
                log.warning("%s: those behind this job may overtake it: %s", job.task, error)
            raise
        except Fail:
            await self._ended(post, job)
            raise
        await self._ended(post, job)
        return result

    async def _ended(self, post: Post, job: Job) -> None:
        """Should the store not be told, those behind it see by themselves that it has ended."""
        with contextlib.suppress(StoreError):
            await post.order.leaves(job)

    async def _attempted(self, running: Running, post: Post, body: Any) -> dict[str, Any]:
        job = running.job
        before = records(job) if job.progress else []
        due, now = _enqueued_due(job), post.now()
        first = first_due(job, before, due)
        self._check_age(job, first, now)
        try:
            request = self._request(job, body, due or job.due, now)
        except (Unfit, ValueError) as error:
            raise self._given_up(job, first, str(error)) from None
        except (ConfigError, ImportError) as error:
            log.warning("%s: nothing was sent: %s", job.task, error)
            raise Snooze(UNABLE) from None
        visit, began = post.slots.take(job.task), time.time()
        try:
            came = await post.send(request, self._limits)
        except asyncio.CancelledError as stopped:
            if getattr(stopped, "sent", False):
                record = interrupted(job.attempt, began, first)
                _keep(running, before, record)
                self._noted(job, record, False)
            raise
        finally:
            post.slots.give(visit)
        verdict = post.judged(self._endpoint, came)
        record = recorded(job.attempt, began, first, came, verdict)
        if isinstance(verdict, Delivered):
            self._noted(job, record, True)
            return _result(record, post.most_result)
        _keep(running, before, record)
        follows = self._what_follows(verdict, job, first, post.now())
        self._noted(job, record, isinstance(follows, Fail))
        raise follows

    def _given_up(self, job: Job, first: int, why: str) -> Fail:
        """Nothing was sent, and nothing will be."""
        self._noted(job, Record(job.attempt, spoken(time.time()), "final", why, first), True)
        return Fail(why)

    def _check_age(self, job: Job, first: int, now: int) -> None:
        until = self._endpoint.schedule.until
        if until is not None and job.failures and now >= first + until:
            raise self._given_up(job, first, "its time is over: until says for how long it is tried")

    def _request(self, job: Job, body: Any, due: int, now: int) -> "Request":
        """ConfigError or ImportError: this worker cannot, as where a secret is not in its place or the extra `push` is
        not there. Unfit: the body lacks what the url needs."""
        from tarry.push.http import sign  # noqa: PLC0415 - only who sends needs the HTTP client
        from tarry.push.http.sender import Request  # noqa: PLC0415

        endpoint = self._endpoint
        if endpoint.retry_when is not None:
            endpoint.retry_when.check()
        url = endpoint.url.filled(body)
        payload = sent(job.body) if endpoint.sends_body else b""
        own = endpoint.header_pairs()
        kind = (("content-type", "application/json"),) if payload else ()
        ours = sign.headers(self._signer(), ids.text(job.id), job.attempt, due, now / SECOND, payload)
        return Request(endpoint.method, url, own + _without(kind, own) + ours, payload)

    def _signer(self) -> "Signer":
        """Made anew when a secret has changed at its place."""
        from tarry.push.http.sign import Signer  # noqa: PLC0415 - as above

        values = tuple(secret.value() for secret in self._endpoint.secrets)
        if self._signed is None or self._signed[0] != values:
            self._signed = (values, Signer(values))
        return self._signed[1]

    @cached_property
    def _limits(self) -> "Limits":
        from tarry.push.http.sender import Limits  # noqa: PLC0415 - as above

        return Limits(self._endpoint.timeout, self._endpoint.connect_timeout, self._endpoint.redirects)

    def _what_follows(self, verdict: Verdict, job: Job, first: int, now: int) -> Exception:
        """What to raise for what is no delivery."""
        if isinstance(verdict, Final):
            return Fail(verdict.reason)
        if isinstance(verdict, Disabled):
            return Snooze(1)  # and then it waits with the others
        assert isinstance(verdict, Again)
        if not verdict.counted:
            return Snooze(UNABLE)
        schedule, failures = self._endpoint.schedule, job.failures + 1
        delay = schedule.delay(failures, job.id, now - first, verdict.after)
        if delay is None:
            return Fail(f"{verdict.reason}; after {failures} attempts no other follows")
        return Unanswered(delay, verdict.reason)


class Unanswered(RetryAfter):
    """Not accepted; tried again after so many microseconds."""

    def __init__(self, delay: int, reason: str) -> None:
        super().__init__(timedelta(microseconds=delay))
        self.args = (reason,)


def _enqueued_due(job: Job) -> int:
    """When it was due by its enqueue; 0: not known."""
    try:
        return int(headers.decoded(job.headers).get(DUE, "0"))
    except (ArgumentError, ValueError):
        return 0


def _without(pairs: tuple[tuple[str, str], ...], others: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    names = {name for name, _ in others}
    return tuple(pair for pair in pairs if pair[0] not in names)


def _result(record: Record, most: int) -> dict[str, Any]:
    """What the job keeps as its result: never so large that a delivery would count as failed for it."""
    small = fitted(record, most)
    if small is not record and len(msgspec.json.encode(small)) > most:
        return {"status": record.status}
    kept: dict[str, Any] = msgspec.to_builtins(small)
    return kept


def _keep(running: Running, before: Sequence[Record], record: Record) -> None:
    """With the job, in its output: written with the end of the attempt."""
    if running.marks is None:
        return
    tail = Tail(MOST_TEXT)
    tail.line(text(before, record))
    running.tail = tail
    running.marks.tell(running)
