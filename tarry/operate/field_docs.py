"""What the docstrings below the fields of Structs say, for the documents that people read.

msgspec knows the types of fields. What they mean stands in the source: a text below each, as everywhere in this house.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec


def describe_fields(schemas: Mapping[str, dict[str, Any]], types: Iterable[Any]) -> None:
    """Adds to each field of these schemas its description. schemas: by the names of Structs, all within `types`."""
    found = {struct.__name__: struct for kind in types for struct in _structs(msgspec.inspect.type_info(kind), set())}
    for name, schema in schemas.items():
        for field, described in field_docs(found[name]).items() if name in found else ():
            if field in schema.get("properties", {}):
                schema["properties"][field]["description"] = described


def _structs(info: Any, seen: set[type]) -> Iterator[type]:
    """The Structs within a type, each once."""
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
        yield info.cls
        for field in info.fields:
            yield from _structs(field.type, seen)
    elif isinstance(info, msgspec.inspect.Type):
        for name in info.__struct_fields__:
            part = getattr(info, name)
            for each in part if isinstance(part, tuple) else (part,):
                yield from _structs(each, seen)


@cache
def field_docs(struct: type) -> dict[str, str]:
    """What the docstrings of the fields say, also of inherited ones."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base is msgspec.Struct or not issubclass(base, msgspec.Struct):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for line, following in zip(body.body, body.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and _text(following):
                found[line.target.id] = _text(following)
    return found


def _text(line: ast.stmt) -> str:
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
        return " ".join(line.value.value.split())
    return ""
