"""What an app adds to its tasks: middleware, hooks, carried variables."""

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from tarry.errors import ConfigError
from tarry.tasks import middleware
from tarry.tasks.arguments.headers import CarriedVariable
from tarry.tasks.hooks import EndHooks, Hook, HookKind, check_hook
from tarry.tasks.middleware import Middleware

Side = Literal["enqueue", "run"]


class RunWrapper:
    """What surrounds each run of one task.

    call: runs the task within its middleware and returns its value; for an async task, an awaitable of it.
    """

    __slots__ = ("call", "carried", "dead", "failure", "has_end_hooks", "success")

    def __init__(self, call: Callable[[Any], Any], carried: Sequence[CarriedVariable], *owners: EndHooks) -> None:
        self.call = call
        self.carried = carried
        self.success: Sequence[Hook] = [hook for hooks in owners for hook in hooks.success]
        self.failure: Sequence[Hook] = [hook for hooks in owners for hook in hooks.failure]
        self.dead: Sequence[Hook] = [hook for hooks in owners for hook in hooks.dead]
        self.has_end_hooks = bool(self.success or self.failure or self.dead)


class HookedTask(Protocol):
    """The part of a task that its hooks need."""

    hooks: EndHooks
    is_async: bool
    app_hooks: "TaskHooks"
    run_wrapper: RunWrapper | None


class TaskHooks:
    """The middleware, hooks and carried variables of an app, for all its tasks.

    has_enqueue_hooks: an enqueue has middleware or carried variables. enqueue_chain: by whether the enqueue is async:
    takes a `NewJob` through the middleware to the store, and returns the handle.
    """

    def __init__(self) -> None:
        self.hooks = EndHooks()
        self.carried: tuple[CarriedVariable, ...] = ()
        self.has_enqueue_hooks = False
        self._middleware: dict[str, list[Middleware]] = {"enqueue": [], "run": []}
        # Weak: the hooks must not keep a task alive.
        self._tasks: weakref.WeakSet[HookedTask] = weakref.WeakSet()
        self._refresh_all()

    def attach(self, task: HookedTask) -> None:
        """Adds a task that these hooks are for."""
        task.app_hooks = self
        self._tasks.add(task)
        self.refresh(task)

    def refresh(self, task: HookedTask) -> None:
        """Makes the task's `run_wrapper`; call it again when the task got a hook of its own."""
        wrapper = RunWrapper(self._run_chain[task.is_async], self.carried, task.hooks, self.hooks)
        is_plain = not (wrapper.has_end_hooks or self.carried or self._middleware["run"])
        # None lets the worker call a plain task directly.
        task.run_wrapper = None if is_plain else wrapper

    def add_hook(self, kind: HookKind, hook: Hook) -> None:
        """Adds a hook for all tasks."""
        self.hooks.add(kind, hook)
        self._refresh_all()

    def add_middleware(self, side: Side, fn: Middleware) -> None:
        """Adds a middleware, inside those that are registered already; ConfigError for a wrong side, TypeError."""
        if side not in self._middleware:
            raise ConfigError(f'middleware({side!r}): "enqueue" or "run"')
        check_hook(fn, f'middleware("{side}")', "(job, call_next)")
        self._middleware[side].append(fn)
        self._refresh_all()

    def add_carried(
        self,
        var: ContextVar[Any],
        name: str | None,
        encode: Callable[[Any], str] | None,
        decode: Callable[[str], Any] | None,
    ) -> None:
        """Adds a carried variable; ConfigError if another variable has its name."""
        new = CarriedVariable(var, name, encode, decode)
        # A second registration of a variable replaces the first.
        others = [carried for carried in self.carried if carried.var is not var]
        if any(carried.name == new.name for carried in others):
            raise ConfigError(f"two variables are carried as {new.name!r}: give one of them another with name=")
        self.carried = (*others, new)
        self._refresh_all()

    def _refresh_all(self) -> None:
        self.enqueue_chain = middleware.build_chains(self._middleware["enqueue"], middleware.send_job)
        self._run_chain = middleware.build_chains(self._middleware["run"], middleware.run_task)
        self.has_enqueue_hooks = bool(self._middleware["enqueue"] or self.carried)
        # Made again now, so that runs pay nothing for it. A copy of the set: tasks may leave it meanwhile.
        for task in list(self._tasks):
            self.refresh(task)


NO_TASK_HOOKS = TaskHooks()
"""For a task that belongs to no app."""
