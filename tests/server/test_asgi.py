"""`tarry.asgi(app)`: served by itself, and mounted into the applications of others."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

import tarry
from tarry import App
from tests.docs.pages import ROOT
from tests.docs.test_doors_page import blocks
from tests.server.http.calling import caller, run
from tests.worker.bench import LIMIT, until


@contextmanager
def served(application: Any) -> Iterator[str]:
    """The URL at which uvicorn serves it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning", loop="uvloop", http="httptools"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(LIMIT)
            assert not thread.is_alive()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    yield app
    app.close()


def check(url: str, app: App) -> None:
    """All of it works below this URL."""
    with httpx.Client(base_url=url, timeout=LIMIT) as client:
        put = client.post("/v1/jobs", json={"task": "t", "args": [1]})
        assert put.status_code == 201
        id = put.json()["id"]
        assert app.get(id).record().body == b"[1]"
        assert client.get(f"/v1/jobs/{id}").json()["args"] == [1]
        assert client.get("/v1/docs").status_code == 200
        document = client.get("/v1/openapi.json").json()
        base = httpx.URL(url).copy_with(path="").join(document["servers"][0]["url"])
        assert str(base).rstrip("/") == url
        missing = client.get("/v1/nothing")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


def test_served_by_uvicorn_its_threads_end_with_the_server(app: App) -> None:
    with served(tarry.asgi(app)) as url:
        check(url, app)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("tarry-door", "tarry-put"))]


@pytest.mark.parametrize("kind", ["fastapi", "starlette"])
def test_mounted_below_a_path(app: App, kind: str) -> None:
    door = tarry.asgi(app)
    if kind == "fastapi":
        web: Any = FastAPI()
        web.mount("/queue/of", door)
    else:
        web = Starlette(routes=[Mount("/queue/of", app=door)])
    with served(web) as url:
        check(f"{url}/queue/of", app)
        assert httpx.post(f"{url}/v1/jobs", json={"task": "t"}).status_code == 404
    door.close()


DJANGO = """
from django.conf import settings

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=(), SECRET_KEY="s")
{block}
import httpx
from tests.server.test_asgi import check, served

with served(application) as url:
    check(url + "/queue", jobs)
    assert "problem" not in httpx.get(url + "/nothing").headers["content-type"]
door.close()
jobs.close()
"""


def test_beside_django(tmp_path: Path) -> None:
    # In a process of its own: wherever Django is loaded, jobs close its connections.
    (block,) = [block for block in blocks("python") if "django" in block]
    script = f"import tarry\njobs = tarry.App('sqlite:///{tmp_path}/jobs.db', closures=True)\n"
    script += DJANGO.replace("{block}", block)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr


def test_tokens_are_asked_for(app: App, tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text("")
    door = tarry.asgi(app, tokens=tmp_path / "tokens.toml")

    async def story() -> int:
        async with caller(door) as client:
            return (await client.post("/v1/jobs", json={"task": "t"})).status_code

    assert run(story) == 401
    door.close()


def test_a_hundred_connections_at_once_and_nothing_acknowledged_is_lost(app: App) -> None:
    with served(tarry.asgi(app)) as url:

        async def put_many() -> set[str]:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                answers = await asyncio.gather(
                    *(client.post("/v1/jobs", json={"task": "t", "args": [n]}) for n in range(300))
                )
                assert {answer.status_code for answer in answers} == {201}
                return {answer.json()["id"] for answer in answers}

        stored = run(put_many)
    assert len(stored) == 300
    assert all(app.get(id).state == "ready" for id in stored)
