"""Bounds on the cost of a rule.

A CEL evaluation always ends, but with the worst answer it could take minutes or gigabytes, and nothing can stop it. So
such rules are refused when they are parsed. CEL itself bounds all loops of an evaluation to 10,000 rounds together.
"""

import re
from collections.abc import Iterator

from tarry.push.rule.cel_tree import ArgumentKind, CelCall, CelTree
from tarry.push.rule.errors import SettingSyntaxError

MOST_LOOPED = 16 * 1024
"""Bytes of an answer that a rule with a loop may read."""

_MOST_LOOPS, _MOST_SUMS, _MOST_PATTERNS = 2, 10, 300
_MOST_LOOPED_NODES = 200  # Nodes inside the loops of a rule. A comparison has three.
# Functions that are cheap for any argument, and take no memory.
_CHEAP = {
    *("_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "_[_]", "-_", "_-_", "_*_", "_/_", "_%_"),
}
_COMPARING = {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"}
_READING = {"contains", "startsWith", "endsWith", "size", "int", "double"}  # Functions that read a whole text.
_SMALL = {ArgumentKind.CONSTANT, ArgumentKind.SIMPLE, ArgumentKind.CONSTANTS}
_OURS = {ArgumentKind.CONSTANT, ArgumentKind.SIMPLE, ArgumentKind.OWN, ArgumentKind.CONSTANTS}
_PATTERN = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<count>\{\d*(?:,\d*)?\})|.", re.DOTALL)
_UNICODE, _MANY = re.compile(r"\\[pP]"), 50  # A character class such as \p{L}, and about how many steps it takes.


def check_cost(parts: CelTree) -> None:
    """SettingSyntaxError if the rule could take long or much memory."""
    if parts.depth > _MOST_LOOPS:
        raise SettingSyntaxError(f"{parts.depth} loops inside each other; at most {_MOST_LOOPS}")
    if sum(call.function == "_+_" for call in parts.calls) > _MOST_SUMS:
        raise SettingSyntaxError(f"more than {_MOST_SUMS} additions; write fewer")
    for call in parts.calls:
        if call.depth:
            _check_looped(call)
    if parts.looped > _MOST_LOOPED_NODES:
        raise SettingSyntaxError("what its loops do can take too long; write fewer comparisons into them")
    if sum(map(_program_size, patterns(parts))) > _MOST_PATTERNS:
        raise SettingSyntaxError(
            "its patterns can take too much; write them shorter, or with smaller counts than in {100}"
        )


def _check_looped(call: CelCall) -> None:
    """SettingSyntaxError for a call that is too costly in a loop.

    Allowed are calls that take a short constant time each, or a time linear in the answer over all rounds together.
    """
    kinds = set(call.kinds)
    if call.function in _CHEAP or (call.function == "_+_" and call.number):
        return
    if call.function in _COMPARING:
        if kinds.isdisjoint(_SMALL) and not kinds <= _OURS:
            raise SettingSyntaxError(
                "a comparison inside of a loop can take too long; compare with a number or text that stands there, or"
                " two parts of what an outermost loop is at"
            )
    elif call.function == "@in":
        if call.kinds[1] is not ArgumentKind.CONSTANTS and not kinds <= _OURS:
            raise SettingSyntaxError(
                'in inside of a loop can take too long; write the list there, as in x in ["a", "b"]'
            )
    elif call.function in _READING:
        if not kinds <= _OURS:
            raise SettingSyntaxError(
                f"{call.function} inside of a loop can take too long, unless it is of what an outermost loop is at; put"
                " it before the loop"
            )
    else:
        named = "map, filter and adding" if call.function == "_+_" else call.function
        raise SettingSyntaxError(f"{named} inside of a loop can take too much; use all or exists with comparisons")


def patterns(parts: CelTree) -> Iterator[str]:
    """The regular expressions of a rule; SettingSyntaxError for one that is not a literal."""
    for call in parts.calls:
        if call.function == "matches":
            if call.text is None:
                raise SettingSyntaxError('matches takes a pattern that stands there, as in body.matches("^ok")')
            yield call.text


def _program_size(pattern: str) -> int:
    """About how many steps the compiled pattern has. A count such as {100} repeats what is before it."""
    groups = [(0, 0)]
    for part in _PATTERN.finditer(pattern):
        size, last = groups.pop()
        if part["count"]:
            # Cut off: int() refuses thousands of digits.
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
