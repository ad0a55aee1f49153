"""Makes foreign text safe for a terminal, which takes some characters as commands; draws numbers as a line of text."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TextIO

# Categories of Unicode: control and format characters (escapes, changes of direction), and codes without a character.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_STEPS = "▁▂▃▄▅▆▇█"


def is_hidden(char: str) -> bool:
    """Whether a terminal would act on it, or show nothing."""
    return unicodedata.category(char) in _HIDDEN


def escape_char(char: str) -> str:
    r"""The escape that is shown instead: `\x1b`."""
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def escape_control(text: str, keep: str = "") -> str:
    """The text with an escape for each hidden character. keep: characters that stay as they are."""
    if text.isprintable():
        return text
    return "".join(escape_char(char) if char not in keep and is_hidden(char) else char for char in text)


def print_line(text: object, end: str = "\n", file: TextIO | None = None) -> None:
    """As print, but harmless, and each line whole among those of other processes. All output goes through it."""
    # Names of tasks, keys, tracebacks and errors may come from strangers. With PYTHONUNBUFFERED=1, which container
    # images set, `print` writes its end by a call of its own, and the line of another process may come between.
    print(escape_control(str(text), keep="\n\t") + end, end="", file=file)


def escape_control_json(text: str) -> str:
    """As `escape_control`, for a JSON document. The result is JSON with the same meaning."""
    if text.isprintable():
        return text
    return re.sub(r"[^ -~]", lambda found: _in_json(found[0]) if is_hidden(found[0]) else found[0], text)


def _in_json(char: str) -> str:
    # JSON escapes have 16 bits, so some characters take two.
    pairs = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


def sparkline(numbers: Sequence[int]) -> str:
    """A character for each number: the higher, the more. 0 is a space."""
    most = max(numbers, default=0)
    return "".join(_STEPS[(number * len(_STEPS) - 1) // most] if number else " " for number in numbers)
