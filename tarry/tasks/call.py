"""A call of a task as a value: for `enqueue_many`, and for the nodes of a flow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tarry.errors import ArgumentError
from tarry.tasks.arguments.options import NO_OPTIONS, Options

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Call(Generic[R_co]):
    """`send.call("a@b", name="x")`: a call to enqueue later, of a task that returns an `R_co`. Type checkers check the
    arguments; so does the enqueue."""

    __slots__ = ("args", "kwargs", "options", "task")

    def __init__(
        self,
        task: "TaskDefinition[Any, Any]",
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Options = NO_OPTIONS,
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self.options = options

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<Call {self.task.name}({', '.join(given)})>"


class Then(Generic[T_contra, R_co]):
    """A call without its first argument, which is the result of another task: a later link of a chain.

    Only type checkers tell it from a Call; when the program runs, `task.call(...)` is always a Call.
    """

    if TYPE_CHECKING:
        # Without a use of T_contra, a checker would take any other type for it.
        def _takes(self, first: T_contra) -> R_co: ...


Link = Then[T, R] | Call[R]
"""A call that gets a result as its first argument. It is a Call if its task could do without one; then only the
program itself checks that the result fits."""

AnyCall = Call[R_co] | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""A Call, or the positional arguments, or the arguments by name. Type checkers check only the first."""

_NO_NAMES: Mapping[str, Any] = {}


def arguments_of(task: "TaskDefinition[Any, Any]", call: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The positional and the named arguments of a call; ArgumentError if it is another task's call, or not a call."""
    # Exact types first: `enqueue_many` gets thousands of calls, and nearly all are one of these two.
    if type(call) is tuple:
        return call, _NO_NAMES
    if type(call) is Call:
        # The arguments were checked against the other task's signature.
        if call.task is not task:
            raise ArgumentError(f"{task.name}: {call!r} is a call of another task; enqueue it with that one")
        if call.options is not NO_OPTIONS:
            raise ArgumentError(
                f"{task.name}: {call!r} has options of its own, which only a node of a flow may have; write"
                f" {task.__name__}.using(...).enqueue_many([{task.__name__}.call(...)])"
            )
        return call.args, call.kwargs
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, tuple | list):
        return call, _NO_NAMES
    raise ArgumentError(
        f"{task.name}: {call!r} is no call; give a tuple, a mapping by name, or {task.__name__}.call(...)"
    )
