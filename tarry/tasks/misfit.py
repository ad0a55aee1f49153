"""Why a call does not fit: one line that names the argument."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tarry.errors import ArgumentError
from tarry.model.nearest import did_you_mean
from tarry.tasks import wire
from tarry.tasks.shape import Shape

CAUSES = (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError)
"""What encoding, reading and binding raise where values do not fit."""

_TOO_FEW = re.compile(r"Expected `array` of at least length \d+, got (\d+)")
_TOO_MANY = re.compile(r"Expected `array` of at most length \d+(?:, got \d+)?")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`")
_PATH = re.compile(r"(.*) - at `\$(?:\[(\d+)\]|\.(\w+|\*))?(.*)`$", re.DOTALL)


def of_call(shape: Shape, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentError:
    """The clearest thing that can be said of a call: Python's word on it, then the value that cannot travel."""
    try:
        content = shape.by_name(args, kwargs)
    except TypeError as why:
        return ArgumentError(f"{shape.task}: {why}")
    if isinstance(error, ArgumentError):
        return error
    for name, value in content.items():
        try:
            wire.checked(value)
        except CAUSES as why:
            own = shape.starred if name == "*" else name
            return ArgumentError(f"{shape.task}({own}): cannot travel as JSON: {why}")
    return ArgumentError(f"{shape.task}: {error}")


def of_body(shape: Shape, error: Exception) -> ArgumentError:
    """What msgspec says of a body, `... - at $[0].x`, with the parameter's name in front."""
    message = str(error)
    if count := _of_count(shape, message):
        return ArgumentError(f"{shape.task}: {count}")
    found = _PATH.match(message)
    if not found:
        return ArgumentError(f"{shape.task}: {message.replace('`', '')}")
    what, index, name, deeper = found.groups()
    if index is not None:
        name = name_at(shape, int(index))
    where = f"argument {shape.starred if name == '*' else name}{deeper}: " if name else ""
    return ArgumentError(f"{shape.task}: {where}" + what.replace("`", ""))


def _of_count(shape: Shape, message: str) -> str:
    """Which argument is missing or too many, as Python says it of a call; empty if that is not what is wrong."""
    if few := _TOO_FEW.fullmatch(message):
        return f"missing a required argument: '{name_at(shape, int(few[1]))}'"
    if _TOO_MANY.fullmatch(message):
        return f"too many positional arguments: it takes {len(shape.positional)}"
    if missing := _MISSING.fullmatch(message):
        return f"missing a required argument: '{missing[1]}'"
    if unknown := _UNKNOWN.fullmatch(message):
        names = [parameter.name for parameter in shape.parameters]
        return f"got an unexpected keyword argument '{unknown[1]}'{did_you_mean(unknown[1], names)}"
    return ""


def of_value(shape: Shape, error: msgspec.ValidationError, name: str) -> ArgumentError:
    """The same of a single value that was read alone."""
    what, _, deeper = str(error).partition(" - at `$")
    return ArgumentError(f"{shape.task}: argument {name}{deeper}: {what}".replace("`", ""))


def of_untyped(shape: Shape, name: str, value: Any) -> ArgumentError:
    """A value that only an annotation would bring back as it is."""
    why = f"{type(value).__name__} would not come back from JSON as it is; annotate the parameter with its type"
    return ArgumentError(f"{shape.task}({name}): {why}")


def of_kind(shape: Shape, name: str, value: Any, kinds: Iterable[type]) -> ArgumentError:
    """A value that JSON would turn into what the annotation says."""
    expected = " | ".join(sorted("None" if kind is type(None) else kind.__name__ for kind in kinds))
    return ArgumentError(f"{shape.task}: argument {name}: Expected {expected}, got {type(value).__name__}")


def name_at(shape: Shape, index: int) -> str:
    """What the argument at that position is called: `a`, `*rest[0]`."""
    names = [parameter.name for parameter in shape.positional]
    return names[index] if index < len(names) else f"{shape.starred}[{index - len(names)}]"
