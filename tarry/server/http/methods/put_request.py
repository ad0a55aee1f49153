"""What a request to put a job says, and the job that is made of it."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tarry.client.client import Client
from tarry.errors import ArgumentError, BodyTooLarge, TarryError
from tarry.model.duration import Span
from tarry.model.job import MOST_LABELS, Job
from tarry.model.limit import MAX_COST
from tarry.model.quantity import Short, over_max_body
from tarry.model.retry import Retry
from tarry.operate.problem import RequestError, named_option
from tarry.operate.tasks import check_outside
from tarry.server.http.request_reader import check_depth
from tarry.tasks.arguments.options import NO_OPTIONS, UNFIT, Options

ShortName = Annotated[str, Meta(min_length=1, max_length=200)]
MOST_DELAYS, MOST_KINDS = 1000, 100
"""In a list of delays; names in a list of errors."""


class RetryRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """When failed attempts are tried again."""

    limit: Annotated[int, Meta(ge=0, le=2**31)] | UnsetType | None = UNSET
    """Attempts after the first; null: no limit."""
    backoff: Short | Annotated[list[Span], Meta(max_length=MOST_DELAYS)] = "fixed"
    """`fixed`, `linear`, `exponential`, a formula such as `2n+1 minutes`, or a list of delays."""
    base: Span = 1.0
    cap: Span = "1d"
    """No delay is longer."""
    jitter: float = 0.0
    """A fraction from 0 to 1 by which delays get longer at random."""
    within: Span | None = None
    """No retry starts later than this after the put."""
    only: Annotated[list[ShortName], Meta(max_length=MOST_KINDS)] = []
    """Names of errors that are tried again; none: all."""
    never: Annotated[list[ShortName], Meta(max_length=MOST_KINDS)] = []
    """Names of errors that are not."""

    def rule(self) -> Retry:
        """The rule; ValueError."""
        given: dict[str, Any] = msgspec.structs.asdict(self)
        return Retry(**{name: value for name, value in given.items() if value is not UNSET})


class PutRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A job to put. All but the task may be left out: the task decides then."""

    task: ShortName
    """The task's full name."""
    args: Annotated[Raw, Meta(extra_json_schema={"type": ["array", "object"]})] | UnsetType = UNSET
    """Its arguments: a list, or an object by name."""
    body: Raw | UnsetType = UNSET
    """For an HTTP task: what is sent. Any JSON. Not together with args."""
    delay: Span | None = None
    """Not before so long from now: seconds, or text such as "1h30m"."""
    at: datetime | float | None = None
    """Not before: a time with its zone, or seconds since the epoch."""
    key: ShortName | None = None
    """At most one unfinished job of the task has it."""
    unique_for: Span | Literal["waiting", "unfinished"] | None = None
    """How long the job holds its key."""
    on_duplicate: Literal["return", "replace", "postpone"] = "return"
    """What to do if a job with this key is there: nothing, give it this call, or delay it."""
    max_delay: Span | None = None
    """However often it is replaced or delayed: due at most so long after it was first put."""
    leading: bool = False
    """Whether the first call of a key that was quiet for `delay` is due at once; only those after it are delayed."""
    running: Literal["return", "cancel"] = "return"
    """What to do if a job with this key runs: nothing, or cancel it for this one; one that waits is replaced then."""
    priority: int | None = None
    """Higher first; 0 is normal."""
    queue: ShortName | None = None
    expires: Span | None = None
    """Cancelled unless started within so long of when it is due."""
    timeout: Span | None = None
    """How long an attempt may take."""
    retry: int | RetryRequest | None = None
    """How many times to try again, or a rule; null: as the task says."""
    idempotency: ShortName | None = None
    """The name of this request: sent again with the same name, it is the same job. Or the header Idempotency-Key."""
    window: Span = "1d"
    """For how long its name is remembered."""
    durable: Literal["replica"] | None = None
    """`replica`: the answer comes once a replica has the job too."""
    cost: Annotated[int, Meta(ge=1, le=MAX_COST)] | None = None
    """How many starts a rate counts for the job; null: as the task says."""
    labels: Annotated[dict[str, str], Meta(max_length=MOST_LABELS)] | None = None
    """Values by name, by which people find the job: such as `{"customer": "7"}`. What it enqueues has them, too."""

    def options(self, name: str | None = None, namespace: str = "") -> Options:
        """The options of the job; ValueError, TypeError. name: of the request, where its header has one. namespace:
        what stands before the keys of this caller."""
        if self == PutRequest(self.task, self.args, self.body) and name is None:
            # Most jobs have none, and checking them takes longer than all the rest.
            return NO_OPTIONS
        asked = self.idempotency if name is None else name
        return Options(
            delay=self.delay,
            at=self.at,
            key=self.key and namespace + self.key,
            priority=self.priority,
            queue=self.queue,
            expires=self.expires,
            unique_for=self.unique_for,
            on_duplicate=self.on_duplicate,
            max_delay=self.max_delay,
            leading=self.leading,
            running=self.running,
            idempotency=asked and namespace + asked,
            window=self.window,
            durable=self.durable,
            timeout=self.timeout,
            retry=_retry(self.retry),
            labels=self.labels,
            cost=self.cost,
        ).check()

    def arguments(self, most: int) -> bytes:
        """The arguments as a job keeps them; RequestError, BodyTooLarge. most: bytes."""
        if self.body is not UNSET:
            if self.args is not UNSET:
                raise RequestError("body: args are there too; give one of them", "body", 422)
            # As push/delivery/body.py keeps it: an object as it is, another value as the only argument.
            text = self._check_size(self.body, "body", most)
            return text if text.startswith(b"{") else b"[%s]" % text
        if self.args is UNSET:
            return b"[]"
        text = bytes(self.args)
        if text[:1] not in (b"[", b"{"):
            raise RequestError("args: expected a list, or an object by name", "args", 422)
        return self._check_size(text, "args", most)

    def _check_size(self, text: bytes | Raw, field: str, most: int) -> bytes:
        # The size first, since it costs nothing to know.
        if len(bytes(text)) > most:
            raise BodyTooLarge(over_max_body(f"{self.task}: {field} takes", len(bytes(text)), most))
        check_depth(bytes(text), field)
        return bytes(text)


def make_job(client: Client, request: PutRequest, name: str | None = None, namespace: str = "") -> tuple[Job, Options]:
    """The job, and the options to store it with; RequestError, ArgumentError, BodyTooLarge. name, namespace: as for
    `PutRequest.options`."""
    check_outside(request.task)
    try:
        options = request.options(name, namespace)
        _check_texts(request.task, options)
        return client.make_job(request.task, request.arguments(client.factory.max_body), options), options
    except ArgumentError as error:
        error.field = ("args" if request.body is UNSET else "body") + error.at
        raise
    except TarryError:
        raise
    except (ValueError, TypeError) as error:
        raise RequestError(str(error), named_option(error), 422) from None


def _retry(written: "int | RetryRequest | None") -> Any:
    if written is None:
        return "default"
    try:
        return written.rule() if isinstance(written, RetryRequest) else Retry(written)
    except ValueError as error:
        part = named_option(error) if isinstance(written, RetryRequest) else None
        raise RequestError(f"retry: {error}", f"retry.{part}" if part else "retry", 422) from None


def _check_texts(task: str, options: Options) -> None:
    for name, value in (
        ("task", task),
        ("key", options.key),
        ("queue", options.queue),
        ("idempotency", options.idempotency),
    ):
        if value is not None and not (value.isascii() and value.isprintable()) and UNFIT.search(value):
            raise ValueError(f"{name}={value!r}: no text that every store can keep")
