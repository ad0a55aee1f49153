"""Forms: only those of our own pages count, only for those who may, and each act is on record."""

import logging
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.model.job import State
from tarry.operate.jobs import MoveRequest
from tarry.operate.operations import NewOperation
from tarry.operate.problem import RequestError
from tarry.server.console.act import form_values, read_form
from tarry.server.console.sign_in_session import COOKIE
from tarry.server.serving.console import ACTS
from tarry.store.rules.base import Query
from tests.server.console.visiting import Tokens, Visitor, outcomes, visit

PAUSE = "/queues/mail/pause"


def state(app: App) -> Any:
    """All that an act could change."""
    store = app.client.store
    jobs = sorted((job.id, job.state, job.epoch, job.queue, job.priority, job.due) for job in store.find(Query()))
    # What was refused is in the log of acts.
    others = ("external/", "console/", "audit/")
    cells = {name: cell for name, cell in store.kv_list("").items() if not name.startswith(others)}
    return jobs, store.queues(), store.limits(), cells


def every_act(app: App) -> list[str]:
    """The path of each act, for something that is there."""
    (first, *_) = app.client.store.find(Query())
    names = {"queue": "mail", "task": "mail.send", "schedule": "mail.send", "limit": "queue:mail", "id": first.id.hex()}
    names |= {"host": "none", "key": "none", "connection": "1-1", "error": "0123456789abcdef"}
    return [act.route.format(**names) for act in ACTS]


