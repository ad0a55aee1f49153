"""The console as routes of the server: pages, acts, signing in and out."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tarry import errors
from tarry.door.access import Caller, Scope
from tarry.door.console import translation
from tarry.door.console.act import MOST_FORM, ConsoleAct, Form, form_values, read_form
from tarry.door.console.assets import serve_asset
from tarry.door.console.live import LASTS, LookChanges
from tarry.door.console.page import ConsolePage
from tarry.door.console.rendering import address_functions, environment
from tarry.door.console.session import COOKIE
from tarry.door.console.session import LASTS as SESSION_LASTS
from tarry.door.console.sign_in import SignIn, address_of, check_form_origin, local_path
from tarry.door.console.translation import LANGUAGES, Language, choose_language
from tarry.door.console.views import job, jobs, operating, overview, queues, stores, tasks
from tarry.door.http.events import EventResponse
from tarry.door.http.method import ApiCall
from tarry.door.http.problem import RequestError, problem_of
from tarry.door.http.reading import header, read_body
from tarry.door.http.request_log import audited
from tarry.door.service import DoorService
from tarry.model.duration import SECOND
from tarry.store import ids

PAGES: tuple[ConsolePage, ...] = (
    *overview.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *tasks.PAGES,
    *operating.PAGES,
    *stores.PAGES,
)
ACTS: tuple[ConsoleAct, ...] = (*queues.ACTS, *job.ACTS, *tasks.ACTS, *operating.ACTS)

FLASH = "tarry_said"
"""The cookie with what an act has done, until the next page shows it."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SIGN_IN = "/sign-in"
_MOST_FLASH = 300
_YEAR = 365 * 86400

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    """The console of one server process."""

    def __init__(
        self,
        service: DoorService,
        read_only: bool = False,
        pages: Sequence[ConsolePage] = PAGES,
        acts: Sequence[ConsoleAct] = ACTS,
    ) -> None:
        self._service, self._pages, self._acts = service, pages, acts
        self._door = SignIn(service, read_only)

    def routes(self) -> list[BaseRoute]:
        """All routes, in the order in which they are tried."""
        own = (
            ("GET", SIGN_IN, self._ask_to_sign_in),
            ("POST", SIGN_IN, self._sign_in),
            ("POST", "/sign-out", self._sign_out),
            ("POST", "/language", self._set_language),
            ("GET", "/find", self._find),
            ("GET", "/live", self._live),
        )
        found: list[BaseRoute] = [Route("/static/{version}/{name:path}", serve_asset, methods=["GET"])]
        found += [Route(path, self._caught(handler), methods=[verb]) for verb, path, handler in own]
        found += [Route(one.route, self._caught(self._shower(one)), methods=["GET"]) for one in self._pages]
        found += [Route(one.route, self._caught(self._doer(one)), methods=["POST"]) for one in self._acts]
        return found

    def _caught(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                return await self.trouble(request, error)

        return handle

    def _shower(self, page: ConsolePage) -> Handler:
        async def show(request: Request) -> Response:
            caller = await self._door.caller(request)
            call = ApiCall(self._service, caller, request, Scope.READ)
            # A form sends also the fields that nobody has filled in.
            given = [(name, value) for name, value in request.query_params.multi_items() if value]
            parts = page.method.check_path_and_query(request.path_params, given)
            data = await self._service.run(page.method.handler, call, **parts)
            return await self._render(request, page.template, data, caller)

        return show

    def _doer(self, act: ConsoleAct) -> Handler:
        async def do(request: Request) -> Response:
            caller = await self._door.caller(request)
            form = await self._door.read_form(request)
            if self._door.read_only:
                raise RequestError("this console is for looking only ([server] console)", None, 403)
            answer = await self._call(act, caller, request, form)
            where = act.page(answer) if act.page else local_path(form)
            return _redirect(request, where, act.said(answer, _language(request)))

        return do

    async def _call(self, act: ConsoleAct, caller: Caller, request: Request, form: Form) -> Any:
        method = act.method
        call = ApiCall(self._service, caller, request, method.scope)
        with audited(method, call, address_of(request)):
            caller.check(method.scope or Scope.ADMIN)
            parts = method.check_path_and_query(request.path_params, [])
            if "body" in method.parts:
                parts["body"] = form_values(form, method.parts["body"])
            return await self._service.run(method.handler, call, **parts)

    async def _ask_to_sign_in(self, request: Request) -> Response:
        data = {"where": local_path(request.query_params), "wrong": ""}
        return await self._render(request, "sign_in.html", data, None)

    async def _sign_in(self, request: Request) -> Response:
        check_form_origin(request)
        where = local_path(request.query_params)
        token = dict(read_form(await read_body(request, MOST_FORM))).get("token", "")
        try:
            cookie = await self._door.open(request, token)
        except errors.NotAuthenticated as error:
            data = {"where": where, "wrong": str(error)}
            return await self._render(request, "sign_in.html", data, None, HTTPStatus.UNAUTHORIZED)
        return _with_cookie(request, _redirect(request, where), COOKIE, cookie, SESSION_LASTS)

    async def _sign_out(self, request: Request) -> Response:
        await self._door.read_form(request)
        return _without_cookie(request, _redirect(request, SIGN_IN), COOKIE)

    async def _set_language(self, request: Request) -> Response:
        form = await self._door.read_form(request)
        code = choose_language(dict(form).get("language"), "").code
        return _with_cookie(request, _redirect(request, local_path(form)), translation.COOKIE, code, _YEAR)

    async def _find(self, request: Request) -> Response:
        """Leads to the job with that id; to the jobs with that key, if it is none."""
        text = request.query_params.get("text", "").strip()
        try:
            where = f"/jobs/{ids.text(ids.parse(text))}"
        except ValueError:
            where = f"/jobs?key={quote(text, safe='')}" if text else "/jobs"
        return _redirect(request, where)

    async def _live(self, request: Request) -> Response:
        """The stream that tells pages to ask again."""
        await self._door.caller(request)
        self._service.streams.check_room()
        return EventResponse(self._service.streams, LookChanges(self._service), LASTS)

    async def _render(
        self,
        request: Request,
        template: str,
        data: Mapping[str, Any],
        caller: Caller | None,
        status: int = HTTPStatus.OK,
    ) -> Response:
        language, root = _language(request), _root(request)
        shown = {
            "request_path": request.url.path.removeprefix(root),
            "here": _here(request),
            "caller": caller,
            "may": lambda scope: self._door.may(caller, scope),
            "language": language,
            "languages": LANGUAGES,
            "said": unquote(request.cookies.get(FLASH, "")),
            "csrf": await self._proof_if_there(request),
            "now": await self._now(),
            **address_functions(root),
            **data,
        }
        text = await self._service.run(environment(language).get_template(template).render, shown)
        response = HTMLResponse(text, status, HEADERS)
        return _without_cookie(request, response, FLASH) if FLASH in request.cookies else response

    async def _proof_if_there(self, request: Request) -> str:
        try:
            return await self._door.form_proof(request)
        except errors.StoreError:
            # A page about a store that is away has to come all the same; its forms are refused.
            return ""

    async def _now(self) -> float:
        try:
            return await self._service.run(lambda: self._service.client.clock.now() / SECOND)
        except errors.StoreError:
            return 0.0

    async def trouble(self, request: Request, error: Exception) -> Response:
        """The page of an error; the one to sign in, if that is what is missing."""
        if isinstance(error, errors.NotAuthenticated) and request.method == "GET":
            return _redirect(request, f"{SIGN_IN}?next={quote(_here(request), safe='')}")
        problem = problem_of(error, request.url.path)
        return await self._render(request, "problem.html", {"problem": problem}, None, problem.status)


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def _language(request: Request) -> Language:
    return choose_language(request.cookies.get(translation.COOKIE), header(request, b"accept-language") or "")


def _here(request: Request) -> str:
    """Where the reader is, below the console's own path: to come back to."""
    query = request.url.query
    return request.url.path.removeprefix(_root(request)) + (f"?{query}" if query else "")


def _redirect(request: Request, where: str, said: str = "") -> Response:
    response = RedirectResponse(_root(request) + where, HTTPStatus.SEE_OTHER, HEADERS)
    return _with_cookie(request, response, FLASH, quote(said[:_MOST_FLASH]), 60) if said else response


def _with_cookie(request: Request, response: Response, name: str, value: str, seconds: int) -> Response:
    is_secure = request.url.scheme == "https"
    path = _root(request) or "/"
    response.set_cookie(name, value, seconds, path=path, secure=is_secure, httponly=True, samesite="strict")
    return response


def _without_cookie(request: Request, response: Response, name: str) -> Response:
    response.delete_cookie(name, path=_root(request) or "/")
    return response
