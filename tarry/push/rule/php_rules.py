"""The rules of php-delayqueue, `{res.code}!=200 && {res.data.msg}=="failed"`, translated to CEL.

The original put the answer's fields into the text and had PHP evaluate it. Here `{res.data.msg}` becomes
`at["data.msg"]`: what the answer has there, null if it has nothing there. As in PHP, a number and the text of it are
equal (`"code": "200"` is 200), what has an order is compared as numbers, and what stands alone is asked whether it is
empty. Apart from that nothing is converted: null is no 0 and no "": an answer without `code` has none.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.push.rule import php_tokens
from tarry.push.rule.errors import Misplaced
from tarry.push.rule.json_path import ABSENT, inside
from tarry.push.rule.php_tokens import STRING, Token

MOST_DEPTH = 10
"""Parentheses inside each other; CEL's own bound is not far above."""

_PATH = re.compile(r"\{\s*res\s*\.[^{}:,]*\}")
_EQUAL = {"==": "==", "===": "==", "!=": "!=", "<>": "!=", "!==": "!="}
_ORDER = ("<", "<=", ">", ">=")
_EMPTY = '[null, false, 0, "", "0", [], {}]'


class Translated(Struct, frozen=True):
    """The rule in CEL, and the paths that it finds in the map `at`."""

    cel: str
    paths: tuple[str, ...]


class _Piece(Struct, frozen=True):
    """A part of the translation."""

    kind: str
    """`condition`; or `path`, `number`, `string` or `word`, that are to be compared."""
    cel: str
    at: int
    value: Any = None
    """Of a constant that is not null."""
    single: bool = True
    """It needs no parentheses as a part of another."""


def found(rule: str) -> bool:
    """It is written in this form: it has a `{res....}` outside of strings. CEL has no such thing."""
    return _PATH.search(re.sub(STRING, '""', rule)) is not None


def translated(rule: str) -> Translated:
    """The same rule in CEL; Misplaced where it cannot be translated."""
    reader = _Reader(php_tokens.tokens(rule), len(rule) + 1)
    whole = reader.condition(reader.either(0))
    if reader.next is not None:
        php_tokens.refuse(reader.next)
    return Translated(whole.cel, tuple(dict.fromkeys(reader.paths)))


def looked_up(answer: Any, paths: Sequence[str]) -> Mapping[str, Any]:
    """What the answer has at these paths; None for nothing."""
    return {path: _at(answer, path) for path in paths}


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = inside(value, name)
    return None if value is ABSENT else value


