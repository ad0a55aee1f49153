"""The syntax tree of a CEL expression.

The compiler gives the tree only as protobuf (cel.expr.CheckedExpr inside a google.protobuf.Any). The few lines here
save a dependency on protobuf: https://github.com/google/cel-spec/tree/master/proto/cel/expr.
"""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONST, _IDENT, _SELECT, _CALL, _LIST, _MAP, _LOOP = 3, 4, 5, 6, 7, 8, 9
# Kinds of constants: int64, uint64, double; string.
_NUMBERS, _TEXT = frozenset({3, 4, 5}), 6
_LIST_COSTS, _ELEMENT_COSTS = 4, 2  # The cost of a list literal, which is built each time, in nodes.
_INDEX = "_[_]"
# Functions that return a number, true or false.
_SIMPLE = frozenset({"int", "double", "size", "-_", "_-_", "_*_", "_/_", "_%_", "!_"})


class ArgumentKind(Enum):
    """The kind of an argument, by what is known of its size before there is an answer."""

    CONSTANT = "a number, text, true, false or null that stands there"
    CONSTANTS = "a list of these that stands there"
    SIMPLE = "a number, true or false that is worked out"
    OWN = "a part of what the loop around it is at"
    OTHER = "anything, as large as an answer may be"


class CelCall(Struct, frozen=True):
    """One call of a function or operator: `_+_`, `size`, `@in`."""

    function: str
    depth: int
    """How many loops are around it."""
    number: bool
    """Its last argument is a literal number."""
    text: str | None = None
    """Its last argument if that is a literal text."""
    kinds: tuple[ArgumentKind, ...] = ()
    """The kinds of its arguments; for a method, the object comes first."""


class CelTree(Struct, frozen=True):
    """The names and calls of an expression."""

    names: frozenset[str]
    calls: tuple[CelCall, ...]
    depth: int
    """The most nested loops (`all`, `exists`, `map`, ...)."""
    looped: int
    """The number of nodes inside loops."""


def read_tree(serialized: bytes) -> CelTree:
    """The tree of `Expression.serialize()`."""
    names: set[str] = set()
    calls: list[CelCall] = []
    deepest = looped = 0
    rest: list[tuple[bytes, int, bytes]] = [(_field(_field(serialized, 2), 4), 0, b"")]
    while rest:
        node, depth, own = rest.pop()
        deepest, looped = max(deepest, depth), looped + (depth > 0)
        for kind, inner in _fields(node):
            if kind == _IDENT:
                names.add(_field(inner, 1).decode())
            elif kind == _CALL:
                calls.append(_call(inner, depth, own))
            elif kind == _LIST and depth:
                looped += _LIST_COSTS + sum(_ELEMENT_COSTS for number, _ in _fields(inner) if number == 1)
            variable = _variable(inner, depth) if kind == _LOOP else own
            rest += ((child, deep, variable if deep > depth else own) for child, deep in _children(kind, inner, depth))
    return CelTree(frozenset(names), tuple(calls), deepest, looped)


def _call(node: bytes, depth: int, own: bytes) -> CelCall:
    arguments = [value for number, value in _fields(node) if number == 3]
    constant = dict(_fields(_field(arguments[-1], _CONST))) if arguments else {}
    text = constant[_TEXT].decode() if _TEXT in constant else None
    kinds = tuple(_kind(value, own) for number, value in _fields(node) if number in (1, 3))
    return CelCall(_field(node, 2).decode(), depth, not _NUMBERS.isdisjoint(constant), text, kinds)


def _kind(node: bytes, own: bytes) -> ArgumentKind:
    """The kind of an argument. own: the loop variable whose values together are no larger than the answer."""
    kind, inner = next(_fields_of_kinds(node), (0, b""))
    if kind == _CONST:
        return ArgumentKind.CONSTANT
    if kind == _LIST:
        elements = [value for number, value in _fields(inner) if number == 1]
        return (
            ArgumentKind.CONSTANTS
            if all(_kind(one, b"") is ArgumentKind.CONSTANT for one in elements)
            else ArgumentKind.OTHER
        )
    if kind == _CALL and _field(inner, 2).decode() in _SIMPLE:
        return ArgumentKind.SIMPLE
    return ArgumentKind.OWN if own and _root(node) == own else ArgumentKind.OTHER


def _root(node: bytes) -> bytes:
    """The first name of a path such as `x.a[0].b`; empty if it is no path."""
    while True:
        kind, inner = next(_fields_of_kinds(node), (0, b""))
        if kind == _IDENT:
            return _field(inner, 1)
        if kind == _SELECT:
            node = _field(inner, 1)
        elif kind == _CALL and _field(inner, 2) == _INDEX.encode():
            node = _field(inner, 3)
        else:
            return b""


def _variable(loop: bytes, depth: int) -> bytes:
    """The variable of an outermost loop over a part of the answer; else empty."""
    # Such a loop visits the answer once. A list literal may contain the whole answer many times, and an inner loop
    # runs many times.
    return _field(loop, 1) if depth == 0 and _root(_field(loop, 2)) else b""


def _fields_of_kinds(node: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a node without its id."""
    return ((number, value) for number, value in _fields(node) if number >= _CONST)


def _children(kind: int, node: bytes, depth: int) -> Iterator[tuple[bytes, int]]:
    parts = {_SELECT: {1}, _CALL: {1, 3}, _LIST: {1}, _LOOP: {2, 4, 5, 6, 7}}.get(kind, set())
    for number, value in _fields(node) if kind > _IDENT else ():
        if number in parts:
            # A loop repeats its condition (5) and its step (6).
            yield value, depth + (kind == _LOOP and number in (5, 6))
        elif kind == _MAP and number == 2:
            yield from ((inner, depth) for part, inner in _fields(value) if part in (3, 4))


def _field(message: bytes, wanted: int) -> bytes:
    return next((value for number, value in _fields(message) if number == wanted), b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message: number and content; the content of numbers is not decoded."""
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
