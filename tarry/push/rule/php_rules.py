"""The rules of php-delayqueue, `{res.code}!=200 && {res.data.msg}=="failed"`, translated to CEL.

The original put the answer's fields into the text and had PHP evaluate it. Here `{res.data.msg}` becomes
`at["data.msg"]`: the value in the answer, or null. As in PHP, a number equals its text (`"code": "200"` is 200), `<`
and the like compare numbers, and a value alone is true unless it is empty. Nothing else is converted: null equals
neither 0 nor "".

The tokens of php-delayqueue rules, and the PHP constants in them.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from tarry.push.rule.json_path import ABSENT, get_child
from tarry.push.rule.rule_errors import SettingSyntaxError

STRING = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_TOKEN = re.compile(
    rf"""(?P<path>\{{\s*res\s*\.[^{{}}]*\}})
    |(?P<string>{STRING})
    |(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<word>(?:true|false|null)\b)
    |(?P<sign>===|!==|==|!=|<>|<=|>=|<|>|&&|\|\||!|\(|\))""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_BLANK = re.compile(r"\s*")


class Token(Struct, frozen=True):
    """A token of a rule."""

    kind: str
    text: str
    at: int
    """Its position, from 1."""


def tokenize(rule: str) -> list[Token]:
    """The tokens of a rule; SettingSyntaxError at an invalid one."""
    found, at = [], _end(_BLANK, rule, 0)
    while at < len(rule):
        match = _TOKEN.match(rule, at)
        if match is None or match.lastgroup is None:
            refuse(Token("", rule[at : at + 10].split(maxsplit=1)[0], at + 1))
        found.append(Token(match.lastgroup, match[0], at + 1))
        at = _end(_BLANK, rule, match.end())
    return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def refuse(token: Token) -> NoReturn:
    """Raises SettingSyntaxError for a token in the wrong place."""
    if token.text.startswith("="):
        raise SettingSyntaxError("= compares nothing; write ==", token.at)
    if token.text[:1] in "\"'":
        raise SettingSyntaxError("the text has no end; close the quotes", token.at)
    if token.text.startswith("{"):
        raise SettingSyntaxError("no field of the answer; write {res.name}", token.at)
    raise SettingSyntaxError(
        f"{token.text} cannot be translated; write the rule in CEL, as in res.code != 200", token.at
    )


def parse_path(token: Token) -> str:
    """`data.msg` of `{ res.data.msg }`."""
    names = [name.strip() for name in token.text[1:-1].strip()[len("res") :].strip().split(".")[1:]]
    if not all(names):
        raise SettingSyntaxError("an empty name between full stops; write {res.name}", token.at)
    return ".".join(names)


def parse_value(token: Token) -> Any:
    """The value of a constant."""
    if token.kind == "string":
        return _unquote(token)
    if token.kind == "word":
        return {"true": True, "false": False, "null": None}[token.text.lower()]
    if (found := parse_number(token.text)) is None:
        raise SettingSyntaxError("the number is too large", token.at)
    return found


def parse_number(text: str) -> int | float | None:
    """The number that PHP reads from a text; None if there is none."""
    # PHP allows blanks around a number.
    if not _NUMBER.fullmatch(text.strip(" \t\n\r\v\f")) or len(text) > 100:
        return None
    with contextlib.suppress(ValueError):
        # PHP reads larger ones as floats.
        if abs(whole := int(text)) < 2**63:
            return whole
    rounded = float(text)
    return rounded if math.isfinite(rounded) else None


def _unquote(token: Token) -> str:
    text = token.text[1:-1]
    if token.text[0] == "'":
        # In single quotes PHP knows no other escapes.
        return re.sub(r"\\([\\'])", r"\1", text)
    if variable := re.search(r"(?<!\\)(?:\\\\)*(\$[A-Za-z_{]|\{\$)", text):
        raise SettingSyntaxError("a variable of PHP; write \\$ for a dollar", token.at + 1 + variable.start(1))
    return re.sub(r'\\([\\"$nrt])', lambda match: _ESCAPES.get(match[1], match[1]), text)


