"""How deeply a JSON text is nested, without decoding it."""

import re
from collections.abc import Iterator

MOST_DEPTH = 200
"""Levels that every reader here can decode and encode again: Python's decoders use its stack, which has 1,000 frames
for all that a thread does."""
_BRACES, _OTHERS = bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b'"[]{}'))
_STRING, _RUN = re.compile(rb'"[^"]*"'), re.compile(rb"\[+|\]+")
_BLOCK = 2**16
_FEW = 32
"""One pair in so many brackets: from there on the runs of equal brackets are long, and few."""


def is_too_deep(text: bytes, most: int = MOST_DEPTH) -> bool:
    """Whether arrays and objects stand within each other in more than `most` levels. text: JSON.

    Takes milliseconds and a few bytes for each byte of the text, whatever it is."""
    # Nearly all texts end here.
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    return _depth(_brackets(text), most) > most


def _brackets(text: bytes) -> bytes:
    """The brackets of the text that are not within strings; braces count as brackets."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_BRACES, _OTHERS)
    # Two quotes side by side end a string and begin the next, or are an empty one.
    return b"".join(_without_strings(plain.replace(b'""', b"")))


def _without_strings(text: bytes) -> Iterator[bytes]:
    # In blocks: all pieces of a long text at once would take 40 times its size.
    open_string = b""
    for start in range(0, len(text), _BLOCK):
        block = open_string + text[start : start + _BLOCK]
        end = block.rindex(b'"') if block.count(b'"') % 2 else len(block)
        yield _STRING.sub(b"", block[:end])
        open_string = block[end : end + 1]


def _depth(brackets: bytes, most: int) -> int:
    """How deep they are nested; some number above `most` if it is more."""
    levels = 0
    # Without its innermost pairs a text is one level less deep. Each round takes away a part of all brackets, so that
    # all rounds together take as long as a few.
    while levels <= most and brackets.count(b"[]") * _FEW > len(brackets):
        brackets, levels = brackets.replace(b"[]", b""), levels + 1
    depth = deepest = 0
    for run in _RUN.finditer(brackets):
        size = run.end() - run.start()
        depth += size if brackets[run.start()] == 0x5B else -size
        deepest = max(deepest, depth)
    return levels + deepest
