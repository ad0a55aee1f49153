"""What an expression of CEL is made of, read from its checked tree.

The compiler hands the tree over only as protobuf (cel.expr.CheckedExpr inside a google.protobuf.Any), and the few
lines here spare a dependency on protobuf: https://github.com/google/cel-spec/tree/master/proto/cel/expr.
"""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONST, _IDENT, _SELECT, _CALL, _LIST, _MAP, _LOOP = 3, 4, 5, 6, 7, 8, 9
# Of a constant's kinds: int64, uint64, double; string.
_NUMBERS, _TEXT = frozenset({3, 4, 5}), 6
_LIST_COSTS, _ELEMENT_COSTS = 4, 2
"""Of a list that stands there, which is made each time: as so many nodes more."""
_INDEX = "_[_]"
_SIMPLE = frozenset({"int", "double", "size", "-_", "_-_", "_*_", "_/_", "_%_", "!_"})
"""Functions that give a number, true or false."""


class ArgumentKind(Enum):
    """What an argument of a call is, as far as its size is known before there is an answer."""

    CONSTANT = "a number, text, true, false or null that stands there"
    CONSTANTS = "a list of these that stands there"
    SIMPLE = "a number, true or false that is worked out"
    OWN = "a part of what the loop around it is at"
    OTHER = "anything, as large as an answer may be"


class CelCall(Struct, frozen=True):
    """One call of a function or operator: `_+_`, `size`, `@in`."""

    function: str
    depth: int
    """How many loops it is inside of."""
    number: bool
    """Its last argument is a number that stands there."""
    text: str | None = None
    """The text that stands there as its last argument."""
    kinds: tuple[ArgumentKind, ...] = ()
    """Of its arguments; of a method, first that of which it is one."""


class CelTree(Struct, frozen=True):
    """The names and calls of an expression."""

    names: frozenset[str]
    calls: tuple[CelCall, ...]
    depth: int
    """How many loops (`all`, `exists`, `map`, ...) are inside each other at most."""
    looped: int
    """How many nodes of the tree are done again and again."""


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
    """own: the variable whose values all together are no larger than the answer."""
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
    """The name that a path such as `x.a[0].b` begins with; empty if it is no path."""
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
    """The variable of an outermost loop over a part of the answer: it goes through that once. A list that is written
    into the rule could have the whole answer in it many times, and an inner loop is done many times."""
    return _field(loop, 1) if depth == 0 and _root(_field(loop, 2)) else b""


def _fields_of_kinds(node: bytes) -> Iterator[tuple[int, bytes]]:
    """Without the node's number."""
    return ((number, value) for number, value in _fields(node) if number >= _CONST)


def _children(kind: int, node: bytes, depth: int) -> Iterator[tuple[bytes, int]]:
    parts = {_SELECT: {1}, _CALL: {1, 3}, _LIST: {1}, _LOOP: {2, 4, 5, 6, 7}}.get(kind, set())
    for number, value in _fields(node) if kind > _IDENT else ():
        if number in parts:
            # Of a loop, its condition (5) and its step (6) are done again and again.
            yield value, depth + (kind == _LOOP and number in (5, 6))
        elif kind == _MAP and number == 2:
            yield from ((inner, depth) for part, inner in _fields(value) if part in (3, 4))


def _field(message: bytes, wanted: int) -> bytes:
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
