"""A token for some queues or tasks puts jobs of its tasks only, and has keys of its own."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tests.server.http.calling import api, run

TOKENS = {
    "all": 'scopes = ["put", "read", "take"]',
    "shop": 'scopes = ["put", "read", "take", "operate"]\nqueues = ["shop"]',
    "rival": 'scopes = ["put", "read"]\nqueues = ["shop"]',
    "mailer": 'scopes = ["put", "read"]\nqueues = ["shop"]\ntasks = ["mail.*", "app.order"]',
    "any-queue": 'scopes = ["put"]\ntasks = ["mail.*"]',
    "any-name": 'scopes = ["admin"]\nqueues = ["shop"]',
    "admin": 'scopes = ["admin"]\nqueues = ["shop"]\ntasks = ["shop.*"]',
}


@pytest.fixture
def app() -> App:
    app = App(MemoryStore(), closures=True)

    @app.task(name="app.order", queue="shop")
    def order(number: int = 0) -> None: ...

    @app.task(name="app.wipe", queue="internal")
    def wipe(really: bool) -> None: ...

    return app


@pytest.fixture
def access(tmp_path: Path) -> TokenAccess:
    file = tmp_path / "tokens.toml"
    file.write_text(
        "".join(f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\n{text}\n' for name, text in TOKENS.items())
    )
    return TokenAccess(file)


async def call(client: httpx.AsyncClient, who: str, verb: str, path: str, body: Any = None) -> httpx.Response:
    return await client.request(verb, path, json=body, headers={"authorization": f"Bearer {who}"})


def put(app: App, access: TokenAccess, who: str, **body: Any) -> httpx.Response:
    async def story() -> httpx.Response:
        async with api(app, access=access) as client:
            return await call(client, who, "POST", "/v1/jobs", body)

    return run(story)


@pytest.mark.parametrize(
    ("who", "task", "status"),
    [
        ("all", "app.wipe", 201),
        ("all", "unknown", 201),
        ("shop", "app.order", 201),
        ("shop", "app.wipe", 403),
        ("shop", "unknown", 403),
        ("mailer", "app.order", 201),
        ("mailer", "mail.send", 201),
        ("mailer", "app.wipe", 403),
        ("any-queue", "mail.send", 201),
        ("any-queue", "app.order", 403),
    ],
)
def test_the_tasks_of_a_token(app: App, access: TokenAccess, who: str, task: str, status: int) -> None:
    got = put(app, access, who, task=task, queue="shop", **({"args": [True]} if task == "app.wipe" else {}))
    assert got.status_code == status, got.text
    if status == 403:
        assert got.json()["detail"] == f"token {who} may not put task {task}: add it to its tasks in the tokens' file"
        assert app.client.store.find(Query()) == []


def test_what_a_task_takes_is_not_told_to_those_who_may_not_put_it(app: App, access: TokenAccess) -> None:
    answers = [put(app, access, "shop", task=task, args=["x"]) for task in ("app.wipe", "app.none")]
    assert {one.status_code for one in answers} == {403}
    assert answers[0].text.replace("app.wipe", "app.none") == answers[1].text


@pytest.mark.parametrize("who", ["all", "shop"])
@pytest.mark.parametrize("task", ["tarry.map:app.order", "tarry.flow.undo", "flow:order"])
def test_nobody_outside_puts_tasks_of_tarry_s_own(app: App, access: TokenAccess, who: str, task: str) -> None:
    got = put(app, access, who, task=task)
    assert got.status_code == (422 if who == "all" else 403)
    assert app.client.store.find(Query()) == []

    async def make() -> list[int]:
        async with api(app) as client:
            settings = {"url": "https://shop.example/hook"}
            added = await client.post("/v1/tasks", json={"task": task, "settings": settings})
            return [added.status_code, (await client.put(f"/v1/tasks/{task}", json=settings)).status_code]

    assert run(make) == [422, 422]


def test_an_admin_makes_tasks_that_it_may_put(app: App, access: TokenAccess) -> None:
    async def story() -> list[int]:
        async with api(app, access=access) as client:
            settings = {"url": "https://shop.example/hook", "queue": "shop"}
            return [
                (await call(client, "admin", "POST", "/v1/tasks", {"task": task, "settings": settings})).status_code
                for task in ("other.hook", "shop.hook")
            ]

    assert run(story) == [403, 201]


def test_a_name_that_is_not_known_here_is_made_only_by_who_has_it(app: App, access: TokenAccess) -> None:
    """Jobs of others may wait for such a task, or come later: they would be sent to the address of whoever made it."""
    put(app, access, "all", task="order.paid", body={"card": "4111"})

    async def story() -> list[int]:
        async with api(app, access=access) as client:
            settings = {"url": "https://shop.example/evil", "queue": "shop"}
            made = await call(client, "any-name", "POST", "/v1/tasks", {"task": "order.paid", "settings": settings})
            replaced = await call(client, "any-name", "PUT", "/v1/tasks/order.paid", settings)
            return [made.status_code, replaced.status_code]

    assert run(story) == [403, 403]
    assert "order.paid" not in app.http.endpoints


@pytest.mark.parametrize("name", ["key", "idempotency"])
def test_nobody_takes_the_key_of_another(app: App, access: TokenAccess, name: str) -> None:
    """Each of them has its own job, which it gets again, with the key as it wrote it."""
    first = {who: put(app, access, who, task="app.order", **{name: "k"}).json() for who in ("rival", "shop", "all")}
    again = {who: put(app, access, who, task="app.order", **{name: "k"}).json() for who in first}
    assert all(one["is_new"] for one in first.values())
    assert {who: one["id"] for who, one in again.items()} == {who: one["id"] for who, one in first.items()}
    assert not any(one["is_new"] for one in again.values())
    prefix = "" if name == "key" else "idempotency:"
    stored = {job.key for job in app.client.store.find(Query())}
    assert stored == {f"{prefix}@rival/k", f"{prefix}@shop/k", f"{prefix}k"}

    async def story() -> tuple[Any, ...]:
        async with api(app, access=access) as client:
            shown = (await call(client, "shop", "GET", f"/v1/jobs/{first['shop']['id']}")).json()["key"]
            found = (await call(client, "shop", "GET", f"/v1/jobs?key={prefix}k")).json()["jobs"]
            whole = (await call(client, "all", "GET", f"/v1/jobs?key={prefix}@shop/k")).json()["jobs"]
            claimed = (await call(client, "shop", "POST", "/v1/queues/shop/claim", {"limit": 3})).json()["jobs"]
            return shown, found, whole, claimed

    shown, found, whole, claimed = run(story)
    assert shown == prefix + "k"
    assert [one["id"] for one in whole] == [first["shop"]["id"]]
    assert {one["id"]: one["key"] for one in claimed}[first["shop"]["id"]] == prefix + "k"
    # Its own, and that of the app: it is in its queue.
    assert {one["id"] for one in found} == {first["shop"]["id"], first["all"]["id"]}
    assert all(job.id in {ids.parse(one["id"]) for one in first.values()} for job in app.client.store.find(Query()))


def test_names_of_tokens_do_not_run_into_each_other(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    names = ("a", "a/b", "a%2Fb")
    parts = (f'[tokens."{name}"]\nsha256 = "{digest(name).hex()}"\nqueues = ["x"]\n' for name in names)
    file.write_text("".join(parts))
    access = TokenAccess(file)
    callers = [access.named(name) for name in names]
    assert [one.namespace for one in callers if one] == ["@a/", "@a%2Fb/", "@a%252Fb/"]


def test_keys_of_many_at_once(app: App, access: TokenAccess) -> None:
    async def story() -> Any:
        async with api(app, access=access) as client:
            body = [{"task": "app.order", "key": f"k{number}"} for number in range(2)]
            listed = await call(client, "shop", "POST", "/v1/jobs", body)
            lines = b'{"task":"app.order","key":"k0"}\n{"task":"app.wipe","args":[true]}\n'
            headers = {"authorization": "Bearer shop", "content-type": "application/x-ndjson", "idempotency-key": "n"}
            got = await client.post("/v1/jobs", content=lines.replace(b'"key":"k0"', b'"priority":1'), headers=headers)
            return listed.status_code, got.text

    status, text = run(story)
    assert status == 201
    assert text.count("may not put task app.wipe") == 1
    assert {job.key for job in app.client.store.find(Query())} == {"@shop/k0", "@shop/k1", "idempotency:@shop/n/1"}
