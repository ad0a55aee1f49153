"""Arguments and results as people see them: the values of what is called a password or the like are hidden."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

HIDDEN = "••••••"
DEEPEST = 60
"""Lists and objects within each other that are shown."""
_SECRETS = ("password", "passwd", "secret", "token", "authorization", "api_key", "apikey", "credential", "private_key")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def without_secrets(value: Any, depth: int = 0) -> Any:
    """The value, with what must not be seen hidden, and what is nested too deeply left out."""
    if isinstance(value, Struct):
        value = msgspec.to_builtins(value)
    if depth > DEEPEST and isinstance(value, Mapping | list):
        return "…"
    if isinstance(value, Mapping):
        each = value.items()
        return {name: HIDDEN if is_secret(str(name)) else without_secrets(one, depth + 1) for name, one in each}
    return [without_secrets(one, depth + 1) for one in value] if isinstance(value, list) else value


def is_secret(name: str) -> bool:
    """Whether the value of an argument with this name is kept off pages."""
    plain = name.lower().replace("-", "_")
    return any(word in plain for word in _SECRETS)


def name_arguments(task: Any, args: Any) -> Any:
    """The arguments of a task's function by name, where they were given by position and the names are known."""
    return name_positional(task.fn, args) if isinstance(args, list) and not task.batch else args


def name_positional(fn: Callable[..., Any], args: list[Any], skipped: int = 0) -> Any:
    """The arguments by the names of the function's parameters, without the first `skipped` ones; as they are, if there
    are more of them."""
    # So a password is known as one, however it was given.
    known = [each.name for each in inspect.signature(fn).parameters.values() if each.kind in _POSITIONAL][skipped:]
    return args if len(args) > len(known) else dict(zip(known, args, strict=False))
