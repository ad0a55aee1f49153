"""Hooks: what is called when an attempt of a job has ended. They look on; nothing that they do changes the job."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

Hook = Callable[[Any, Any], Any]
"""Of the job, a `CurrentJob`, and of its value or its error; what it returns is awaited if it can be."""
Kind = Literal["success", "failure", "dead"]


class Hooks:
    """Those of one task, or of an app, in the order in which they were registered."""

    __slots__ = ("dead", "failure", "success")

    def __init__(self) -> None:
        self.success: list[Hook] = []
        self.failure: list[Hook] = []
        self.dead: list[Hook] = []

    def add(self, kind: Kind, hook: Hook) -> None:
        """One more; TypeError if it cannot be called with a job and a value."""
        told = "value" if kind == "success" else "error"
        check(hook, f"on_{kind}", f"(job, {told})")
        getattr(self, kind).append(hook)


def check(fn: Callable[..., Any], what: str, takes: str) -> None:
    """TypeError unless the function takes two arguments, and answers at once."""
    if not callable(fn):
        raise TypeError(f"{what} takes a function, not {fn!r}")
    name = name_of(fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{what}: {name} yields; it must be a plain `def` or `async def`")
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        raise TypeError(f"{what}: {name} is called with two arguments, {takes}, and does not take them") from None
    except ValueError:
        return  # a builtin that does not tell its signature


def name_of(fn: Callable[..., Any]) -> str:
    """As a message calls it."""
    return getattr(fn, "__qualname__", None) or repr(fn)
