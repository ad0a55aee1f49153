"""The tokens of php-delayqueue rules, and the PHP constants in them."""

import contextlib
import math
import re
from typing import Any, NoReturn

from msgspec import Struct

from tarry.push.rule.errors import SettingSyntaxError

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