def test_an_act_is_done_told_once_and_audited(app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tarry.audit")

    async def story(browser: Visitor) -> None:
        await browser.sign_in("operator-token")
        done = await browser.act(PAUSE, {"next": "/queues/mail"}, "/queues/mail")
        assert (done.status_code, done.headers["location"]) == (303, "/queues/mail")
        # A page that refreshes itself shows nobody the message, and leaves it for the one that does.
        await browser.get("/queues/mail", **{"tarry-refresh": "true"})
        said = '<p class="said" role="status">Queue mail is paused: none of its jobs starts.</p>'
        assert said in await browser.text("/queues/mail")
        assert said not in await browser.text("/queues/mail")

    visit(app, story, tokens)
    assert app.client.store.queues() == {"mail": True}
    assert outcomes(caplog) == [("operator", "sign_in", "done"), ("operator", "pause_queue", "done")]


def test_the_bound_of_a_queue_is_set_and_reset_on_its_page(app: App, tokens: Tokens) -> None:
    said: list[str] = []

    async def story(browser: Visitor) -> None:
        await browser.sign_in("operator-token")
        form = {"max_waiting": "3", "when_full": "drop_oldest", "next": "/queues/mail"}
        for path, fields in (("/queues/mail/bound/set", form), ("/queues/mail/bound/delete", {"next": "/queues/mail"})):
            done = await browser.act(path, fields, "/queues/mail")
            assert done.status_code == 303, done.text
            said.append(await browser.text("/queues/mail"))

    visit(app, story, tokens)
    assert "The bound of queue mail is set." in said[0]
    assert ' value="3"' in said[0]
    assert 'value="drop_oldest" selected' in said[0]
    assert "The bound is what settings say." in said[1]
    assert 'value="drop_oldest" selected' not in said[1]


@pytest.mark.parametrize("origin", [None, "", "null", "http://evil.test", "http://tarry.test:7800", "https://tarry"])
def test_a_form_of_another_site_changes_nothing(
    app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture, origin: str | None
) -> None:
    caplog.set_level(logging.INFO, "tarry.audit")
    before = state(app)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("chief-token")
        proof = await browser.proof()
        for path in every_act(app):
            answer = await browser.send(path, {"csrf": proof}, origin)
            assert answer.status_code == 403, path
            assert "another site" in answer.text

    visit(app, story, tokens)
    assert state(app) == before
    assert [outcome for _, _, outcome in outcomes(caplog)] == ["done", *["RequestError"] * len(ACTS)]


@pytest.mark.parametrize("proof", [None, "", "0" * 64, "é", "of the other"])
@pytest.mark.parametrize("has_tokens", [True, False])
def test_a_form_without_the_proof_of_its_session_changes_nothing(
    app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture, proof: str | None, has_tokens: bool
) -> None:
    caplog.set_level(logging.INFO, "tarry.audit")
    before = state(app)

    async def story(browser: Visitor) -> None:
        wrong = proof
        if proof == "of the other":
            await browser.sign_in("operator-token")
            wrong = await browser.proof("/queues/mail")
        if has_tokens:
            await browser.sign_in("chief-token")
        elif COOKIE in browser.client.cookies:
            del browser.client.cookies[COOKIE]
        for path in every_act(app):
            answer = await browser.send(path, {} if wrong is None else {"csrf": wrong})
            assert answer.status_code == 403, path
            assert "earlier session" in answer.text

    visit(app, story, tokens if has_tokens else None)
    assert state(app) == before
    refused = [one for one in outcomes(caplog) if one[1] != "sign_in"]
    assert refused == [("chief" if has_tokens else "anybody", act.method.name, "RequestError") for act in ACTS]


def test_whoever_is_not_signed_in_changes_nothing(app: App, tokens: Tokens) -> None:
    before = state(app)

    async def story(browser: Visitor) -> None:
        for path in every_act(app):
            assert (await browser.send(path)).status_code == 401

    visit(app, story, tokens)
    assert state(app) == before


def test_whoever_may_only_look_sees_no_buttons_and_is_refused(
    app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(app)
    job = app.client.store.find(Query())[0].id.hex()
    tokens.add("other", "read", "operate")

    async def story(browser: Visitor) -> None:
        await browser.sign_in("reader-token")
        for page in ("/", "/queues", "/queues/mail", "/jobs?state=ready", f"/jobs/{job}", "/tasks", "/schedules"):
            assert 'name="csrf"' not in await browser.text(page), page
        caplog.clear()
        caplog.set_level(logging.INFO, "tarry.audit")
        for path in every_act(app):
            refused = await browser.send(path, {"csrf": "x"})
            assert refused.status_code == 403, path
            assert "token reader may not" in refused.text

    visit(app, story, tokens)
    assert state(app) == before
    assert outcomes(caplog) == [("reader", act.method.name, "NotAllowed") for act in ACTS]


def test_an_operator_is_no_administrator(app: App, tokens: Tokens) -> None:
    before = state(app)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("operator-token")
        assert "Add an HTTP task" not in await browser.text("/tasks")
        form = {"task": "hook", "settings.url": "https://shop.example/hook"}
        assert (await browser.act("/tasks", form, "/queues/mail")).status_code == 403
        await browser.sign_in("chief-token")
        assert "Add an HTTP task" in await browser.text("/tasks")

    visit(app, story, tokens)
    assert state(app) == before


def test_a_token_for_other_queues_sees_and_changes_none_of_these(app: App, tokens: Tokens) -> None:
    tokens.add("other", "read", "operate", queues='["shop-*"]')
    job = app.client.store.find(Query())[0].id.hex()
    app.named("mail.send").using(queue="shop-1").enqueue()
    before = state(app)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("other-token")
        for page in ("/", "/queues", "/jobs", "/tasks", "/schedules", "/limits"):
            text = await browser.text(page)
            assert "ann@example.org" not in text
            assert 'href="/queues/mail"' not in text, page
        proof = await browser.proof("/queues/shop-1")
        for path, status in (("/queues/mail", 403), (f"/jobs/{job}", 404), ("/tasks/mail.send", 404), ("/hosts", 403)):
            assert (await browser.get(path)).status_code == status, path
        for path in (PAUSE, f"/jobs/{job}/delete", f"/jobs/{job}/cancel", "/schedules/mail.send/run"):
            status = 403 if path == PAUSE else 404
            assert (await browser.send(path, {"csrf": proof})).status_code == status, path

    visit(app, story, tokens)
    assert state(app) == before


def test_a_new_task_is_shown_whatever_its_name(app: App) -> None:
    async def story(browser: Visitor) -> None:
        form = {"task": "mail?/é", "settings.url": "https://shop.example/hook", "csrf": await browser.proof()}
        added = await browser.send("/tasks", form)
        assert added.headers["location"] == "/tasks/mail%3F/%C3%A9"
        assert "mail?/é" in await browser.text(added.headers["location"])

    visit(app, story)


def test_read_only(app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tarry.audit")
    before = state(app)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("chief-token")
        for page in ("/", "/queues", "/queues/mail", "/jobs?state=ready", "/tasks", "/schedules"):
            assert 'name="csrf"' not in await browser.text(page), page
        for path in every_act(app):
            refused = await browser.send(path, {"csrf": "x"})
            assert refused.status_code == 403, path
            assert "for looking only" in refused.text
        # What changes nothing of the store is not refused.
        assert (await browser.send("/language", {"language": "zh"})).status_code == 303
        assert (await browser.send("/sign-out")).status_code == 303

    visit(app, story, tokens, console="read-only")
    assert state(app) == before
    assert outcomes(caplog)[1:] == [("chief", act.method.name, "RequestError") for act in ACTS]


def test_off(app: App) -> None:
    async def story(browser: Visitor) -> None:
        for path in ("/", "/queues", "/sign-in", "/live", "/static/0/console.css"):
            answer = await browser.get(path)
            assert answer.status_code == 404, path
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await browser.send(PAUSE)).status_code == 404
        assert (await browser.client.get("/v1/queues")).status_code == 200

    visit(app, story, console="off")


def test_looking_changes_nothing(app: App, tokens: Tokens) -> None:
    job = app.client.store.find(Query())[0].id.hex()
    before = state(app)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("chief-token")
        for path in every_act(app):
            assert (await browser.get(path)).status_code in (200, 404, 405, 422), path
        for page in ("/", "/queues", "/queues/mail", f"/jobs/{job}", "/jobs", "/tasks", "/find?text=x", "/operations"):
            assert (await browser.get(page)).status_code in (200, 303)

    visit(app, story, tokens)
    assert state(app) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"a=" + b"x" * 2**20, 413),
        (b"&".join(b"a%d=1" % number for number in range(1000)), 400),
        (b"\xff\xfe\x00", 400),
        (b"a=%ff", 400),
        (b"", 403),
        (b'{"csrf": "x"}', 403),
        (b"a." * 100_000 + b"b=1", 403),
    ],
)
def test_huge_and_broken_forms_are_refused(app: App, body: bytes, status: int) -> None:
    before = state(app)

    async def story(browser: Visitor) -> httpx.Response:
        headers = {"origin": "http://tarry.test", "content-type": "application/x-www-form-urlencoded"}
        return await browser.client.post(PAUSE, content=body, headers=headers)

    assert visit(app, story).status_code == status
    assert state(app) == before


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/language"])
def test_forms_that_anybody_may_send_are_small(app: App, tokens: Tokens, path: str) -> None:
    async def story(browser: Visitor) -> int:
        return (await browser.send(path, {"token": "x" * 20_000})).status_code

    assert visit(app, story, tokens) == 413


def test_fields_become_the_body_of_a_method() -> None:
    form = read_form(b"csrf=x&next=%2F&act=retry&filter.queue=mail&filter.states=dead&filter.states=ready&dry_run=true")
    found = form_values(form, NewOperation)
    assert (found.act, found.dry_run, found.filter.queue) == ("retry", True, "mail")
    assert found.filter.states == (State.DEAD, State.READY)
    settings = form_values(read_form(b"enabled%3Ajson=false&owner=true&a.timeout%3Ajson=2.5"), dict[str, Any])
    assert settings == {"enabled": False, "owner": "true", "a": {"timeout": 2.5}}
    assert form_values(read_form(b"priority=-5&delay=10m&queue="), MoveRequest) == MoveRequest("10m", priority=-5)


@pytest.mark.parametrize(
    "body",
    [
        b"filter=x&filter.queue=y",
        b"filter.queue=y&filter=x",
        b"a.a.a.a.a.a.a=1",
        b"act=shout",
        b"priority=x",
        b"act%3Ajson=retry",
    ],
)
def test_fields_that_do_not_fit_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        form_values(read_form(body), NewOperation)
