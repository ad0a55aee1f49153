"""The errors for calls that do not fit a task: one line that names the argument."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tarry.errors import ArgumentError
from tarry.model.job import Job
from tarry.model.nearest import MAX_NAME, nearest
from tarry.tasks.arguments import json_values
from tarry.tasks.arguments.options import CALL_OPTIONS
from tarry.tasks.arguments.signature import TaskSignature

# RecursionError: the value contains itself. OverflowError: an integer beyond 64 bits.
CAUSES = (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError)
"""What encoding, decoding and binding raise if values do not fit."""

# msgspec has no error classes for these cases, so its messages must be read.
_TOO_FEW = re.compile(r"Expected `array` of at least length \d+, got (\d+)")
_TOO_MANY = re.compile(r"Expected `array` of at most length \d+(?:, got \d+)?")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`")
_PATH = re.compile(r"(.*) - at `\$(?:\[(\d+)\]|\.(\w+|\*))?(.*)`$", re.DOTALL)


class ArgumentsLater(ArgumentError):
    """The arguments of a job cannot be had just now: it comes back, and no attempt is counted. delay: microseconds."""

    def __init__(self, message: str, delay: int) -> None:
        super().__init__(message)
        self.delay = delay


class ArgumentsAway(ArgumentError):
    """The arguments of a job cannot be read where they are kept: it comes back later, and no attempt is counted."""


class ArgumentsSealed(ArgumentError):
    """The arguments of a job were read where they are kept, and this process cannot open them. job: with those."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{job.task}: the arguments are sealed")
        self.job = job


def call_error(
    signature: TaskSignature, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ArgumentError:
    """The error for a call: Python's own message if it cannot be bound, else the value that cannot be JSON."""
    if unknown := signature.unknown_names(kwargs):
        return ArgumentError(f"{signature.task}: {_unknown_text(signature, unknown[0])}")
    try:
        content = signature.bind_by_name(args, kwargs)
    except TypeError as why:
        return ArgumentError(f"{signature.task}: {why}")
    if isinstance(error, ArgumentError):
        return error
    # msgspec does not say which argument it could not encode: try each alone.
    for name, value in content.items():
        try:
            json_values.encode(value)
        except CAUSES as why:
            return ArgumentError(f"{signature.task}({signature.shown_name(name)}): cannot travel as JSON: {why}")
    return ArgumentError(f"{signature.task}: {error}")


def body_error(signature: TaskSignature, error: Exception) -> ArgumentError:
    """The error for a body: msgspec's message `... - at $[0].x`, with the parameter's name in front."""
    message = str(error)
    if count := _count_message(signature, message):
        named = _MISSING.fullmatch(message) or _UNKNOWN.fullmatch(message)
        return ArgumentError(f"{signature.task}: {count}", f".{named[1]}" if named else "")
    found = _PATH.match(message)
    if not found:
        return ArgumentError(f"{signature.task}: {message.replace('`', '')}")
    what, index, name, deeper = found.groups()
    at = f"[{index}]" if index is not None else f".{name}" if name else ""
    if index is not None:
        name = name_at(signature, int(index))
    where = f"argument {signature.shown_name(name)}{deeper}: " if name else ""
    return ArgumentError(f"{signature.task}: {where}" + what.replace("`", ""), at + deeper)


def _count_message(signature: TaskSignature, message: str) -> str:
    """Which argument is missing or too many, in Python's words; empty if the message says something else."""
    if few := _TOO_FEW.fullmatch(message):
        return f"missing a required argument: '{name_at(signature, int(few[1]))}'"
    if _TOO_MANY.fullmatch(message):
        return f"too many positional arguments: it takes {len(signature.positional)}"
    if missing := _MISSING.fullmatch(message):
        return f"missing a required argument: '{missing[1]}'"
    if unknown := _UNKNOWN.fullmatch(message):
        return _unknown_text(signature, unknown[1])
    return ""


def _unknown_text(signature: TaskSignature, name: str) -> str:
    """What is wrong with an argument by a name that the task does not have, and what the caller may have meant."""
    what = f"got an unexpected keyword argument '{name[:MAX_NAME]}'"
    if name in CALL_OPTIONS:
        return f"{what}: that is an option of the call: write .using({name}=...).enqueue(...)"
    if parameter := nearest(name, signature.names):
        return f"{what}; did you mean {parameter}?"
    option = nearest(name, CALL_OPTIONS)
    return f"{what}; did you mean the option .using({option}=...)?" if option else what


def value_error(signature: TaskSignature, error: msgspec.ValidationError, name: str) -> ArgumentError:
    """The error for one value that was decoded alone."""
    what, _, deeper = str(error).partition(" - at `$")
    return ArgumentError(f"{signature.task}: argument {name}{deeper}: {what}".replace("`", ""))


def unannotated_error(signature: TaskSignature, name: str, value: Any) -> ArgumentError:
    """The error for a value that would come back from JSON as something else, since it has no annotation."""
    why = f"{type(value).__name__} would not come back from JSON as it is; annotate the parameter with its type"
    return ArgumentError(f"{signature.task}({name}): {why}")


def type_error(signature: TaskSignature, name: str, value: Any, kinds: Iterable[type]) -> ArgumentError:
    """The error for a value of another type than annotated, which JSON would convert."""
    expected = " | ".join(sorted("None" if kind is type(None) else kind.__name__ for kind in kinds))
    return ArgumentError(f"{signature.task}: argument {name}: Expected {expected}, got {type(value).__name__}")


def name_at(signature: TaskSignature, index: int) -> str:
    """The name of the argument at this position: `a`, or `*rest[0]`."""
    names = [parameter.name for parameter in signature.positional]
    return names[index] if index < len(names) else f"{signature.rest_name}[{index - len(names)}]"
