"""The page for people, generated from the OpenAPI document. It needs no scripts, and nothing from elsewhere."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; --line: #8883; --soft: #8881; --mark: #36c }
* { box-sizing: border-box }
body { margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr) }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1rem; border-right: 1px solid var(--line) }
nav h2 { font-size: .8rem; margin: 1rem 0 .25rem; text-transform: uppercase; letter-spacing: .05em; border: 0 }
nav a { display: block; font-size: .85rem; text-decoration: none; color: inherit; padding: .1rem 0 }
nav a:hover { color: var(--mark) }
main { padding: 1rem 2.5rem 4rem; max-width: 64rem }
code, pre, h3 { font-family: ui-monospace, monospace }
code { font-size: .875em }
h2 { margin: 3rem 0 0; padding-bottom: .25rem; border-bottom: 2px solid var(--line) }
h3 { font-size: 1rem; margin: 2.5rem 0 .5rem; padding: .4rem .6rem; background: var(--soft); border-radius: .4rem;
  overflow-wrap: anywhere }
h4 { font-size: .8rem; margin: 1rem 0 0; opacity: .7 }
.verb { display: inline-block; min-width: 4.5rem; color: var(--mark) }
.DELETE .verb { color: #c33 } .GET .verb { color: #283 }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem }
table { border-collapse: collapse; margin: .25rem 0 .5rem; width: 100%; font-size: .92rem }
td { border-bottom: 1px solid var(--line); padding: .3rem .75rem .3rem 0; vertical-align: top }
td:first-child { width: 11rem; overflow-wrap: anywhere } td:nth-child(2) { width: 14rem }
p { margin: .35rem 0 }
i { color: #c33; font-style: normal; font-size: .8em }
@media (max-width: 50rem) { body { display: block } nav { position: static; height: auto } main { padding: 1rem } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'"
_CODE = re.compile(r"`([^`]+)`")
_DEEPEST = 12
"""Schemas within each other that an example follows: one may hold itself."""


def docs_page(document: Mapping[str, Any]) -> str:
    """HTML of what this OpenAPI document says."""
    operations = [
        (operation["tags"][0], verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    tags = list(dict.fromkeys(tag for tag, *_ in operations))
    operations.sort(key=lambda each: tags.index(each[0]))
    chapters = [(tag, [each[1:] for each in group]) for tag, group in groupby(operations, key=lambda each: each[0])]
    everywhere = _problems_of_all([operation for *_, operation in operations])
    schemas = document["components"]["schemas"]
    page = DocsPage(schemas, everywhere)
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}: the HTTP API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"{_navigation(chapters)}<main><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"{_prose(info['description'])}{_introduction(everywhere)}"
        + "".join(page.chapter(tag, group) for tag, group in chapters)
        + f'<h2 id="objects">objects</h2>{"".join(page.schema(name) for name in schemas)}</main></html>'
    )


def _problems_of_all(operations: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What each method may answer with, said once: descriptions by status."""
    each = [{status: said["description"] for status, said in one["responses"].items()} for one in operations]
    return {status: text for status, text in each[0].items() if all(one.get(status) == text for one in each)}


def _navigation(chapters: Sequence[tuple[str, Sequence[Any]]]) -> str:
    parts = []
    for tag, group in chapters:
        links = "".join(
            f"<a href={_quote('#' + one['operationId'])}>{escape(_spoken(one['operationId']))}</a>"
            for _, _, one in group
        )
        parts.append(f"<h2><a href={_quote('#' + tag)}>{escape(tag)}</a></h2>{links}")
    return f'<nav><a href="openapi.json">openapi.json</a>{"".join(parts)}<h2><a href="#objects">objects</a></h2></nav>'


def _introduction(everywhere: Mapping[str, str]) -> str:
    rows = [(status, "", text) for status, text in sorted(everywhere.items())]
    said = "<p>With tokens, each request has the header <code>Authorization: Bearer TOKEN</code>.</p>"
    return f"{said}<h4>Any method may answer</h4>{_table(rows)}" if rows else said


