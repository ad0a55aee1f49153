"""Retry rules: CEL expressions over an answer that say whether to retry.

    res.code != 200 || res.data.status == 2
    status >= 500 || "x-try-again" in headers || elapsed > 10.0 || body.contains("busy")

res: the JSON of the answer. status: an integer. headers: a map, names in lower case, several values of one name joined
by ", ". elapsed: seconds, a double. body: the answer's text. `php_rules` translates the rules of php-delayqueue.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from msgspec import Struct

from tarry.errors import ConfigError
from tarry.push.http.response import HttpResponse
from tarry.push.rule import cel_tree, php_rules, variables
from tarry.push.rule.costs import MOST_LOOPED, check_cost, patterns
from tarry.push.rule.errors import SettingSyntaxError

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
        json, lacking = variables.json_variables(answer, compiled.paths) if compiled.needs_json else ({}, "")
        return _evaluate(self.text, compiled, variables.plain_variables(answer) | json, lacking)


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
