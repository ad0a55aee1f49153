"""Programs that take jobs over HTTP, on every store."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.model.job import Job, State
from tarry.server.identity import entries
from tarry.server.identity.tokens import TokenAccess
from tarry.server.service import DoorService
from tarry.server.serving.application import create_application
from tarry.store.memory.store import MemoryStore
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.console.visiting import Tokens
from tests.server.http.calling import api, caller, run
from tests.server.taking import WITHIN, put, seen, until


async def post(client: httpx.AsyncClient, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def claim(client: httpx.AsyncClient, **order: Any) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = (await post(client, "/v1/queues/php/claim", order))["jobs"]
    return jobs


def test_a_job_from_its_claim_to_its_result(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app, body=b'{"to": "ann"}', priority=3, headers=b'{"trace":"7"}')
        async with api(app) as client:
            (got,) = await claim(client)
            assert got["args"] == {"to": "ann"}
            assert (got["task"], got["queue"], got["priority"]) == ("php", "php", 3)
            assert (got["epoch"], got["attempt"], got["headers"]) == (1, 1, {"trace": "7"})
            at = f"/v1/jobs/{got['id']}"
            assert await post(client, f"{at}/progress", {"epoch": 1, "value": 0.5, "text": "half"}, 204) is None
            progress = app.get(job.id).progress
            assert progress is not None
            assert (progress.fraction, progress.message) == (0.5, "half")
            assert await post(client, f"{at}/extend", {"epoch": 1, "lease": "5m"}, 204) is None
            done = await post(client, f"{at}/finish", {"epoch": 1, "result": {"sent": [1, 2]}})
            assert done == {"id": got["id"], "state": "done", "due": None, "problem": None}
            assert app.get(job.id).result(timeout=WITHIN) == {"sent": [1, 2]}
            again = await post(client, f"{at}/finish", {"epoch": 1}, 409)
            assert again["type"] == "urn:tarry:problem:not-held"
            assert "drop what was done for it" in again["detail"]

    run(story)


def test_a_failed_attempt_follows_the_rule_or_what_the_caller_says(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app, 3)
        async with api(app) as client:
            a, b, c = await claim(client, limit=3)
            error = {"type": "RuntimeException", "message": "no route", "traceback": "#0 main"}
            once = await post(client, f"/v1/jobs/{a['id']}/fail", {"epoch": 1, "error": error, "final": True})
            assert once["state"] == "dead"
            later = await post(client, f"/v1/jobs/{b['id']}/fail", {"epoch": 1, "retry_after": "10m"})
            assert later["state"] == "scheduled"
            assert later["due"] > app.client.store.time() / 1e6 + 590
            back = await post(client, f"/v1/jobs/{c['id']}/release", {"epoch": 1})
            assert back["state"] == "ready"
            (note,) = (job.note for job in seen(app, Job(bytes.fromhex(a["id"].replace("-", "")), "", b"")))
            assert json.loads(note) == error
            (again,) = await claim(client)
            assert (again["id"], again["epoch"], again["attempt"]) == (c["id"], 2, 1)
            put_off = await post(client, f"/v1/jobs/{c['id']}/release", {"epoch": 2, "delay": 60})
            assert put_off["state"] == "scheduled"

    run(story)


def test_a_long_poll_of_several_queues_is_answered_when_a_job_comes(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with api(app) as client:
            order = {"queues": ["php", "node"], "wait": WITHIN, "lease": 30}
            waiting = asyncio.create_task(client.post("/v1/claim", json=order))
            await asyncio.sleep(0.05)
            (job,) = await asyncio.to_thread(put, app, 1, queue="node")
            (got,) = (await waiting).json()["jobs"]
            assert got["id"].replace("-", "") == job.id.hex()
            assert await claim(client, wait=0.01) == []

    run(story)


def test_many_ends_in_one_request(app: App) -> None:  # noqa: F811
    async def story() -> None:
        jobs = put(app, 4)
        async with api(app) as client:
            a, b, c, d = await claim(client, limit=4)
            ends = [
                {"end": "finish", "id": a["id"], "epoch": 1, "result": 1},
                {"end": "fail", "id": b["id"], "epoch": 1, "final": True},
                {"end": "release", "id": c["id"], "epoch": 1},
                {"end": "finish", "id": d["id"], "epoch": 9},
                {"end": "finish", "id": "no id", "epoch": 1},
            ]
            told = (await post(client, "/v1/settle", {"ends": ends}))["ends"]
            assert [one["state"] for one in told] == ["done", "dead", "ready", None, None]
            assert [one["problem"] and one["problem"]["status"] for one in told] == [None, None, None, 409, 422]
            assert sorted(job.state for job in seen(app, *jobs)) == ["dead", "done", "ready", "running"]

    run(story)


@pytest.fixture
def plain() -> Any:
    app = App(MemoryStore(), closures=True)  # noqa: F811
    yield app
    app.close()


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/v1/queues/php/claim", {"limit": 0}, 422, "limit"),
        ("/v1/queues/php/claim", {"limit": 1001}, 422, "limit"),
        ("/v1/queues/php/claim", {"lease": 0}, 422, "lease"),
        ("/v1/queues/php/claim", {"lease": "8d"}, 422, "lease"),
        ("/v1/queues/php/claim", {"lease": "soon"}, 422, "lease"),
        ("/v1/queues/php/claim", {"wait": 61}, 422, "wait"),
        ("/v1/queues/p%00p/claim", {}, 422, "queue"),
        ("/v1/claim", {}, 422, "queues"),
        ("/v1/claim", {"queues": []}, 422, "queues"),
        ("/v1/claim", {"queues": ["a\0"]}, 422, "queues[0]"),
        ("/v1/jobs/7/finish", {"epoch": 1}, 422, "id"),
        ("/v1/jobs/7/finish", {}, 422, "epoch"),
        ("/v1/jobs/7/finish", {"epoch": 0}, 422, "epoch"),
        ("/v1/jobs/7/progress", {"epoch": 1, "value": 1.5}, 422, "value"),
        ("/v1/jobs/7/fail", {"epoch": 1, "retry_after": -1}, 422, "retry_after"),
        ("/v1/jobs/7/release", {"epoch": 1, "delay": "x"}, 422, "delay"),
        ("/v1/jobs/01890000-0000-7000-8000-000000000000/finish", {"epoch": 1}, 404, None),
        ("/v1/settle", {"ends": []}, 422, "ends"),
    ],
)
def test_what_is_wrong_is_named(plain: App, path: str, body: Any, status: int, field: str | None) -> None:
    async def story() -> None:
        async with api(plain) as client:
            problem = await post(client, path, body, status)
            assert problem.get("field") == field, problem

    run(story)


def test_a_result_that_nobody_could_read_or_that_is_too_large_is_refused_and_the_job_stays_held(plain: App) -> None:
    async def story() -> None:
        (job,) = put(plain)
        async with api(plain) as client:
            (got,) = await claim(client)
            at, kind = f"/v1/jobs/{got['id']}/finish", {"content-type": "application/json"}
            for result in (b'"\xff"', b'"\\ud800"', b"[" * 5000 + b"]" * 5000):
                answer = await client.post(at, content=b'{"epoch":1,"result":%s}' % result, headers=kind)
                assert answer.status_code in (400, 422), answer.text
            large = await client.post(at, json={"epoch": 1, "result": "x" * (2**20 + 1)})
            assert large.status_code == 413
            assert seen(plain, job)[0].state is State.RUNNING
            await post(client, at, {"epoch": 1})
            assert plain.get(job.id).result(timeout=WITHIN) is None

    run(story)


def test_arguments_that_are_no_json_travel_in_base64(plain: App) -> None:
    async def story() -> None:
        bodies = [b"\xff\x00", b'"\xff"', b"plain text", b" [1] "]
        for body in bodies:
            put(plain, body=body)
        async with api(plain) as client:
            got = await claim(client, limit=9)
            assert [one["args"] for one in got] == [None, None, None, [1]]
            assert [base64.b64decode(one["binary"]) for one in got[:3]] == bodies[:3]
            assert got[3]["binary"] is None

    run(story)


def test_a_client_that_leaves_during_its_wait_takes_no_job(plain: App) -> None:
    async def story() -> None:
        service = DoorService(plain)
        application = create_application(service)
        try:
            left = asyncio.Event()
            first = [{"type": "http.request", "body": b'{"wait": 10}', "more_body": False}]

            async def receive() -> Any:
                if first:
                    return first.pop()
                await left.wait()
                return {"type": "http.disconnect"}

            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "POST", "path": "/v1/queues/php/claim", "raw_path": b"/v1/queues/php/claim",
                "query_string": b"", "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 2), "scheme": "http", "http_version": "1.1", "root_path": "",
            }  # fmt: skip
            request = asyncio.ensure_future(application(scope, receive, send))
            async with asyncio.timeout(WITHIN):
                while not service.is_started:
                    await asyncio.sleep(0.002)
            await until(lambda: service.claims.waiting == 1)
            left.set()
            await asyncio.wait_for(request, WITHIN)
            assert service.claims.waiting == 0
            assert sent == []
            (job,) = put(plain)
            async with caller(application) as client:
                (got,) = await claim(client, wait=1)
                assert got["id"].replace("-", "") == job.id.hex()
        finally:
            await asyncio.to_thread(service.close)

    run(story)


@pytest.mark.parametrize(("queues", "status"), [(None, 401), ('["other"]', 403)], ids=["revoked", "fewer queues"])
def test_a_token_that_is_revoked_during_a_wait_gets_no_job(
    plain: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: str | None, status: int
) -> None:
    monkeypatch.setattr(entries, "CHECK_EVERY", 0.0)
    tokens = Tokens(tmp_path / "tokens.toml").add("it", "take").add("root", "take")
    header = {"authorization": "Bearer it-token"}

    async def story() -> None:
        service = DoorService(plain, access=TokenAccess(tokens.file))
        try:
            async with caller(create_application(service)) as client:
                asked = client.post("/v1/queues/php/claim", json={"wait": WITHIN}, headers=header)
                waiting = asyncio.create_task(asked)
                await until(lambda: service.is_started and service.claims.waiting == 1)
                tokens.remove("it") if queues is None else tokens.add("it", "take", queues=queues)
                (job,) = await asyncio.to_thread(put, plain)
                answer = await waiting
                assert answer.status_code == status, answer.text
                client.headers["authorization"] = "Bearer root-token"
                (got,) = await claim(client, wait=WITHIN)
                assert (got["id"].replace("-", ""), got["attempt"]) == (job.id.hex(), 1)
        finally:
            await asyncio.to_thread(service.close)

    run(story)
