"""Each framework under a real server."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.frameworks.serving import Server, Stream, serving


class Framework(NamedTuple):
    """How people serve an application of it."""

    command: list[str]
    worker: str | None = None


def _uvicorn(module: str) -> list[str]:
    return ["uvicorn", f"tests.frameworks.apps.{module}:web", "--port", "{port}", "--timeout-graceful-shutdown", "1"]


FRAMEWORKS = {
    "fastapi": Framework(_uvicorn("fastapi_app")),
    "starlette": Framework(_uvicorn("starlette_app")),
    "litestar": Framework(_uvicorn("litestar_app")),
    "flask": Framework(
        ["gunicorn", "-b", "127.0.0.1:{port}", "--threads", "8", "--graceful-timeout", "1",
         "tests.frameworks.apps.flask_app:create_app()"],
        "tests.frameworks.apps.flask_worker:jobs",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=FRAMEWORKS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that the tests of a module share."""
    framework = FRAMEWORKS[request.param]
    with serving(framework.command, tmp_path_factory.mktemp(request.param), framework.worker) as server:
        yield server


@pytest.fixture(autouse=True)
def closed_streams() -> Iterator[None]:
    """No test leaves a stream to the next one."""
    yield
    while Stream.opened:
        Stream.opened.pop().close()
