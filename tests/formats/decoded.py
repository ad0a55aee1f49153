"""The types that tarry decodes, found by the calls of its decoders, which all go through `model/checks/decoders.py`."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tarry

ROOT = Path(tarry.__file__).parent
DECODERS = {"json_decoder": 0, "new_json_decoder": 0, "msgpack_decoder": 0, "decode_json": 1, "convert_to": 0}
"""Each function that decodes, and which of its arguments is the type."""
ELSEWHERE = (
    "cli/",
    "config/",
    "platform/",
    "push/rule/",
    "server/",
    "store/conformance/",
    "testing/",
    "tasks/arguments/",
)
"""Decode what people write, or what `http.txt` has: not what another version of tarry has stored."""


def decoded_types() -> dict[str, Any]:
    """Each type, by its name with its module."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(ELSEWHERE):
            for written, kind in _types_of(path, place):
                found[f"{place.removesuffix('.py')}: {written}"] = kind
    return found


def _types_of(path: Path, place: str) -> Iterator[tuple[str, Any]]:
    expressions = {ast.unparse(one) for one in _arguments(ast.parse(path.read_text(encoding="utf-8")))}
    if expressions:
        module = importlib.import_module("tarry." + place.removesuffix(".py").replace("/", "."))
        for written in sorted(expressions):
            try:
                yield written, eval(written, vars(module))
            except NameError:  # a variable of the function
                continue


def _arguments(tree: ast.Module) -> Iterator[ast.expr]:
    for call in ast.walk(tree):
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if isinstance(call, ast.Call) and name in DECODERS and len(call.args) > DECODERS[name]:
            yield call.args[DECODERS[name]]
