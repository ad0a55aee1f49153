"""Retry rules: CEL expressions over an answer that say whether to retry.

    res.code != 200 || res.data.status == 2
    status >= 500 || "x-try-again" in headers || elapsed > 10.0 || body.contains("busy")

res: the JSON of the answer. status: an integer. headers: a map, names in lower case, several values of one name joined
by ", ". elapsed: seconds, a double. body: the answer's text. `php_rules` translates the rules of php-delayqueue.

Bounds on the cost of a rule.

A CEL evaluation always ends, but with the worst answer it could take minutes or gigabytes, and nothing can stop it. So
such rules are refused when they are parsed. CEL itself bounds all loops of an evaluation to 10,000 rounds together.

The variables of a rule: an answer as values that CEL can hold, whatever was received.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from tarry.errors import ConfigError
from tarry.model.quantity import shorten
from tarry.push.http.response import HttpResponse
from tarry.push.rule import cel_tree, php_rules
from tarry.push.rule.cel_tree import ArgumentKind, CelCall, CelTree
from tarry.push.rule.rule_errors import SettingSyntaxError

MOST_TEXT = 1000
"""Characters of a rule."""

_VARIABLES = ("res", "status", "headers", "elapsed", "body")
_EXAMPLE = "as in res.code != 200"
_COMPLAINT = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")


class RuleResult(Struct, frozen=True):
    """The result of a rule for one answer."""

    again: bool
    reason: str = ""
    """Why to retry, in one line."""


class RetryCondition(Struct, frozen=True):
    """A retry rule. Two with the same text are equal."""

    text: str

    @classmethod
    def parse(cls, text: str) -> "RetryCondition":
        """The rule of this text; SettingSyntaxError, with position and advice, if it is invalid or costs too much."""
        if not isinstance(text, str) or not text.strip():
            raise SettingSyntaxError(f"a rule is text, {_EXAMPLE}")
        if len(text) > MOST_TEXT:
            raise SettingSyntaxError(f"it has {len(text)} characters; a rule has at most {MOST_TEXT}", MOST_TEXT + 1)
        if bad := re.search(r"[\0\ud800-\udfff]", text):
            raise SettingSyntaxError("a character that no text has; take it out", bad.start() + 1)
        _compile(text)
        return cls(text)

    @property
    def cel(self) -> str:
        """The expression that is evaluated: the text or its translation."""
        return _compile(self.text).cel

    @property
    def reads_status(self) -> bool:
        """Whether the rule uses the status; ConfigError without the extra `push`."""
        return _compile(self.text).reads_status

    def check(self) -> None:
        """ConfigError if the rule cannot be evaluated here: it is invalid, or the extra `push` is missing."""
        try:
            _compile(self.text)
        except SettingSyntaxError as error:
            raise ConfigError(f"retry_when: {error}") from None

    def evaluate(self, answer: HttpResponse) -> RuleResult:
        """Whether to retry. Yes, too, if the rule cannot be evaluated: the answer is empty, no JSON, or lacks a value.

        No answer makes it raise; ConfigError without the extra `push`.
        """
        compiled = _compile(self.text)
        if compiled.loops and len(answer.body) > MOST_LOOPED:
            return RuleResult(
                True, f"the answer has {len(answer.body)} bytes; rules with a loop read at most {MOST_LOOPED}"
            )
        json, lacking = json_variables(answer, compiled.paths) if compiled.needs_json else ({}, "")
        return _evaluate(self.text, compiled, plain_variables(answer) | json, lacking)


class _CompiledRule(Struct, frozen=True):
    cel: str
    expression: Any
    paths: tuple[str, ...] | None
    """The paths of a php-delayqueue rule; None for CEL."""
    needs_json: bool
    reads_status: bool
    loops: bool


@lru_cache(maxsize=1000)
def _compile(text: str) -> _CompiledRule:
    paths = None
    source = text
    if php_rules.is_php_rule(text):
        source, paths = (translation := php_rules.translate(text)).cel, translation.paths
    expression = _expression(source, braced=paths is not None)
    parts = cel_tree.read_tree(expression.serialize())
    # First, since compiling a costly pattern may take too much itself.
    check_cost(parts)
    _check_patterns(parts)
    return _CompiledRule(
        source, expression, paths, not parts.names.isdisjoint(("res", "at")), "status" in parts.names, parts.depth > 0
    )


def _expression(source: str, braced: bool) -> Any:
    environment, boolean = _environment(braced)
    try:
        expression = environment.compile(source)
    except RuntimeError as error:
        if braced:
            # The compiler gives a position in the translation, which the author of the rule does not know.
            raise SettingSyntaxError(f"it cannot be translated; write the rule in CEL, {_EXAMPLE}") from None
        _refuse(source, str(error))
    if (kind := expression.return_type()) != boolean:
        named = "what the answer has there" if kind.name() == "DYN" else f"a value ({kind.name().lower()})"
        raise SettingSyntaxError(f"it gives {named}, not true or false; compare it with something, {_EXAMPLE}")
    return expression


def _check_patterns(parts: cel_tree.CelTree) -> None:
    for pattern in patterns(parts):
        # The binding compiles patterns only when a rule is evaluated, so each is tried on an empty text.
        probe = _environment(False)[0].compile("body.matches(headers['pattern'])")
        trouble = probe.eval(data={"body": "", "headers": {"pattern": pattern}}).value()
        if not isinstance(trouble, bool):
            raise SettingSyntaxError(
                f"{_plain_message(str(trouble))}; patterns are RE2's: https://github.com/google/re2/wiki/Syntax"
            )


@lru_cache
def _environment(braced: bool) -> tuple[Any, Any]:
    """The CEL environment for rules, and the type that a rule must have."""
    try:
        from cel_expr_python import cel  # type: ignore[import-untyped]  # noqa: PLC0415 - for rules only
    except ImportError as error:
        raise ConfigError(f"retry rules need CEL: pip install 'tarry[push]' ({error})") from None
    kinds = cel.Type
    texts = kinds.Map(kinds.STRING, kinds.STRING)
    variables = dict(zip(_VARIABLES, (kinds.DYN, kinds.INT, texts, kinds.DOUBLE, kinds.STRING), strict=True))
    if braced:
        variables["at"] = kinds.Map(kinds.STRING, kinds.DYN)
    return cel.NewEnv(variables=variables), kinds.BOOL


def _refuse(source: str, message: str) -> NoReturn:
    found = _COMPLAINT.search(message)
    # The compiler has no position for an expression that is too deep or too long.
    if found is None or int(found[1]) < 1:
        raise SettingSyntaxError("it is nested too deep, or too long a chain; write it flatter")
    line, column, why = int(found[1]), int(found[2]), found[3]
    at = sum(len(text) + 1 for text in source.split("\n")[: line - 1]) + column
    raise SettingSyntaxError(_explain(why), min(at, len(source) + 1))


def _explain(why: str) -> str:
    """The compiler's message, with advice."""
    if unknown := re.search(r"undeclared reference to '(\S+)'", why):
        near = difflib.get_close_matches(unknown[1], _VARIABLES, 1)
        return f"there is no {unknown[1]}; " + (
            f"did you mean {near[0]}?" if near else f"known: {', '.join(_VARIABLES)}"
        )
    if "'<EOF>' expecting" in why:
        return f"it ends too early; write a comparison, {_EXAMPLE}"
    why = re.sub(r" \[INVALID_ARGUMENT\]$| expecting .*| \(in container ''\)", "", why)
    if "(double, int)" in why or "(int, double)" in why:
        return f"{why}; whole seconds are written 2.0, a status 200"
    if "(int, string)" in why or "(string, int)" in why:
        return f"{why}; numbers are written without quotes"
    return f"{why}; write a comparison, {_EXAMPLE}"


