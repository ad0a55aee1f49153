"""A task: a function with its settings, as all parts of tarry know it. `client.task` adds how it is enqueued."""

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import Job
from tarry.model.outcome import Outcome
from tarry.model.retry import RetryRule, retry_rule
from tarry.model.schedule import Cron, Missed, schedules
from tarry.tasks.around import NOTHING, Wrapping
from tarry.tasks.codec import Codec
from tarry.tasks.hooks import Hook, Hooks, Kind
from tarry.tasks.lane import lane_of, limits_of
from tarry.tasks.options import Options, with_overrides

P = ParamSpec("P")
R = TypeVar("R")


class TaskDefinition(Generic[P, R]):
    """A function that can be called later; called directly it is just the function."""

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
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", self.name)
        self.__wrapped__ = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The plain function, here and now."""
        return self.fn(*args, **kwargs)

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

    def parting(self, job: Job, reason: str) -> str:
        """The reason for which that job, as it is, is cancelled, with what such a task has to say; as above."""
        return reason

    def came_too_late(self, job: Job, printed: str, outcome: Outcome) -> None:
        """What came of an attempt at a job that has been taken from it meanwhile, and what it printed; as above."""

    def _hook(self, kind: Kind, fn: Hook) -> None:
        self.hooks.add(kind, fn)
        self.around.wrap(self)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def full_name(fn: Callable[..., Any]) -> str:
    """`shop.mail.send`: how workers find it. A script's `__main__` goes by the name it is imported under elsewhere."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
