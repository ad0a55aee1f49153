"""The options after the `?` of a store's URL: each engine has a table of its own, and here they are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.model.duration import SECOND, microseconds

_MOST_SHOWN = 200
"""Characters of what was given that an error shows."""


class UrlOption(Struct, frozen=True):
    """One option. default: as text; empty: not given. help: what it does. expects: what may stand there. read: from
    text to the value, with ValueError or KeyError for what may not."""

    default: str
    help: str
    expects: str
    read: Callable[[str], Any]


def choice(default: str, help: str, values: Sequence[str] | Mapping[str, Any]) -> UrlOption:
    """One of some words. values: with what each stands for, if not for itself."""
    meanings = values if isinstance(values, Mapping) else dict(zip(values, values, strict=True))
    return UrlOption(default, help, f"one of {', '.join(meanings)}", meanings.__getitem__)


def switch(default: str, help: str) -> UrlOption:
    """An option that is yes or no."""
    return choice(default, help, {"yes": True, "no": False})


def number(default: str, help: str, least: int, most: int) -> UrlOption:
    """A whole number."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return UrlOption(default, help, f"a number from {least} to {most}", read)


def words(default: str, help: str, pattern: str = ".+", expects: str = "a text") -> UrlOption:
    """Any text that matches the pattern."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return UrlOption(default, help, expects, read)


def _seconds(text: str) -> float:
    seconds = microseconds(float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else text) / SECOND
    if not 0.1 <= seconds <= 3600:
        raise ValueError(text)
    return seconds


TIMEOUT = UrlOption("5s", "how long a call may take", "a duration as 5s or 500ms, from 0.1s to 1h", _seconds)


def read_options(shown: str, known: Mapping[str, UrlOption], query: str) -> dict[str, Any]:
    """The values of all known options; None for one that is not given and has no default.

    ConfigError names the option, what was given, and what may stand there. shown: the URL without secrets.
    """
    texts = {name: option.default or None for name, option in known.items()}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            # Without a value it may be the end of a password that has a `?` in it.
            what = f"no option {name[:_MOST_SHOWN]!r}" if text else "no such option"
            raise ConfigError(f"{shown}: there is {what} here; {hint}")
        texts[name] = text
    return {name: None if text is None else _value(shown, name, text, known[name]) for name, text in texts.items()}


def _value(shown: str, name: str, text: str, option: UrlOption) -> Any:
    try:
        return option.read(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{shown}: {name}={text[:_MOST_SHOWN]!r}: {option.expects} ({option.help})") from None
