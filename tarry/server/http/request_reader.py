"""What all methods read of a request: where it comes from, the type of its body, and the body."""

from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request

from tarry.model.values.listen_address import is_own_host
from tarry.operate.problem import RequestError
from tarry.tasks.arguments.json_depth import MOST_DEPTH, is_too_deep

_SAFE = ("GET", "HEAD", "OPTIONS")


def check_origin(request: Request) -> None:
    """Refuses changes that a page of another site has its visitor's browser send."""
    # Without tokens, a browser on this machine could do everything that its user may do here.
    origin = header(request, b"origin")
    if origin is None or request.method in _SAFE:
        return
    if origin.partition("://")[2] != header(request, b"host"):
        raise RequestError(f"pages of {origin} may not call this server", "Origin", 403)


def check_host(request: Request, own: Sequence[str]) -> None:
    """Refuses a request for a host with a name other than localhost and those of ours, of a client that came by an
    address."""
    host = header(request, b"host") or ""
    if request.client is None or not host or is_own_host(host, own):
        return
    raise RequestError(
        f"without tokens this server answers to addresses and to localhost, not to the name {host[:253]}: name it in"
        " [server] host_names (tarry.asgi: host_names=), or set tokens",
        "Host",
        403,
    )


def header(request: Request, name: bytes) -> str | None:
    """The value of a header, by its name in small letters; None: it is not there."""
    # Starlette's own look decodes all of them, for each.
    for key, value in request.scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return None


def check_depth(text: bytes, field: str) -> None:
    """RequestError if this JSON is nested so deeply that its readers could not decode it."""
    if is_too_deep(text):
        raise RequestError(f"{field}: nested in more than {MOST_DEPTH} levels", field, 422)


def media_type_of(request: Request) -> str:
    """The type of the body, without its parameters, in small letters; empty: not said."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int) -> bytes:
    """The whole body; RequestError if it takes more bytes than `most`."""
    said = header(request, b"content-length") or ""
    if said.isascii() and said.isdigit() and int(said) > most:
        raise _too_large(most)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(most: int) -> RequestError:
    return RequestError(f"the body takes more than {most} bytes: send less at once", "body", 413)


async def read_lines(request: Request, most: int) -> AsyncIterator[list[bytes]]:
    """The lines of the body, those that have come by now at once; RequestError if one takes many
    more bytes than `most`."""
    rest = b""
    async for chunk in request.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines
        if len(rest) > most:
            raise RequestError(f"a line takes more than {most} bytes: the request ends there", "body", 413)
    yield [rest]


async def until_gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
