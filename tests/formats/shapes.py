"""Types as lines of text, and whether what has become of a shape is growth."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

_PLAIN: dict[type[Any], str] = {
    inspect.IntType: "int", inspect.FloatType: "float", inspect.StrType: "str", inspect.BytesType: "bytes",
    inspect.BoolType: "bool", inspect.NoneType: "None", inspect.AnyType: "any", inspect.RawType: "any",
    inspect.DateTimeType: "datetime", inspect.TimeDeltaType: "timedelta",
}  # fmt: skip


def describe_types(types: dict[str, Any]) -> list[str]:
    """A line for each type by its name, and one for each field of the structs in it."""
    structs: dict[str, inspect.StructType] = {}
    lines = [f"{name} = {_text(inspect.type_info(kind), structs)}" for name, kind in types.items()]
    done: set[str] = set()
    while missing := sorted(structs.keys() - done):
        for name in missing:
            lines += _struct_lines(name, structs[name], structs)
            done.add(name)
    return sorted(set(lines))


def _struct_lines(name: str, struct: inspect.StructType, structs: dict[str, inspect.StructType]) -> Iterator[str]:
    yield f"{name}: {'array' if struct.array_like else 'object'}{'' if struct.tag is None else f' tagged {struct.tag}'}"
    for place, field in enumerate(struct.fields):
        position = f"[{place:02}]" if struct.array_like else ""
        yield f"{name}.{position}{field.encode_name}: {_text(field.type, structs)}{_default(field)}"


def _default(field: inspect.Field) -> str:
    if field.required:
        return ""
    made = NODEFAULT if field.default_factory is NODEFAULT else field.default_factory()
    value = field.default if made is NODEFAULT else made
    return f" = {'unset' if value in (UNSET, NODEFAULT) else msgspec.json.encode(value).decode()}"


def _text(kind: Any, structs: dict[str, inspect.StructType]) -> str:
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    if isinstance(kind, inspect.Metadata):
        return _text(kind.type, structs)
    if isinstance(kind, inspect.StructType):
        structs[kind.cls.__name__] = kind
        return kind.cls.__name__
    if isinstance(kind, inspect.UnionType):
        return " | ".join(_text(one, structs) for one in kind.types)
    if isinstance(kind, inspect.DictType):
        return f"dict[{_text(kind.key_type, structs)}, {_text(kind.value_type, structs)}]"
    if isinstance(kind, inspect.TupleType):
        return f"array[{', '.join(_text(one, structs) for one in kind.item_types)}]"
    if isinstance(kind, inspect.CollectionType):
        return f"list[{_text(kind.item_type, structs)}]"
    if isinstance(kind, inspect.EnumType):
        return "one of " + ", ".join(str(one.value) for one in kind.cls)
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(map(str, kind.values))
    return type(kind).__name__


def broken(before: list[str], now: list[str], is_answer: bool = False) -> list[str]:
    """The lines that another version could not read: those that are gone or are others than they were, and new fields
    without a default in structs that were there. is_answer: nobody but tarry writes it, so such fields are growth."""
    gone = [line for line in before if line not in now]
    known = {_name(line) for line in before}
    new = [line for line in now if line not in before and _name(line) in known and _is_required(line)]
    return gone if is_answer else gone + new


def _name(line: str) -> str:
    """The struct of a line of a field."""
    return line.partition(": ")[0].partition(".")[0]


def _is_required(line: str) -> bool:
    return "." in line.partition(": ")[0] and " = " not in line
