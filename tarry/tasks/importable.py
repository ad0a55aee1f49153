"""Checks that a function can be a task: a worker in another process must find it by importing its module."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

_ELSEWHERE = "A worker in another process imports the module, and "
_HERE = ", or, where all workers are threads or forks of this process, say App(..., closures=True)"


def check_importable(fn: Callable[..., Any], closures: bool = False) -> None:
    """TypeError if the function cannot be a task; it says why, and what to do. Ignores what is not callable.

    closures: the workers run in this process, so functions that exist only here are allowed.
    """
    why = _why_never(fn) or ("" if closures else _why_not_importable(fn))
    if why:
        raise TypeError(why)


def _why_never(fn: Any) -> str:
    name = _full_name(fn)
    code = _innermost(fn)
    if inspect.isclass(fn):
        return (
            f"{name} is a class: a call would make an object, which no result can carry. "
            f"Write a function at module level that makes the object, uses it and returns plain data"
        )
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        kind = "an async generator" if inspect.isasyncgenfunction(code) else "a generator"
        return (
            f"{name} is {kind} function: a call only makes a generator, which nobody would run and no result can "
            f"carry. Return a list, or enqueue a job for each item"
        )
    if isinstance(fn, staticmethod | classmethod):
        kind = type(fn).__name__
        return f"{name} is a {kind} object and not a function yet. Move the function to module level" + (
            ", or write @staticmethod above @app.task" * (kind[0] == "s")
        )
    return ""


def _why_not_importable(fn: Any) -> str:
    if isinstance(fn, functools.partial):
        return _why_not_importable(fn.func)
    name = _full_name(fn)
    owner = getattr(fn, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        return (
            f"{name} is a method bound to an object ({type(owner).__name__}). {_ELSEWHERE}has no such object. "
            f"Write a function at module level that makes or loads the object from its arguments" + _HERE
        )
    if _is_method(fn):
        return (
            f"{name} is a method: it needs a {_first_parameter(fn)!r}. {_ELSEWHERE}has no object to call it on. "
            f"Move it to module level, and pass what it needs as an argument"
        )
    if getattr(fn, "__name__", "") == "<lambda>":
        return (
            f"{name} is a lambda: it has no name. {_ELSEWHERE}cannot tell one lambda from another. "
            f"Write it as a def at module level" + _HERE
        )
    if getattr(fn, "__closure__", None) and not _is_decorated(fn):
        return (
            f"{name} is a closure: it uses {_free_variables(fn)} from the code around it. {_ELSEWHERE}does not run "
            f"that code with the same values. Move it to module level, and pass what it needs as an argument" + _HERE
        )
    if "<locals>" in getattr(fn, "__qualname__", ""):
        return (
            f"{name} is a nested function: there is none until the code around it runs. {_ELSEWHERE}does not run that "
            f"code. Move it to module level" + _HERE
        )
    return ""


def _is_decorated(fn: Any) -> bool:
    """Whether it is a closure made by a decorator with `functools.wraps`, at module level."""
    # Workers find such a function by its name, although it is a closure.
    return hasattr(fn, "__wrapped__") and "<locals>" not in fn.__qualname__


def _is_method(fn: Any) -> bool:
    """Whether it is an unbound method, as inside the body of its class."""
    # A function does not know whether it is in a class: only its qualified name and first parameter hint at it.
    scope = getattr(fn, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(fn) and scope[-1:] not in ("", ">") and _first_parameter(fn) in ("self", "cls")


def _first_parameter(fn: Any) -> str:
    return next(iter(fn.__code__.co_varnames), "")


def _free_variables(fn: Any) -> str:
    names = [repr(name) for name in fn.__code__.co_freevars]
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]


def _innermost(fn: Any) -> Any:
    """The function that a call runs: of a callable object, its class's `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else getattr(type(fn), "__call__", fn)  # noqa: B004


def _full_name(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None)
    module = getattr(fn, "__module__", None)
    return (f"{module}.{name}" if module else name) if name else repr(fn)


def is_same_place(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether it is the same function again."""
    # A cell of a notebook, or a module, may run a second time.
    return getattr(one, "__module__", 1) == getattr(other, "__module__", 2) and getattr(
        one, "__qualname__", 1
    ) == getattr(other, "__qualname__", 2)
