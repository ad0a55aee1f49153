"""What an app puts around its tasks: middleware, hooks, carried variables. Registered once, made ready for use once."""

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from tarry.errors import ConfigError
from tarry.tasks import middleware
from tarry.tasks.headers import Carried
from tarry.tasks.hooks import Hook, Hooks, Kind, check
from tarry.tasks.middleware import Middleware
from tarry.tasks.new_job import NewJob
from tarry.worker.run.wrapped import Wrapping

if TYPE_CHECKING:
    from tarry.client.handle import Handle
    from tarry.tasks.task import Task

Side = Literal["enqueue", "run"]


class Around:
    """Shared by all tasks of an app.

    sends: something is to be done at each enqueue.
    """

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.carried: tuple[Carried, ...] = ()
        self.sends = False
        self._middleware: dict[str, list[Middleware]] = {"enqueue": [], "run": []}
        self._tasks: weakref.WeakSet[Task[Any, Any]] = weakref.WeakSet()
        self._ready()

    def take(self, task: "Task[Any, Any]") -> None:
        """One more task that this is around."""
        task.around = self
        self._tasks.add(task)
        self.wrap(task)

    def wrap(self, task: "Task[Any, Any]") -> None:
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

    def send(self, job: NewJob) -> "Handle[Any]":
        """Enqueues, through the middleware."""
        return middleware.checked(self._send[False](job))

    async def asend(self, job: NewJob) -> "Handle[Any]":
        """The same, awaited."""
        return middleware.checked(await self._send[True](job))

    def _ready(self) -> None:
        self._send = middleware.chains(self._middleware["enqueue"], middleware.put)
        self._run = middleware.chains(self._middleware["run"], middleware.run)
        self.sends = bool(self._middleware["enqueue"] or self.carried)
        for task in list(self._tasks):
            self.wrap(task)


NOTHING = Around()
"""Around a task that belongs to no app."""
