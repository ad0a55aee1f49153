"""The options of a call: `task.using(...)`."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model import overrides
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import LEADING, MAX_PRIORITY, UNFINISHED, WAITING, check_labels, label_headers
from tarry.model.limit import checked_cost
from tarry.model.quantity import shorten
from tarry.model.retry import RetryRule
from tarry.tasks.arguments import headers as job_headers

MAX_NAME = 200
# PostgreSQL keeps no NUL in a text, and half of a surrogate pair has no UTF-8.
UNFIT = re.compile("[\0\ud800-\udfff]")
"""What no text that is stored may have."""
# No store in SQL can hold a NUL in a text.
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=r"^[^\x00]*$")]
"""The name of a queue, task or key that comes from outside, as every store can hold it."""


def refuse_unfit(name: str, text: str) -> None:
    """ValueError if no store can hold the text. name: whose it is, for the message."""
    if UNFIT.search(text):
        raise ValueError(f"{name}={shorten(text)}: no store can hold a NUL or half of a character")


MAX_AT = 253_402_300_799
"""The last second of the year 9999."""


IDEMPOTENCY = "idempotency:"
"""What stands before the name of a request that is the key of a job: so the names are apart from keys."""
INTERNAL = ("tarry.", "flow:")
"""How the names of tarry's own tasks begin: no program outside may put such a job."""


class Options(Struct, frozen=True):
    """How and when one call runs. The task decides what is left out."""

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
    per: Literal["host", "worker"] | None = None
    max_delay: Duration | None = None
    labels: Mapping[str, str] | None = None
    running: Literal["return", "cancel"] = "return"
    cost: int | None = None
    leading: bool = False
    keeps_attempts: bool = False
    """For tarry's own use: the job tells its start and its worker also if it is done at the first attempt."""

    def check(self) -> "Options":
        """Returns these options, with labels of their own; ValueError with the name of a wrong one."""
        if self.delay is not None and self.at is not None:
            raise ValueError("delay= and at= both say when; give one of them")
        if isinstance(self.at, datetime) and self.at.tzinfo is None:
            raise ValueError("at= needs a time zone: datetime(..., tzinfo=...) or datetime.now(timezone.utc) + ...")
        # A datetime may lie before 1970, as in `at=datetime.min`: it is due at once.
        at = max(0.0, self.at.timestamp()) if isinstance(self.at, datetime) else self.at
        if at is not None and not (_is_number(at) and 0 <= at <= MAX_AT):
            raise ValueError(f"at={self.at!r}: a datetime with a time zone, until 9999, or seconds since the epoch")
        for name, duration in (("delay", self.delay), ("expires", self.expires)):
            if duration is not None:
                microseconds(duration, name)
        # Only for its errors.
        overrides.as_headers(self.timeout, self.retry)
        # Not isinstance: True is an int.
        if self.priority is not None and not (type(self.priority) is int and abs(self.priority) <= MAX_PRIORITY):
            raise ValueError(f"priority={self.priority!r}: an integer within +-2^40")
        for name, value in (("key", self.key), ("queue", self.queue), ("idempotency", self.idempotency)):
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_NAME):
                raise ValueError(f"{name}={shorten(value)}: text of 1 to {MAX_NAME} characters")
            refuse_unfit(name, value or "")
        if self.cost is not None:
            checked_cost(self.cost)
        options = self._check_unique()
        return options if self.labels is None else replace(options, labels=check_labels(self.labels))

    def _check_unique(self) -> "Options":
        if self.idempotency is not None and self.key is not None:
            raise ValueError("key= and idempotency= both say what is the same job; give one of them")
        if self.key is None:
            for name in ("unique_for", "on_duplicate", "running", "leading"):
                if getattr(self, name) not in (None, "return", False):
                    raise ValueError(f"{name}= is about a key: give key= too")
        if self.on_duplicate not in ("return", "replace", "postpone"):
            raise ValueError(f'on_duplicate={self.on_duplicate!r}: "return", "replace" or "postpone"')
        self._check_running()
        self._check_leading()
        if self.max_delay is not None:
            self._check_max_delay(microseconds(self.max_delay, "max_delay"))
        if self.durable not in (None, "replica"):
            raise ValueError(f'durable={self.durable!r}: "replica", or leave it out')
        if self.durable is not None and self.connection is not None:
            raise ValueError("durable= and connection= exclude each other: what is safe is for your transaction to say")
        if self.per not in (None, "host", "worker"):
            raise ValueError(f'per={self.per!r}: "host" or "worker"')
        # Only for its errors.
        self.key_ttl  # noqa: B018
        return self

    def _check_running(self) -> None:
        if self.running not in ("return", "cancel"):
            raise ValueError(f'running={self.running!r}: "return" or "cancel"')
        if self.running == "cancel" and self.on_duplicate == "postpone":
            raise ValueError('running="cancel" is for the newest call, and on_duplicate="postpone" keeps the first')
        if self.running == "cancel" and self.unique_for == "waiting":
            raise ValueError('running="cancel": with unique_for="waiting" no running job holds the key')

    def _check_leading(self) -> None:
        if self.leading is False:
            return
        if self.leading is not True:
            raise ValueError(f"leading={self.leading!r}: True or False")
        if self.running == "cancel":
            raise ValueError('leading=True with running="cancel": each second call would cancel the first; choose one')
        if self.on_duplicate == "return":
            raise ValueError('leading=True is for on_duplicate="replace" and "postpone": give one of them too')
        if self.delay is None or not microseconds(self.delay, "delay"):
            raise ValueError("leading=True puts off the calls after the first by delay=: give a delay longer than 0")
        if self.unique_for not in (None, "waiting"):
            raise ValueError(f"leading=True with unique_for={self.unique_for!r}: delay= says how long; leave it out")

    def _check_max_delay(self, most: int) -> None:
        if self.on_waiting == "return":
            raise ValueError('max_delay= bounds on_duplicate="replace" and "postpone": give one of them too')
        if self.delay is not None and microseconds(self.delay) > most:
            raise ValueError(f"max_delay={self.max_delay!r} is less than delay={self.delay!r}")

    def due(self, now: int, unsure: int = 0) -> int:
        """When the job is due, microseconds since the epoch. unsure: how far `now` may be behind the store's time."""
        if self.leading:
            return now
        if self.delay is not None:
            # Longer by the doubt, so that a delay is never too short. With delay=0 the job should start at once.
            return now + microseconds(self.delay) + (unsure if self.delay else 0)
        if isinstance(self.at, datetime):
            return max(0, round(self.at.timestamp() * SECOND))
        return now if self.at is None else round(self.at * SECOND)

    def later(self, seconds: float) -> "Options":
        """The same for a job that is due so much later; from now, if they do not say when. ValueError: too late."""
        if self.leading:
            raise ValueError("over= gives each call a time of its own, and leading=True starts the first at once")
        if self.at is not None:
            return replace(self, at=self.due(0) / SECOND + seconds).check()
        return replace(self, delay=microseconds(self.delay or 0) / SECOND + seconds).check()

    @property
    def has_overrides(self) -> bool:
        """Whether the job has a timeout or a retry rule of its own."""
        return self.timeout is not None or self.retry != "default"

    @property
    def held_key(self) -> str | None:
        """The key that the job holds."""
        if self.leading:
            return f"{LEADING}{self.key}"
        return self.key if self.idempotency is None else IDEMPOTENCY + self.idempotency

    @property
    def on_waiting(self) -> str:
        """What the call does to a waiting job that holds its key: as `on_duplicate`."""
        return "replace" if self.running == "cancel" else self.on_duplicate

    @property
    def key_ttl(self) -> int:
        """`Job.key_ttl`: how long the job holds its key."""
        if self.idempotency is not None:
            return microseconds(self.window, "window")
        if self.leading and self.delay is not None:
            return microseconds(self.delay)
        # Only a waiting job can be replaced or postponed; so a running one holds the key only to be cancelled.
        is_held = self.on_duplicate == "return" or self.running == "cancel"
        unique_for = self.unique_for or ("unfinished" if is_held else "waiting")
        if unique_for == "waiting":
            return WAITING
        return UNFINISHED if unique_for == "unfinished" else microseconds(unique_for, "unique_for")


