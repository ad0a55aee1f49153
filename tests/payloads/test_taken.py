"""Programs that put and take jobs do not wait for the place of another one's large arguments and results."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import greenstalk
import pytest

from tarry import App, State
from tarry.store.payloads.file_place import FilePlace
from tests.cli.project import until
from tests.payloads.conftest import LARGE, Give
from tests.server.beanstalk.serving import serving
from tests.server.http.calling import api
from tests.server.http.calling import run as run_story
from tests.server.taking import put


def hold(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[threading.Event, threading.Event]:
    """Calls of this method of the place set the first event, and wait for the second."""
    is_asked, may_go, call = threading.Event(), threading.Event(), getattr(FilePlace, name)

    def wait_and_call(*args: Any) -> Any:
        is_asked.set()
        assert may_go.wait(20)
        return call(*args)

    monkeypatch.setattr(FilePlace, name, wait_and_call)
    return is_asked, may_go


def test_a_place_that_is_away_holds_up_no_program_whose_jobs_are_small(
    app: App, keep_apart: Give, folder: Path
) -> None:
    keep_apart(app)
    put(app, 3, body=b'["small"]')

    async def story() -> None:
        async with api(app) as client:

            async def finish(job: Any, result: str) -> int:
                end = {"epoch": job["epoch"], "result": result}
                return int((await client.post(f"/v1/jobs/{job['id']}/finish", json=end)).status_code)

            first, second = (await client.post("/v1/queues/php/claim", json={"limit": 2})).json()["jobs"]
            away = folder.rename(folder.with_name("away"))
            assert tuple(await asyncio.gather(finish(first, LARGE), finish(second, "small"))) == (503, 200)
            assert len((await client.post("/v1/queues/php/claim", json={})).json()["jobs"]) == 1
            away.rename(folder)
            assert await finish(first, LARGE) == 200
            assert app.get(first["id"]).result(timeout=10) == LARGE
            assert await finish(first, LARGE) == 409

    run_story(story)


def test_a_place_that_is_slow_holds_up_no_program_whose_jobs_are_small(
    app: App, keep_apart: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_apart(app)
    put(app, 1, body=f'["{LARGE}"]'.encode())
    put(app, 1, queue="fast")
    is_asked, may_go = hold(monkeypatch, "read")

    async def story() -> None:
        async with api(app) as client:
            taking = asyncio.create_task(client.post("/v1/queues/php/claim", json={"wait": 20}))
            assert await asyncio.to_thread(is_asked.wait, 20)
            (other,) = (await client.post("/v1/queues/fast/claim", json={})).json()["jobs"]
            end = await client.post(f"/v1/jobs/{other['id']}/finish", json={"epoch": other["epoch"]})
            assert end.status_code == 200
            may_go.set()
            assert [one["args"] for one in (await taking).json()["jobs"]] == [[LARGE]]

    run_story(story)


def test_a_program_waits_for_another_job_where_arguments_are_away(app: App, keep_apart: Give, folder: Path) -> None:
    keep_apart(app)
    put(app, 1, body=f'["{LARGE}"]'.encode())
    folder.rename(folder.with_name("away"))

    async def story() -> None:
        async with api(app) as client:
            taking = asyncio.create_task(client.post("/v1/queues/php/claim", json={"wait": 20}))
            (job,) = app.jobs(queue="php")
            await asyncio.to_thread(until, lambda: job.record().state is State.SCHEDULED)
            put(app, 1)
            assert [one["args"] for one in (await taking).json()["jobs"]] == [[1]]
            assert job.record().failures == 0

    run_story(story)


def test_a_place_that_is_slow_holds_up_no_small_put(
    app: App, keep_apart: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_apart(app).task(name="echo")(lambda text: text)
    is_asked, may_go = hold(monkeypatch, "write")

    async def story() -> None:
        async with api(app) as client:

            async def put_one(text: str) -> int:
                return int((await client.post("/v1/jobs", json={"task": "echo", "args": [text]})).status_code)

            large = asyncio.create_task(put_one(LARGE))
            assert await asyncio.to_thread(is_asked.wait, 20)
            assert await put_one("small") == 201
            may_go.set()
            assert await large == 201

    run_story(story)


def test_clients_of_beanstalkd_see_whole_bodies(app: App, keep_apart: Give, folder: Path) -> None:
    with serving(keep_apart(app)) as door, greenstalk.Client(("127.0.0.1", door.port)) as client:
        number = client.put(LARGE)
        (stored,) = folder.rglob("*-arguments-*")
        assert client.peek(number).body == client.peek_ready().body == LARGE
        away = folder.rename(folder.with_name("away"))
        for look in (client.peek_ready, lambda: client.peek(number)):
            with pytest.raises(greenstalk.InternalError):
                look()
        away.rename(folder)
        job = client.reserve(timeout=20)
        assert job.body == LARGE
        client.release(job)
        assert client.reserve_job(number).body == LARGE
        client.delete(number)
        assert stored.exists()
