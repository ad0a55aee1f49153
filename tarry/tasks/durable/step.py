"""`step`: a call whose result is recorded with the job, so that later attempts do not make it again."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, get_type_hints, overload

import msgspec

from tarry.errors import StepError
from tarry.tasks.arguments import json_values
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.durable.attempt_steps import AttemptSteps, begin_step, run_step
from tarry.tasks.durable.modes import inside, is_coroutine_function, is_on_loop
from tarry.tasks.lazy_asyncio import asyncio

P = ParamSpec("P")
R = TypeVar("R")


class Step:
    """`step(fn, *args)`: calls the function and records what it returns with the job.

    In an `async def` task it is awaited: `paid = await step(charge, 7)`; in a `def` task it blocks. An attempt that
    comes after a failure, a crash or a deployment gets the recorded value without a call. A worker that dies during the
    call, or before the record, repeats it: the call is made at least once. An error is not recorded. A step is known by
    its position in the task and its name. The value is JSON of up to 64 KB and comes back by the function's return
    annotation, also the first time. A step inside a step is a plain call.

    StepsChanged, StepLimit, StepError; RuntimeError if no worker runs this code.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    def named(self, name: str) -> "Step":
        """`step.named("charge again")(charge, 7)`: under this name instead of the function's."""
        if not name:
            raise ValueError('step.named(""): a step needs a name')
        return Step(name)

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if inside.get():
            is_plain = not is_on_loop() or is_coroutine_function(fn)
            return fn(*args, **kwargs) if is_plain else asyncio.to_thread(fn, *args, **kwargs)
        return self._start(fn, args, kwargs)

    def _start(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = self._name or name_of(fn)
        return run_step(begin_step(f"step({name})", name), lambda steps: _step(steps, fn, args, kwargs))


step = Step()


def astep(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
    """In an `async def` task a step that calls a `def`, in a thread of its own; awaited as `step`."""
    # The same at run time; but a type checker cannot know from which kind of task `step` is called.
    started: Any = step(fn, *args, **kwargs)
    return started  # type: ignore[no-any-return]


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a step that calls this function: that of the task, or of the function in its module."""
    if isinstance(fn, TaskDefinition):
        return fn.name
    fn = _function(fn)
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


async def _step(steps: AttemptSteps, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    kept = steps.kept
    if kept is not None:
        return _decode(fn, kept.value)
    if steps.log.suspension is not None:
        # A wait has ended the attempt since the step was called: what it did would not be kept.
        raise steps.log.suspension
    with steps.mode.begin(steps.log):
        encoded = _encode(steps, await steps.mode.call(fn, args, kwargs))
        await steps.keep(encoded)
    # Read back although it is at hand: so there is no difference between the first attempt and the next.
    return _decode(fn, encoded)


def _encode(steps: AttemptSteps, value: Any) -> bytes:
    try:
        return json_values.encode(value)
    except Exception as error:
        what = f"step `{steps.name}` of {steps.running.job.task} returned {type(value).__name__}"
        raise StepError(f"{what}, which cannot be kept as JSON: {error}") from error


def _decode(fn: Callable[..., Any], value: bytes | msgspec.Raw) -> Any:
    if isinstance(fn, TaskDefinition):
        return fn.codec.decode_result(bytes(value))
    try:
        return json_values.decoder(_result_type(fn)).decode(value)
    except (msgspec.ValidationError, TypeError):
        # It returned another type than it says, or one that JSON does not give back: it was done all the same.
        return msgspec.json.decode(value)


def _result_type(fn: Callable[..., Any]) -> Any:
    try:
        return json_values.to_msgspec_type(get_type_hints(_function(fn)).get("return", Any))
    except Exception:
        # Annotations may name what cannot be found here, and a builtin has none.
        return Any


def _function(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn.fn if isinstance(fn, TaskDefinition) else fn
