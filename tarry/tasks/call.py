"""A call of a task as a value, for `enqueue_many`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from tarry.errors import ArgumentError

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition

P = ParamSpec("P")


class Call(Generic[P]):
    """`send.call("a@b", name="x")`: a call to enqueue later. Type checkers check the arguments; so does the enqueue."""

    __slots__ = ("args", "kwargs", "task")

    def __init__(self, task: "TaskDefinition[P, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<Call {self.task.name}({', '.join(given)})>"


AnyCall = Call[P] | tuple[Any, ...] | list[Any] | Mapping[str, Any]
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
        return call.args, call.kwargs
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, tuple | list):
        return call, _NO_NAMES
    raise ArgumentError(
        f"{task.name}: {call!r} is no call; give a tuple, a mapping by name, or {task.__name__}.call(...)"
    )
