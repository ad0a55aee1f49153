"""A call that is about to be enqueued, as middleware sees it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tarry.tasks.arguments import headers

if TYPE_CHECKING:
    from tarry.tasks.arguments.options import Options
    from tarry.tasks.definition import TaskDefinition


class NewJob:
    """A call on its way to the store. Middleware may change everything except the task before `call_next(job)`.

    args, kwargs: the arguments. headers: text by name, which travels with the job. options: those of
    `task.using(...)`; `job.using(...)` changes some of them. is_async: `call_next(job)` must be awaited.
    """

    __slots__ = ("_send", "args", "definition", "headers", "is_async", "kwargs", "later", "options")

    def __init__(
        self,
        task: "TaskDefinition[Any, Any]",
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: "Options",
        send: "Callable[[NewJob], Any]",
        is_async: bool,
        later: float | None = None,
    ) -> None:
        """later: of `Options.later`, once middleware has seen them."""
        self.definition = task
        self._send = send
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self.headers: dict[str, str] = {}
        self.is_async = is_async
        self.later = later

    @property
    def task(self) -> str:
        """The task's name."""
        return self.definition.name

    @property
    def queue(self) -> str:
        """The queue in which the job will wait."""
        return self.options.queue or self.definition.queue

    def using(self, **changes: Any) -> None:
        """Changes some of the options, by the names that `task.using` has for them; ValueError, TypeError."""
        self.options = replace(self.options, **changes).check()

    def encode_headers(self) -> bytes:
        """The headers as the job keeps them, with the present values of the carried variables; ArgumentError."""
        # The variables are read only now, so that middleware can still set them.
        return headers.encode_headers(self.task, headers.add_carried(self.headers, self.definition.app_hooks.carried))

    def send(self) -> Any:
        """The end of the middleware: returns a handle, or an awaitable of one."""
        return self._send(self)

    def __repr__(self) -> str:
        return f"<NewJob {self.task}>"