def _evaluate(text: str, compiled: _CompiledRule, bound: Mapping[str, Any], lacking: str) -> RuleResult:
    line = " ".join(text.split())
    shown = line if len(line) <= 100 else line[:97] + "..."
    try:
        value = compiled.expression.eval(data=bound).value()
    except Exception as error:  # the iteration budget, or an error that the binding does not handle
        value = str(error)
    if value is True:
        return RuleResult(True, f"the rule says so: {shown}")
    if value is False:
        return RuleResult(False)
    return RuleResult(
        True, f"{lacking}, and the rule needs it: {shown}" if lacking else f"{_evaluation_error(str(value))}: {shown}"
    )


def _evaluation_error(message: str) -> str:
    """CEL's error for people, without its codes."""
    if missing := re.search(r"Key not found in map : (.*)", message):
        return f"the answer has no {missing[1][:100]}, which the rule needs"
    return f"the rule cannot be asked ({_plain_message(message)})"


def _plain_message(message: str) -> str:
    """The first line of CEL's message, without its codes."""
    lines = re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", message).splitlines() or ["no reason given"]
    return lines[0][:200]


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


# CEL's C++ code has no bound, and would crash.
MOST_NESTED = 100
"""Nested lists and objects in an answer."""

_LONG_INTEGER = re.compile(rb"\d{19}")
_BOM = b"\xef\xbb\xbf"


