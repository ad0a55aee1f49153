"""Calls an ASGI application as a server would, without a socket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import uvloop

from tarry import App
from tarry.server.identity.access import DoorAccess
from tarry.server.service import DoorService, DoorSettings
from tarry.server.serving.application import create_application

T = TypeVar("T")


@asynccontextmanager
async def api(
    app: App, settings: DoorSettings | None = None, access: DoorAccess | None = None, **more: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app's HTTP API."""
    service = DoorService(app, settings=settings, access=access)
    application = create_application(service, **more)
    try:
        async with caller(application) as client:
            yield client
    finally:
        await asyncio.to_thread(service.close)


@asynccontextmanager
async def caller(application: Any, address: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    """A client of an ASGI application, whose errors are raised here."""
    transport = httpx.ASGITransport(application, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://tarry.test") as client:
        yield client


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs it on an event loop of its own, of the kind that servers have."""
    return uvloop.run(story())


def request(app: App, verb: str, path: str, *, token: str = "", access: DoorAccess | None = None, **more: Any) -> Any:
    """The answer to one request of a caller with this token."""
    headers = {"authorization": f"Bearer {token}"} if token else {}

    async def story() -> httpx.Response:
        async with api(app, access=access) as client:
            return await client.request(verb, path, headers=headers, **more)

    return run(story)


def page(app: App, path: str) -> str:
    """A page of the app's console."""

    async def story() -> httpx.Response:
        async with api(app) as client:
            return await client.get(path)

    got = run(story)
    assert got.status_code == 200, got.text
    return got.text
