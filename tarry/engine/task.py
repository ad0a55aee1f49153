"""Tasks: a function with its settings, and the calls that enqueue it."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from msgspec import Struct

from tarry.engine.codec import Codec
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import MAX_PRIORITY
from tarry.model.retry import NEVER, Retry

if TYPE_CHECKING:
    from tarry.engine.client import Client
    from tarry.engine.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")

MAX_NAME = 200
MAX_AT = 253_402_300_799
"""The last second of the year 9999."""
Call = tuple[Any, ...] | list[Any] | Mapping[str, Any]


class Options(Struct, frozen=True):
    """How and when one call is to run; what is left out comes from the task."""

    delay: Duration | None = None
    at: datetime | float | None = None
    key: str | None = None
    priority: int | None = None
    queue: str | None = None
    expires: Duration | None = None

    def checked(self) -> "Options":
        """These options, or ValueError naming the one that cannot be."""
        if self.delay is not None and self.at is not None:
            raise ValueError("delay= and at= both say when; give one of them")
        if isinstance(self.at, datetime) and self.at.tzinfo is None:
            raise ValueError("at= needs a time zone: datetime(..., tzinfo=...) or datetime.now(timezone.utc) + ...")
        if isinstance(self.at, int | float) and not 0 <= self.at <= MAX_AT:
            raise ValueError(f"at={self.at}: seconds since the epoch, up to the year 9999, or a datetime")
        if self.priority is not None and not (type(self.priority) is int and abs(self.priority) <= MAX_PRIORITY):
            raise ValueError(f"priority={self.priority!r}: an integer within +-2^40")
        for name, value in (("key", self.key), ("queue", self.queue)):
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_NAME):
                raise ValueError(f"{name}={value!r}: text of 1 to {MAX_NAME} characters")
        return self

    def due(self, now: int) -> int:
        """When it may start, microseconds since the epoch."""
        if self.delay is not None:
            return now + microseconds(self.delay)
        if isinstance(self.at, datetime):
            return round(self.at.astimezone(UTC).timestamp() * SECOND)
        return now if self.at is None else round(self.at * SECOND)


NOW = Options()


class Task(Generic[P, R]):
    """A function that can be called later: `send.enqueue(...)`; called directly it is just the function."""

    def __init__(
        self,
        fn: Callable[P, Any],
        client: "Callable[[], Client]",
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retry: Retry | int | None = None,
        expires: Duration | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"a task is made of a function, not of {fn!r}")
        Options(priority=priority, queue=queue).checked()
        self.fn = fn
        self.name = name or full_name(fn)
        self.queue = queue
        self.priority = priority
        self.timeout = None if timeout is None else microseconds(timeout) / SECOND
        self.retry = Retry(retry) if isinstance(retry, int) else retry or NEVER
        self.expires = expires
        self.is_async = inspect.iscoroutinefunction(fn)
        self.codec = Codec(self.name, fn)
        self.label = self.name.encode()
        self._client = client
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", self.name)
        self.__wrapped__ = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The plain function, here and now."""
        return self.fn(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Puts one call; returns when the store has it for sure. ArgumentError if the arguments do not fit."""
        return self._client().enqueue(self, args, kwargs, NOW)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """The same, awaited."""
        return await self._client().aenqueue(self, args, kwargs, NOW)

    def enqueue_many(self, calls: Iterable[Call]) -> "list[Handle[R]]":
        """Puts many calls in one round trip: each a tuple of positional arguments, or a mapping by name."""
        return self._client().enqueue_many(self, calls, NOW)

    async def aenqueue_many(self, calls: Iterable[Call]) -> "list[Handle[R]]":
        """The same, awaited."""
        return await self._client().aenqueue_many(self, calls, NOW)

    def using(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        expires: Duration | None = None,
    ) -> "Using[P, R]":
        """The task with other settings for the calls that follow.

        delay: seconds, timedelta or text ("5m"). at: a datetime with a zone, or seconds since the epoch. key: at most
        one unfinished job of this task has it; a second enqueue returns the first job. priority: within +-2^40, higher
        first. expires: must start within so long, else it is cancelled.
        """
        return Using(self, self._client, Options(delay, at, key, priority, queue, expires).checked())

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

    def enqueue_many(self, calls: Iterable[Call]) -> "list[Handle[R]]":
        """Puts many calls in one round trip."""
        return self._client().enqueue_many(self._task, calls, self._options)

    async def aenqueue_many(self, calls: Iterable[Call]) -> "list[Handle[R]]":
        """The same, awaited."""
        return await self._client().aenqueue_many(self._task, calls, self._options)


def full_name(fn: Callable[..., Any]) -> str:
    """`shop.mail.send`: how workers find it. A script's `__main__` goes by the name it is imported under elsewhere."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