class DocsPage:
    """The parts of a page about single methods and objects. everywhere: statuses that are told once, at its top."""

    def __init__(self, schemas: Mapping[str, Any], everywhere: Mapping[str, str]) -> None:
        self._schemas, self._everywhere = schemas, everywhere

    def chapter(self, tag: str, operations: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
        """The methods of one tag."""
        return f"<h2 id={_quote(tag)}>{escape(tag)}</h2>" + "".join(self._operation(*each) for each in operations)

    def schema(self, name: str) -> str:
        """An object, with its fields."""
        schema = self._schemas[name]
        rows = self._fields(schema)
        if "enum" in schema:
            rows.append(("one of", "", ", ".join(map(str, schema["enum"]))))
        said = _prose(schema.get("description", ""))
        return f"<h3 id={_quote('object-' + name)}>{escape(name)}</h3>{said}{_table(rows)}"

    def _operation(self, verb: str, path: str, operation: Mapping[str, Any]) -> str:
        title = (
            f'<h3 id={_quote(operation["operationId"])} class="{verb}">'
            f'<span class="verb">{verb}</span>{escape(path)}</h3>'
        )
        parameters = [
            (each["name"], _kind(each["schema"]) + _default(each["schema"]), each.get("description", each["in"]))
            for each in operation["parameters"]
        ]
        said = _prose(f"{operation['summary']}\n\n{operation['description']}")
        curl = f"<pre>{escape(self._curl(verb, path, operation))}</pre>"
        return (
            title
            + said
            + curl
            + _table_with_title("Parameters", parameters)
            + self._body(operation)
            + self._answers(operation)
        )

    def _body(self, operation: Mapping[str, Any]) -> str:
        content = operation.get("requestBody", {}).get("content", {})
        found = ""
        for kind, types in groupby(content.items(), key=lambda each: _kind(each[1]["schema"])):
            names = ", ".join(f"<code>{escape(media_type)}</code>" for media_type, _ in types)
            found += f"<h4>Body</h4><p>{kind}, as {names}</p>"
        first = next(iter(content.values()), None)
        return found + (_table(self._fields(self._object(first["schema"]))) if first else "")

    def _answers(self, operation: Mapping[str, Any]) -> str:
        rows = []
        for status, response in sorted(operation["responses"].items()):
            if self._everywhere.get(status) == response["description"]:
                continue
            kinds = [
                _kind(content["schema"]) if content.get("schema") else f"<code>{escape(media_type)}</code>"
                for media_type, content in response.get("content", {}).items()
            ]
            rows.append((status, "".join(kinds), response["description"]))
        return _table_with_title("Answers", rows)

    def _curl(self, verb: str, path: str, operation: Mapping[str, Any]) -> str:
        way = "" if verb == "GET" else f"-X {verb} "
        body = operation.get("requestBody")
        if body is None or not body["required"]:
            return f"curl {way}http://localhost:7800{path}"
        shown = json.dumps(self._example(next(iter(body["content"].values()))["schema"]))
        return f"curl {'' if verb == 'POST' else way}http://localhost:7800{path} --json '{shown}'"

    def _object(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that a schema is, or is a list of; empty: none."""
        for each in schema.get("anyOf", [schema]):
            if "$ref" in each:
                found: Mapping[str, Any] = self._schemas[_name_of(each)]
                return found
        return {}

    def _fields(self, schema: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        needed = schema.get("required", ())
        return [
            (field, _kind(value) + (" <i>required</i>" if field in needed else _default(value)), _about(value))
            for field, value in schema.get("properties", {}).items()
        ]

    def _example(self, schema: Any, depth: int = 0) -> Any:
        """A value with the fields that have to be there."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return {}
        if "$ref" in schema:
            return self._example(self._schemas[_name_of(schema)], depth + 1)
        if "anyOf" in schema:
            # A single object before a list of them.
            kinds = sorted(schema["anyOf"], key=lambda each: each.get("type") == "array")
            return self._example(kinds[0], depth + 1)
        if "enum" in schema:
            return schema["enum"][0]
        if schema.get("type") == "object":
            fields = schema.get("properties", {})
            return {
                name: self._example(fields[name], depth + 1) for name in schema.get("required", ()) if name in fields
            }
        if schema.get("type") == "array":
            return [self._example(schema.get("items", {}), depth + 1)]
        return {"string": "name", "integer": 1, "number": 0.5, "boolean": True}.get(str(schema.get("type")), {})


def _table_with_title(title: str, rows: list[tuple[str, str, str]]) -> str:
    return f"<h4>{title}</h4>{_table(rows)}" if rows else ""


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """HTML of a table; the second column is HTML already."""
    lines = (f"<tr><td><code>{escape(a)}</code><td>{b}<td>{_inline(c)}" for a, b, c in rows)
    return f"<table>{''.join(lines)}</table>" if rows else ""


def _prose(text: str) -> str:
    """Paragraphs, in which backquotes mark code."""
    return "".join(f"<p>{_inline(part)}</p>" for part in text.split("\n\n") if part.strip())


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _default(schema: Any) -> str:
    found = schema.get("default") if isinstance(schema, Mapping) else None
    # Of objects, the defaults of their fields say it.
    return "" if found in (None, "", []) or isinstance(found, dict) else f" = <code>{escape(json.dumps(found))}</code>"


def _about(schema: Any) -> str:
    return str(schema.get("description", "")) if isinstance(schema, Mapping) else ""


def _name_of(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _kind(schema: Any) -> str:
    """HTML of what values a schema takes."""
    # `true` and `false` are schemas too; a list of types is one of them.
    if not isinstance(schema, Mapping):
        return "anything"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href={_quote('#object-' + name)}>{escape(name)}</a>"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return escape(" or ".join(f'"{value}"' for value in schema["enum"]))
    kinds = schema.get("type", "anything")
    return escape(" or ".join(kinds) if isinstance(kinds, list) else str(kinds))


def _quote(text: str) -> str:
    return f'"{escape(text)}"'