def plain_variables(answer: HttpResponse) -> dict[str, Any]:
    """All variables but the JSON, by name."""
    return {
        "status": answer.status,
        "headers": _headers(answer),
        "elapsed": answer.elapsed,
        "body": _clean(answer.body.decode("utf-8", "replace")),
    }


def json_variables(answer: HttpResponse, paths: Sequence[str] | None) -> tuple[dict[str, Any], str]:
    """The JSON as `res`, or the values at these paths as `at`; or no variable, and the reason."""
    # A missing variable is no error: `status == 204 ? false : res.code != 200` may not need it.
    if not answer.body.strip():
        return {}, "the answer is empty"
    if answer.cut:
        return {}, f"the answer is longer than the {len(answer.body)} bytes that are read of it"
    try:
        found = _json(answer.body)
    except (ValueError, RecursionError, OverflowError):
        coding = answer.header("content-encoding")
        # It was not asked for; without this word people look for a fault in the JSON.
        return (
            {},
            f"the answer is encoded as {shorten(coding, 20)}, not plain JSON" if coding else "the answer is no JSON",
        )
    return {"res": found} if paths is None else {"at": php_rules.look_up(found, paths)}, ""


def _json(body: bytes) -> Any:
    """The decoded value; ValueError, RecursionError or OverflowError if CEL cannot hold it."""
    found = msgspec.json.decode(body.removeprefix(_BOM))
    # With fewer brackets it cannot be nested deeper, which spares the walk through the answer.
    if body.count(b"[") + body.count(b"{") > MOST_NESTED:
        _check_nesting([found])
    # Only an answer that may have something CEL cannot hold is copied.
    return _make_safe(found) if b"\\u0000" in body or _LONG_INTEGER.search(body) else found


def _check_nesting(level: list[Any]) -> None:
    for _ in range(MOST_NESTED):
        inner = [one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer)]
        level = [one for one in inner if isinstance(one, list | dict)]
    if level:
        raise ValueError("nested too deep")


def _make_safe(value: Any) -> Any:
    """The value without integers over 64 bits and without NUL characters."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, list):
        return [_make_safe(inner) for inner in value]
    if isinstance(value, dict):
        return {_clean(key): _make_safe(inner) for key, inner in value.items()}
    return value


def _headers(answer: HttpResponse) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in answer.headers:
        key = _clean(name.lower())
        found[key] = f"{found[key]}, {_clean(value)}" if key in found else _clean(value)
    return found


def _clean(text: str) -> str:
    """The text without NUL and lone surrogates."""
    # The binding ends a text at a NUL, and cannot encode a lone surrogate.
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
