"""From the items of a map to the calls of its parts."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from tarry.client.flows.map_part import part_task
from tarry.client.handle import Handle
from tarry.model.duration import SECOND, microseconds
from tarry.tasks.arguments.options import Options
from tarry.tasks.call import Call
from tarry.tasks.definition import TaskDefinition

A_contra = TypeVar("A_contra", contravariant=True)
R = TypeVar("R")

MOST_ITEMS = 1000
"""Items of one part; of more items there are more parts."""


class Mapped(Protocol[A_contra, R]):
    """A task that can be called with one argument, with or without options: `shrink`, `shrink.using(timeout=5)`."""

    def enqueue(self, item: A_contra, /) -> Handle[R]:
        """As that of a task."""


def plan_parts(task: Any, items: Iterable[Any], shards: int) -> Iterator[Call[Any]]:
    """The calls of the parts, with about as many items each; TypeError, ValueError."""
    call = task.call() if hasattr(task, "call") else None
    if type(call) is not Call:
        raise TypeError(f"map({task!r}, ...): give a task, and the items to call it for")
    if type(shards) is not int or shards < 1:
        raise ValueError(f"shards={shards!r}: into how many parts the items are divided, at least 1")
    _check(call.task)
    all_items = list(items)
    part, count = part_task(call.task), min(max(shards, -(-len(all_items) // MOST_ITEMS)), len(all_items))
    for number in range(count):
        start, end = (len(all_items) * at // count for at in (number, number + 1))
        yield Call(part, (all_items[start:end], start), {}, _options(call.task, call.options, end - start))


def _check(task: TaskDefinition[Any, Any]) -> None:
    """ValueError if one job cannot call this task many times."""
    why = (
        "it sends requests, which have limits of their own" if task.runner
        else "it has limits, which count jobs" if task.lane or task.limits
        else "it takes many jobs in one call" if task.batch
        else ""
    )  # fmt: skip
    if why:
        raise ValueError(f"map of {task.name}: {why}; make a job of each item: app.group(task.call(item) ...)")


def _options(task: TaskDefinition[Any, Any], options: Options, items: int) -> Options:
    """The options of a part: the time that its items have together, and the retry rule of the task."""
    given = task.timeout if options.timeout is None else microseconds(options.timeout, "timeout") / SECOND
    retry = task.retry if options.retry == "default" and task.retry is not None else options.retry
    return replace(options, timeout=None if given is None else given * items, retry=retry)
