"""An HTTP task: a task whose function sends one request and raises an exception unless it was delivered."""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from tarry.client.tasks.task import AsyncTask
from tarry.errors import ArgumentError, ConfigError
from tarry.model.checks.texts import cut
from tarry.model.job import Job, State
from tarry.model.limit import UNLIMITED
from tarry.model.outcome import Outcome, Returned
from tarry.model.verdict import Fail, RetryAfter, Snooze
from tarry.push.delivery.body import BodyCodec, single_value
from tarry.push.delivery.cancel import describe_sent, was_sent_before
from tarry.push.delivery.delivery_record import (
    MOST_REASON,
    MOST_TEXT,
    AttemptRecord,
    encode_record,
    first_due,
    format_records,
    format_time,
    interrupted_record,
    make_record,
    parse_records,
    records_of,
)
from tarry.push.delivery.delivery_slots import Slots
from tarry.push.delivery.delivery_verdict import Again, Delivered, DeliveryVerdict, Disabled, Final
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.template import TemplateError
from tarry.push.http.failure import Failure
from tarry.push.http.response import HttpResponse
from tarry.tasks.arguments import headers
from tarry.tasks.arguments.options import Options
from tarry.tasks.definition import TaskRunner
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.output import Tail
from tarry.tasks.running import Running, current_job

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.push.delivery.request_builder import RequestBuilder
    from tarry.push.http.http_sender import HttpRequest, SendLimits


log = logging.getLogger("tarry.push")

# Kept in a header because `Job.due` changes with each retry.
DUE = "tarry-due"
"""Job header with the first due time, in microseconds since the epoch."""
SLACK = 10.0
"""Seconds that an attempt may take longer than the endpoint's timeout, before it counts as stuck."""
UNABLE_PAUSE = 10
"""Seconds until the next try of a delivery that failed because of this machine."""


class NotSent(Interrupted):
    """Nothing was sent: the job is requeued as it was, and no attempt is counted."""


class DeliveryPort(Protocol):
    """What a delivery needs of its process: a sender and the state of the endpoints."""

    most_result: int
    """Bytes of JSON."""
    slots: Slots
    """Shares the worker's slots out among the endpoints."""

    def pause_for(self, name: str) -> float | None:
        """Seconds to wait before sending to that endpoint; 0.0: the store holds its jobs back; None: send now."""

    async def send(self, request: "HttpRequest", limits: "SendLimits") -> HttpResponse | Failure:
        """Sends one request. Raises only if it is cancelled."""

    def judge(self, endpoint: Endpoint, came: HttpResponse | Failure) -> DeliveryVerdict:
        """The verdict on an attempt. Also updates what is known of the endpoint."""

    def note_interrupted(self, job: Job, sent: bool) -> None:
        """Reports an attempt that was interrupted or ended too late.

        If the job was cancelled, its record is to say whether it was sent.
        """

    def now(self) -> int:
        """Microseconds since the epoch by the store's clock; does not block."""


AttemptListener = Callable[[Job, AttemptRecord, bool], None]
"""Called after each attempt; the last argument says whether the job ended with it."""


def _ignore_attempt(job: Job, record: AttemptRecord, ended: bool) -> None: ...


