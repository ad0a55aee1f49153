"""One method of the HTTP API, described once: its route, its checks and its part of the OpenAPI document come from it.

    @api_method("POST /v1/queues/{queue}/pause", Scope.OPERATE)
    def pause_queue(call: ApiCall, path: QueuePath, body: PauseRequest) -> QueueRecord:
        '''Pauses a queue.

        Its jobs wait until it is resumed.'''

`path`, `query` and `body` are msgspec Structs, all of them optional; the docstring's first line is the summary. A `def`
may block: it runs in a thread of the service. An `async def` runs on the event loop and must not block: `call.run`.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypedDict, Unpack, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from tarry.door.http.problem import NOT_JSON, RequestError, wrong_value
from tarry.door.identity.access import Caller, Scope, is_as_before
from tarry.door.open_connections.activity import note_wait
from tarry.door.service import DoorService
from tarry.door.store_look import OLDEST
from tarry.metrics.store_look import KEPT_FOR, StoreLook
from tarry.model.job import Job
from tarry.tasks.options import IDEMPOTENCY

JSON = "application/json"
_PARTS = ("path", "query", "body")
_NAMED = re.compile(r"{(queue|task|limit|schedule|host|key)}")


class NameConvertor(Convertor[str]):
    """A name in a path. Servers decode the path before it gets here, so a name may hold slashes."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        """As it stands in the path."""
        return value

    def to_string(self, value: str) -> str:
        """The same."""
        return value


register_url_convertor("name", NameConvertor())


def route_of(path: str) -> str:
    """The path of a method or page, as Starlette takes it."""
    return _NAMED.sub(r"{\1:name}", path)


class ApiCall:
    """One request while its method runs."""

    __slots__ = ("caller", "is_page", "queue", "request", "scope", "service", "status", "subject")

    def __init__(self, service: DoorService, caller: Caller, request: Request, scope: Scope | None) -> None:
        self.service, self.caller, self.request, self.scope = service, caller, request, scope
        self.subject = request.scope["path"]
        """What it is about, for the audit log; no secrets."""
        self.status: int | None = None
        """Of the answer, where it is not that of the method."""
        self.queue = ""
        """The queue that it concerns, for the audit log: the first one that the method checked."""
        self.is_page = False
        """Whether a page for a person is made of the answer: it has to come soon, and asks again by itself."""

    def check(self, queue: str) -> None:
        """NotAllowed if the caller may not do what this method does with that queue."""
        self.queue = self.queue or queue
        # A method that checks a queue has a scope.
        self.caller.check(self.scope or Scope.ADMIN, queue)

    def check_again(self, queues: Iterable[str]) -> None:
        """After a wait: NotAuthenticated or NotAllowed if meanwhile the caller's token was revoked, or its rights."""
        access, client = self.service.access, self.request.client
        if not is_as_before(access, self.caller):
            self.caller = access.caller(self.request.headers, client.host if client else "")
            for queue in queues:
                self.check(queue)

    def waits_for(self, what: str) -> None:
        """Has the list of connections say what this request waits for: no secrets."""
        note_wait(self.request.scope, what)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names and patterns of the queues whose jobs the caller may see; empty: all."""
        return self.caller.queues

    def own_key(self, shown: str) -> str:
        """The key of a job in the store, where the caller wrote, or was shown, this one."""
        kind = IDEMPOTENCY if shown.startswith(IDEMPOTENCY) else ""
        return kind + self.caller.namespace + shown.removeprefix(kind)

    def shown(self, job: Job) -> Job:
        """The job with the key as the caller wrote it, if it is one of its own."""
        own, key = self.caller.namespace, job.key or ""
        for kind in ("", IDEMPOTENCY):
            if own and key.startswith(kind + own):
                return replace(job, key=kind + key.removeprefix(kind + own))
        return job

    def allows(self, queue: str) -> bool:
        """Whether the caller may do what this method does with that queue."""
        return self.caller.allows(self.scope or Scope.ADMIN, queue)

    def look(self, kept_for: float = KEPT_FOR) -> StoreLook:
        """A look at the store that is at most so many seconds old, or older if it is a large one; StoreError."""
        return self.service.look.read(kept_for, OLDEST if self.is_page else 0.0)

    async def run(self, call: Callable[..., Any], /, *args: Any) -> Any:
        """Makes a blocking call in a thread of the service, and returns what it returns."""
        return await self.service.run(call, *args)


class ApiMethod(Struct, frozen=True):
    """A method of the API."""

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

    @property
    def name(self) -> str:
        """Its name in the document: that of its function."""
        return self.handler.__name__

    @property
    def may_block(self) -> bool:
        """Whether its handler has to run in a thread."""
        return not inspect.iscoroutinefunction(self.handler)

    def check_path_and_query(self, path: Mapping[str, str], query: list[tuple[str, str]]) -> dict[str, Any]:
        """The values of `path` and `query` as the handler takes them; RequestError."""
        found: dict[str, Any] = {}
        if kind := self.parts.get("path"):
            found["path"] = _convert(dict(path), kind, "path")
        if kind := self.parts.get("query"):
            found["query"] = _convert(_gather(query, kind), kind, "query")
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
            return msgspec.json.decode(body, type=self.parts["body"])
        except NOT_JSON as error:
            raise wrong_value(error, "body") from None


class MethodSettings(TypedDict, total=False):
    """As the fields of ApiMethod; `answers` is the type of an answer that the function makes by itself."""

    status: int
    tag: str
    media_type: str
    errors: tuple[type[Exception], ...]
    body_types: tuple[str, ...]
    reads: Any
    is_open: bool
    also: Mapping[int, str]
    answers: Any


def api_method(
    route: str, scope: Scope | None, **settings: Unpack[MethodSettings]
) -> Callable[[Callable[..., Any]], ApiMethod]:
    """Makes a method of a function. route: "GET /v1/jobs/{id}". Its third part is the tag, unless that is given."""
    verb, _, path = route.partition(" ")
    answers = settings.pop("answers", None)
    chosen: dict[str, Any] = dict(settings)
    if "tag" not in chosen:
        chosen["tag"] = path.split("/")[2]

    def make(handler: Callable[..., Any]) -> ApiMethod:
        hints = get_type_hints(handler)
        summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
        answer = hints.get("return")
        parts = {name: hints[name] for name in _PARTS if name in hints}
        if answer is type(None):
            chosen["status"] = 204
        if answer is type(None) or (isinstance(answer, type) and issubclass(answer, Response)):
            answer = answers
        return ApiMethod(verb, path, scope, handler, " ".join(summary.split()), description, parts, answer, **chosen)

    return make


def _gather(query: list[tuple[str, str]], kind: Any) -> dict[str, Any]:
    """The parameters by name: a list for those that may be given several times."""
    several = {field.encode_name for field in msgspec.structs.fields(kind) if _is_list(field.type)}
    found: dict[str, Any] = {}
    for name, value in query:
        if name in several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise RequestError(f"query: {name}: given twice", name, 422)
        else:
            found[name] = value
    return found


def _is_list(kind: Any) -> bool:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(plain) is list


def _convert(values: dict[str, Any], kind: Any, where: str) -> Any:
    try:
        # Not strict: all values of a path or query are text.
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise wrong_value(error, where) from None
