"""The variables of a rule: an answer as values that CEL can hold, whatever was received."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarry.model.quantity import shorten
from tarry.push.http.response import HttpResponse
from tarry.push.rule import php_rules

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
