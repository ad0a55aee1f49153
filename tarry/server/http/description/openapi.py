"""The OpenAPI 3.1 document of the API, generated from its methods."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tarry import errors
from tarry.model.checks.decoders import decode_json
from tarry.operate.method import Method, describe_fields
from tarry.server.http.problem import MEDIA_TYPE, REQUEST_STATUS, Problem, kind_of

_REF = "#/components/schemas/{name}"
_CONVERTER = re.compile(r":\w+(?=})")
_COMMON: tuple[type[Exception], ...] = (
    errors.NotAuthenticated,
    errors.NotAllowed,
    errors.Busy,
    errors.StoreError,
    errors.StoreFull,
)
"""Errors that every method may answer with."""
_ABOUT = """Put jobs, take them, and look at them, from any language.

Times are seconds since the epoch, or ISO 8601 with a zone where a method takes one. Errors are problem details (RFC
9457): `type` and `status` are for programs, `detail` is for people."""


def openapi_document(methods: Iterable[Method], version: str, root: str = "") -> dict[str, Any]:
    """The document, ready to be encoded as JSON. root: the path below which the API is mounted."""
    methods = list(methods)
    types = [
        kind for method in methods for kind in (*method.parts.values(), method.reads, method.answer) if kind is not None
    ]
    _, components = msgspec.json.schema_components([Problem, *types], ref_template=_REF)
    describe_fields(components, types)
    paths: dict[str, dict[str, Any]] = {}
    for method in methods:
        paths.setdefault(_CONVERTER.sub("", method.route), {})[method.verb.lower()] = _operation(method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tarry", "version": version, "description": _ABOUT, "license": {"name": "MIT"}},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # An empty alternative: a server without tokens takes requests without one.
        "security": [{"token": []}, {}],
    }


def _operation(method: Method) -> dict[str, Any]:
    scope = f"\n\nNeeds the scope `{method.scope}`." if method.scope else "\n\nNeeds no token."
    found: dict[str, Any] = {
        "operationId": method.name,
        "tags": [method.tag],
        "summary": method.summary,
        "description": (method.description + scope).strip(),
        "parameters": [*_parameters(method, "path"), *_parameters(method, "query")],
        "responses": _responses(method),
    }
    if (body := method.parts.get("body", method.reads)) is not None:
        schema = _schema(body)
        content = {media_type: {"schema": schema} for media_type in method.body_types}
        found["requestBody"] = {"content": content, "required": _needs_body(body)}
    if method.scope is None:
        found["security"] = [{}]
    return found


def _responses(method: Method) -> dict[str, Any]:
    content = {} if method.answer is None else {"content": {method.media_type: {"schema": _schema(method.answer)}}}
    if method.answer is None and method.status != 204:
        content = {"content": {method.media_type: {}}}
    said = {method.status: method.summary, **method.also}
    found: dict[str, Any] = {str(status): {"description": text} | content for status, text in said.items()}
    problem = {"content": {MEDIA_TYPE: {"schema": _schema(Problem)}}}
    # 400, 413, 415, 422: what may be wrong with the request itself.
    statuses = {422: ["A value of the request is wrong"]}
    if "{" in method.route:
        statuses[404] = [REQUEST_STATUS[404].title]
    if "body" in method.parts or method.reads is not None:
        statuses |= {
            400: ["The body is no JSON"],
            413: ["The request is too large"],
            415: ["The body is of another type than this method takes"],
        }
    for error in (*_COMMON, *method.errors):
        kind = kind_of(error.__new__(error))
        if kind is not None and kind.title not in statuses.setdefault(kind.status, []):
            statuses[kind.status].append(kind.title)
    for status, titles in sorted(statuses.items()):
        found[str(status)] = {"description": "; ".join(titles)} | problem
    return found


def _parameters(method: Method, where: str) -> Sequence[dict[str, Any]]:
    kind = method.parts.get(where)
    if kind is None:
        names = re.findall(r"{(\w+)(?::\w+)?}", method.route) if where == "path" else []
        return [{"name": name, "in": where, "required": True, "schema": {"type": "string"}} for name in names]
    schema = msgspec.json.schema(kind, ref_template=_REF)
    described = schema["$defs"][kind.__name__] if "$defs" in schema else _resolve_schema(kind)
    describe_fields({kind.__name__: described}, [kind])
    return [
        {
            "name": name,
            "in": where,
            "required": where == "path" or name in described.get("required", ()),
            "schema": value,
        }
        | ({"description": value["description"]} if "description" in value else {})
        for name, value in described["properties"].items()
    ]


def _resolve_schema(kind: Any) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    found: dict[str, Any] = components[kind.__name__]
    return found


def _schema(kind: Any) -> dict[str, Any]:
    (found,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return found


def _needs_body(kind: Any) -> bool:
    try:
        decode_json(b"{}", kind)
    except msgspec.ValidationError:
        return True
    return False
