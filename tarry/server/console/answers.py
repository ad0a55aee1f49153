"""What all answers of the console carry; redirects and cookies; where in the console a request is."""

from http import HTTPStatus
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tarry.server.http.request_reader import header

REFRESH = b"tarry-refresh"
"""The header with which an open page asks again by itself. A page of another site cannot send it."""
FLASH = "tarry_said"
"""The cookie with what an act has done, until the next page shows it."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MOST_FLASH = 300
_FLASH_LASTS = 60
# What a path may hold as it is: names of queues and tasks may have any characters.
_OF_PATHS = "/:@!$&'()*+,;=~"


def finish(request: Request, response: Response) -> Response:
    """The answer as it is sent: with the headers of all of them, and without a body if only its head is wanted."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.method != "HEAD":
        return response
    # A stream would otherwise go on for as long as one that is read.
    bare = Response(status_code=response.status_code)
    bare.raw_headers = response.raw_headers
    return bare


def root_of(request: Request) -> str:
    """The path below which the console is mounted; empty: it is served at `/`."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def path_of(request: Request) -> str:
    """The path of the page, below the console's own, as it stands in an address."""
    path: str = request.scope["path"]
    return quote(path.removeprefix(root_of(request)), safe=_OF_PATHS)


def here_of(request: Request) -> str:
    """Where the reader is, with the query: to come back to."""
    query = request.url.query
    return path_of(request) + (f"?{query}" if query else "")


def is_refresh(request: Request) -> bool:
    """Whether a page that is open asks for what has changed; the reader does not see all of the answer."""
    return header(request, REFRESH) is not None


def redirect(request: Request, where: str, said: str = "") -> Response:
    """Leads to another page of the console. said: what that page is to tell."""
    response = RedirectResponse(root_of(request) + where, HTTPStatus.SEE_OTHER)
    return with_cookie(request, response, FLASH, quote(said[:_MOST_FLASH]), _FLASH_LASTS) if said else response


def with_cookie(request: Request, response: Response, name: str, value: str, seconds: int) -> Response:
    """The answer to a form, with a cookie that lasts so long."""
    # Lax, not strict: who follows the link of a mail to a job is signed in there, too.
    response.set_cookie(
        name, value, seconds, path=_cookie_path(request), secure=_is_secure(request), httponly=True, samesite="lax"
    )
    return response


def without_cookie(request: Request, response: Response, name: str) -> Response:
    """The answer, which takes a cookie away."""
    response.delete_cookie(name, path=_cookie_path(request), httponly=True, samesite="lax")
    return response


def _cookie_path(request: Request) -> str:
    return root_of(request) or "/"


def _is_secure(request: Request) -> bool:
    # Behind a proxy that ends TLS only the browser knows that it speaks TLS; with each form it says so.
    return request.url.scheme == "https" or (header(request, b"origin") or "").startswith("https://")
