"""Jobs by HTTP: look, wait, cancel, retry, move, delete."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest

from tarry import App
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Raised
from tarry.model.retry import Retry
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Want
from tests.server.http.calling import api, run
from tests.server.http.test_puts import OnlyMails

Tell = Callable[[httpx.AsyncClient], Awaitable[Any]]
LOST = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def app() -> App:
    app = App(MemoryStore(), closures=True, retry=2)

    @app.task(name="mail", queue="mails")
    def mail(to: str) -> str:
        return to.upper()

    @app.task(name="bad")
    def bad() -> None:
        print("so bad")
        raise ValueError("no")

    return app


def told(app: App, tell: Tell, **more: Any) -> Any:
    async def story() -> Any:
        async with api(app, **more) as client:
            return await tell(client)

    return run(story)


def call(app: App, verb: str, path: str, **more: Any) -> httpx.Response:
    got: httpx.Response = told(app, lambda client: client.request(verb, path, **more))
    return got


def claim(app: App) -> Job:
    """Makes the first ready job run, for nobody."""
    store = app.client.store
    wants = [Want(queue, band, 1) for queue in ("default", "mails") for band in BANDS]
    (job,) = store.claim(wants, 1, "somebody", 60_000_000, app.client.clock.now())
    return job


def test_a_job_is_shown_with_all_that_is_known(app: App) -> None:
    handle = app.named("mail").using(key="k", priority=2, cost=3).enqueue("ann")
    got = call(app, "GET", f"/v1/jobs/{handle.id}").json()
    assert (got["id"], got["task"], got["queue"], got["state"]) == (handle.id, "mail", "mails", "ready")
    assert (got["key"], got["priority"], got["args"], got["note"], got["cost"]) == ("k", 2, ["ann"], None, 3)
    assert (got["attempt"], got["max_attempts"], got["deliveries"], got["output"]) == (1, 3, [], None)


def test_why_a_job_does_not_run(app: App) -> None:
    store = app.client.store
    handle = app.named("mail").enqueue("ann")
    got = call(app, "GET", f"/v1/jobs/{handle.id}/why").json()
    assert (got["id"], got["state"]) == (handle.id, "ready")
    assert [(one["kind"], one["text"]) for one in got["reasons"]] == [("no_host", "No master is known to run.")]
    store.pause("mails", True)
    assert call(app, "GET", f"/v1/jobs/{handle.id}/why").json()["reasons"][0]["text"] == "Queue mails is paused."


def test_who_holds_a_limit_is_told_to_those_who_may_see_it(app: App) -> None:
    store = app.client.store
    store.limit("queue:mails", Limit(1))
    first, second = (app.named("mail").enqueue(name) for name in ("ann", "bob"))
    claim(app)

    async def tell(client: httpx.AsyncClient) -> list[dict[str, Any]]:
        found = (await client.get(f"/v1/jobs/{second.id}/why")).json()["reasons"]
        return [one for one in found if one["kind"] == "limit"]

    for access in ({}, {"access": OnlyMails()}):
        ((reason,),) = (told(app, tell, **access),)
        assert reason["text"] == "Limit queue:mails is reached: 1 of 1 run."
        assert [(one["id"], one["worker"]) for one in reason["holders"]] == [(first.id, "somebody")]


def test_jobs_of_other_queues_that_hold_a_limit_are_not_shown(app: App) -> None:
    store = app.client.store
    store.limit("task:mail", Limit(1))
    app.named("mail").using(queue="default").enqueue("ann")
    claim(app)
    waits = app.named("mail").enqueue("bob")

    async def tell(client: httpx.AsyncClient) -> list[dict[str, Any]]:
        return list((await client.get(f"/v1/jobs/{waits.id}/why")).json()["reasons"])

    (reason,) = (one for one in told(app, tell, access=OnlyMails()) if one["kind"] == "limit")
    assert reason["holders"] == []


def test_a_job_that_is_not_there(app: App) -> None:
    for verb, path in (
        ("GET", ""),
        ("GET", "/result"),
        ("GET", "/why"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/move"),
        ("DELETE", ""),
    ):
        got = call(app, verb, f"/v1/jobs/{LOST}{path}")
        assert (got.status_code, got.json()["type"]) == (404, "urn:tarry:problem:no-such-job"), path
        assert call(app, verb, f"/v1/jobs/x{path}").status_code == 422


def test_jobs_are_listed_page_by_page(app: App) -> None:
    ids = [app.named("mail").enqueue(str(n)).id for n in range(7)]
    app.named("bad").enqueue()
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        more = f"&cursor={cursor}" if cursor else ""
        got = call(app, "GET", f"/v1/jobs?task=mail&limit=3{more}").json()
        seen += [job["id"] for job in got["jobs"]]
        cursor, pages = got["next"], pages + 1
    assert (seen, pages) == (ids, 3)


def test_jobs_are_found_by_state_queue_key_and_age(app: App) -> None:
    app.named("mail").using(key="k", delay=60).enqueue("a")
    app.named("bad").enqueue()

    def found(query: str) -> list[str]:
        return [job["task"] for job in call(app, "GET", f"/v1/jobs?{query}").json()["jobs"]]

    assert found("") == ["mail", "bad"]
    assert found("state=scheduled") == ["mail"]
    assert found("state=scheduled&state=ready") == ["mail", "bad"]
    assert found("queue=default") == ["bad"]
    assert found("task=mail&key=k") == ["mail"]
    assert found("older=1h") == found("older=3600") == []
    assert found("created_since=3600") == ["mail", "bad"]
    for wrong, field in (
        ("state=gone", "state[0]"),
        ("older=x", "older"),
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
    ):
        got = call(app, "GET", f"/v1/jobs?{wrong}")
        assert (got.status_code, got.json()["field"]) == (422, field)


def test_a_line_is_answered_with_how_it_was_understood(app: App) -> None:
    app.named("mail").enqueue("a")
    got = call(app, "GET", "/v1/jobs", params={"q": "queue:mails  task:m*", "state": "ready"}).json()
    assert (got["q"], len(got["jobs"])) == ("state:ready task:m* queue:mails", 1)
    for line, said in (
        ("sate:ready", "did you mean state?"),
        ("queue:mails since:soon", "no time"),
        ("x" * 2001, "2000"),
        ("parent:" + LOST, "parent: no job"),
    ):
        got = call(app, "GET", "/v1/jobs", params={"q": line, "queue": "mails"} if "queue" not in line else {"q": line})
        assert (got.status_code, said in got.json()["detail"]) == (422, True), got.json()
    got = call(app, "GET", "/v1/jobs", params={"q": "queue:mails", "queue": "mails"})
    assert (got.status_code, got.json()["field"]) == (422, "q")
    body = {"act": "cancel", "filter": {"queue": "mails"}, "q": "id:01a20121"}
    assert call(app, "POST", "/v1/operations", json=body).json()["field"] == "q"
    assert call(app, "POST", "/v1/operations", json={"act": "cancel", "q": " "}).status_code == 422


def test_a_line_shows_no_more_than_the_caller_may_see(app: App) -> None:
    mail, bad = app.named("mail").enqueue("a"), app.named("bad").enqueue()

    async def tell(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/v1/jobs", params={"q": "task:*a*"})).json()
        assert [job["id"] for job in listed["jobs"]] == [mail.id]
        assert (await client.get("/v1/jobs", params={"q": "queue:default"})).status_code == 403
        # The same answer as for one that is not there.
        hidden = await client.get("/v1/jobs", params={"q": f"parent:{bad.id}"})
        assert (hidden.status_code, hidden.json()["detail"]) == (422, f"parent: no job {bad.id}")
        body = {"act": "cancel", "q": "queue:default"}
        assert (await client.post("/v1/operations", json=body)).status_code == 403
        assert (await client.post("/v1/operations", json={"act": "cancel", "q": "task:*"})).status_code == 403

    told(app, tell, access=OnlyMails())


def test_a_caller_sees_only_its_queues(app: App) -> None:
    mail, bad = app.named("mail").enqueue("a"), app.named("bad").enqueue()

    async def tell(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/v1/jobs")).json()
        assert [job["id"] for job in listed["jobs"]] == [mail.id]
        assert (await client.get("/v1/jobs?queue=default")).status_code == 403
        assert (await client.get(f"/v1/jobs/{bad.id}")).status_code == 404
        assert (await client.delete(f"/v1/jobs/{bad.id}")).status_code == 404
        assert (await client.post(f"/v1/jobs/{mail.id}/move", json={"queue": "default"})).status_code == 403
        assert (await client.get(f"/v1/jobs/{mail.id}")).status_code == 200

    told(app, tell, access=OnlyMails())


def test_a_result_is_told_and_why_there_is_none(app: App) -> None:
    good, bad = app.named("mail").enqueue("ann"), app.named("bad").using(retry=0).enqueue()
    waits = call(app, "GET", f"/v1/jobs/{good.id}/result").json()
    assert (waits["finished"], waits["state"]) == (False, "ready")
    app.drain()
    got = call(app, "GET", f"/v1/jobs/{good.id}/result?wait=5").json()
    assert (got["state"], got["result"], got["error"]) == ("done", "ANN", None)
    got = call(app, "GET", f"/v1/jobs/{bad.id}/result").json()
    assert (got["state"], got["result"], got["error"]["message"]) == ("dead", None, "no")
    assert call(app, "GET", f"/v1/jobs/{bad.id}").json()["output"]["text"] == "so bad\n"
    assert call(app, "GET", f"/v1/jobs/{bad.id}/result?wait=61").json()["field"] == "wait"


def test_a_result_can_be_waited_for(app: App) -> None:
    handle = app.named("mail").using(delay=60).enqueue("ann")

    async def tell(client: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response]:
        soon = await client.get(f"/v1/jobs/{handle.id}/result?wait=0.01")
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{handle.id}/result?wait=30"))
        async with asyncio.timeout(20):
            while not app.client._waiting._waiters:
                await asyncio.sleep(0.001)
        await client.post(f"/v1/jobs/{handle.id}/cancel", json={"reason": "enough"})
        return soon, await waiting

    soon, ended = told(app, tell)
    assert (soon.status_code, soon.json()["finished"]) == (202, False)
    assert (ended.status_code, ended.json()["state"], ended.json()["error"]["message"]) == (200, "cancelled", "enough")


def test_a_job_is_cancelled_once(app: App) -> None:
    handle = app.named("mail").enqueue("ann")
    got = call(app, "POST", f"/v1/jobs/{handle.id}/cancel").json()
    assert got == {"id": handle.id, "cancelled": True, "sent": None, "detail": ""}
    got = call(app, "POST", f"/v1/jobs/{handle.id}/cancel").json()
    assert (got["cancelled"], got["detail"]) == (False, "it is cancelled already")


def test_a_job_of_an_http_task_says_whether_it_was_sent(tmp_path: Any) -> None:
    (tmp_path / "tarry.toml").write_text('[tasks.paid]\nurl = "https://example.org/"\n')
    app = App(MemoryStore())
    got = call(app, "POST", "/v1/jobs", json={"task": "paid", "body": {"order": 7}})
    assert got.status_code == 201
    assert app.get(got.json()["id"]).record().body == b'{"order":7}'
    told_ = call(app, "POST", f"/v1/jobs/{got.json()['id']}/cancel").json()
    assert (told_["cancelled"], told_["sent"], told_["detail"]) == (True, False, "it was never sent")
    assert call(app, "GET", f"/v1/jobs/{got.json()['id']}").json()["deliveries"] == []


def test_a_job_is_made_ready_again(app: App) -> None:
    later = app.named("mail").using(delay=60).enqueue("ann")
    got = call(app, "POST", f"/v1/jobs/{later.id}/retry")
    assert (got.status_code, got.json()["state"]) == (200, "ready")
    claim(app)
    got = call(app, "POST", f"/v1/jobs/{later.id}/retry")
    assert (got.status_code, got.json()["detail"]) == (409, "the job is not made ready: it is running")


def test_a_waiting_job_is_moved(app: App) -> None:
    handle = app.named("mail").enqueue("ann")
    path = f"/v1/jobs/{handle.id}/move"
    got = call(app, "POST", path, json={"at": 4_000_000_000, "queue": "later", "priority": 7}).json()
    assert (got["state"], got["queue"], got["priority"], got["due"]) == ("scheduled", "later", 7, 4e9)
    assert call(app, "POST", path, json={"delay": 0}).json()["state"] == "ready"
    long_ago = call(app, "POST", path, json={"at": "0001-01-01T00:00:00+14:00"}).json()
    assert (long_ago["state"], long_ago["due"]) == ("ready", 0)
    for wrong, field in (
        ({"delay": "x"}, "delay"),
        ({"at": "9999-12-31T23:59:59-14:00"}, "at"),
        ({"at": "2030-01-01T00:00"}, "at"),
        ({"priority": 2**50}, "priority"),
    ):
        got = call(app, "POST", path, json=wrong)
        assert (got.status_code, got.json()["field"]) == (422, field)
    app.get(handle.id).cancel()
    got = call(app, "POST", path, json={"queue": "q"})
    assert (got.status_code, got.json()["detail"]) == (409, "the job is not moved: it is cancelled")


def test_a_job_is_deleted_unless_it_runs(app: App) -> None:
    handle, other = app.named("mail").enqueue("ann"), app.named("bad").enqueue()
    assert call(app, "DELETE", f"/v1/jobs/{handle.id}").status_code == 204
    assert app.client.fetch([handle._id]) == [None]
    job = claim(app)
    assert job.id == other._id
    got = call(app, "DELETE", f"/v1/jobs/{other.id}")
    assert (got.status_code, got.json()["detail"]) == (409, "the job is not deleted: it is running")


def test_what_is_no_json_is_shown_as_text(app: App) -> None:
    handle = app.named("mail").enqueue("ann")
    job = handle.record()
    change = Change(job.id, job.state, job.epoch, job.state, job.state_since, None, 0, 0, 0, b"\xffno")
    assert app.client.store.apply([change], app.client.clock.now()) == [True]
    assert call(app, "GET", f"/v1/jobs/{handle.id}").json()["note"] == "\ufffdno"


def test_a_job_that_is_nested_too_deeply_spoils_no_list(app: App) -> None:
    # As another door or program may have stored it.
    for levels in (100, 300, 950, 100_000):
        body = b"[" * levels + b"]" * levels
        job = msgspec.structs.replace(app.client.make_job("mail", b'["ann"]'), body=body)
        app.client.store.insert([job])
        shown = call(app, "GET", f"/v1/jobs/{ids.text(job.id)}")
        assert shown.status_code == 200
        assert isinstance(shown.json()["args"], list if levels == 100 else str)
    assert call(app, "GET", "/v1/jobs").status_code == 200


def test_jobs_are_found_by_text_and_by_the_time_of_their_put(app: App) -> None:
    ann, bob = (app.named("mail").enqueue(name) for name in ("ann@x", "bob@x"))

    def found(**query: Any) -> list[str]:
        got = call(app, "GET", "/v1/jobs", params=query).json()
        return [job["id"] for job in got["jobs"]]

    assert found(text="ANN") == [ann.id]
    assert found(text="nobody") == []
    assert found(created_since="1h") == [ann.id, bob.id]
    assert found(created_until="1h") == []
    assert found(created_since="2020-01-01", created_until="2040-01-01T00:00Z", text="bob") == [bob.id]
    assert call(app, "GET", "/v1/jobs", params={"text": "x"}).json()["examined"] == 2
    for wrong in ({"created_since": "soon"}, {"created_until": "-1h"}):
        got = call(app, "GET", "/v1/jobs", params=wrong)
        assert (got.status_code, got.json()["field"]) == (422, next(iter(wrong)))


def test_the_attempts_of_a_job(app: App) -> None:
    """Each with its worker, its times and its error; also the one that runs."""
    handle = app.named("mail").enqueue("ann")
    store, now = app.client.store, app.client.clock.now()
    first = claim(app)
    failed = Raised(b'{"type":"ValueError","message":"no","traceback":"T"}', ("ValueError",))
    change = lifecycle.after(first, failed, Rules(retry=Retry(3, base=0, jitter=0)), now)
    assert store.apply([change], now) == [True]
    claim(app)
    got = call(app, "GET", f"/v1/jobs/{handle.id}").json()
    assert [(one["attempt"], one["epoch"], one["outcome"], one["worker"], one["error"]) for one in got["attempts"]] == [
        (1, 1, "failed", "somebody", "ValueError: no"),
        (2, 2, "running", "somebody", ""),
    ]
    assert got["attempts"][0]["started"] == first.state_since / 1e6
    assert (got["attempts"][0]["ended"], got["attempts"][1]["ended"]) == (now / 1e6, None)
    assert got["attempts_left_out"] == 0
