"""What a rule may cost. CEL ends by itself, but it may take minutes or gigabytes over an answer of the worst kind, and
nothing can stop it: so what could do so is refused before it is ever asked. The loops of an evaluation do 10,000 rounds
at most, all together; that bound is CEL's own."""

import re
from collections.abc import Iterator

from tarry.push.misplaced import Misplaced
from tarry.push.tree import Tree

MOST_LOOPED = 16 * 1024
"""Bytes of an answer that a rule with `all` or `exists` goes through."""

_MOST_LOOPS, _MOST_SUMS, _MOST_PATTERNS = 2, 10, 300
_IN_LOOPS = {
    *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false"),
    *("_[_]", "-_", "_-_", "_*_", "_/_", "_%_", "int", "double", "size", "contains", "startsWith", "endsWith"),
}
"""What costs little, however often it is done, and takes no memory."""
_PATTERN = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<count>\{\d*(?:,\d*)?\})|.", re.DOTALL)
_UNICODE, _MANY = re.compile(r"\\[pP]"), 50
"""A class of characters such as \\p{L}, and about how many steps it takes."""


def bounded(parts: Tree) -> None:
    """Misplaced for what could take long, or much memory."""
    if parts.depth > _MOST_LOOPS:
        raise Misplaced(f"{parts.depth} loops inside each other; at most {_MOST_LOOPS}")
    if sum(call.function == "_+_" for call in parts.calls) > _MOST_SUMS:
        raise Misplaced(f"more than {_MOST_SUMS} additions; write fewer")
    for call in parts.calls:
        if call.depth and call.function not in _IN_LOOPS and not (call.function == "_+_" and call.number):
            named = "map, filter and adding" if call.function == "_+_" else call.function
            raise Misplaced(f"{named} inside of a loop can take too much; use all or exists with comparisons")
    if sum(map(_size, patterns(parts))) > _MOST_PATTERNS:
        raise Misplaced("its patterns can take too much; write them shorter, or with smaller counts than in {100}")


def patterns(parts: Tree) -> Iterator[str]:
    """The regular expressions of a rule; Misplaced for one that only the answer would show."""
    for call in parts.calls:
        if call.function == "matches":
            if call.text is None:
                raise Misplaced('matches takes a pattern that stands there, as in body.matches("^ok")')
            yield call.text


def _size(pattern: str) -> int:
    """About how many steps the program of a pattern has: a count such as {100} repeats what is before it."""
    groups = [(0, 0)]
    for part in _PATTERN.finditer(pattern):
        size, last = groups.pop()
        if part["count"]:
            count = max(int(number[:6]) for number in ("0", *re.findall(r"\d+", part[0]))) or 1
            groups.append((size + last * (count - 1), last * count))
        elif part[0] == "(":
            groups += [(size, last), (1, 0)]
        elif part[0] == ")" and groups:
            groups.append((groups.pop()[0] + size, size))
        else:
            own = _MANY if _UNICODE.search(part[0]) else 1
            groups.append((size + own, own))
    return sum(size for size, _ in groups)
