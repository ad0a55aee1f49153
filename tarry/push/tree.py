"""What an expression of CEL is made of, read from its checked tree.

The compiler hands the tree over only as protobuf (cel.expr.CheckedExpr inside a google.protobuf.Any), and the few
lines here spare a dependency on protobuf: https://github.com/google/cel-spec/tree/master/proto/cel/expr.
"""

from collections.abc import Iterator

from msgspec import Struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONST, _IDENT, _SELECT, _CALL, _LIST, _MAP, _LOOP = 3, 4, 5, 6, 7, 8, 9
# Of a constant's kinds: int64, uint64, double; string.
_NUMBERS, _TEXT = frozenset({3, 4, 5}), 6


class Call(Struct, frozen=True):
    """One call of a function or operator: `_+_`, `size`, `@in`."""

    function: str
    depth: int
    """How many loops it is inside of."""
    number: bool
    """Its last argument is a number that stands there."""
    text: str | None = None
    """The text that stands there as its last argument."""


class Tree(Struct, frozen=True):
    """The names and calls of an expression."""

    names: frozenset[str]
    calls: tuple[Call, ...]
    depth: int
    """How many loops (`all`, `exists`, `map`, ...) are inside each other at most."""


def read(serialized: bytes) -> Tree:
    """The tree of `Expression.serialize()`."""
    names: set[str] = set()
    calls: list[Call] = []
    deepest = 0
    rest = [(_one(_one(serialized, 2), 4), 0)]
    while rest:
        node, depth = rest.pop()
        deepest = max(deepest, depth)
        for kind, inner in _fields(node):
            if kind == _IDENT:
                names.add(_one(inner, 1).decode())
            elif kind == _CALL:
                calls.append(_call(inner, depth))
            rest += _children(kind, inner, depth)
    return Tree(frozenset(names), tuple(calls), deepest)


def _call(node: bytes, depth: int) -> Call:
    arguments = [value for number, value in _fields(node) if number == 3]
    constant = dict(_fields(_one(arguments[-1], _CONST))) if arguments else {}
    text = constant[_TEXT].decode() if _TEXT in constant else None
    return Call(_one(node, 2).decode(), depth, not _NUMBERS.isdisjoint(constant), text)


def _children(kind: int, node: bytes, depth: int) -> Iterator[tuple[bytes, int]]:
    parts = {_SELECT: {1}, _CALL: {1, 3}, _LIST: {1}, _LOOP: {2, 4, 5, 6, 7}}.get(kind, set())
    for number, value in _fields(node) if kind > _IDENT else ():
        if number in parts:
            # Of a loop, its condition (5) and its step (6) are done again and again.
            yield value, depth + (kind == _LOOP and number in (5, 6))
        elif kind == _MAP and number == 2:
            yield from ((inner, depth) for part, inner in _fields(value) if part in (3, 4))


def _one(message: bytes, wanted: int) -> bytes:
    return next((value for number, value in _fields(message) if number == wanted), b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message: number and content; of numbers, that they are there."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind, start = tag & 7, at
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            length, start = _varint(message, at)
            at = start + length
        else:
            at += {_FIXED64: 8, _FIXED32: 4}[kind]
        yield tag >> 3, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
