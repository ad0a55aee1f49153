"""The page for people, generated from the OpenAPI document. It needs no scripts, and nothing from elsewhere."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from itertools import groupby
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1rem }
code, h3 { font-family: ui-monospace, monospace }
h3 { font-size: 1rem; margin: 2rem 0 .25rem }
h3 b { display: inline-block; min-width: 4.5rem }
table { border-collapse: collapse; margin: .5rem 0; width: 100% }
td, th { border-bottom: 1px solid #8884; padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top }
p { margin: .25rem 0; white-space: pre-line }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def docs_page(document: Mapping[str, Any]) -> str:
    """HTML of what this OpenAPI document says."""
    info = document["info"]
    operations = [
        (operation["tags"][0], verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    tags = list(dict.fromkeys(tag for tag, *_ in operations))
    operations.sort(key=lambda each: tags.index(each[0]))
    parts = [
        f"<h2 id={_quoted(tag)}>{escape(tag)}</h2>" + "".join(_operation(*each[1:]) for each in group)
        for tag, group in groupby(operations, key=lambda each: each[0])
    ]
    schemas = "".join(_schema(name, schema) for name, schema in document["components"]["schemas"].items())
    links = " · ".join(f"<a href={_quoted('#' + tag)}>{escape(tag)}</a>" for tag in (*tags, "objects"))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        f'<p><a href="openapi.json">openapi.json</a></p><p>{links}</p>'
        f"{''.join(parts)}<h2 id=objects>objects</h2>{schemas}</html>"
    )


def _operation(verb: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = [
        (f"{each['name']} ({each['in']})", _kind(each["schema"]), each.get("description", ""))
        for each in operation["parameters"]
    ]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append((media_type, _kind(content["schema"]), "the body"))
    for status, response in operation["responses"].items():
        kinds = [_kind(content.get("schema", {})) for content in response.get("content", {}).values()]
        rows.append((status, "".join(kinds), response["description"]))
    title = f"<h3 id={_quoted(operation['operationId'])}><b>{verb}</b> {escape(path)}</h3>"
    said = f"<p>{escape(operation['summary'])}</p><p>{escape(operation['description'])}</p>"
    return title + said + _table(rows)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        (field + (" *" if field in needed else ""), _kind(value), value.get("description", ""))
        for field, value in schema.get("properties", {}).items()
    ]
    if "enum" in schema:
        rows.append(("one of", escape(", ".join(map(str, schema["enum"]))), ""))
    described = f"<p>{escape(schema.get('description', ''))}</p>"
    return f"<h3 id={_quoted('object-' + name)}>{escape(name)}</h3>{described}{_table(rows)}"


def _table(rows: list[tuple[str, str, str]]) -> str:
    """HTML of a table; the second column is HTML already."""
    lines = (f"<tr><td><code>{escape(a)}</code><td>{b}<td>{escape(c)}" for a, b, c in rows)
    return f"<table>{''.join(lines)}</table>"


def _kind(schema: Any) -> str:
    """HTML of what values a schema takes."""
    # `true` and `false` are schemas too; a list of types is one of them.
    if not isinstance(schema, Mapping):
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href={_quoted('#object-' + name)}>{escape(name)}</a>"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return escape(" or ".join(f'"{value}"' for value in schema["enum"]))
    kinds = schema.get("type", "anything")
    return escape(" or ".join(kinds) if isinstance(kinds, list) else str(kinds))


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'
