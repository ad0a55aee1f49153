"""What the methods' code raises and takes stands in the OpenAPI document."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tarry import operate
from tarry.operate.method import Method
from tarry.operate.problem import RequestError
from tarry.server.http import methods
from tarry.server.http.description.openapi import openapi_document
from tarry.server.http.problem import KINDS
from tarry.server.serving.api import METHODS

DOCUMENT = openapi_document(METHODS, "1")
HOMES = [
    importlib.import_module(f"{home.__name__}.{each.name}")
    for home in (methods, operate)
    for each in pkgutil.iter_modules(home.__path__)
]
JOB_ID = re.compile(r"^(id|job)$")
FREE = {"send_signal id"}
"""Ids that the sender chooses."""


def raised(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> Iterator[int]:
    """The statuses of the errors that a function raises by itself, or a function of the methods that it names."""
    if function in seen:
        return
    seen.add(function)
    home = inspect.getmodule(function)
    assert home is not None
    for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from _status(node.exc, home)
        elif isinstance(node, ast.Name | ast.Attribute):
            named = _value(node, home)
            if isinstance(named, FunctionType) and inspect.getmodule(named) in HOMES:
                yield from raised(named, seen)


def _status(error: ast.expr, home: ModuleType) -> Iterator[int]:
    kind = _value(error.func if isinstance(error, ast.Call) else error, home)
    if kind is RequestError and isinstance(error, ast.Call):
        status = error.args[2] if len(error.args) > 2 else ast.Constant(400)
        assert isinstance(status, ast.Constant)
        yield status.value  # type: ignore[misc]
    elif isinstance(kind, type):
        yield from (KINDS[base].status for base in kind.__mro__[:1] if base in KINDS)


def _value(node: ast.expr, home: ModuleType) -> Any:
    if isinstance(node, ast.Name):
        return getattr(home, node.id, None)
    return getattr(_value(node.value, home), node.attr, None) if isinstance(node, ast.Attribute) else None


def described(method: Method) -> dict[str, Any]:
    """Its part of the document."""
    found: dict[str, Any]
    (found,) = [one for verbs in DOCUMENT["paths"].values() for one in verbs.values() if _is(one, method)]
    return found


def _is(operation: dict[str, Any], method: Method) -> bool:
    return bool(operation["operationId"] == method.name)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_each_error_that_a_method_raises_is_described(method: Method) -> None:
    statuses = {str(status) for status in raised(method.handler, set())}
    assert statuses <= set(described(method)["responses"]), f"{method.verb} {method.route}"


def test_the_code_of_the_methods_is_followed() -> None:
    """Through functions of other modules, too."""
    found = {method.name: set(raised(method.handler, set())) for method in METHODS}
    assert 409 in found["kill_job"]
    assert 409 in found["reload_host"]
    assert 404 in found["pause_schedule"]


def _fields(schema: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a schema, and of those within it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _fields(each)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            yield from _fields(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        yield from schema.get("properties", {}).items()
        for name, part in schema.items():
            if name in ("anyOf", "items", "oneOf"):
                yield from _fields(part)
        yield from (pair for value in schema.get("properties", {}).values() for pair in _fields(value))


def test_each_id_of_a_request_has_its_pattern_and_its_length() -> None:
    found: dict[str, Any] = {}
    for method in METHODS:
        operation = described(method)
        fields = [(one["name"], one["schema"]) for one in operation["parameters"]]
        for content in operation.get("requestBody", {}).get("content", {}).values():
            fields += _fields(content["schema"])
        found |= {f"{method.name} {name}": schema for name, schema in fields if JOB_ID.match(name)}
    for name in FREE:
        del found[name]
    assert {"show_job id", "finish_job id", "settle_jobs id", "show_flow id", "stream_events job"} <= found.keys()
    for name, schema in found.items():
        kinds = [one for one in schema.get("anyOf", [schema.get("items", schema)]) if one.get("type") != "null"]
        for kind in kinds:
            assert kind.get("maxLength", 10**6) <= 100, name
            assert re.fullmatch(kind["pattern"], "01a21ed3-93f4-7264-b7be-964b9ea939d3"), name
            assert not re.search(kind["pattern"], "x" * 32), name
