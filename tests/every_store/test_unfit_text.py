"""A NUL, which no store in SQL can hold in a text, wherever the HTTP API takes a text: the caller's mistake, on every
store."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import inspect

from tarry import App
from tarry.operate.method import Method
from tarry.server.http.methods.events import METHODS as STREAMS
from tarry.server.serving.api import METHODS
from tarry.store.rules import ids
from tests.server.http.calling import api, run

NUL = "a\0b"


def samples(kind: inspect.Type) -> Iterator[Any]:
    """Values of that type: the first is right, and each of the others has a NUL somewhere."""
    match kind:
        case inspect.UnionType(types=types):
            texts = [one for one in types if isinstance(one, inspect.StrType | inspect.StructType)]
            yield from samples((texts or types)[0])
        case inspect.StructType(fields=fields, tag_field=tag_field, tag=tag):
            values = {one.encode_name: list(samples(one.type)) for one in fields}
            right = {one.encode_name: values[one.encode_name][0] for one in fields if one.required}
            right |= {tag_field: tag} if tag_field else {}
            yield right
            yield from (right | {name: wrong} for name, each in values.items() for wrong in each[1:])
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield from ([one] for one in samples(item))
        case inspect.DictType():
            yield from ({}, {"url": NUL}, {NUL: "x"})
        case inspect.StrType():
            yield from ("x", NUL)
        case inspect.EnumType(cls=cls):
            yield next(iter(cls)).value
        case inspect.LiteralType(values=values_):
            yield values_[0]
        case _:
            yield 1


def requests(method: Method, id: str) -> Iterator[tuple[str, dict[str, str], Any]]:
    """The path, the parameters and the body of requests with a NUL each."""
    parts = dict(method.parts) | ({"body": method.reads} if method.reads and "body" not in method.parts else {})
    values = {part: list(samples(inspect.type_info(kind))) for part, kind in parts.items()}
    right = {part: each[0] for part, each in values.items()}
    if "id" in right.get("path", {}):
        right["path"]["id"] = id
    for part, each in values.items():
        for wrong in each[1:]:
            found = right | {part: wrong}
            path = method.route
            for name, value in found.get("path", {}).items():
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
            yield path, found.get("query", {}), found.get("body")


def test_no_method_fails_on_a_nul(app: App) -> None:
    asked = [method for method in METHODS if method not in STREAMS]

    async def story() -> None:
        async with api(app) as client:
            put = await client.post("/v1/jobs", json={"task": "x", "queue": "x", "body": 1})
            id, seen = ids.text(ids.parse(put.json()["id"])), 0
            for method in asked:
                for path, query, body in requests(method, id):
                    seen += 1
                    sent = {"Content-Type": "application/json"} if body is not None else {}
                    content = None if body is None else msgspec.json.encode(body)
                    got = await client.request(method.verb, path, params=query, content=content, headers=sent)
                    assert got.status_code < 500, (method.name, path, query, body, got.text)
            assert seen > 60

    run(story)
