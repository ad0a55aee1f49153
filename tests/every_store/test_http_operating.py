"""The HTTP API for operators, on every store."""

from typing import Any

import httpx
import pytest

from tarry import App
from tarry.metrics import store_overview
from tests.server.http.calling import api, run
from tests.server.http.test_operating import ended

HOOK = "https://shop.example/hook"


def test_an_operator_sees_and_changes_what_is_there(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a look takes as long as in a large store, and would be shown for some seconds.
    monkeypatch.setattr(store_overview, "_LONG", 60.0)

    @app.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    @app.task(name="tidy", cron="0 3 * * *")
    def tidy() -> None: ...

    send.enqueue_many([(number,) for number in range(5)])

    async def story() -> None:
        async with api(app) as client:

            async def ask(verb: str, path: str, body: Any = None) -> Any:
                got = await client.request(verb, path, json=body)
                assert got.is_success, got.text
                return got.json() if got.content else None

            await _queues(ask, client)
            await _limits_and_schedules(ask)
            await _tasks(ask)
            assert await ask("GET", "/v1/hosts") == {"hosts": []}
            assert await ask("GET", "/v1/workers") == {"workers": [], "total": 0}
            assert (await client.get("/readyz")).text == "ok\n"

    run(story)


async def _queues(ask: Any, client: httpx.AsyncClient) -> None:
    assert (await ask("POST", "/v1/queues/mail/pause"))["paused"] is True
    assert 'tarry_queue_depth{queue="mail",state="ready"} 5.0' in (await client.get("/metrics")).text
    assert (await ask("POST", "/v1/queues/mail/resume"))["paused"] is False
    dry = await ended(client, await ask("POST", "/v1/queues/mail/purge", {"dry_run": True}))
    assert (dry["state"], dry["matched"], dry["changed"]) == ("done", 5, 0)
    body = {"act": "cancel", "filter": {"queue": "mail", "states": ["ready"]}}
    assert (await ended(client, await ask("POST", "/v1/operations", body)))["changed"] == 5
    (mail,) = [one for one in (await ask("GET", "/v1/queues"))["queues"] if one["queue"] == "mail"]
    assert (mail["ready"], mail["cancelled"]) == (0, 5)
    assert len((await ask("GET", "/v1/operations"))["operations"]) == 2


async def _limits_and_schedules(ask: Any) -> None:
    assert (await ask("PUT", "/v1/limits/queue:mail", {"rate": "10/m"}))["set_by"] == "hand"
    assert await ask("DELETE", "/v1/limits/queue:mail") is None
    assert (await ask("POST", "/v1/schedules/tidy/pause"))["paused"] is True
    assert (await ask("GET", "/v1/schedules"))["schedules"][0]["paused"] is True
    assert (await ask("POST", "/v1/schedules/tidy/resume"))["paused"] is False
    assert await ask("POST", "/v1/schedules/tidy/run")
    ready = {one["queue"]: one["ready"] for one in (await ask("GET", "/v1/queues"))["queues"]}
    assert ready["default"] == 1


async def _tasks(ask: Any) -> None:
    assert (await ask("PUT", "/v1/tasks/hook", {"url": HOOK}))["task"]["url"] == HOOK
    assert (await ask("PATCH", "/v1/tasks/hook", {"enabled": False}))["task"]["enabled"] is False
    assert await ask("DELETE", "/v1/tasks/hook") == {"task": "hook", "waiting": 0}


ODD = (
    "%00",
    "x" * 300,
    "%0a",
    "a%2Fb",
    "%F0%9F%92%A9",
    "%ff",
    "queue:%00",
    "queue:" + "x" * 300,
    "queue:%0a",
    "%20",
    "*",
)


def test_odd_names_are_names_or_are_refused(app: App) -> None:
    async def story() -> list[tuple[str, str]]:
        troubles = []
        async with api(app) as client:
            for odd in ODD:
                for verb, path, body in _requests(odd):
                    if (got := await client.request(verb, path, json=body)).status_code >= 500:
                        troubles.append((f"{verb} {path}", got.text))
            for field in ("queue", "task", "key"):
                for text in ("\0", "", "x" * 300):
                    filter = {"act": "delete", "filter": {field: text}}
                    assert (await client.post("/v1/operations", json=filter)).status_code == 422
        return troubles

    assert run(story) == []


def _requests(name: str) -> list[tuple[str, str, Any]]:
    return [
        ("GET", f"/v1/queues/{name}", None),
        ("POST", f"/v1/queues/{name}/pause", {"force": True}),
        ("POST", f"/v1/queues/{name}/resume", {"force": True}),
        ("GET", f"/v1/tasks/{name}", None),
        ("PUT", f"/v1/tasks/{name}", {"url": HOOK}),
        ("PATCH", f"/v1/tasks/{name}", {"enabled": False}),
        ("DELETE", f"/v1/tasks/{name}", None),
        ("POST", f"/v1/schedules/{name}/run", None),
        ("PUT", f"/v1/limits/{name}", {"at_once": 2**31 - 1}),
        ("GET", f"/v1/limits/{name}", None),
        ("DELETE", f"/v1/limits/{name}", None),
        ("GET", f"/v1/operations/{name}", None),
        ("DELETE", f"/v1/operations/{name}", None),
        ("GET", f"/v1/events?seconds=0&queue={name}", None),
    ]
