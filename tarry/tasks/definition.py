"""A task: a function with its settings. `client.task` adds the methods that enqueue it."""

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, get_args

from msgspec.structs import replace

from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import Job
from tarry.model.limit import checked_cost
from tarry.model.outcome import Outcome
from tarry.model.retry import Retry, RetryRule, retry_rule
from tarry.model.schedules.schedule import Cron, Missed, schedules
from tarry.tasks.arguments.codec import Codec
from tarry.tasks.arguments.options import Options, refuse_unfit, with_overrides
from tarry.tasks.hooks import EndHooks, Hook, HookKind
from tarry.tasks.task_hooks import NO_TASK_HOOKS, RunWrapper
from tarry.tasks.task_limits import OnDead, check_max_waiting, make_lane_function, make_limits, with_chosen_arguments

P = ParamSpec("P")
R = TypeVar("R")
CostFunction = Callable[[Sequence[Any], Mapping[str, Any]], int]
"""Takes the arguments of a call, and returns how many starts a rate counts for its job."""


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
    """Whether the jobs of a key have to run one after another, in the order of their enqueue."""
    holds_when_dead = False
    """Whether a job of an ordered task that is dead holds back those behind it."""
    app_hooks = NO_TASK_HOOKS
    run_wrapper: RunWrapper | None = None
    """What runs the task with its middleware, hooks and carried variables; None if it has none of them."""
    runner: TaskRunner | None = None
    """What runs the jobs instead of a function of the app; None: the function does."""
    map_part: "TaskDefinition[Any, Any] | None" = None
    """The task of jobs that call this one for many items each; None: there was no such job yet."""
    codec_class: type[Codec] = Codec
    is_async: bool
    """Whether the function is a coroutine function."""
    queue: str
    priority: int
    expires: Duration | None
    retry: Retry | None
    """The rule for its jobs; None: the app's."""
    max_waiting: int | None
    """How many jobs of each key may wait; None: any number."""
    cost: CostFunction | None
    """What the job of a call costs; None: one."""
    encrypt: bool
    """Whether its jobs are sealed, where the app has keys."""

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
        max_waiting: int | None = None,
        cost: Callable[..., int] | int | None = None,
        order_by: Callable[..., Any] | None = None,
        on_dead: OnDead | None = None,
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
        encrypt: bool = True,
    ) -> None:
        _check_settings(fn, name, Options(priority=priority, queue=queue, expires=expires))
        self.fn = fn
        self.name = name or full_name(fn)
        self.queue, self.priority = queue, priority
        self.timeout = None if timeout is None else microseconds(timeout, "timeout") / SECOND
        self.retry, self.expires = retry_rule(retry), expires
        self.codec = self.codec_class(self.name, fn)
        by, limit = self._line_of(limit, limit_by, order_by, on_dead)
        self.limits = make_limits(self.name, limit, rate, weight, by=by, limit_all=limit_all, rate_all=rate_all)
        self.max_waiting = check_max_waiting(self.name, max_waiting, by=by)
        self.lane = make_lane_function(self.name, fn, by, is_limited=bool(self.limits), is_ordered=self.keeps_order)
        self.cost = _cost_function(self.name, fn, cost)
        self.schedules = schedules(self.name, cron, zone, missed, self.codec.encode)
        self.label, self.hooks, self.encrypt = self.name.encode(), EndHooks(), encrypt
        self._look_like(fn)

    def _line_of(
        self,
        limit: int | None,
        limit_by: Callable[..., Any] | None,
        order_by: Callable[..., Any] | None,
        on_dead: OnDead | None,
    ) -> tuple[Callable[..., Any] | None, int | None]:
        """What gives the key of a job, and how many jobs of a key run at once."""
        _check_order(self.name, order_by, on_dead, limit=limit, limit_by=limit_by)
        if order_by is None:
            return limit_by, limit
        self.keeps_order, self.holds_when_dead = True, on_dead == "hold"
        return order_by, 1

    def _look_like(self, fn: Callable[P, Any]) -> None:
        self.is_async = inspect.iscoroutinefunction(fn)
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

    def with_cost(self, options: Options, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Options:
        """The options of a call with these arguments, with what its job costs. Runs the user's code (cost=)."""
        if self.cost is None or options.cost is not None:
            return options
        return replace(options, cost=self.cost(args, kwargs))

    def _add_hook(self, kind: HookKind, fn: Hook) -> None:
        self.hooks.add(kind, fn)
        # The wrapper has its own lists of hooks, so it must be made again.
        self.app_hooks.refresh(self)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def _cost_function(task: str, fn: Callable[..., Any], cost: Callable[..., int] | int | None) -> CostFunction | None:
    """The cost function of a task; None if each of its jobs costs one. cost: a number, or a function of some of the
    task's arguments, as `by` of `make_lane_function`. TypeError, ValueError."""
    if cost is None:
        return None
    if not callable(cost):
        number = checked_cost(cost, f"{task}: ")
        return lambda args, kwargs: number
    call_cost = with_chosen_arguments(task, "cost", fn, cost)
    return lambda args, kwargs: checked_cost(call_cost(args, kwargs), f"{task}: ")


def _check_settings(fn: object, name: str | None, options: Options) -> None:
    if not callable(fn):
        raise TypeError(f"a task is made of a function, not of {fn!r}")
    refuse_unfit("name", name or "")
    options.check()


def _check_order(task: str, by: object, on_dead: object, *, limit: object, limit_by: object) -> None:
    """ValueError: these settings do not go together."""
    if by is None:
        if on_dead is not None:
            raise ValueError(f"{task}: on_dead= stands beside order_by=, which says of which key a job is")
        return
    if on_dead not in (None, *get_args(OnDead)):
        raise ValueError(f'{task}: on_dead={on_dead!r}: "skip" or "hold"')
    if limit_by is not None:
        raise ValueError(
            f"{task}: order_by= and limit_by=: a job waits in one line, that of its key; leave out limit_by="
        )
    if limit is not None:
        raise ValueError(
            f"{task}: limit={limit!r} beside order_by=: one job of a key runs at a time; "
            "say limit_all= for how many of all keys do"
        )


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
