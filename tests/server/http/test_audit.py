"""The log of acts by HTTP: what is in it, who sees what, and an act that never waits for it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.memory.store import MemoryStore
from tests.server.http.calling import api, run
from tests.store.switched import Switched

TOKENS = {"root": ('["admin"]', '["*"]'), "ann": ('["operate", "read"]', '["mail"]'), "bob": ('["read"]', '["*"]')}


@pytest.fixture
def app() -> App:
    app = App(Switched(MemoryStore()), closures=True)

    @app.task(name="mail.send", queue="mail")
    def send(to: str) -> None: ...

    return app


@pytest.fixture
def access(tmp_path: Path) -> TokenAccess:
    file = tmp_path / "tokens.toml"
    parts = (
        f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = {scopes}\nqueues = {queues}\n'
        for name, (scopes, queues) in TOKENS.items()
    )
    file.write_text("".join(parts))
    return TokenAccess(file)


async def call(client: httpx.AsyncClient, who: str, what: str, **more: Any) -> Any:
    verb, _, path = what.partition(" ")
    answer = await client.request(verb, path, headers={"authorization": f"Bearer {who}"}, **more)
    assert answer.status_code < 400 or answer.status_code == 403, answer.text
    return answer.json() if answer.content else None


def acts(answer: Any) -> list[tuple[str, str, str | None, str]]:
    return [(one["who"], one["act"], one["queue"], one["outcome"].partition(":")[0]) for one in answer["acts"]]


def test_what_was_done_and_what_was_refused(app: App, access: TokenAccess) -> None:
    """Admins see all, others what concerns their queues."""
    handle = app.named("mail.send").enqueue("ann")

    async def story() -> list[Any]:
        async with api(app, access=access) as client:
            await call(client, "ann", f"POST /v1/jobs/{handle.id}/cancel", json={"reason": "no"})
            await call(client, "ann", "POST /v1/queues/other/pause")
            await call(client, "bob", f"POST /v1/jobs/{handle.id}/retry")
            await call(client, "root", "PUT /v1/limits/task:mail.send", json={"at_once": 1})
            await call(client, "root", "POST /v1/queues/mail/pause")
            # A look is no act.
            job = await call(client, "ann", f"GET /v1/jobs/{handle.id}")
            queries = ["", f"?job={handle.id}", "?who=root&act=pause_queue", "?queue=mail&limit=1", "?since=1h"]
            seen = [await call(client, "root", f"GET /v1/audit{query}") for query in queries]
            others = [await call(client, who, "GET /v1/audit") for who in ("ann", "bob")]
            return [job, *seen, *others]

    job, everything, of_job, of_root, first, since, anns, bobs = run(story)
    assert (
        acts(everything)
        == acts(since)
        == [
            ("root", "pause_queue", "mail", "done"),
            ("root", "set_limit", "*", "done"),
            ("bob", "retry_job", None, "NotAllowed"),
            ("ann", "pause_queue", "other", "NotAllowed"),
            ("ann", "cancel_job", "mail", "done"),
        ]
    )
    assert [one[1] for one in acts(of_job)] == ["retry_job", "cancel_job"]
    assert acts(of_root) == acts(first) == [("root", "pause_queue", "mail", "done")]
    assert first["next"]
    assert [one[:3] for one in acts(anns)] == [("root", "pause_queue", "mail"), ("ann", "cancel_job", "mail")]
    assert [one[1] for one in acts(bobs)] == ["pause_queue", "set_limit", "retry_job", "pause_queue", "cancel_job"]
    one = everything["acts"][-1]
    assert (one["address"], one["via"], one["jobs"]) == ("127.0.0.1", "http", [handle.id])
    assert [(act["act"], act["who"], act["address"], act["via"]) for act in job["acts"]] == [
        ("cancelled", "ann", "127.0.0.1", "http")
    ]


def test_wrong_filters_are_told(app: App) -> None:
    async def story() -> list[int]:
        async with api(app) as client:
            return [
                (await client.get(f"/v1/audit?{query}")).status_code for query in ("cursor=x", "since=x", "until=x")
            ]

    assert run(story) == [422, 422, 422]


def test_an_act_goes_on_without_its_log(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is in the log once that can be written again."""
    handle = app.named("mail.send").enqueue("ann")
    store, broken = app.client.store, [True]
    swap = store.kv_cas

    def kv_cas(name: str, value: bytes | None, was: bytes | None) -> bool:
        if broken[0] and name.startswith("audit/"):
            raise OSError("no room")
        return swap(name, value, was)

    monkeypatch.setattr(store, "kv_cas", kv_cas)

    async def story() -> list[Any]:
        async with api(app) as client:
            done = await client.post(f"/v1/jobs/{handle.id}/cancel", json={})
            before = (await client.get("/v1/audit")).json()
            broken[0] = False
            for _ in range(100):
                found = (await client.get("/v1/audit")).json()
                if found["acts"]:
                    break
            return [done.json(), before, found]

    done, before, found = run(story)
    assert (done["cancelled"], before["acts"]) == (True, [])
    assert acts(found) == [("", "cancel_job", "mail", "done")]
