"""The reference of the HTTP API, written from the OpenAPI document that the server gives."""

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec

from tarry.server.http.description.openapi import openapi_document
from tarry.server.serving.api import METHODS

_TOP = """\
# The HTTP API

A server with `[server] http` gives this as an OpenAPI document at `/v1/openapi.json`, and as a page at `/v1/docs`.
[doors.md](../doors.md) tells how to use it, with curl and in five languages.

{about}

With tokens, each request has the header `Authorization: Bearer TOKEN`.
"""


def write() -> str:
    """The page: each method by its chapter, then each object."""
    document = msgspec.json.decode(msgspec.json.encode(openapi_document(METHODS, "")))
    operations = [
        (operation["tags"][0], f"{verb.upper()} {path}", operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    tags = list(dict.fromkeys(tag for tag, *_ in operations))
    operations.sort(key=lambda each: tags.index(each[0]))
    everywhere = _common([operation for *_, operation in operations])
    blocks = [_TOP.format(about=document["info"]["description"]), "Any method may answer:", _statuses(everywhere)]
    for tag, group in groupby(operations, key=lambda each: each[0]):
        blocks.append(f"## {tag.capitalize()}")
        blocks += [_operation(title, operation, everywhere) for _, title, operation in group]
    blocks.append("## Objects")
    blocks += [_object(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _common(operations: list[Any]) -> dict[str, str]:
    """What every method may answer with, told once: descriptions by status."""
    each = [{status: told["description"] for status, told in one["responses"].items()} for one in operations]
    return {status: text for status, text in each[0].items() if all(one.get(status) == text for one in each)}


def _statuses(told: Mapping[str, str]) -> str:
    rows = (f"| {status} | {_cell(text)} |" for status, text in sorted(told.items()))
    return "\n".join(["| status | |", "|---|---|", *rows])


def _operation(title: str, operation: Mapping[str, Any], everywhere: Mapping[str, str]) -> str:
    parameters = [
        _row(one["name"], _kind(one["schema"]) + _default(one["schema"]), one.get("description", one["in"]))
        for one in operation["parameters"]
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = [
        _row(status, _content(told.get("content", {})), told["description"])
        for status, told in sorted(operation["responses"].items())
        if everywhere.get(status) != told["description"]
    ]
    parts = [
        f"### `{title}` {{ #{operation['operationId']} }}",
        operation["summary"],
        operation["description"],
        _table("parameter", parameters),
        f"Body: {_content(bodies)}" if bodies else "",
        _table("answer", answers),
    ]
    return "\n\n".join(filter(None, parts))


def _content(content: Mapping[str, Any]) -> str:
    """What a body may be, with its media types."""
    kinds: dict[str, list[str]] = {}
    for media_type, one in content.items():
        kinds.setdefault(_kind(one["schema"]) if one.get("schema") else "", []).append(f"`{media_type}`")
    return "; ".join(f"{kind} as {' or '.join(types)}" if kind else " or ".join(types) for kind, types in kinds.items())


def _object(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        _row(field, _kind(value) + (" *required*" if field in needed else _default(value)), _about(value))
        for field, value in schema.get("properties", {}).items()
    ]
    words = "One of " + ", ".join(f"`{word}`" for word in schema["enum"]) + "." if "enum" in schema else ""
    head = f"### {name} {{ #object-{name.lower()} }}"
    return "\n\n".join(filter(None, [head, schema.get("description", ""), words, _table("field", rows)]))


def _table(first: str, rows: list[str]) -> str:
    return "\n".join([f"| {first} | | |", "|---|---|---|", *rows]) if rows else ""


def _row(name: str, kind: str, about: str) -> str:
    return f"| `{name}` | {kind} | {_cell(about)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def _about(schema: Any) -> str:
    return str(schema.get("description", "")) if isinstance(schema, Mapping) else ""


def _default(schema: Any) -> str:
    found = schema.get("default") if isinstance(schema, Mapping) else None
    # Of objects, the defaults of their fields tell it.
    return "" if found in (None, "", []) or isinstance(found, dict) else f" = `{json.dumps(found)}`"


def _kind(schema: Any) -> str:
    """What values a schema takes."""
    # `true` and `false` are schemas too; a list of types is one of them.
    if not isinstance(schema, Mapping):
        return "anything"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#object-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "anything")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