NO_OPTIONS = Options()
CALL_OPTIONS = tuple(name for name in Options.__struct_fields__ if name != "keeps_attempts")
"""The names that `task.using(...)` takes."""


def spread(over: Duration | None, count: int) -> Sequence[float | None]:
    """Seconds by which each of so many calls is later than their options say, so that they are due evenly over that
    time; None for each: as the options say. ValueError."""
    if over is None:
        return [None] * count
    seconds = microseconds(over, "over") / SECOND
    return [seconds * number / count for number in range(count)]


def with_overrides(task: str, headers: bytes, options: Options) -> bytes:
    """The headers, with the timeout and the retry rule of these options."""
    more = overrides.as_headers(options.timeout, options.retry)
    return job_headers.encode_headers(task, job_headers.decode_headers(headers) | more)


def with_latest(task: str, headers: bytes, latest: int) -> bytes:
    """The headers, with the time until which other calls may put off the job, microseconds since the epoch."""
    return job_headers.encode_headers(task, job_headers.decode_headers(headers) | {overrides.LATEST: str(latest)})


def with_order(task: str, headers: bytes, lane: str, *, holds: bool) -> bytes:
    """The headers of a job of an ordered task. lane: that of its key. holds: dead jobs of the key hold it back."""
    order = overrides.order_headers(task, lane, holds=holds)
    return job_headers.encode_headers(task, job_headers.decode_headers(headers) | order)


def with_cost(task: str, headers: bytes, cost: int) -> bytes:
    """The headers, with what a rate counts for the job."""
    return job_headers.encode_headers(task, job_headers.decode_headers(headers) | {overrides.COST: str(cost)})


def with_labels(task: str, headers: bytes, labels: Mapping[str, str]) -> bytes:
    """The headers, with these labels."""
    return job_headers.encode_headers(task, job_headers.decode_headers(headers) | label_headers(labels))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
