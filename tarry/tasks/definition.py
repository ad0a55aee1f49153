"""A task: a function with its settings. `client.task` adds the methods that enqueue it."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import Job
from tarry.model.outcome import Outcome
from tarry.model.retry import RetryRule, retry_rule
from tarry.model.schedules.schedule import Cron, Missed, schedules
from tarry.tasks.arguments.codec import Codec
from tarry.tasks.arguments.options import Options, refuse_unfit, with_overrides
from tarry.tasks.hooks import EndHooks, Hook, HookKind
from tarry.tasks.task_hooks import NO_TASK_HOOKS, RunWrapper
from tarry.tasks.task_limits import make_lane_function, make_limits

P = ParamSpec("P")
R = TypeVar("R")


class TaskRunner(Protocol):
    """Runs the jobs of a task that calls no function of the app, such as an HTTP task.

    The task's function, which middleware calls, is then a method of the runner. The runner itself sets the limit of how
    many jobs run at once.
    """

    def run(self, running: Any, argument: Any) -> Awaitable[bytes]:
        """Makes one attempt. running: the `Running`. argument: the first one of the decoded job. Returns the encoded
        result, or raises what a task's function raises."""

    def add_headers(self, headers: bytes, due: int) -> bytes:
        """Adds the runner's own headers to those of a new job. due: microseconds since the epoch."""

    def cancel_reason(self, job: Job, reason: str) -> str:
        """The reason to store with a job that is being cancelled; it may say more than the given one."""

    def note_not_started(self, job: Job) -> None:
        """Called for a job that was interrupted before it started. Must not block."""

    def note_late_outcome(self, job: Job, output: str, outcome: Outcome) -> None:
        """Called if an attempt ended after its job was taken away. output: what it printed. Must not block."""


class TaskDefinition(Generic[P, R]):
    """A function that can be called later. A direct call runs the plain function."""

    batch = 0
    """How many jobs one call of the function gets at most; 0: it is called for each job."""
    wait = 0.0
    """Seconds that the first job of a batch waits for others."""
    due_after = 0
    """Microseconds until a new job is due, if its enqueue does not say when."""
    keeps_order = False
    """Whether the jobs of a key have to run one after another, also through retries."""
    runner: TaskRunner | None = None
    """What runs the jobs instead of a function of the app; None: the function does."""
    map_part: "TaskDefinition[Any, Any] | None" = None
    """The task of jobs that call this one for many items each; None: there was no such job yet."""
    run_wrapper: RunWrapper | None = None
    """What runs the task with its middleware, hooks and carried variables; None if it has none of them."""
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
        weight: int | None = None,
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
    ) -> None:
        _check_settings(fn, name, Options(priority=priority, queue=queue, expires=expires))
        self.fn = fn
        self.name = name or full_name(fn)
        self.queue = queue
        self.priority = priority
        self.timeout = None if timeout is None else microseconds(timeout, "timeout") / SECOND
        self.retry = retry_rule(retry)
        """The rule for its jobs; None: the app's."""
        self.expires = expires
        self.is_async = inspect.iscoroutinefunction(fn)
        self.codec = self.codec_class(self.name, fn)
        self.limits = make_limits(self.name, limit, rate, weight, by=limit_by, limit_all=limit_all, rate_all=rate_all)
        self.lane = make_lane_function(self.name, fn, limit_by, is_limited=bool(self.limits))
        self.label = self.name.encode()
        self.schedules = schedules(self.name, cron, zone, missed, self.codec.encode)
        self.hooks = EndHooks()
        self.app_hooks = NO_TASK_HOOKS
        # `inspect.signature` and documentation tools then see the function itself.
        self.__doc__, self.__name__, self.__wrapped__ = fn.__doc__, getattr(fn, "__name__", self.name), fn

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Calls the plain function in this process."""
        return self.fn(*args, **kwargs)

    def add_overrides(self, headers: bytes, options: Options) -> bytes:
        """The headers of a job, with the settings in which it differs from its task; ValueError if it must not."""
        if self.batch and options.timeout is not None:
            # A retry rule can differ: it is for each job. A timeout cannot.
            raise ValueError(f"{self.name} runs many jobs in one call, which has one timeout: that of the task")
        return with_overrides(self.name, headers, options)

    def _add_hook(self, kind: HookKind, fn: Hook) -> None:
        self.hooks.add(kind, fn)
        # The wrapper has its own lists of hooks, so it must be made again.
        self.app_hooks.refresh(self)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def _check_settings(fn: object, name: str | None, options: Options) -> None:
    if not callable(fn):
        raise TypeError(f"a task is made of a function, not of {fn!r}")
    refuse_unfit("name", name or "")
    options.check()


def full_name(fn: Callable[..., Any]) -> str:
    """The name by which workers find the function, such as `shop.mail.send`."""
    module = fn.__module__
    # Workers import a script under its own name, not as `__main__`.
    if module == "__main__":
        main = sys.modules["__main__"]
        # `python -m` knows the full name; of a script only the file is known.
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
