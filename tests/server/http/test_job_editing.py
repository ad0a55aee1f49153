"""Other arguments for a job, and clones, by HTTP."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.server.identity.passwords import open_access
from tarry.server.identity.tokens import digest
from tarry.store.memory.store import MemoryStore
from tarry.tasks.arguments.masking import HIDDEN, without_secrets
from tests.server.http.calling import api, run
from tests.server.http.test_jobs import LOST, call, claim, told
from tests.server.http.test_puts import OnlyMails


@pytest.fixture
def app() -> App:
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name="mail", queue="mails")
    def mail(to: str, password: str = "") -> str:
        if not to:
            raise ValueError("nobody")
        return to.upper()

    @app.task(name="bill", limit_by=lambda account, amount: account, limit=1, cost=lambda account, amount: amount)
    def bill(account: str, amount: int) -> int:
        return amount

    return app


def shown(app: App, id: str) -> Any:
    return call(app, "GET", f"/v1/jobs/{id}").json()


def edit(app: App, id: str, args: Any, **more: Any) -> httpx.Response:
    body = {"args": args, "version": more.pop("version", None) or shown(app, id)["version"], **more}
    return call(app, "PATCH", f"/v1/jobs/{id}", json=body)


def test_a_dead_job_gets_other_arguments_and_runs_again(app: App) -> None:
    handle = app.named("mail").using(labels={"customer": "7"}).enqueue("")
    app.drain()
    dead = shown(app, handle.id)
    assert dead["state"] == "dead"
    mended = edit(app, handle.id, ["ann"]).json()
    assert (mended["state"], mended["args"], mended["since"]) == ("dead", ["ann"], dead["since"])
    assert mended["note"] == dead["note"]
    again = edit(app, handle.id, {"to": "bob"}, retry=True).json()
    assert (again["state"], again["attempt"], again["labels"]) == ("ready", 1, {"customer": "7"})
    assert [(one["act"], one["before"]) for one in again["acts"]] == [
        ("edited", [""]),
        ("edited", ["ann"]),
        ("retried", None),
    ]
    app.drain()
    assert handle.result(timeout=0) == "BOB"


def test_an_edit_of_what_has_changed_since_is_refused(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann")
    seen = shown(app, handle.id)["version"]
    assert edit(app, handle.id, ["bob"], version=seen).status_code == 200
    late = edit(app, handle.id, ["carol"], version=seen)
    assert (late.status_code, "look at it again" in late.json()["detail"]) == (409, True)
    assert shown(app, handle.id)["args"] == ["bob"]
    seen = shown(app, handle.id)["version"]
    call(app, "POST", f"/v1/jobs/{handle.id}/retry")
    assert edit(app, handle.id, ["carol"], version=seen).status_code == 409


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([7], "to"),
        ([], "to"),
        (["ann", "", 3], "mail"),
        ({"whom": "ann"}, "mail"),
        ("ann", "a list, or an object by name"),
        (None, "a list, or an object by name"),
        ({"to": "ann", "password": "••••••"}, "there is none before to keep"),
    ],
)
def test_arguments_are_checked_as_those_of_a_new_job(app: App, args: Any, said: str) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann")
    got = edit(app, handle.id, args)
    assert (got.status_code, got.json()["field"]) == (422, "args")
    assert said in got.json()["detail"]
    assert shown(app, handle.id)["args"] == ["ann"]


def test_too_much_is_refused(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann")
    assert edit(app, handle.id, ["x" * (app.client.factory.max_body + 1)]).status_code == 413
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    assert edit(app, handle.id, [deep]).status_code == 422


def test_what_runs_or_is_done_names_the_way_out(app: App) -> None:
    handle = app.named("mail").enqueue("ann")
    claim(app)
    got = edit(app, handle.id, ["bob"])
    assert got.status_code == 409
    assert "it is running: cancel it and clone it" in got.json()["detail"]
    done = app.named("mail").using(queue="default").enqueue("bob")
    app.drain()
    assert "clone it with other arguments" in edit(app, done.id, ["x"]).json()["detail"]
    assert call(app, "PATCH", f"/v1/jobs/{LOST}", json={"args": [], "version": "x"}).status_code == 404


def test_secrets_that_a_page_hides_stay_as_they_are(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann", password="hush")
    got = edit(app, handle.id, {"to": "bob", "password": "••••••"}).json()
    assert got["args"] == {"to": "bob", "password": "hush"}
    positional = app.named("mail").using(delay=60).enqueue("ann", "hush")
    assert edit(app, positional.id, {"to": "bob", "password": "••••••"}).json()["args"]["password"] == "hush"


def nested(value: Any, levels: int = 80) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_what_a_page_does_not_show_stays_as_it_is_at_any_depth(app: App) -> None:
    @app.task(name="tree")
    def tree(password: str, leaves: Any) -> None: ...

    handle = app.named("tree").using(delay=60).enqueue("hush", nested("leaf"))
    typed = without_secrets({"password": "hush", "leaves": nested("leaf")})
    got = edit(app, handle.id, typed)
    assert (got.status_code, got.json()["args"]) == (200, {"password": "hush", "leaves": nested("leaf")})
    refused = edit(app, handle.id, {"password": "x", "leaves": nested(HIDDEN, 90)})
    assert (refused.status_code, "there is none before" in refused.json()["detail"]) == (422, True)


def test_a_line_and_a_cost_that_come_from_the_arguments_are_fixed(app: App) -> None:
    handle = app.named("bill").using(delay=60).enqueue("acme", 3)
    got = edit(app, handle.id, ["other", 3])
    assert got.status_code == 409
    assert "limit_by= or order_by= the new arguments have another key" in got.json()["detail"]
    assert "another cost" in edit(app, handle.id, ["acme", 4]).json()["detail"]
    assert edit(app, handle.id, {"account": "acme", "amount": 3}).status_code == 200
    clone = call(app, "POST", f"/v1/jobs/{handle.id}/clone", json={"args": ["other", 4]}).json()
    assert (clone["args"], clone["cost"]) == (["other", 4], 4)
    assert app.get(clone["id"]).record().lane == "other"


def test_old_arguments_are_kept_if_they_are_short_and_few(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("x" * 5000)
    for number in range(8):
        assert edit(app, handle.id, [str(number)]).status_code == 200
    acts = shown(app, handle.id)["acts"]
    assert [one["before"] for one in acts] == [None] * 3 + [[str(n)] for n in range(2, 7)]


def test_a_clone_has_the_call_and_none_of_the_history(app: App) -> None:
    options: dict[str, Any] = {
        "priority": 3,
        "queue": "fast",
        "key": "k",
        "labels": {"customer": "7"},
        "timeout": 9,
        "retry": 4,
    }
    handle = app.named("mail").using(**options, expires="1h", delay=60).enqueue("ann", password="hush")
    got = call(app, "POST", f"/v1/jobs/{handle.id}/clone", json={})
    clone, old = got.json(), shown(app, handle.id)
    assert got.status_code == 201
    same = ("task", "args", "queue", "priority", "labels", "max_attempts", "cost")
    assert [clone[name] for name in same] == [old[name] for name in same]
    assert (clone["state"], clone["key"], clone["attempt"]) == ("ready", None, 1)
    assert clone["expires"] - clone["due"] == old["expires"] - old["due"]
    (act,) = shown(app, clone["id"])["acts"]
    assert (act["act"], act["of"], act["before"]) == ("cloned", handle.id, None)
    assert shown(app, handle.id)["acts"] == []


def test_a_clone_gets_the_key_only_if_nobody_holds_it(app: App) -> None:
    handle = app.named("mail").using(key="k", delay=60).enqueue("ann")
    path = f"/v1/jobs/{handle.id}/clone"
    got = call(app, "POST", path, json={"with_key": True})
    assert (got.status_code, handle.id in got.json()["detail"]) == (409, True)
    handle.cancel()
    assert call(app, "POST", path, json={"with_key": True}).json()["key"] == "k"


def test_a_node_of_a_flow_is_mended_and_its_flow_goes_on(app: App) -> None:
    mail = app.named("mail")
    with app.flow("both") as flow:
        first = flow.add(mail.call(""))
        flow.add(mail.call("bob"), after=[first])
        flow.add(mail.call(first.result))
    app.drain()
    nodes = call(app, "GET", "/v1/jobs", params={"q": f"flow:{flow.handle.id} node:mail"}).json()["jobs"]
    by_args = {str(job["args"]): job for job in nodes}
    assert edit(app, by_args["['']"]["id"], ["ann"]).status_code == 200
    takes = edit(app, by_args["[None]"]["id"], ["x"])
    assert takes.status_code == 409
    assert call(app, "POST", f"/v1/flows/{flow.handle.id}/retry").status_code == 200
    app.drain()
    assert flow.handle.state == "done"
    clone = call(app, "POST", f"/v1/jobs/{by_args['[' + repr('bob') + ']']['id']}/clone", json={}).json()
    assert (clone["args"], shown(app, clone["id"])["flow"]) == (["bob"], None)
    assert call(app, "POST", f"/v1/jobs/{by_args['[None]']['id']}/clone", json={"args": ["x"]}).status_code == 409
    assert call(app, "POST", f"/v1/jobs/{flow.handle.id}/clone", json={}).status_code == 409


def test_the_body_of_an_http_task(tmp_path: Any) -> None:
    (tmp_path / "tarry.toml").write_text('[tasks.paid]\nurl = "https://example.org/"\ndelay = "10m"\n')
    app = App(MemoryStore())
    id = call(app, "POST", "/v1/jobs", json={"task": "paid", "body": {"order": 7}}).json()["id"]
    assert edit(app, id, {"order": 8}).status_code == 200
    assert app.get(id).record().body == b'{"order":8}'
    assert edit(app, id, "text").status_code == 200
    assert app.get(id).record().body == b'["text"]'
    clone = call(app, "POST", f"/v1/jobs/{id}/clone", json={"args": {"order": 9}}).json()
    assert (clone["state"], clone["args"]) == ("ready", {"order": 9})


def test_jobs_of_other_queues_are_not_there(app: App) -> None:
    bill = app.named("bill").using(delay=60).enqueue("acme", 3)

    async def tell(client: httpx.AsyncClient) -> None:
        assert (await client.patch(f"/v1/jobs/{bill.id}", json={"args": [], "version": "x"})).status_code == 404
        assert (await client.post(f"/v1/jobs/{bill.id}/clone", json={})).status_code == 404

    told(app, tell, access=OnlyMails())


def test_a_request_that_is_sent_again_after_an_edit_is_the_same(app: App) -> None:
    body, name = {"task": "mail", "args": ["ann"], "delay": 60}, {"Idempotency-Key": "r1"}
    first = call(app, "POST", "/v1/jobs", json=body, headers=name).json()
    assert edit(app, first["id"], ["bob"]).status_code == 200
    again = call(app, "POST", "/v1/jobs", json=body, headers=name)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert shown(app, first["id"])["args"] == ["bob"]


def test_a_job_of_tarrys_own_has_no_other_arguments(app: App) -> None:
    @app.task(name="each")
    def each(number: int) -> int:
        raise ValueError

    app.map(each, range(3), shards=1)
    own = [job for job in call(app, "GET", "/v1/jobs").json()["jobs"] if job["task"].startswith("tarry.")]
    assert own
    for job in own:
        assert edit(app, job["id"], []).status_code == 409


@pytest.mark.parametrize("rights", ['tasks = ["mail"]', 'queues = ["mails"]'])
def test_who_may_not_put_a_task_gives_no_job_of_it_arguments(app: App, tmp_path: Path, rights: str) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.shop]\nsha256 = "{digest("t").hex()}"\nscopes = ["read", "operate"]\n{rights}\n')
    bill = app.named("bill").using(delay=60, queue="mails").enqueue("acme", 3)
    mail = app.named("mail").using(delay=60, key="theirs").enqueue("ann")
    own = app.named("mail").using(delay=60, key="@shop/k").enqueue("ann")
    for handle in (mail, own):
        handle.cancel()
    change = {"args": ["other", 3], "version": shown(app, bill.id)["version"]}

    async def tell(client: httpx.AsyncClient) -> None:
        client.headers["authorization"] = "Bearer t"
        assert (await client.patch(f"/v1/jobs/{bill.id}", json=change)).status_code == 403
        for body in ({}, {"args": ["other", 3]}):
            assert (await client.post(f"/v1/jobs/{bill.id}/clone", json=body)).status_code == 403
        assert (await client.post(f"/v1/jobs/{mail.id}/clone", json={"args": ["bob"]})).status_code == 201
        # Its keys are its own, so that it does not take those of others.
        got = await client.post(f"/v1/jobs/{mail.id}/clone", json={"with_key": True})
        assert (got.status_code, "without its key" in got.json()["detail"]) == (403, True)
        assert (await client.post(f"/v1/jobs/{own.id}/clone", json={"with_key": True})).json()["key"] == "k"

    told(app, tell, access=open_access(tokens, None))


def test_who_did_it_is_in_the_log_of_acts(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann")

    async def story() -> list[Any]:
        async with api(app) as client:
            job = (await client.get(f"/v1/jobs/{handle.id}")).json()
            await client.patch(f"/v1/jobs/{handle.id}", json={"args": ["bob"], "version": job["version"]})
            await client.post(f"/v1/jobs/{handle.id}/clone", json={})
            return list((await client.get("/v1/audit")).json()["acts"])

    assert sorted(one["act"] for one in run(story)) == ["clone_job", "edit_job"]


def test_a_job_of_an_order_keeps_its_place_and_a_clone_comes_last(app: App) -> None:
    @app.task(name="ordered", order_by=lambda account, amount: account, retry=None)
    def ordered(account: str, amount: int) -> int:
        ran.append(amount)
        return amount

    ran: list[int] = []
    first, second = ordered.enqueue("acme", 1), ordered.enqueue("acme", 2)
    assert edit(app, first.id, ["acme", 10]).status_code == 200
    assert edit(app, second.id, ["other", 2]).status_code == 409
    clone = call(app, "POST", f"/v1/jobs/{first.id}/clone", json={"args": ["acme", 30]}).json()["id"]
    app.drain()
    assert (ran, app.get(clone).record().lane) == ([10, 2, 30], "acme")


def test_a_job_of_a_batch_is_edited_alone(app: App) -> None:
    seen: list[list[int]] = []

    @app.task(name="batched", batch=10, wait=0)
    def batched(numbers: list[int]) -> None:
        seen.append(sorted(numbers))

    jobs = [batched.enqueue(number) for number in (1, 2)]
    assert edit(app, jobs[0].id, [7]).status_code == 200
    assert edit(app, jobs[1].id, ["x"]).json()["field"] == "args"
    app.drain()
    assert [number for each in seen for number in each] in ([2, 7], [7, 2])