class _Reader:
    """Reads tokens by PHP's precedence: ! before < <= > >= before == != === !== before && before ||."""

    def __init__(self, tokens: Sequence[Token], end: int) -> None:
        self.paths: list[str] = []
        self._rest = list(reversed(tokens))
        self._end = end

    @property
    def next(self) -> Token | None:
        """The token that is to be read, None at the end."""
        return self._rest[-1] if self._rest else None

    def either(self, depth: int) -> _Piece:
        """A chain of ||, or what binds tighter."""
        return self._chain("||", self._both, depth)

    def condition(self, piece: _Piece) -> _Piece:
        """The piece as something true or false."""
        if piece.kind == "path":
            return _Piece("condition", f"!({piece.cel} in {_EMPTY})", piece.at)
        if piece.kind in ("number", "string") or piece.cel == "null":
            raise Misplaced(f"{piece.cel} is no condition; compare it with a {{res...}}", piece.at)
        return piece

    def _both(self, depth: int) -> _Piece:
        return self._chain("&&", self._equality, depth)

    def _chain(self, sign: str, part: Callable[[int], _Piece], depth: int) -> _Piece:
        first = part(depth)
        parts = [first]
        while self._taken(sign):
            parts.append(part(depth))
        if len(parts) == 1:
            return first
        cel = f" {sign} ".join(_enclosed(self.condition(one)) for one in parts)
        return _Piece("condition", cel, first.at, single=False)

    def _equality(self, depth: int) -> _Piece:
        return self._pair(_EQUAL, self._comparison, _equal, depth)

    def _comparison(self, depth: int) -> _Piece:
        return self._pair(_ORDER, self._unary, _ordered, depth)

    def _pair(
        self,
        signs: Iterable[str],
        part: Callable[[int], _Piece],
        made: Callable[[_Piece, _Piece, str], str],
        depth: int,
    ) -> _Piece:
        """Two operands with one of the signs between them, or only one."""
        left = part(depth)
        if (sign := self._taken(*signs)) is None:
            return left
        right = part(depth)
        for piece in (left, right):
            if piece.kind == "condition":
                raise Misplaced(f"{sign.text} compares fields and constants only; put parentheses", piece.at)
        if "path" not in (left.kind, right.kind):
            raise Misplaced(f"{sign.text} compares two constants; write {{res.name}} on one side", sign.at)
        if self.next is not None and self.next.text in signs:
            raise Misplaced(f"{self.next.text} has no left side; put parentheses and &&", self.next.at)
        return _Piece("condition", made(left, right, sign.text), left.at, single=False)

    def _unary(self, depth: int) -> _Piece:
        sign = self._taken("!")
        if sign is None:
            return self._primary(depth)
        inner = self.condition(self._unary(self._deeper(depth, sign)))
        return _Piece("condition", f"!{_enclosed(inner)}", sign.at)

    def _primary(self, depth: int) -> _Piece:
        if opening := self._taken("("):
            inner = self.either(self._deeper(depth, opening))
            if self._taken(")") is None:
                raise Misplaced("the parenthesis has no end; write )", opening.at)
            return inner
        if self.next is None:
            raise Misplaced("it ends too early; write a {res.name} or a constant", self._end)
        token = self._rest.pop()
        if token.kind == "sign":
            raise Misplaced(f"{token.text} stands where a {{res.name}} or a constant should", token.at)
        return self._operand(token)

    def _operand(self, token: Token) -> _Piece:
        if token.kind == "path":
            path = php_tokens.path(token)
            self.paths.append(path)
            return _Piece("path", f"at[{_quoted(path)}]", token.at)
        value = php_tokens.value(token)
        return _Piece(token.kind, _constant(value), token.at, value)

    def _taken(self, *signs: str) -> Token | None:
        if self.next is not None and self.next.kind == "sign" and self.next.text in signs:
            return self._rest.pop()
        return None

    def _deeper(self, depth: int, token: Token) -> int:
        if depth == MOST_DEPTH:
            raise Misplaced(f"nested more than {MOST_DEPTH} deep; write it flatter", token.at)
        return depth + 1


def _constant(value: Any) -> str:
    """A value as CEL writes it."""
    if isinstance(value, str):
        return _quoted(value)
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _enclosed(piece: _Piece) -> str:
    return piece.cel if piece.single else f"({piece.cel})"


def _equal(left: _Piece, right: _Piece, sign: str) -> str:
    path, other = (left, right) if left.kind == "path" else (right, left)
    alike = [other.cel, *_other_spelling(other)] if len(sign) == 2 else [other.cel]
    if len(alike) == 1:
        return f"{left.cel} {_EQUAL[sign]} {right.cel}"
    among = f"{path.cel} in [{', '.join(alike)}]"
    return among if _EQUAL[sign] == "==" else f"!({among})"


def _other_spelling(constant: _Piece) -> list[str]:
    """Of a number its text; of a text the number in it."""
    if constant.kind == "number":
        return [_quoted(f"{constant.value:.15g}" if isinstance(constant.value, float) else str(constant.value))]
    number = php_tokens.number(constant.value) if constant.kind == "string" else None
    return [] if number is None else [_constant(number)]


def _ordered(left: _Piece, right: _Piece, sign: str) -> str:
    for piece in (left, right):
        if piece.kind == "word":
            raise Misplaced(f"{piece.cel} is neither more nor less than anything; use == or !=", piece.at)
    numbers = [php_tokens.number(piece.value) if piece.kind == "string" else piece.value for piece in (left, right)]
    if all(number is None for number in numbers):
        return f"{left.cel} {sign} {right.cel}"
    sides = [
        f"double({piece.cel})" if number is None else repr(float(number))
        for piece, number in zip((left, right), numbers, strict=True)
    ]
    return f" {sign} ".join(sides)
