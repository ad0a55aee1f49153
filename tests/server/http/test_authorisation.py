"""Every method of the API, called with a token that lacks the scope, and with one for another queue."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.keeper.host_requests import MOST_OPEN, HostAct, HostRequest, HostRequests
from tarry.keeper.hosts import HostEntry
from tarry.model import lifecycle
from tarry.model.flow.signal import Awaited
from tarry.model.moving import NEVER
from tarry.model.outcome import Suspended
from tarry.operate.access import Scope
from tarry.operate.method import Method
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.server.serving.api import METHODS
from tarry.store.queries.hosts import Host, PoolFigures, WorkerFigures
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store, Want
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.rules.history.sums import ERRORS
from tests.server.http.calling import api, run

HOOK = "https://shop.example/hook"
GUARDED = [method for method in METHODS if method.scope is not None]
HELD = {"epoch": 1}
OWNER = "one|x.1:2:3:1"
HOST = Host(
    "one|x.1:9:9:0", "web-1", 9, pools=[PoolFigures("all", 1)], workers=[WorkerFigures("all", 1, OWNER)],
    worker_count=1, remote_control=True,
)  # fmt: skip
BODIES: dict[str, Any] = {
    "put_jobs": {"task": "mail.send"},
    "claim_of_queues": {"queues": ["mail"]},
    "finish_job": HELD,
    "fail_job": HELD,
    "release_job": HELD,
    "extend_lease": HELD,
    "report_progress": HELD | {"value": 0.5},
    "move_job": {"priority": 5},
    "edit_job": {"args": [], "version": "x"},
    "add_task": {"task": "second", "settings": {"url": HOOK, "queue": "mail"}},
    "put_task": {"url": HOOK, "queue": "other"},
    "edit_task": {"enabled": False},
    "replay_endpoint": {"since": 60},
    "set_limit": {"at_once": 1},
    "set_bound": {"max_waiting": 1},
    "scale_host": {"pool": "all", "workers": 2},
    "dump_worker": {"worker": OWNER},
    "start_operation": {"act": "delete", "filter": {"queue": "mail"}},
    "send_signal": {"name": "paid", "key": "7"},
    "decide_approval": {"ok": True},
    "put_schedule": {"task": "mail.send", "every": 60},
}
QUERIES = {"stream_events": "?seconds=0", "wait_for_result": "?wait=0"}


def ask(store: Store) -> None:
    """A job of the queue mail waits for an approval with the key 7."""
    (job,) = store.claim([Want("mail", 0, 1)], 1, OWNER, 10**12, store.time())
    waits = Suspended(NEVER, awaits=Awaited("approve:mail", "7"))
    assert store.apply([lifecycle.after(job, waits, lifecycle.DEFAULT, store.time())], store.time()) == [True]


def add_error(store: Store) -> str:
    """The id of a group of errors in the queue mail."""
    place = group_place("mail", "0123456789abcdef")
    group = encode_group(ErrorGroup("ValueError", "no mail", count=1, tasks={"mail.send": 1}))
    assert store.history.change_errors(lambda _: {place: group})
    return place.task


class Shop:
    """An app with jobs, tasks and limits of the queue mail only, and what its doors are called with."""

    def __init__(self, app: App, file: Path) -> None:
        @app.task(name="mail.send", queue="mail", cron="0 3 * * *")
        def send() -> None: ...

        self.app, self.file = app, file
        self.store = app.client.store
        send.enqueue_many([()] * 3)
        (held,) = self.store.claim([Want("mail", 0, 1)], 1, OWNER, 10**12, self.store.time())
        self.held = held.id
        self.flow = app.using(queue="mail").chain(send.call()).id
        ask(self.store)
        self.error = add_error(self.store)
        HostEntry(self.store, lambda: HOST).register_host()

    def id_for(self, route: str, operation: str) -> str:
        """What a method with such a route is called for."""
        if "flows" in route:
            return self.flow
        return operation if "operations" in route else ids.text(self.held)

    def access(self, scopes: str, queues: str, more: str = "") -> TokenAccess:
        rights = f"scopes = {scopes}\nqueues = {queues}\n{more}\n"
        self.file.write_text(f'[tokens.it]\nsha256 = "{digest("it").hex()}"\n{rights}')
        return TokenAccess(self.file)

    def state(self) -> Any:
        jobs = sorted((job.id, job.state, job.epoch, job.queue, job.priority) for job in self.store.find(Query()))
        # What was refused is in the log of acts.
        others = ("external/", "audit/")
        cells = {name: cell for name, cell in self.store.kv_list("").items() if not name.startswith(others)}
        errors = self.store.history.read(ERRORS, 0, 1)
        return jobs, self.store.queues(), self.store.limits(), cells, errors


async def call(client: httpx.AsyncClient, method: Method, names: dict[str, str]) -> httpx.Response:
    path, body = method.route, BODIES.get(method.name)
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    if method.name == "settle_jobs":
        body = {"ends": [{"end": "finish", "id": names["id"], "epoch": 1}]}
    assert "{" not in path, f"what is {path}?"
    headers = {"authorization": "Bearer it"}
    return await client.request(method.verb, path + QUERIES.get(method.name, ""), json=body, headers=headers)


@pytest.fixture
def shop(app: App, tmp_path: Path) -> Shop:
    return Shop(app, tmp_path / "tokens.toml")


def answer(shop: Shop, method: Method, scopes: str, queues: str) -> tuple[httpx.Response, Any, Any]:
    """The answer to the method, and the state of the store before and after."""

    async def story() -> tuple[httpx.Response, Any, Any]:
        everything = shop.access('["admin"]', '["*"]')
        async with api(shop.app, access=everything) as client:
            headers = {"authorization": "Bearer it"}
            settings = {"url": HOOK, "queue": "mail"}
            added = await client.post("/v1/tasks", json={"task": "hook", "settings": settings}, headers=headers)
            assert added.status_code == 201, added.text
            wanted = {"act": "delete", "filter": {"queue": "mail", "task": "none"}}
            operation = (await client.post("/v1/operations", json=wanted, headers=headers)).json()["id"]
            path = f"/v1/operations/{operation}"
            while (await client.get(path, headers=headers)).json()["state"] != "done":
                pass
        names = {
            "queue": "mail", "task": "hook", "schedule": "mail.send", "limit": "queue:mail", "host": HOST.name,
            "key": "7", "connection": "1-1", "error": shop.error, "id": shop.id_for(method.route, operation),
        }  # fmt: skip
        async with api(shop.app, access=shop.access(scopes, queues)) as client:
            before = shop.state()
            found = await call(client, method, names)
            return found, before, shop.state()

    return run(story)


@pytest.mark.parametrize("method", GUARDED, ids=lambda method: method.name)
def test_a_token_without_the_scope_is_refused(shop: Shop, method: Method) -> None:
    others = [scope.value for scope in Scope if scope not in (method.scope, Scope.ADMIN)]
    found, before, after = answer(shop, method, str(others).replace("'", '"'), '["*"]')
    assert found.status_code == 403, found.text
    assert after == before


@pytest.mark.parametrize("method", GUARDED, ids=lambda method: method.name)
def test_a_token_for_another_queue_sees_and_changes_nothing(shop: Shop, method: Method) -> None:
    found, before, after = answer(shop, method, f'["{method.scope}"]', '["other"]')
    assert after == before
    if found.status_code < 400:
        shown = found.text
        if method.name == "settle_jobs":
            assert [end["problem"]["status"] for end in found.json()["ends"]] == [404]
            return
        assert method.verb == "GET", shown
        assert "mail" not in shown, shown
    else:
        # What one may not see is answered as what is not there.
        assert found.status_code in (403, 404), found.text
        assert found.status_code == 403 or "mail.send" in found.text or "mail" not in found.text, found.text


@pytest.mark.parametrize("how", [{"on_duplicate": "replace"}, {"on_duplicate": "postpone"}, {"running": "cancel"}])
def test_a_key_does_not_lead_to_a_job_of_another_queue(shop: Shop, how: dict[str, str]) -> None:
    theirs = shop.app.named("mail.send").using(key="k", delay="1h").enqueue()

    async def put(queues: str) -> int:
        async with api(shop.app, access=shop.access('["put"]', queues)) as client:
            body = {"task": "mail.send", "queue": "other", "key": "k", **how, "delay": "2h"}
            return (await client.post("/v1/jobs", json=body, headers={"authorization": "Bearer it"})).status_code

    assert run(lambda: put('["other"]')) == 403
    (job,) = shop.app.client.fetch([bytes.fromhex(theirs.id.replace("-", ""))])
    assert job is not None
    assert (job.queue, job.epoch, job.due - job.created < 4000 * 10**6) == ("mail", 0, True)
    assert run(lambda: put('["*"]')) == 200


def test_a_task_is_added_and_changed_by_those_who_may_use_its_queue(shop: Shop) -> None:
    async def story() -> list[int]:
        access = shop.access('["admin"]', '["mail"]', 'tasks = ["hook"]')
        async with api(shop.app, access=access) as client:
            client.headers["authorization"] = "Bearer it"
            body = {"task": "hook", "settings": {"url": HOOK, "queue": "mail"}}
            answers = [
                await client.post("/v1/tasks", json={"task": "hook", "settings": {"url": HOOK}}),
                await client.post("/v1/tasks", json=body),
                await client.patch("/v1/tasks/hook", json={"delay": "1m"}),
                await client.patch("/v1/tasks/hook", json={"queue": "other"}),
                await client.patch("/v1/tasks/hook", json={"queue": None}),
                await client.put("/v1/tasks/hook", json={"url": HOOK}),
                await client.delete("/v1/tasks/hook"),
            ]
            return [answer.status_code for answer in answers]

    assert run(story) == [403, 201, 200, 403, 403, 403, 200]


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_a_job_of_a_host_that_is_asked_for_too_much_stays_as_it_is(shop: Shop, outcome: str) -> None:
    requests, now = HostRequests(shop.store, HOST.instance), shop.store.time()
    for number in range(MOST_OPEN):
        requests.put(HostRequest(f"r{number}", HostAct.SCALE, now, pool="all"))

    async def story() -> httpx.Response:
        async with api(shop.app) as client:
            return await client.post(f"/v1/jobs/{ids.text(shop.held)}/kill", json={"outcome": outcome})

    before = shop.state()
    assert run(story).status_code == 429
    assert shop.state() == before
