"""What strangers wrote, as it may stand on a terminal, which takes some characters for commands."""

import re
import unicodedata
from typing import TextIO

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control and format characters (escapes, changes of direction), and what is no character."""


def is_hidden(char: str) -> bool:
    """Whether a terminal would act on it, or show nothing."""
    return unicodedata.category(char) in _HIDDEN


def written_out(char: str) -> str:
    r"""How it is shown instead: `\x1b`."""
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def harmless(text: str, keep: str = "") -> str:
    """The text with all that a terminal would act on written out, but for the characters to keep."""
    if text.isprintable():
        return text
    return "".join(written_out(char) if char not in keep and is_hidden(char) else char for char in text)


def say(text: object, end: str = "\n", file: TextIO | None = None) -> None:
    """As print: for all that is printed here, since tasks, keys, tracebacks and errors are what strangers wrote."""
    print(harmless(str(text), keep="\n\t"), end=end, file=file)


def harmless_json(text: str) -> str:
    """The same of a JSON document, which stays one and means the same."""
    if text.isprintable():
        return text
    return re.sub(r"[^ -~]", lambda found: _in_json(found[0]) if is_hidden(found[0]) else found[0], text)


def _in_json(char: str) -> str:
    pairs = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))