# CEL's own bound is not much higher.
MOST_DEPTH = 10
"""Nested parentheses."""

_PATH = re.compile(r"\{\s*res\s*\.[^{}:,]*\}")
_EQUAL = {"==": "==", "===": "==", "!=": "!=", "<>": "!=", "!==": "!="}
_ORDER = ("<", "<=", ">", ">=")
# The values that are false in PHP.
_EMPTY = '[null, false, 0, "", "0", [], {}]'


class Translation(Struct, frozen=True):
    """The rule in CEL, and the paths that it needs in the map `at`."""

    cel: str
    paths: tuple[str, ...]


class _Expression(Struct, frozen=True):
    """A translated part of the rule."""

    kind: str
    """`condition`; or an operand: `path`, `number`, `string` or `word`."""
    cel: str
    at: int
    value: Any = None
    """The value of a constant."""
    single: bool = True
    """It needs no parentheses inside another expression."""


def is_php_rule(rule: str) -> bool:
    """Whether the rule has a `{res....}` outside of strings, which is no CEL."""
    return _PATH.search(re.sub(STRING, '""', rule)) is not None


def translate(rule: str) -> Translation:
    """Translates the rule to CEL; SettingSyntaxError if that is not possible."""
    reader = _PhpParser(tokenize(rule), len(rule) + 1)
    whole = reader.condition(reader.parse_or(0))
    if reader.next is not None:
        refuse(reader.next)
    return Translation(whole.cel, tuple(dict.fromkeys(reader.paths)))


def look_up(answer: Any, paths: Sequence[str]) -> Mapping[str, Any]:
    """The values of the answer at these paths; None for a missing one."""
    return {path: _at(answer, path) for path in paths}


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = get_child(value, name)
    return None if value is ABSENT else value


class _PhpParser:
    """Parses tokens with PHP's precedence: ! before < <= > >= before == != === !== before && before ||."""

    def __init__(self, tokens: Sequence[Token], end: int) -> None:
        self.paths: list[str] = []
        self._rest = list(reversed(tokens))
        self._end = end

    @property
    def next(self) -> Token | None:
        """The next token; None at the end."""
        return self._rest[-1] if self._rest else None

    def parse_or(self, depth: int) -> _Expression:
        """Parses a chain of ||, or an expression that binds tighter."""
        return self._parse_chain("||", self._parse_and, depth)

    def condition(self, piece: _Expression) -> _Expression:
        """Makes an expression true or false."""
        if piece.kind == "path":
            return _Expression("condition", f"!({piece.cel} in {_EMPTY})", piece.at)
        if piece.kind in ("number", "string") or piece.cel == "null":
            raise SettingSyntaxError(f"{piece.cel} is no condition; compare it with a {{res...}}", piece.at)
        return piece

    def _parse_and(self, depth: int) -> _Expression:
        return self._parse_chain("&&", self._parse_equality, depth)

    def _parse_chain(self, sign: str, part: Callable[[int], _Expression], depth: int) -> _Expression:
        first = part(depth)
        parts = [first]
        while self._accept(sign):
            parts.append(part(depth))
        if len(parts) == 1:
            return first
        cel = f" {sign} ".join(_parenthesize(self.condition(one)) for one in parts)
        return _Expression("condition", cel, first.at, single=False)

    def _parse_equality(self, depth: int) -> _Expression:
        return self._parse_pair(_EQUAL, self._parse_comparison, _compare_equal, depth)

    def _parse_comparison(self, depth: int) -> _Expression:
        return self._parse_pair(_ORDER, self._parse_unary, _compare_order, depth)

    def _parse_pair(
        self,
        signs: Iterable[str],
        part: Callable[[int], _Expression],
        combine: Callable[[_Expression, _Expression, str], str],
        depth: int,
    ) -> _Expression:
        """Parses two operands with one of the signs between them, or only one operand."""
        left = part(depth)
        if (sign := self._accept(*signs)) is None:
            return left
        right = part(depth)
        for piece in (left, right):
            if piece.kind == "condition":
                raise SettingSyntaxError(f"{sign.text} compares fields and constants only; put parentheses", piece.at)
        if "path" not in (left.kind, right.kind):
            raise SettingSyntaxError(f"{sign.text} compares two constants; write {{res.name}} on one side", sign.at)
        # PHP does not chain these either.
        if self.next is not None and self.next.text in signs:
            raise SettingSyntaxError(f"{self.next.text} has no left side; put parentheses and &&", self.next.at)
        return _Expression("condition", combine(left, right, sign.text), left.at, single=False)

    def _parse_unary(self, depth: int) -> _Expression:
        sign = self._accept("!")
        if sign is None:
            return self._parse_primary(depth)
        inner = self.condition(self._parse_unary(self._check_depth(depth, sign)))
        return _Expression("condition", f"!{_parenthesize(inner)}", sign.at)

    def _parse_primary(self, depth: int) -> _Expression:
        if opening := self._accept("("):
            inner = self.parse_or(self._check_depth(depth, opening))
            if self._accept(")") is None:
                raise SettingSyntaxError("the parenthesis has no end; write )", opening.at)
            return inner
        if self.next is None:
            raise SettingSyntaxError("it ends too early; write a {res.name} or a constant", self._end)
        token = self._rest.pop()
        if token.kind == "sign":
            raise SettingSyntaxError(f"{token.text} stands where a {{res.name}} or a constant should", token.at)
        return self._make_operand(token)

    def _make_operand(self, token: Token) -> _Expression:
        if token.kind == "path":
            path = parse_path(token)
            self.paths.append(path)
            return _Expression("path", f"at[{_quote(path)}]", token.at)
        value = parse_value(token)
        return _Expression(token.kind, _constant(value), token.at, value)

    def _accept(self, *signs: str) -> Token | None:
        if self.next is not None and self.next.kind == "sign" and self.next.text in signs:
            return self._rest.pop()
        return None

    def _check_depth(self, depth: int, token: Token) -> int:
        if depth == MOST_DEPTH:
            raise SettingSyntaxError(f"nested more than {MOST_DEPTH} deep; write it flatter", token.at)
        return depth + 1


