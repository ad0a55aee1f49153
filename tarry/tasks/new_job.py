"""A job that is about to be enqueued, as middleware sees it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tarry.tasks import headers

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition
    from tarry.tasks.options import Options


class NewJob:
    """A call on its way to the store. All of it may be changed before `call_next(job)`, but for the task.

    args, kwargs: the arguments. headers: text by name, which travels with the job. options: when and how it is to run,
    as `task.using(...)` was given it; `job.using(...)` changes some of them. is_async: `call_next(job)` is to be
    awaited.
    """

    __slots__ = ("_put", "args", "headers", "is_async", "kwargs", "of", "options")

    def __init__(
        self,
        task: "TaskDefinition[Any, Any]",
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: "Options",
        put: "Callable[[NewJob], Any]",
        is_async: bool,
    ) -> None:
        self.of = task
        self._put = put
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self.headers: dict[str, str] = {}
        self.is_async = is_async

    @property
    def task(self) -> str:
        """The task's name."""
        return self.of.name

    @property
    def queue(self) -> str:
        """Where it will wait."""
        return self.options.queue or self.of.queue

    def using(self, **changes: Any) -> None:
        """Changes some of the options, by the names that `task.using` has for them; ValueError, TypeError."""
        self.options = replace(self.options, **changes).checked()

    def packed(self) -> bytes:
        """The headers as the job keeps them, with the carried variables as they are now; ArgumentError."""
        return headers.encoded(self.task, headers.with_carried(self.headers, self.of.around.carried))

    def put(self) -> Any:
        """What `call_next` comes to in the end: a handle, or an awaitable of one."""
        return self._put(self)

    def __repr__(self) -> str:
        return f"<NewJob {self.task}>"
