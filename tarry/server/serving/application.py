"""The HTTP API as an ASGI application."""

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tarry.errors import NotAuthenticated
from tarry.operate.access import ANYONE, Caller
from tarry.operate.method import Method
from tarry.operate.problem import RequestError
from tarry.server.console.answers import finish
from tarry.server.http.method import ApiCall, route_of
from tarry.server.http.problem import MEDIA_TYPE, problem_of, retry_after
from tarry.server.http.request_log import audited
from tarry.server.http.request_reader import check_host, check_origin, media_type_of, read_body
from tarry.server.open_connections.activity import note_request
from tarry.server.service import DoorService
from tarry.server.serving.api import METHODS
from tarry.server.serving.console import Console
from tarry.tasks.lazy_asyncio import asyncio

JOBS = "/v1/jobs"


class ApiPath:
    """All methods of one path, as an ASGI application."""

    def __init__(self, service: DoorService, methods: Iterable[Method]) -> None:
        self._service = service
        self._methods: Mapping[str, Method] = {method.verb: method for method in methods}
        verbs = {*self._methods, "OPTIONS"} | ({"HEAD"} if "GET" in self._methods else set())
        self._allowed = {"Allow": ", ".join(sorted(verbs))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        began = time.perf_counter()
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = problem_response(error, request)
        method = self._methods.get(request.method)
        self._service.figures.count_request(method.name if method else "", response.status_code, began)
        if request.method == "HEAD":
            response = _without_body(response)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        verb = "GET" if request.method == "HEAD" else request.method
        if verb == "OPTIONS":
            return Response(status_code=204, headers=self._allowed)
        method = self._methods.get(verb)
        if method is None:
            error = RequestError(f"{request.method} is not for this path; {self._allowed['Allow']} are", None, 405)
            return problem_response(error, request, self._allowed)
        return await answer(method, self._service, request)


async def answer(method: Method, service: DoorService, request: Request) -> Response:
    """Calls the method for this request, and returns its answer; TarryError."""
    check_origin(request)
    address = request.client.host if request.client else ""
    # Before the token is looked at, so that guesses are bounded, too.
    service.address_rates.count(address, time.monotonic_ns() // 1000)
    caller: Caller = ANYONE if method.is_open else service.access.caller(request.headers, address)
    note_request(request.scope, f"{method.verb} {method.route}", caller.name)
    call = ApiCall(service, caller, request, method.scope)
    with audited(method, call, address):
        if method.scope is not None:
            caller.check(method.scope)
        found = await _call(method, call)
    if isinstance(found, Response):
        return found
    if found is None:
        return Response(status_code=204)
    return Response(msgspec.json.encode(found), call.status or method.status, media_type=method.media_type)


async def _call(method: Method, call: ApiCall) -> Any:
    """What the handler returns; TarryError."""
    service, request = call.service, call.request
    # Parsing nothing takes a while, and puts have no parameters.
    query = request.query_params.multi_items() if request.scope["query_string"] else []
    parts = method.check_path_and_query(request.path_params, query)
    if "body" in method.parts:
        body = await read_body(request, service.settings.max_request)
        parts["body"] = method.check_body(body, media_type_of(request))
    if method.may_block:
        return await service.run(method.handler, call, **parts)
    return await method.handler(call, **parts)


def problem_response(error: Exception, request: Request, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that raised this error."""
    problem = problem_of(error, request.url.path)
    more = dict(headers or {})
    if (seconds := retry_after(problem)) is not None:
        more["Retry-After"] = seconds
    if isinstance(error, NotAuthenticated):
        more["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(problem), problem.status, more, MEDIA_TYPE)


class _ApiRoute(Route):
    """The route of a path. Where none of its methods has the verb, a later route may fit: a name may end with `/pause`,
    which is also what follows a name. If none does, this path answers that."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class HttpDoor:
    """The ASGI application of the HTTP API. Its lifespan closes the service; without lifespan it works all the same."""

    def __init__(self, service: DoorService, methods: Iterable[Method] = METHODS) -> None:
        methods = list(methods)
        self._service, self._path = service, service.settings.path
        self._others = _router(service, methods)
        self._jobs = ApiPath(service, (method for method in methods if method.route == JOBS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection's request, or the lifespan."""
        if self._path and scope["type"] == "http":
            scope = _below(self._path, scope)
        if scope["type"] == "http" and self._service.settings.needs_local_host:
            # Here: what is added later to the API or the console is behind it as well.
            request = Request(scope)
            try:
                check_host(request, self._service.settings.host_names)
            except RequestError as error:
                await problem_response(error, request)(scope, receive, send)
                return
        # Nearly all requests are puts, and finding the way to this one path would cost each a tenth of its time.
        if scope["type"] == "http" and scope["path"] == scope.get("root_path", "") + JOBS:
            await self._jobs(scope, receive, send)
        else:
            await self._others(scope, receive, send)

    def close(self) -> None:
        """Commits what waits, and ends the threads; blocks. The app stays open."""
        self._service.close()


def _below(root: str, scope: Scope) -> Scope:
    """The scope of a request, whose root is that path if the request is for something below it."""
    path = scope["path"]
    if path == root:
        # As people write the address.
        return {**scope, "path": f"{root}/", "root_path": root}
    return {**scope, "root_path": root} if path.startswith(f"{root}/") else scope


def create_application(service: DoorService, methods: Iterable[Method] = METHODS) -> HttpDoor:
    """The ASGI application of the HTTP API, with these methods."""
    return HttpDoor(service, methods)


def _router(service: DoorService, methods: Iterable[Method]) -> Starlette:

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(service.close)

    console = None if service.settings.console == "off" else _console(service)

    async def not_found(request: Request, _: Exception) -> Response:
        error = RequestError("there is nothing here; /v1/docs lists what there is", None, 404)
        return answer_trouble(request, error)

    async def wrong_verb(request: Request, _: Exception) -> Response:
        # Only of the console: the API's paths answer it by themselves.
        return answer_trouble(request, RequestError(f"{request.method} is not for this path", None, 405))

    def answer_trouble(request: Request, error: Exception) -> Response:
        if console is not None and "text/html" in request.headers.get("accept", ""):
            return finish(request, console.trouble(request, error))
        return problem_response(error, request)

    ordered = sorted(methods, key=lambda method: _order(method.route))
    routes: list[BaseRoute] = [
        _ApiRoute(route_of(path), ApiPath(service, group), name=path, methods=[method.verb for method in group])
        for path, group in ((path, list(found)) for path, found in groupby(ordered, key=lambda method: method.route))
    ]
    routes += [] if console is None else console.routes()
    handlers: dict[Any, Any] = {404: not_found, 405: wrong_verb}
    application = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    # A redirect to the path with a slash would lose the body of a POST.
    application.router.redirect_slashes = False
    return application


def _console(service: DoorService) -> Console:
    return Console(service, read_only=service.settings.console == "read-only")


def _order(route: str) -> tuple[bool, int, str]:
    # The first that fits is taken: `/v1/jobs/count` has to come before `/v1/jobs/{id}`, and what follows a name before
    # the name alone.
    return "{" in route, -route.count("/"), route


def _without_body(response: Response) -> Response:
    return Response(status_code=response.status_code, headers=dict(response.headers))