def _constant(value: Any) -> str:
    """A constant in CEL."""
    if isinstance(value, str):
        return _quote(value)
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parenthesize(piece: _Expression) -> str:
    return piece.cel if piece.single else f"({piece.cel})"


def _compare_equal(left: _Expression, right: _Expression, sign: str) -> str:
    path, other = (left, right) if left.kind == "path" else (right, left)
    # `===` and `!==` convert nothing, so only the shorter signs also match the other spelling.
    alike = [other.cel, *_other_spelling(other)] if len(sign) == 2 else [other.cel]
    if len(alike) == 1:
        return f"{left.cel} {_EQUAL[sign]} {right.cel}"
    among = f"{path.cel} in [{', '.join(alike)}]"
    return among if _EQUAL[sign] == "==" else f"!({among})"


def _other_spelling(constant: _Expression) -> list[str]:
    """The text of a number, or the number in a text, in CEL."""
    if constant.kind == "number":
        return [_quote(f"{constant.value:.15g}" if isinstance(constant.value, float) else str(constant.value))]
    number = parse_number(constant.value) if constant.kind == "string" else None
    return [] if number is None else [_constant(number)]


def _compare_order(left: _Expression, right: _Expression, sign: str) -> str:
    for piece in (left, right):
        if piece.kind == "word":
            raise SettingSyntaxError(f"{piece.cel} is neither more nor less than anything; use == or !=", piece.at)
    numbers = [parse_number(piece.value) if piece.kind == "string" else piece.value for piece in (left, right)]
    if all(number is None for number in numbers):
        return f"{left.cel} {sign} {right.cel}"
    # double() takes a number as well as its text.
    sides = [
        f"double({piece.cel})" if number is None else repr(float(number))
        for piece, number in zip((left, right), numbers, strict=True)
    ]
    return f" {sign} ".join(sides)
