"""The console as routes of the server: pages, acts, signing in and out."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from tarry import errors
from tarry.model.duration import SECOND
from tarry.operate.access import Caller, Scope
from tarry.operate.problem import RequestError, checking
from tarry.server.console import put_off, translation
from tarry.server.console.act import ConsoleAct, Form, form_values
from tarry.server.console.answers import (
    FLASH,
    finish,
    here_of,
    is_refresh,
    path_of,
    redirect,
    root_of,
    with_cookie,
    without_cookie,
)
from tarry.server.console.assets import serve_asset
from tarry.server.console.charts import times
from tarry.server.console.finding import find_page
from tarry.server.console.page import ConsolePage
from tarry.server.console.page_updates import LASTS, LookChanges, RefreshBudget
from tarry.server.console.rendering import address_functions, environment
from tarry.server.console.sign_in import SignIn, address_of, local_path, read_own_form
from tarry.server.console.sign_in_session import COOKIE
from tarry.server.console.sign_in_session import LASTS as SESSION_LASTS
from tarry.server.console.translation import LANGUAGES, Language, choose_language
from tarry.server.console.views import (
    audit,
    endpoints,
    flows,
    hosts,
    job,
    jobs,
    operating,
    overview,
    queues,
    schedules,
    stores,
    task_form,
    tasks,
)
from tarry.server.http.method import ApiCall, route_of
from tarry.server.http.methods.events import MEDIA_TYPE, EventResponse
from tarry.server.http.problem import Problem, problem_of, retry_after
from tarry.server.http.request_log import audited
from tarry.server.http.request_reader import header
from tarry.server.identity.entries import PROXY_ENTRY
from tarry.server.open_connections.activity import note_request
from tarry.server.service import DoorService

PAGES: tuple[ConsolePage, ...] = (
    *overview.PAGES,
    *queues.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *flows.PAGES,
    *tasks.PAGES,
    *task_form.PAGES,
    *endpoints.PAGES,
    *operating.PAGES,
    *schedules.PAGES,
    *hosts.PAGES,
    *stores.PAGES,
    *audit.PAGES,
)
ACTS: tuple[ConsoleAct, ...] = (
    *queues.ACTS,
    *jobs.ACTS,
    *job.ACTS,
    *flows.ACTS,
    *tasks.ACTS,
    *task_form.ACTS,
    *endpoints.ACTS,
    *operating.ACTS,
    *schedules.ACTS,
    *hosts.ACTS,
)

SIGN_IN = "/sign-in"
_YEAR = 365 * 86400
_CORRECTABLE = (403, 404, 409, 412, 422)
"""Statuses of what a person can mend in a form, or wants to keep of it."""

PageHandler = Callable[[Request], Awaitable[Response]]


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
        self._budget = RefreshBudget()

    def routes(self) -> list[BaseRoute]:
        """All routes, in the order in which they are tried."""
        own = (
            ("GET", SIGN_IN, self._ask_to_sign_in),
            ("POST", SIGN_IN, self._sign_in),
            ("POST", "/sign-out", self._sign_out),
            ("POST", "/language", self._set_language),
            ("POST", "/zone", self._set_zone),
            ("POST", "/put-off", self._put_off),
            ("GET", "/find", self._find),
            ("GET", "/live", self._live),
        )
        assets = self._caught(serve_asset, is_counted=False)
        found: list[BaseRoute] = [Route("/static/{version}/{name:path}", assets, methods=["GET"])]
        found += [Route(path, self._caught(handler), methods=[verb]) for verb, path, handler in own]
        handlers = [("GET", page.route, self._shower(page)) for page in self._pages]
        handlers += [("POST", act.route, self._doer(act)) for act in self._acts]
        # A name may hold slashes, so what follows a name comes before the name alone.
        handlers.sort(key=lambda each: -each[1].count("/"))
        return found + [
            Route(route_of(path, "page_name"), self._caught(do), methods=[verb]) for verb, path, do in handlers
        ]

    def _caught(self, handler: PageHandler, is_counted: bool = True) -> PageHandler:
        async def handle(request: Request) -> Response:
            began = time.perf_counter()
            try:
                # As a call of the API does; not the files of a page, which browsers keep.
                if is_counted:
                    self._service.address_rates.count(address_of(request), time.monotonic_ns() // 1000)
                response = await handler(request)
            except ClientDisconnect:
                # Nobody reads it.
                response = Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:
                response = self.trouble(request, error)
            self._service.figures.count_request("console", response.status_code, began)
            return finish(request, response)

        return handle

    def _shower(self, page: ConsolePage) -> PageHandler:
        async def show(request: Request) -> Response:
            caller = await self._door.caller(request)
            note_request(request.scope, f"GET {page.route}", caller.name)
            call = ApiCall(self._service, caller, request, Scope.READ)
            # A form sends also the fields that nobody has filled in.
            given = [(name, value) for name, value in request.query_params.multi_items() if value]
            parts = page.method.check_path_and_query(request.path_params, given)
            with self._count_request(request):
                data = await self._service.run(page.method.handler, call, **parts)
                return await self._render(request, page.template, data, caller)

        return show

    @contextlib.contextmanager
    def _count_request(self, request: Request) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            if is_refresh(request):
                self._budget.spend(time.monotonic() - began)

    def _doer(self, act: ConsoleAct) -> PageHandler:
        async def do(request: Request) -> Response:
            caller = await self._door.caller(request)
            note_request(request.scope, f"POST {act.route}", caller.name)
            call = ApiCall(self._service, caller, request, act.method.scope)
            form: Form = ()
            try:
                with audited(act.method, call, address_of(request), "console"):
                    if self._door.read_only:
                        raise RequestError("this console is for looking only ([server] console)", None, 403)
                    caller.check(act.method.scope or Scope.ADMIN)
                    form = await self._door.read_form(request)
                    answer = await self._call(act, call, form)
            except errors.TarryError as error:
                return await self._show_again(act, call, form, error)
            where = act.page(answer) if act.page else local_path(form)
            return redirect(request, where, act.said(answer, _language(request)))

        return do

    async def _show_again(self, act: ConsoleAct, call: ApiCall, form: Form, error: errors.TarryError) -> Response:
        """The form of an act that was refused, with what was typed; the error itself, if the act has no such form or
        it did not come from one of our pages."""
        problem = problem_of(error)
        page = act.form if form and problem.status in _CORRECTABLE else None
        data = None if page is None else await self._service.run(page.show, call, form, error)
        if page is None or data is None:
            raise error
        return await self._render(call.request, page.template, data, call.caller, problem.status)

    async def _call(self, act: ConsoleAct, call: ApiCall, form: Form) -> Any:
        method = act.method
        query = call.request.query_params.multi_items() if "query" in method.parts else []
        parts = method.check_path_and_query(call.request.path_params, query)
        if "body" in method.parts:
            parts["body"] = form_values(form, method.parts["body"])
        if not method.may_block:
            return await method.handler(call, **parts)
        return await self._service.run(method.handler, call, **parts)

    async def _ask_to_sign_in(self, request: Request) -> Response:
        where = local_path(request.query_params)
        known = self._door.known_caller(request)
        if not self._door.is_needed or (known is not None and known.entry.startswith(PROXY_ENTRY)):
            return redirect(request, where)
        return self._plain(
            request, "sign_in.html", {"where": where, "wrong": "", "takes": self._door.takes, "name": ""}
        )

    async def _sign_in(self, request: Request) -> Response:
        where, form = local_path(request.query_params), dict(await read_own_form(request))
        try:
            cookie = await self._door.open(request, form)
        except (errors.NotAuthenticated, errors.NotAllowed, errors.RateExceeded) as error:
            told = {"where": where, "wrong": str(error), "takes": self._door.takes, "name": form.get("name", "")}
            problem = problem_of(error)
            response = self._plain(request, "sign_in.html", told, problem.status)
            return with_retry_after(response, problem)
        return with_cookie(request, redirect(request, where), COOKIE, cookie, SESSION_LASTS)

    async def _sign_out(self, request: Request) -> Response:
        await read_own_form(request)
        try:
            await self._door.close(request)
        except errors.TarryError as error:
            # It may be known elsewhere for as long as it lasts: whoever signs out has to know that.
            return without_cookie(request, self.trouble(request, error), COOKIE)
        return without_cookie(request, redirect(request, SIGN_IN), COOKIE)

    async def _set_language(self, request: Request) -> Response:
        form = await read_own_form(request)
        code = choose_language(dict(form).get("language"), "").code
        return with_cookie(request, redirect(request, local_path(form)), translation.COOKIE, code, _YEAR)

    async def _set_zone(self, request: Request) -> Response:
        form = await read_own_form(request)
        name = times.zone_of(dict(form).get("zone")).name
        return with_cookie(request, redirect(request, local_path(form)), times.COOKIE, name, _YEAR)

    async def _put_off(self, request: Request) -> Response:
        """Puts off what needs attention for this browser; without a mark it shows again what was put off."""
        await self._door.caller(request)
        form = dict(await read_own_form(request))
        response = redirect(request, "/")
        if "mark" not in form:
            return without_cookie(request, response, put_off.COOKIE)
        with checking("put off"):
            days, known = int(form.get("days", "")), request.cookies.get(put_off.COOKIE)
            cookie = put_off.put_off(known, form["mark"], days, time.time())
        return with_cookie(request, response, put_off.COOKIE, cookie, put_off.LASTS)

    async def _find(self, request: Request) -> Response:
        """Leads to what was typed into the search field."""
        call = ApiCall(self._service, await self._door.caller(request), request, Scope.READ)
        call.is_page = True
        return redirect(request, await self._service.run(find_page, call, request.query_params.get("text", "")))

    async def _live(self, request: Request) -> Response:
        """The stream that tells pages to ask again."""
        caller = await self._door.caller(request)
        note_request(request.scope, "GET /live", caller.name)
        self._service.streams.check_room(caller.entry)
        source = LookChanges(self._service, self._budget, allows=partial(caller.allows, Scope.READ))
        may_go_on = partial(self._door.may_go_on, request, caller)
        return EventResponse(self._service.streams, source, LASTS, may_go_on, caller.entry)

    async def _render(
        self,
        request: Request,
        template: str,
        data: Mapping[str, Any],
        caller: Caller | None,
        status: int = HTTPStatus.OK,
    ) -> Response:
        """A page that is made in a thread, since it may be long."""
        shown = self._shown(request, caller, await self._proof_if_there(request), await self._now())
        render = environment(_language(request)).get_template(template).render
        return _page(request, await self._service.run(render, {**shown, **data}), status)

    def _plain(self, request: Request, template: str, data: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
        """A short page that needs neither the store nor a thread: it comes also when both are away."""
        shown = self._shown(request, self._door.known_caller(request), "", time.time())
        text = environment(_language(request)).get_template(template).render({**shown, **data})
        return _page(request, text, status)

    def _shown(self, request: Request, caller: Caller | None, proof: str, now: float) -> dict[str, Any]:
        """What all templates have; proof: of the forms of this session."""
        language = _language(request)
        return {
            "request_path": path_of(request),
            "here": here_of(request),
            "caller": caller,
            # The proxy has signed them in, and signs them out.
            "is_of_proxy": caller is not None and caller.entry.startswith(PROXY_ENTRY),
            "may": lambda scope: self._door.may(caller, scope),
            "language": language,
            "zone": times.zone_of(request.cookies.get(times.COOKIE)),
            "languages": LANGUAGES,
            "said": unquote(request.cookies.get(FLASH, "")),
            "csrf": proof,
            "now": now,
            **address_functions(root_of(request)),
        }

    async def _proof_if_there(self, request: Request) -> str:
        try:
            return await self._door.form_proof(request)
        except errors.StoreError:
            # A page of what can be read has to come all the same; its forms are refused.
            return ""

    async def _now(self) -> float:
        try:
            return await self._service.run(lambda: self._service.client.clock.now() / SECOND)
        except errors.StoreError:
            # The page of the stores comes also while they are away.
            return time.time()

    def trouble(self, request: Request, error: Exception) -> Response:
        """The page of an error; the one to sign in, if that is what is missing."""
        if isinstance(error, errors.NotAuthenticated) and request.method in ("GET", "HEAD"):
            return _ask_for_session(request)
        problem = problem_of(error, request.url.path)
        response = self._plain(request, "problem.html", {"problem": problem}, problem.status)
        return with_retry_after(response, problem)


def with_retry_after(response: Response, problem: Problem) -> Response:
    """The answer to a problem, with when to come again, if that is known."""
    if (seconds := retry_after(problem)) is not None:
        response.headers["Retry-After"] = seconds
    return response


def _ask_for_session(request: Request) -> Response:
    if not is_refresh(request) and header(request, b"accept") != MEDIA_TYPE:
        return redirect(request, f"{SIGN_IN}?next={quote(here_of(request), safe='')}")
    # No person reads this answer: the page loads itself anew, and that leads to the page to sign in.
    return Response(status_code=HTTPStatus.UNAUTHORIZED)


def _language(request: Request) -> Language:
    return choose_language(request.cookies.get(translation.COOKIE), header(request, b"accept-language") or "")


def _page(request: Request, text: str, status: int = HTTPStatus.OK) -> Response:
    response = HTMLResponse(text, status)
    # A page that asks again by itself shows nobody what an act has done.
    is_told = FLASH in request.cookies and not is_refresh(request)
    return without_cookie(request, response, FLASH) if is_told else response
