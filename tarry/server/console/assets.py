"""The console's own files, which a browser keeps: their address holds a digest of their content."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NAMES = ("console.css", "console.js", "charts.js", "icon.svg")
_YEAR = "public, max-age=31536000, immutable"


@lru_cache(maxsize=1)
def _contents() -> Mapping[str, bytes]:
    folder = files("tarry.server.console").joinpath("static")
    return {name: folder.joinpath(name).read_bytes() for name in NAMES}


@lru_cache(maxsize=32)
def asset_path(name: str) -> str:
    """The path of a file below the console's; KeyError if there is none."""
    return f"/static/{sha256(_contents()[name]).hexdigest()[:12]}/{name}"


async def serve_asset(request: Request) -> Response:
    """A file. One of another version is served as it is now."""
    name = request.path_params["name"]
    if name not in NAMES:
        return Response(status_code=404)
    kept = _YEAR if request.url.path.endswith(asset_path(name)) else "no-cache"
    headers = {"Cache-Control": kept, "X-Content-Type-Options": "nosniff"}
    return Response(_contents()[name], headers=headers, media_type=TYPES[name.rpartition(".")[2]])
