"""Patterns of names, such as `shop-*`: `*` stands for any characters, and nothing else is special."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache


def pattern_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Matches the names that fit one of the patterns. No pattern: no name."""
    if not patterns:
        return re.compile(r"(?!)")
    return re.compile("|".join(map(_glob, patterns)), re.DOTALL)


def _glob(pattern: str) -> str:
    first, *rest = (re.escape(part) for part in re.split(r"\*+", pattern))
    # Each part is found where it comes first, and not looked for again further on: with many stars that would take
    # as many tries as there are ways to place them.
    return first + "".join(f"(?>.*?{part})" for part in rest[:-1]) + "".join(f".*{part}" for part in rest[-1:])


def fits(patterns: tuple[str, ...], name: str) -> bool:
    """Whether the name fits one of the patterns."""
    return _compile(patterns).fullmatch(name) is not None


def translate(pattern: str, any_text: str, escape: Callable[[str], str]) -> str:
    """The pattern in another language. any_text: what `*` is there; escape: how other text stands for itself."""
    return any_text.join(escape(part) for part in re.split(r"\*+", pattern))


def fits_all(patterns: Sequence[str]) -> bool:
    """Whether every name fits: one pattern is nothing but `*`."""
    return any(set(one) == {"*"} for one in patterns)


@lru_cache(maxsize=256)
def _compile(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return pattern_of(patterns)