class HttpTask(AsyncTask[..., Any]):
    """A task made from an endpoint's settings."""

    codec_class = BodyCodec

    def __init__(
        self,
        endpoint: Endpoint,
        client: "Callable[[], Client]",
        port: Callable[[], DeliveryPort],
        on_attempt: AttemptListener = _ignore_attempt,
    ) -> None:
        self.endpoint = endpoint
        most = endpoint.concurrency or UNLIMITED
        alone = {"limit": most, "rate": endpoint.rate}
        in_order = {"order_by": self._key, "on_dead": endpoint.on_dead, "limit_all": most, "rate_all": endpoint.rate}
        self.runner = runner = Deliverer(endpoint, port, on_attempt)
        super().__init__(
            runner.deliver,
            client,
            name=endpoint.name,
            queue=endpoint.queue,
            priority=endpoint.priority,
            # The sender applies the timeout itself, and its failure goes on record. This one ends an attempt that is
            # stuck.
            timeout=endpoint.timeout + SLACK,
            retry=endpoint.schedule.retry,
            encrypt=endpoint.encrypt,
            **(alone if endpoint.order is None else in_order),
        )
        self.due_after = endpoint.delay

    def add_overrides(self, headers: bytes, options: Options) -> bytes:
        """Raises ValueError: jobs of an HTTP task have no settings of their own."""
        raise ValueError(f"{self.name} is an HTTP task: its endpoint's timeout and schedule hold for all its jobs")

    def _key(self, *args: Any, **kwargs: Any) -> str:
        """The key that orders the jobs; ArgumentError if the body has none."""
        assert self.endpoint.order is not None
        try:
            return self.endpoint.order.fill(single_value(self.name, args, kwargs))
        except TemplateError as error:
            raise ArgumentError(f"{self.name}: order: {error}") from None


