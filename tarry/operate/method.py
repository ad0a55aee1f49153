"""One method, described once: the HTTP API, its document, the command, the form of the console, the entry in the log of
acts and the remote client's call come from it.

    @method("POST /v1/queues/{queue}/pause", Scope.OPERATE, command="queues pause", done="{queue} paused")
    def pause_queue(call: MethodCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
        '''Pauses a queue.

        Its jobs wait until it is resumed.'''

`path`, `query` and `body` are msgspec Structs, all of them optional; the docstring's first line is the summary. A `def`
may block: it runs in a thread of the service. An `async def` runs on the event loop and must not block: `call.run`.
What a field means is the text below it.
"""

import ast
import contextlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from typing import Annotated, Any, TypedDict, Unpack, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import convert_to, decode_json
from tarry.operate.access import Scope
from tarry.operate.problem import NOT_JSON, RequestError, wrong_value

JSON = "application/json"
PARTS = ("path", "query", "body")
_ACTING = (Scope.OPERATE, Scope.ADMIN)


class Method(Struct, frozen=True):
    """What people and programs may do, or look at."""

    verb: str
    route: str
    scope: Scope | None
    """What a caller needs; None: every caller may call it."""
    handler: Callable[..., Any]
    summary: str
    description: str
    parts: Mapping[str, Any]
    """The types of `path`, `query` and `body`, of those that it has."""
    answer: Any
    """The type of the answer; None: it has no body, or is no JSON."""
    status: int = 200
    tag: str = ""
    """The chapter of the docs."""
    media_type: str = JSON
    """Of the answer."""
    errors: tuple[type[Exception], ...] = ()
    """Those that it answers with, besides those that all methods have."""
    body_types: tuple[str, ...] = (JSON,)
    """Which types its body may have."""
    reads: Any = None
    """The type of a body that the handler reads from `call.request` by itself."""
    is_open: bool = False
    """Whether it is also for those without a token, where there are tokens: probes have none."""
    also: Mapping[int, str] = {}
    """Other statuses that it has where all is well, each with what it means."""
    command: str = ""
    """The command that does the same: `limits set`; empty: there is none."""
    asks_first: bool = False
    """Whether a command asks before it does that, with the number of jobs."""
    check: Callable[..., Any] | None = None
    """What has to hold of each of several that a command names, before the first is changed; it takes what the handler
    takes, and raises. None: nothing."""

    @property
    def name(self) -> str:
        """Its name in the document and in the log of acts: that of its function."""
        return self.handler.__name__

    @property
    def may_block(self) -> bool:
        """Whether its handler has to run in a thread."""
        return not inspect.iscoroutinefunction(self.handler)

    @property
    def may_change(self) -> bool:
        """Whether what the store has may be another after it."""
        return self.scope not in (None, Scope.READ) and self.verb != "GET"

    @property
    def is_audited(self) -> bool:
        """Whether it is one for operators that may change something."""
        return self.scope in _ACTING and self.verb != "GET"

    def check_path_and_query(self, path: Mapping[str, str], query: list[tuple[str, str]]) -> dict[str, Any]:
        """The values of `path` and `query` as the handler takes them; RequestError."""
        found: dict[str, Any] = {}
        if kind := self.parts.get("path"):
            found["path"] = convert_values(dict(path), kind, "path")
        if kind := self.parts.get("query"):
            found["query"] = convert_values(_gather(query, kind), kind, "query")
        elif query:
            raise RequestError(f"query: {query[0][0]}: this method takes no parameters", query[0][0], 422)
        return found

    def check_body(self, body: bytes, media_type: str) -> Any:
        """The body as the handler takes it; RequestError."""
        if not body:
            # A method all of whose fields may be left out needs no body.
            body = b"{}"
        elif media_type not in self.body_types:
            # Browsers send JSON to other sites only after asking, which this API never allows.
            said = f"send Content-Type: {self.body_types[0]}, not {media_type or 'none'}"
            raise RequestError(said, "Content-Type", 415)
        try:
            return decode_json(body, self.parts["body"])
        except NOT_JSON as error:
            raise wrong_value(error, "body") from None


class MethodSettings(TypedDict, total=False):
    """As the fields of Method; `answers` is the type of an answer that the function makes by itself."""

    status: int
    tag: str
    media_type: str
    errors: tuple[type[Exception], ...]
    body_types: tuple[str, ...]
    reads: Any
    is_open: bool
    also: Mapping[int, str]
    command: str
    asks_first: bool
    check: Callable[..., Any] | None
    answers: Any


def method(
    route: str, scope: Scope | None, **settings: Unpack[MethodSettings]
) -> Callable[[Callable[..., Any]], Method]:
    """Makes a method of a function. route: "GET /v1/jobs/{id}". Its third part is the tag, unless that is given."""
    verb, _, path = route.partition(" ")
    chosen: dict[str, Any] = dict(settings)
    if "tag" not in chosen:
        chosen["tag"] = path.split("/")[2]

    def make(handler: Callable[..., Any]) -> Method:
        hints = get_type_hints(handler)
        summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
        returned = hints.get("return")
        if returned is type(None):
            chosen["status"], returned = 204, None
        answer = chosen.pop("answers", returned)
        parts = {name: hints[name] for name in PARTS if name in hints}
        return Method(verb, path, scope, handler, " ".join(summary.split()), description, parts, answer, **chosen)

    return make


def methods_of(module: str) -> tuple[Method, ...]:
    """The methods that the module of this name makes, in their order."""
    found = vars(sys.modules[module]).values()
    return tuple(one for one in found if isinstance(one, Method) and one.handler.__module__ == module)


def convert_values(values: dict[str, Any], kind: Any, where: str) -> Any:
    """Values that are text, as this Struct; RequestError."""
    found = {name: _as_number(value) if name in _in_seconds(kind) else value for name, value in values.items()}
    try:
        # Not strict: all values of a path, a query or a command are text.
        return convert_to(kind, found, strict=False)
    except msgspec.ValidationError as error:
        raise wrong_value(error, where) from None


@lru_cache(maxsize=256)
def _in_seconds(kind: Any) -> frozenset[str]:
    """The fields that take seconds or a text: msgspec would leave a number a text there."""
    types = {field.encode_name: {_plain(one) for one in get_args(field.type)} for field in msgspec.structs.fields(kind)}
    return frozenset(name for name, some in types.items() if {float, str} <= some)


def _as_number(value: Any) -> Any:
    with contextlib.suppress(ValueError, TypeError):
        return float(value)
    return value


def is_list(kind: Any) -> bool:
    """Whether a field of this type takes several values."""
    return get_origin(_plain(kind)) is list


def choices_of(kind: Any) -> list[str]:
    """The texts that a field of this type takes; none: any."""
    kind = _plain(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(one.value) for one in kind]
    return [one for part in get_args(kind) for one in ([part] if isinstance(part, str) else choices_of(part))]


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _gather(query: list[tuple[str, str]], kind: Any) -> dict[str, Any]:
    """The parameters by name: a list for those that may be given several times."""
    several = {field.encode_name for field in msgspec.structs.fields(kind) if is_list(field.type)}
    found: dict[str, Any] = {}
    for name, value in query:
        if name in several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise RequestError(f"query: {name}: given twice", name, 422)
        else:
            found[name] = value
    return found


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
