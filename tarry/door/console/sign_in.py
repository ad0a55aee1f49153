"""Who asks for a page, and whether a form is of a page of ours."""

from collections.abc import Mapping

from starlette.requests import Request

from tarry import errors
from tarry.door.access import Caller, Scope
from tarry.door.console.act import MOST_FORM, Form, read_form
from tarry.door.console.session import COOKIE, Sessions, read_secret
from tarry.door.http.problem import RequestError
from tarry.door.http.reading import check_host, header, read_body
from tarry.door.service import DoorService


class SignIn:
    """Knows the callers of the console. read_only: nobody may do more than look."""

    def __init__(self, service: DoorService, read_only: bool) -> None:
        self._service, self.read_only = service, read_only
        self._sessions: Sessions | None = None

    async def caller(self, request: Request) -> Caller:
        """Who asks, and may look; NotAuthenticated if nobody is signed in who has to be, NotAllowed."""
        access = self._service.access
        if self._service.settings.needs_local_host:
            check_host(request)
        if access.needs_token:
            found = (await self.sessions()).caller(request.cookies.get(COOKIE, ""))
            if found is None:
                raise errors.NotAuthenticated("sign in first")
        else:
            found = access.caller({}, address_of(request))
        found.check(Scope.READ)
        return found

    async def open(self, request: Request, token: str) -> str:
        """The cookie of a new session for whoever has this token; NotAuthenticated, RateExceeded."""
        found = self._service.access.caller({"authorization": f"Bearer {token}"}, address_of(request))
        return (await self.sessions()).open(found.name)

    async def read_form(self, request: Request) -> Form:
        """The form of a page of ours; RequestError."""
        check_form_origin(request)
        form = read_form(await read_body(request, MOST_FORM))
        if dict(form).get("csrf") != await self.form_proof(request):
            raise RequestError("this form is of an earlier session: load the page again", "csrf", 403)
        return form

    async def form_proof(self, request: Request) -> str:
        """What each form of this session carries; StoreError."""
        return (await self.sessions()).form_proof(request.cookies.get(COOKIE, ""))

    def may(self, caller: Caller | None, scope: str) -> bool:
        """Whether a page is to offer what needs this scope."""
        if caller is None or self.read_only:
            return False
        try:
            caller.check(Scope(scope))
        except errors.NotAllowed:
            return False
        return True

    async def sessions(self) -> Sessions:
        """Made at the first use, which reads the store; StoreError."""
        if self._sessions is None:
            secret = await self._service.run(lambda: read_secret(self._service.client.store))
            self._sessions = Sessions(self._service.access, secret)
        return self._sessions


def check_form_origin(request: Request) -> None:
    """RequestError if a form does not come from a page of this very server."""
    # Every browser says where a form comes from; who does not is no browser, and has the API.
    origin = header(request, b"origin") or ""
    if origin.partition("://")[2] != header(request, b"host"):
        raise RequestError("this form comes from another site", None, 403)


def address_of(request: Request) -> str:
    """The address of the client; empty: it came by a unix socket."""
    return request.client.host if request.client else ""


def local_path(form: Mapping[str, str] | Form, name: str = "next") -> str:
    """The page of the console that this field names; the first page for anything else."""
    where = dict(form).get(name, "")
    # `//host` and `/\host` are other hosts to a browser.
    if not where.startswith("/") or where[1:2] in ("/", "\\") or not where.isprintable():
        return "/"
    return where
