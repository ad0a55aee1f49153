"""Tasks: a function with its settings, and the calls that enqueue it."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from msgspec import Struct

from tarry.model import overrides
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import MAX_PRIORITY, UNFINISHED, WAITING
from tarry.model.nearest import did_you_mean
from tarry.model.retry import RetryRule, retry_rule
from tarry.model.schedule import Cron, Missed, schedules
from tarry.tasks import headers as job_headers
from tarry.tasks.around import NOTHING
from tarry.tasks.call import AnyCall, Call
from tarry.tasks.codec import Codec
from tarry.tasks.hooks import Hooks, Kind
from tarry.tasks.lane import lane_of, limits_of
from tarry.worker.run.wrapped import Wrapping

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.client.handle import Handle
    from tarry.model.job import Job
    from tarry.model.outcome import Outcome
    from tarry.tasks.running import CurrentJob, Running

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

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

_ELSEWHERE = dict.fromkeys(
    ("delay", "apply_async", "send", "schedule", "defer", "perform_async"),
    ("enqueue(...), or .using(delay=...).enqueue(...) for later"),
) | {"delay_on_commit": "using(connection=...).enqueue(...)", "map": "enqueue_many([...])"}
"""What other libraries call the way to put a job, and what it is here."""


def with_overrides(task: str, headers: bytes, options: Options) -> bytes:
    """The headers, and what these options say otherwise than the task."""
    more = overrides.as_headers(options.timeout, options.retry)
    return job_headers.encoded(task, job_headers.decoded(headers) | more)


class Task(Generic[P, R]):
    """A function that can be called later: `send.enqueue(...)`; called directly it is just the function."""

    batch = 0
    """Up to how many jobs one call of the function gets; 0, each has its own."""
    wait = 0.0
    """Seconds that the first of a batch waits for others."""
    due_after = 0
    """Microseconds until a job is due whose enqueue does not say when."""
    steered = False
    """How many run at once is for what they meet to say: nobody else sets the limit of that task, but by hand."""
    codec_class: type[Codec] = Codec

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        fn: Callable[P, Any],
        client: "Callable[[], Client]",
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retry: RetryRule = "default",
        expires: Duration | None = None,
        limit: int | None = None,
        rate: str | None = None,
        limit_by: Callable[..., Any] | None = None,
        limit_all: int | None = None,
        rate_all: str | None = None,
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"a task is made of a function, not of {fn!r}")
        Options(priority=priority, queue=queue, expires=expires).checked()
        self.fn = fn
        self.name = name or full_name(fn)
        self.queue = queue
        self.priority = priority
        self.timeout = None if timeout is None else microseconds(timeout, "timeout") / SECOND
        self.retry = retry_rule(retry)
        """None: as the app says."""
        self.expires = expires
        self.is_async = inspect.iscoroutinefunction(fn)
        self.codec = self.codec_class(self.name, fn)
        self.limits = limits_of(self.name, limit, rate, limit_by, limit_all, rate_all)
        self.lane = lane_of(self.name, fn, limit_by, bool(self.limits))
        self.label = self.name.encode()
        self.schedules = schedules(self.name, cron, zone, missed, self.codec.encode)
        self.hooks = Hooks()
        self.around = NOTHING
        self.wrapped: Wrapping | None = None
        """What is around it when it runs; None if nothing is."""
        self._client = client
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", self.name)
        self.__wrapped__ = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The plain function, here and now."""
        return self.fn(*args, **kwargs)

    if not TYPE_CHECKING:  # else every name would be right

        def __getattr__(self, name: str) -> Any:
            """AttributeError; of what other queues call it, with what to write here."""
            own = _ELSEWHERE.get(name)
            how = f": write .{own}" if own else ("" if name.startswith("_") else did_you_mean(name, dir(type(self))))
            raise AttributeError(f"the task {self.__dict__.get('name', '')} has no {name}{how}")

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Puts one call; returns when the store has it for sure. ArgumentError if the arguments do not fit."""
        return self._client().enqueue(self, args, kwargs, NOW)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """The same, awaited."""
        return await self._client().aenqueue(self, args, kwargs, NOW)

    def enqueue_many(self, calls: Iterable[AnyCall[P]]) -> "list[Handle[R]]":
        """Puts many calls in one round trip: each made by `call`, or a tuple of positional arguments, or a mapping by
        name. All or none: ArgumentError if the arguments of one do not fit."""
        return self._client().enqueue_many(self, calls, NOW)

    async def aenqueue_many(self, calls: Iterable[AnyCall[P]]) -> "list[Handle[R]]":
        """The same, awaited."""
        return await self._client().aenqueue_many(self, calls, NOW)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """One call for `enqueue_many`, checked by type checkers: `send.enqueue_many(send.call(to) for to in all)`."""
        return Call(self, args, kwargs)

    def on_success(self, fn: "Callable[[CurrentJob, R], T]") -> "Callable[[CurrentJob, R], T]":
        """`@task.on_success`: a hook, called with the job and what the task returned.

        Hooks run right after the task, where it ran, before the store is told of its end: so, like the task itself, at
        least once. They may be `def` or `async def`. First the task's own are called, in the order of registration,
        then the app's. One that raises is logged and changes nothing.

        The task's timeout is not for them. They have a minute in all: an `async def` is stopped then; a `def` that
        still runs counts as stuck, and a master kills its worker. `current_job()` is there for them, and carried
        variables are set.
        """
        self._hook("success", fn)
        return fn

    def on_failure(self, fn: "Callable[[CurrentJob, BaseException], T]") -> "Callable[[CurrentJob, BaseException], T]":
        """`@task.on_failure`: a hook, called with the job and the error after each attempt that failed, whether there
        will be another or not; it timed out if the error is a TimeLimit. Not called for a job that was cancelled,
        expired, snoozed, or interrupted by us.

        When a worker dies of its job, or is killed since the job did not end, the keeper process calls it, once, with
        a JobFailed that says so. For all else see `on_success`.
        """
        self._hook("failure", fn)
        return fn

    def on_dead(self, fn: "Callable[[CurrentJob, BaseException], T]") -> "Callable[[CurrentJob, BaseException], T]":
        """`@task.on_dead`: a hook, called with the job and the error once there will be no other attempt; after
        `on_failure`, and as that is."""
        self._hook("dead", fn)
        return fn

    def overridden(self, headers: bytes, options: Options) -> bytes:
        """The headers of a job that says something otherwise than its task; ValueError where it cannot."""
        if self.steered:
            raise ValueError(f"{self.name} is an HTTP task: its endpoint's timeout and schedule hold for all its jobs")
        if self.batch and options.timeout is not None:
            raise ValueError(f"{self.name} runs many jobs in one call, which has one timeout: that of the task")
        return with_overrides(self.name, headers, options)

    def headed(self, headers: bytes, due: int) -> bytes:
        """The headers of a new job, with what such a task keeps there; only asked where it is steered."""
        return headers

    def parting(self, job: "Job", reason: str) -> str:
        """The reason for which that job, as it is, is cancelled, with what such a task has to say; as above."""
        return reason

    def came_too_late(self, running: "Running", outcome: "Outcome") -> None:
        """What came of an attempt at a job that has been taken from it meanwhile; as above."""

    def _hook(self, kind: Kind, fn: "Callable[[CurrentJob, Any], Any]") -> None:
        self.hooks.add(kind, fn)
        self.around.wrap(self)

    def using(  # noqa: PLR0913 - options, by name
        self,
        *,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        expires: Duration | None = None,
        unique_for: Duration | Literal["waiting", "unfinished"] | None = None,
        on_duplicate: Literal["return", "replace", "postpone"] = "return",
        idempotency: str | None = None,
        window: Duration = "1d",
        connection: Any = None,
        durable: Literal["replica"] | None = None,
        timeout: Duration | None = None,
        retry: RetryRule = "default",
    ) -> "Using[P, R]":
        """The task with other settings for the calls that follow.

        delay: seconds, timedelta or text ("5m"). at: a datetime with a zone, or seconds since the epoch. priority:
        within +-2^40, higher first. expires: must start within so long, else it is cancelled.

        timeout: how long an attempt of these jobs may take, shorter or longer than the task's; unless given, as the
        task says. retry: when they are tried again; None for never, "default" for what the task says. Not for HTTP
        tasks, whose endpoint has a timeout and a schedule; a batch task's calls have one timeout for all.

        key: at most one job of this task holds it. unique_for: how long: "waiting", until a worker takes the job;
        "unfinished", until it has ended; a duration, for so long after that. on_duplicate: what an enqueue does while
        another job holds the key: "return" that job; "replace" its call by this one (debounce); "postpone" it to when
        this one would have been due (throttle). The latter two hold the key while "waiting", unless you say otherwise.

        idempotency: the name of this very request: sent again, within `window` after its job has ended too, it
        returns the first job, and IdempotencyError if the arguments are not the same.

        connection: your own connection to the database that is the store: the job is there if, and only if, you
        commit.

        durable: "replica": return only once a replica of the store has the job too (Redis). StoreUnavailable if none
        says so within 5 s: the job is stored then, by one server alone.
        """
        options = Options(
            delay, at, key, priority, queue, expires, unique_for, on_duplicate, idempotency, window, connection,
            durable, timeout, retry,
        )  # fmt: skip
        return Using(self, self._client, options.checked())

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class AsyncTask(Task[P, R]):
    """A task made of an `async def`: called directly it gives the coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """The plain coroutine function, here and now."""
        result: Awaitable[R] = self.fn(*args, **kwargs)
        return result


class SyncTask(Task[P, R]):
    """A task made of a `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The plain function, here and now."""
        result: R = self.fn(*args, **kwargs)
        return result


class Using(Generic[P, R]):
    """A task with the settings of one call, or of a few alike."""

    def __init__(self, task: Task[P, R], client: "Callable[[], Client]", options: Options) -> None:
        self._task = task
        self._client = client
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Puts one call; returns when the store has it for sure."""
        return self._client().enqueue(self._task, args, kwargs, self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """The same, awaited."""
        return await self._client().aenqueue(self._task, args, kwargs, self._options)

    def enqueue_many(self, calls: Iterable[AnyCall[P]]) -> "list[Handle[R]]":
        """Puts many calls in one round trip."""
        return self._client().enqueue_many(self._task, calls, self._options)

    async def aenqueue_many(self, calls: Iterable[AnyCall[P]]) -> "list[Handle[R]]":
        """The same, awaited."""
        return await self._client().aenqueue_many(self._task, calls, self._options)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def full_name(fn: Callable[..., Any]) -> str:
    """`shop.mail.send`: how workers find it. A script's `__main__` goes by the name it is imported under elsewhere."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
