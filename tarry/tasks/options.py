"""How and when one call of a task is to run."""

from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from tarry.model import overrides
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import MAX_PRIORITY, UNFINISHED, WAITING
from tarry.model.retry import RetryRule
from tarry.tasks import headers as job_headers

MAX_NAME = 200
MAX_AT = 253_402_300_799
"""The last second of the year 9999."""


class Options(Struct, frozen=True):
    """How and when one call is to run; what is left out comes from the task."""

    delay: Duration | None = None
    at: datetime | float | None = None
    key: str | None = None
    priority: int | None = None
    queue: str | None = None
    expires: Duration | None = None
    unique_for: Duration | Literal["waiting", "unfinished"] | None = None
    on_duplicate: Literal["return", "replace", "postpone"] = "return"
    idempotency: str | None = None
    window: Duration = "1d"
    connection: Any = None
    durable: Literal["replica"] | None = None
    timeout: Duration | None = None
    retry: RetryRule = "default"

    def checked(self) -> "Options":
        """These options, or ValueError naming the one that cannot be."""
        if self.delay is not None and self.at is not None:
            raise ValueError("delay= and at= both say when; give one of them")
        if isinstance(self.at, datetime) and self.at.tzinfo is None:
            raise ValueError("at= needs a time zone: datetime(..., tzinfo=...) or datetime.now(timezone.utc) + ...")
        if not isinstance(self.at, datetime | None) and not (_number(self.at) and 0 <= self.at <= MAX_AT):
            raise ValueError(f"at={self.at!r}: a datetime with a time zone, or seconds since the epoch")
        for name, duration in (("delay", self.delay), ("expires", self.expires)):
            if duration is not None:
                microseconds(duration, name)
        overrides.as_headers(self.timeout, self.retry)
        if self.priority is not None and not (type(self.priority) is int and abs(self.priority) <= MAX_PRIORITY):
            raise ValueError(f"priority={self.priority!r}: an integer within +-2^40")
        for name, value in (("key", self.key), ("queue", self.queue), ("idempotency", self.idempotency)):
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_NAME):
                raise ValueError(f"{name}={value!r}: text of 1 to {MAX_NAME} characters")
        return self._checked_unique()

    def _checked_unique(self) -> "Options":
        if self.idempotency is not None and self.key is not None:
            raise ValueError("key= and idempotency= both say what is the same job; give one of them")
        if self.key is None and (self.unique_for is not None or self.on_duplicate != "return"):
            raise ValueError("unique_for= and on_duplicate= are about a key: give key= too")
        if self.on_duplicate not in ("return", "replace", "postpone"):
            raise ValueError(f'on_duplicate={self.on_duplicate!r}: "return", "replace" or "postpone"')
        if self.durable not in (None, "replica"):
            raise ValueError(f'durable={self.durable!r}: "replica", or leave it out')
        if self.durable is not None and self.connection is not None:
            raise ValueError("durable= and connection= exclude each other: what is safe is for your transaction to say")
        self.unique  # noqa: B018
        return self

    def due(self, now: int, unsure: int = 0) -> int:
        """When it may start, microseconds since the epoch. unsure: how much later than `now` it may be already."""
        if self.delay is not None:
            return now + microseconds(self.delay) + (unsure if self.delay else 0)
        if isinstance(self.at, datetime):
            return round(self.at.astimezone(UTC).timestamp() * SECOND)
        return now if self.at is None else round(self.at * SECOND)

    @property
    def overrides(self) -> bool:
        """Whether the job is to say something otherwise than its task."""
        return self.timeout is not None or self.retry != "default"

    @property
    def held_key(self) -> str | None:
        """The key that the job is to hold; the name of a request is kept apart from keys."""
        return self.key if self.idempotency is None else f"idempotency:{self.idempotency}"

    @property
    def unique(self) -> int:
        """How long a job holds its key, as `Job.unique` says it."""
        if self.idempotency is not None:
            return microseconds(self.window, "window")
        unique_for = self.unique_for or ("unfinished" if self.on_duplicate == "return" else "waiting")
        if unique_for == "waiting":
            return WAITING
        return UNFINISHED if unique_for == "unfinished" else microseconds(unique_for, "unique_for")


NOW = Options()


def with_overrides(task: str, headers: bytes, options: Options) -> bytes:
    """The headers, and what these options say otherwise than the task."""
    more = overrides.as_headers(options.timeout, options.retry)
    return job_headers.encoded(task, job_headers.decoded(headers) | more)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