class Deliverer(TaskRunner):
    """Makes the attempts at an endpoint's jobs."""

    def __init__(self, endpoint: Endpoint, port: Callable[[], DeliveryPort], on_attempt: AttemptListener) -> None:
        self._endpoint = endpoint
        self._port = port
        self._on_attempt = on_attempt

    def add_headers(self, packed: bytes, due: int) -> bytes:
        """Adds the first due time to the headers."""
        found = headers.decode_headers(packed)
        return headers.encode_headers(self._endpoint.name, found | {DUE: str(due)})

    def cancel_reason(self, job: Job, reason: str) -> str:
        """Adds whether the job was sent, if that is known already."""
        # Of a running job only its worker knows, which reports it later.
        known = [] if job.state is State.RUNNING else [describe_sent(was_sent_before(job), False)]
        return "; ".join([reason, *known] if reason else known)

    def note_not_started(self, job: Job) -> None:
        """Reports that the job was not sent."""
        self._note_interrupted(job, sent=False)

    def note_late_outcome(self, job: Job, output: str, outcome: Outcome) -> None:
        """Reports whether the job was sent, as `DeliveryPort.note_interrupted`. Of two reports the first stays."""
        # An interrupted attempt may end here too: the HTTP library may ignore the cancel if it has the answer already.
        self._note_interrupted(job, isinstance(outcome, Returned) or any(one.sent for one in parse_records(output)))

    def _note_interrupted(self, job: Job, sent: bool) -> None:
        with contextlib.suppress(ConfigError):
            self._port().note_interrupted(job, sent)

    async def deliver(self, body: Any) -> Any:
        """Sends the current job, and returns the record of the attempt: what middleware calls."""
        return msgspec.json.decode(await self.run(current_job().running, body))

    async def run(self, running: Running, body: Any) -> bytes:
        """Sends the job, and returns the record of the attempt in JSON."""
        job, port = running.job, self._port()
        # A cancel may come before the attempt has begun.
        if running.interrupt is not None:
            port.note_interrupted(job, sent=False)
            raise NotSent
        if (pause := port.pause_for(job.task)) is not None:
            # 0.0: the store holds the job back once it is requeued, so it needs no due time.
            raise Snooze(pause) if pause else NotSent
        try:
            return await self._attempt(running, port, body)
        except asyncio.CancelledError as stopped:
            port.note_interrupted(job, getattr(stopped, "sent", False))
            raise

    async def _attempt(self, running: Running, port: DeliveryPort, body: Any) -> bytes:
        job = running.job
        before = records_of(job) if job.progress else []
        due, now = _enqueued_due(job), port.now()
        first = first_due(job, before, due)
        self._check_age(job, first, now)
        try:
            whole = job if running.inputs is None else replace(job, body=running.arguments)
            request = self._requests.build(whole, body, due or job.due, now)
        except (TemplateError, ValueError) as error:
            raise self._final_failure(job, first, str(error)) from None
        except (ConfigError, ImportError) as error:
            log.warning("%s: nothing was sent: %s", job.task, error)
            raise Snooze(UNABLE_PAUSE) from None
        # Only now, so that a job that cannot be sent takes no slot.
        lease, began = port.slots.acquire(job.task), time.time()
        try:
            came = await port.send(request, self._limits)
        except asyncio.CancelledError as stopped:
            if getattr(stopped, "sent", False):
                # A later cancel must know that the job was sent.
                record = interrupted_record(job.attempt, began, first)
                _save_records(running, before, record)
                self._on_attempt(job, record, False)
            raise
        finally:
            port.slots.release(lease)
        running.status = came.status
        verdict = port.judge(self._endpoint, came)
        record = make_record(job.attempt, began, first, came, verdict)
        if isinstance(verdict, Delivered):
            self._on_attempt(job, record, True)
            return encode_record(record, port.most_result)
        _save_records(running, before, record)
        follows = self._next_step(verdict, job, first, port.now())
        self._on_attempt(job, record, isinstance(follows, Fail))
        raise follows

    def _final_failure(self, job: Job, first: int, why: str) -> Fail:
        """Records that nothing was sent and nothing will be; returns what to raise."""
        why = cut(why, MOST_REASON)
        self._on_attempt(job, AttemptRecord(job.attempt, format_time(time.time()), "final", why, first), True)
        return Fail(why)

    def _check_age(self, job: Job, first: int, now: int) -> None:
        until = self._endpoint.schedule.until
        # The first attempt is made however late it is.
        if until is not None and job.failures and now >= first + until:
            raise self._final_failure(job, first, "its time is over: until says for how long it is tried")

    @cached_property
    def _requests(self) -> "RequestBuilder":
        # Only workers need the HTTP client.
        from tarry.push.delivery.request_builder import RequestBuilder  # noqa: PLC0415

        return RequestBuilder(self._endpoint)

    @cached_property
    def _limits(self) -> "SendLimits":
        from tarry.push.http.http_sender import SendLimits  # noqa: PLC0415 - as above

        return SendLimits(self._endpoint.timeout, self._endpoint.connect_timeout, self._endpoint.redirects)

    def _next_step(self, verdict: DeliveryVerdict, job: Job, first: int, now: int) -> Exception:
        """The exception to raise for a verdict other than Delivered."""
        if isinstance(verdict, Final):
            return Fail(verdict.reason)
        if isinstance(verdict, Disabled):
            return Snooze(1)  # then the store holds it back with the other jobs of the task
        assert isinstance(verdict, Again)
        if not verdict.counted:
            return Snooze(UNABLE_PAUSE)
        schedule, failures = self._endpoint.schedule, job.failures + 1
        delay = schedule.delay(failures, job.id, now - first, verdict.after)
        if delay is None:
            return Fail(f"{verdict.reason}; after {failures} attempts no other follows")
        return DeliveryRetry(delay, verdict.reason)


class DeliveryRetry(RetryAfter):
    """Not accepted; to be retried. delay: microseconds."""

    def __init__(self, delay: int, reason: str) -> None:
        super().__init__(timedelta(microseconds=delay))
        self.args = (reason,)


def _enqueued_due(job: Job) -> int:
    """The first due time from the job's headers; 0: not known."""
    try:
        return int(headers.decode_headers(job.headers).get(DUE, "0"))
    except (ArgumentError, ValueError):
        # A job of another client may have anything there.
        return 0


def _save_records(running: Running, before: Sequence[AttemptRecord], record: AttemptRecord) -> None:
    """Puts the records into the job's output, which is stored with the outcome of the attempt."""
    if running.progress_buffer is None:
        return
    tail = Tail(MOST_TEXT)
    tail.add_line(format_records(before, record))
    running.tail = tail
    running.progress_buffer.add(running)
