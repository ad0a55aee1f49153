"""How deeply a JSON text is nested, without decoding it."""

import re

MOST_DEPTH = 200
"""Levels that every reader here can decode and encode again: Python's decoders use its stack, which has 1,000 frames
for all that a thread does."""
_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def is_too_deep(text: bytes, most: int = MOST_DEPTH) -> bool:
    """Whether arrays and objects stand within each other in more than `most` levels. text: JSON."""
    # Nearly all texts end here.
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    depth = 0
    for part in _PARTS.finditer(text):
        first = part[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > most:
            return True
    return False
