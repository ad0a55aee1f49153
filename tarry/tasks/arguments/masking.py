"""What is kept off pages and records: values whose names say that they are secret; and arguments by their names."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

HIDDEN = "••••••"
DEEPEST = 60
"""Lists and objects within each other that are looked at."""
_SECRETS = (
    "password", "passwd", "secret", "token", "authorization", "api_key", "apikey", "credential", "private_key",
    "cookie",
)  # fmt: skip
_MOST_NAME = 200
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Of JSON that is cut, too: a name, and the text, number or word that follows it.
_VALUE = r'("(?:[^"\\]|\\.)*+"?|[^\s,\[\]{}"]++)'
_MEMBER = re.compile(rf'"([^"\\]{{1,{_MOST_NAME}}})"\s{{0,10}}:\s{{0,10}}{_VALUE}', re.DOTALL)


def is_secret(name: str) -> bool:
    """Whether the value of something with this name is hidden."""
    plain = name.lower().replace("-", "_")
    return any(word in plain for word in _SECRETS)


def without_secrets(value: Any, depth: int = 0) -> Any:
    """The value, with what must not be seen hidden, and what is nested too deeply to be looked at."""
    if isinstance(value, Struct):
        value = msgspec.to_builtins(value)
    if depth > DEEPEST and isinstance(value, Mapping | list):
        return HIDDEN
    if isinstance(value, Mapping):
        each = value.items()
        return {name: HIDDEN if is_secret(str(name)) else without_secrets(one, depth + 1) for name, one in each}
    return [without_secrets(one, depth + 1) for one in value] if isinstance(value, list) else value


def has_hidden(value: Any) -> bool:
    """Whether a value within stands for one that was hidden."""
    # Without recursion: arguments are nested more deeply than pages look.
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) and one == HIDDEN:
            return True
        waiting.extend(one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ())
    return False


def mask_json(text: str) -> str:
    """A text that may be JSON, or the start of JSON, with the values of secret names hidden. Any other stays as it
    is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _MEMBER.sub(_mask_member, text)
    masked = without_secrets(found)
    # As it was written, unless something is hidden.
    return text if masked == found else json.dumps(masked, ensure_ascii=False)


def _mask_member(found: re.Match[str]) -> str:
    if not is_secret(found[1]):
        return found[0]
    return f'{found[0][: found.start(2) - found.start()]}"{HIDDEN}"'


def name_arguments(task: Any, args: Any) -> Any:
    """The arguments of a task's function by name, where they were given by position and the names are known."""
    return name_positional(task.fn, args) if isinstance(args, list) and not task.batch else args


def name_positional(fn: Callable[..., Any], args: list[Any], skipped: int = 0) -> Any:
    """The arguments by the names of the function's parameters, without the first `skipped` ones; as they are, if there
    are more of them."""
    # So a password is known as one, however it was given.
    known = [each.name for each in inspect.signature(fn).parameters.values() if each.kind in _POSITIONAL][skipped:]
    return args if len(args) > len(known) else dict(zip(known, args, strict=False))
