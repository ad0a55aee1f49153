"""Every text and list of a request has a bound, which the OpenAPI document says too.

Settings of a task are a table of any shape: what reads each of them has the bound."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from tarry.server.http.methods.puts import MOST_JOBS
from tarry.server.serving.api import METHODS


def _unbounded(kind: Any, where: str, bound: int | None, seen: set[Any]) -> Iterator[str]:
    """The parts of this type that may be of any length. bound: of the type itself."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in (str, bytes) or origin in (list, tuple):
        yield from () if bound is not None else [where]
    if origin is Annotated:
        sizes = [each.max_length for each in args[1:] if isinstance(each, Meta) and each.max_length]
        yield from _unbounded(args[0], where, min(sizes, default=bound), seen)
    elif origin in (list, tuple):
        yield from _unbounded(args[0], f"{where}[]", None, seen)
    elif isinstance(kind, type) and issubclass(kind, Struct) and kind not in seen:
        seen.add(kind)
        for name, field in get_type_hints(kind, include_extras=True).items():
            yield from _unbounded(field, f"{where}.{name}", None, seen)
    elif origin in (Union, UnionType):
        for each in args:
            yield from _unbounded(each, where, bound, seen)


def _request_types() -> Iterator[tuple[str, Any]]:
    for method in METHODS:
        for part, kind in [*method.parts.items(), ("body", method.reads)]:
            if kind is not None:
                yield f"{method.name} {part}", kind


def test_every_text_and_list_of_a_request_has_a_bound() -> None:
    # A list of jobs is counted by its handler.
    found = [place for where, kind in _request_types() for place in _unbounded(kind, where, MOST_JOBS, set())]
    assert not found, found
