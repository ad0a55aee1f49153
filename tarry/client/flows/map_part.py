"""A part of a map: one job that calls a task for many items, one after the other.

What came of each 100 items is a durable step. So an attempt after a crash repeats 100 items at most.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from tarry.client.flows.node import FanOut
from tarry.errors import ArgumentError, StepError, StepLimit
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.flow import wiring
from tarry.model.flow.wiring import MAP_TASK
from tarry.model.verdict import Snooze, Verdict
from tarry.tasks.arguments.codec import Arguments, Codec, refuse_sealed
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.durable.modes import Inside
from tarry.tasks.durable.step import step
from tarry.tasks.running import current_job

ITEMS_IN_STEP = 100
BYTES_IN_STEP = 32 * 1024
"""A step ends once its results have so many bytes, though it has fewer items."""

_STEP = "items"
_body = json_decoder(tuple[list[Raw], int])
_raws = json_decoder(list[Raw])


class MapPart(TaskDefinition[Any, list[Any]]):
    """The task of a part. Its arguments are the items, and the place of the first one among all items of the map."""

    def __init__(self, task: TaskDefinition[Any, Any]) -> None:
        fn = _async_part(task) if task.is_async else _sync_part(task)
        super().__init__(fn, name=MAP_TASK + task.name, queue=task.queue, priority=task.priority, expires=task.expires)
        self.codec = _PartCodec(self.name, fn, task.codec)
        self.due_after = task.due_after
        # Middleware and hooks of the task are called for each part.
        self.hooks = task.hooks
        task.app_hooks.attach(self)


def part_task(task: TaskDefinition[Any, Any]) -> TaskDefinition[Any, Any]:
    """The task of the parts of a map over this task."""
    if task.map_part is None:
        task.map_part = MapPart(task)
    else:
        # The task may have got a hook since.
        task.map_part.app_hooks.refresh(task.map_part)
    return task.map_part


def find(name: str, tasks: Mapping[str, TaskDefinition[Any, Any]]) -> TaskDefinition[Any, Any] | None:
    """The task of parts by its name; None: it is none, or of a task that is not known here."""
    task = tasks.get(name.removeprefix(MAP_TASK)) if name.startswith(MAP_TASK) else None
    return None if task is None else part_task(task)


def count_items(body: bytes) -> int:
    """How many items the part with this body has."""
    arguments = wiring.arguments(body)
    refuse_sealed(arguments, "what a part of the map takes")
    return len(_body.decode(arguments)[0])


class _PartCodec(Codec):
    """Encodes items and results as the task that is called does with one of them."""

    def __init__(self, name: str, fn: Callable[..., Any], item: Codec) -> None:
        super().__init__(name, fn)
        self._item = item

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        items, first = [*args, *kwargs.values()]
        encoded = [self._encode_item(item, place) for place, item in enumerate(items, first)]
        return b"[[%b],%d]" % (b",".join(encoded), first)

    def encode_around(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise ArgumentError(f"{self._signature.task}: the items of a map cannot be results of other nodes")

    def decode(self, body: bytes) -> Arguments:
        try:
            items, first = _body.decode(body)
        except UNREADABLE as error:
            raise ArgumentError(f"{self._signature.task}: {error}") from None
        return (list(map(self._decode_item, items)), first), {}

    def decode_result(self, note: bytes) -> Any:
        return [self._item.decode_result(bytes(each)) for each in _raws.decode(note)]

    def _encode_item(self, item: Any, place: int) -> bytes:
        try:
            # The body of a call with one argument is an array of it.
            return self._item.encode((item,), {})[1:-1]
        except ArgumentError as error:
            raise ArgumentError(f"item {place} of a map: {error}") from None

    def _decode_item(self, item: Raw) -> Any:
        return self._item.decode(b"[%b]" % bytes(item))[0][0]


class _Results:
    """The results of some items, as JSON. first: the place of the first one among all items of the map."""

    def __init__(self, task: TaskDefinition[Any, Any], first: int) -> None:
        self.encoded: list[Raw] = []
        self._task, self._first, self._size = task, first, 0

    @property
    def is_full(self) -> bool:
        """Whether they are as many as a step has."""
        return len(self.encoded) >= ITEMS_IN_STEP or self._size >= BYTES_IN_STEP

    def add(self, value: Any) -> None:
        """Adds what the task returned for the next item. Raises a verdict; StepError."""
        if isinstance(value, Verdict):
            raise value
        try:
            if type(value) is FanOut:
                raise TypeError("an item of a map cannot fan out")
            encoded = self._task.codec.encode_result(value)
        except Exception as error:
            returned = f"{self._task.name} returned {type(value).__name__} for item {self._place}"
            raise StepError(f"{returned}, which cannot be kept as JSON: {error}") from error
        self.encoded.append(Raw(encoded))
        self._size += len(encoded)

    @contextlib.contextmanager
    def name_item(self) -> Iterator[None]:
        """Says in the traceback of an error which item it was."""
        try:
            yield
        except Exception as error:
            error.add_note(f"item {self._place} of the map")
            raise

    @property
    def _place(self) -> int:
        return self._first + len(self.encoded)


def _sync_part(task: TaskDefinition[Any, Any]) -> Callable[..., Any]:
    def call(items: Sequence[Any], at: int, first: int) -> list[Raw]:
        results = _Results(task, first + at)
        for item in items[at : at + ITEMS_IN_STEP]:
            with results.name_item():
                results.add(task.fn(item))
            if results.is_full:
                break
        return results.encoded

    def map_part(items: list[Any], first: int) -> list[Any]:
        done: list[Any] = []
        while len(items) - len(done) > ITEMS_IN_STEP:
            _leave_if_stopping(done)
            with _explain_limit(task, items):
                done += step.named(_STEP)(call, items, len(done), first)
        # What comes last is kept with the end of the job.
        with Inside():
            while len(done) < len(items):
                done += call(items, len(done), first)
        return _decode(task, done)

    return map_part


def _async_part(task: TaskDefinition[Any, Any]) -> Callable[..., Any]:
    async def call(items: Sequence[Any], at: int, first: int) -> list[Raw]:
        results = _Results(task, first + at)
        for item in items[at : at + ITEMS_IN_STEP]:
            with results.name_item():
                results.add(await task.fn(item))
            if results.is_full:
                break
        return results.encoded

    async def map_part(items: list[Any], first: int) -> list[Any]:
        done: list[Any] = []
        while len(items) - len(done) > ITEMS_IN_STEP:
            _leave_if_stopping(done)
            with _explain_limit(task, items):
                done += await step.named(_STEP)(call, items, len(done), first)
        with Inside():
            while len(done) < len(items):
                done += await call(items, len(done), first)
        return _decode(task, done)

    return map_part


def _leave_if_stopping(done: Sequence[Any]) -> None:
    """Gives the part back if the worker stops: another one goes on after what is done."""
    if done and current_job().stopping:
        raise Snooze(0)


@contextlib.contextmanager
def _explain_limit(task: TaskDefinition[Any, Any], items: Sequence[Any]) -> Iterator[None]:
    """Says what helps if the results are too large for the steps of one job."""
    try:
        yield
    except StepLimit as error:
        raise StepLimit(
            f"map of {task.name}: the results of a part of {len(items)} items are too large for one job: make more"
            f" parts with shards=, or return where the data are, and not the data. {error}"
        ) from None


def _decode(task: TaskDefinition[Any, Any], results: Sequence[Any]) -> list[Any]:
    # As after a step: so there is no difference between the first attempt and the next.
    return [task.codec.decode_result(bytes(each)) for each in results]
