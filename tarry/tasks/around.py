"""What an app puts around its tasks: middleware, hooks, carried variables. Registered once, made ready for use once."""

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from tarry.errors import ConfigError
from tarry.tasks import middleware
from tarry.tasks.headers import Carried
from tarry.tasks.hooks import Hook, Hooks, Kind, check
from tarry.tasks.middleware import Middleware

Side = Literal["enqueue", "run"]


class Wrapping:
    """What is around one task, ready for use; made anew when something is registered.

    call: runs the task within its middleware, and gives its value; for an async task, an awaitable of it.
    """

    __slots__ = ("call", "carried", "dead", "failure", "hooked", "success")

    def __init__(
        self,
        call: Callable[[Any], Any],
        carried: Sequence[Carried],
        success: Sequence[Hook],
        failure: Sequence[Hook],
        dead: Sequence[Hook],
    ) -> None:
        self.call = call
        self.carried = carried
        self.success = success
        self.failure = failure
        self.dead = dead
        self.hooked = bool(success or failure or dead)


class Wrapped(Protocol):
    """A task, as far as what is around it goes."""

    hooks: Hooks
    is_async: bool
    around: "Around"
    wrapped: Wrapping | None


class Around:
    """Shared by all tasks of an app.

    sends: something is to be done at each enqueue. enqueue_chain: takes a `NewJob` through the middleware to the store,
    and gives the handle; by whether it is to be awaited.
    """

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.carried: tuple[Carried, ...] = ()
        self.sends = False
        self._middleware: dict[str, list[Middleware]] = {"enqueue": [], "run": []}
        self._tasks: weakref.WeakSet[Wrapped] = weakref.WeakSet()
        self._ready()

    def take(self, task: Wrapped) -> None:
        """One more task that this is around."""
        task.around = self
        self._tasks.add(task)
        self.wrap(task)

    def wrap(self, task: Wrapped) -> None:
        """Makes ready what is around the task; again when the task got a hook of its own."""
        own, ours = task.hooks, self.hooks
        success, failure, dead = (*own.success, *ours.success), (*own.failure, *ours.failure), (*own.dead, *ours.dead)
        plain = not (success or failure or dead or self.carried or self._middleware["run"])
        call = self._run[task.is_async]
        task.wrapped = None if plain else Wrapping(call, self.carried, success, failure, dead)

    def hook(self, kind: Kind, hook: Hook) -> None:
        """One more hook for all tasks."""
        self.hooks.add(kind, hook)
        self._ready()

    def use(self, side: Side, fn: Middleware) -> None:
        """One more middleware, within those that are there; ConfigError for another side, TypeError."""
        if side not in self._middleware:
            raise ConfigError(f'middleware({side!r}): "enqueue" or "run"')
        check(fn, f'middleware("{side}")', "(job, call_next)")
        self._middleware[side].append(fn)
        self._ready()

    def carry(
        self,
        var: ContextVar[Any],
        name: str | None,
        encode: Callable[[Any], str] | None,
        decode: Callable[[str], Any] | None,
    ) -> None:
        """One more variable; ConfigError if its name is another's."""
        new = Carried(var, name, encode, decode)
        others = [one for one in self.carried if one.var is not var]
        if any(one.name == new.name for one in others):
            raise ConfigError(f"two variables are carried as {new.name!r}: give one of them another with name=")
        self.carried = (*others, new)
        self._ready()

    def _ready(self) -> None:
        self.enqueue_chain = middleware.chains(self._middleware["enqueue"], middleware.put)
        self._run = middleware.chains(self._middleware["run"], middleware.run)
        self.sends = bool(self._middleware["enqueue"] or self.carried)
        for task in list(self._tasks):
            self.wrap(task)


NOTHING = Around()
"""Around a task that belongs to no app."""
