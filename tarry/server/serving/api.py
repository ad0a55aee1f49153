"""All methods of the HTTP API, and the pages that describe them.

A module of methods ends with a tuple `METHODS` of its own, and has its line in the one below. Routes, documents and
pages follow from that.
"""

from functools import lru_cache
from importlib.metadata import version

import msgspec
from starlette.responses import HTMLResponse, Response

from tarry.operate import catalog
from tarry.operate.method import JSON, Method
from tarry.server.http.description.openapi import openapi_document
from tarry.server.http.description.page import CONTENT_POLICY, docs_page
from tarry.server.http.method import ApiCall, api_method
from tarry.server.http.methods import claims, events, health, puts, results


@api_method("GET /v1/openapi.json", None, tag="description")
async def openapi(call: ApiCall) -> Response:
    """Describes this API as an OpenAPI 3.1 document."""
    return Response(_document(call.request.scope.get("root_path", "")), media_type=JSON)


@api_method("GET /v1/docs", None, tag="description", media_type="text/html")
async def docs(call: ApiCall) -> Response:
    """Describes this API as a page for people."""
    return HTMLResponse(_page(), headers={"Content-Security-Policy": CONTENT_POLICY})


# Below whatever path the API is mounted: one document for each, and few of them.
@lru_cache(maxsize=8)
def _document(root: str) -> bytes:
    return msgspec.json.encode(openapi_document(METHODS, version("tarry"), root))


@lru_cache(maxsize=1)
def _page() -> str:
    return docs_page(msgspec.json.decode(_document("")))


METHODS: tuple[Method, ...] = (
    *puts.METHODS,
    *catalog.METHODS,
    *results.METHODS,
    *claims.METHODS,
    *events.METHODS,
    *health.METHODS,
    openapi,
    docs,
)
"""Each method of the API."""
