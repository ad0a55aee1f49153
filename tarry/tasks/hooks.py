"""Hooks: functions that are called when an attempt has ended. They cannot change what becomes of the job."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

Hook = Callable[[Any, Any], Any]
"""Takes the job, a `CurrentJob`, and its value or its error. If it returns an awaitable, that is awaited."""
HookKind = Literal["success", "failure", "dead"]


class EndHooks:
    """The hooks of one task, or of an app, in the order of registration."""

    __slots__ = ("dead", "failure", "success")

    def __init__(self) -> None:
        self.success: list[Hook] = []
        self.failure: list[Hook] = []
        self.dead: list[Hook] = []

    def add(self, kind: HookKind, hook: Hook) -> None:
        """Adds a hook; TypeError if it cannot be called with a job and a value."""
        second = "value" if kind == "success" else "error"
        check_hook(hook, f"on_{kind}", f"(job, {second})")
        getattr(self, kind).append(hook)


def check_hook(fn: Callable[..., Any], what: str, takes: str) -> None:
    """TypeError unless the function takes two arguments and is not a generator."""
    if not callable(fn):
        raise TypeError(f"{what} takes a function, not {fn!r}")
    name = display_name(fn)
    # A call would only make a generator: nothing of the function would run, and nobody would notice.
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{what}: {name} yields; it must be a plain `def` or `async def`")
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        raise TypeError(f"{what}: {name} is called with two arguments, {takes}, and does not take them") from None
    except ValueError:
        # Some builtin functions have no signature. They may fit.
        return


def display_name(fn: Callable[..., Any]) -> str:
    """The name of a function in messages."""
    return getattr(fn, "__qualname__", None) or repr(fn)
