"""What every answer carries, below any path; pages of errors; the console's own files."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

import tarry
from tarry import App
from tarry.server.console.answers import HEADERS
from tarry.server.console.assets import NAMES, asset_path
from tarry.store.rules.base import Query
from tests.server.console.visiting import ORIGIN, Tokens, Visitor, visit
from tests.server.http.calling import caller, run

POLICY = HEADERS["Content-Security-Policy"]


FORBIDDEN = r'<style|\sstyle=|<script(?! src="/)|\son\w+=|javascript:|(?:src|href|action)="(?:\w+:|//)'


def check_headers(answer: httpx.Response) -> None:
    assert answer.headers["content-security-policy"] == POLICY, answer.url
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


def test_every_answer_has_the_headers(app: App, tokens: Tokens) -> None:
    paths = ["/", "/queues", "/jobs", "/sign-in", "/find?text=x", "/nowhere", "/jobs/nonsense", "/jobs?wrong=1"]

    async def story(browser: Visitor) -> None:
        redirected = await browser.get("/")
        assert redirected.status_code == 303
        check_headers(redirected)
        check_headers(await browser.sign_in("wrong"))
        check_headers(await browser.sign_in("operator-token"))
        for path in paths:
            answer = await browser.get(path)
            check_headers(answer)
            assert answer.headers["cache-control"] == "no-store", path
        check_headers(await browser.send("/queues/mail/pause"))
        check_headers(await browser.act("/queues/mail/pause", page="/queues/mail"))
        # No such method at this path.
        wrong = await browser.client.put("/queues", headers={"accept": "text/html"})
        assert wrong.status_code == 405
        check_headers(wrong)
        check_headers(await browser.client.head("/live"))
        check_headers(await browser.get(asset_path("console.css")))

    visit(app, story, tokens)


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    allowed = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert allowed["default-src"] == allowed["frame-ancestors"] == allowed["base-uri"] == "'none'"
    assert {allowed[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {
        "'self'"
    }


def test_pages_have_nothing_that_the_policy_forbids(app: App) -> None:
    job = app.client.store.find(Query())[0].id.hex()

    async def story(browser: Visitor) -> None:
        for path in ("/", "/queues", "/queues/mail", "/jobs?state=ready", f"/jobs/{job}", "/tasks", "/tasks/mail.send"):
            text = await browser.text(path)
            assert not re.search(FORBIDDEN, text), path

    visit(app, story)


def test_a_page_that_is_not_there(app: App) -> None:
    async def story(browser: Visitor) -> None:
        page = await browser.get("/nowhere")
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is nothing at this path" in page.text
        # It has the way on.
        assert 'href="/queues"' in page.text
        program = await browser.client.get("/nowhere", headers={"accept": "application/json"})
        assert (program.status_code, program.headers["content-type"]) == (404, "application/problem+json")
        assert (await browser.get("/jobs/019a0000-0000-7000-8000-000000000000")).status_code == 404
        assert (await browser.get("/queues/nowhere")).status_code in (200, 404)

    visit(app, story)


def test_errors_tell_what_a_browser_and_a_person_need(app: App) -> None:
    async def story(browser: Visitor) -> None:
        wrong = await browser.get("/jobs?state=asleep")
        assert wrong.status_code == 422
        assert "state" in wrong.text
        injected = await browser.get("/jobs?older=%3Cscript%3Ealert(1)%3C/script%3E")
        assert injected.status_code == 422
        assert "<script>alert" not in injected.text
        await browser.send("/language", {"language": "zh"})
        assert "请求中有一个值不正确" in (await browser.get("/jobs?state=asleep")).text

    visit(app, story)


def test_head_is_get_without_a_body(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        await browser.sign_in("reader-token")
        for path in ("/", "/queues", "/nowhere", "/sign-in", asset_path("console.js")):
            head = await browser.client.head(path, headers={"accept": "text/html"})
            assert head.status_code == (await browser.get(path)).status_code, path
            assert head.content == b""
        # The stream of events would go on for minutes.
        head = await asyncio.wait_for(browser.client.head("/live"), 5)
        assert head.headers["content-type"].startswith("text/event-stream")

    visit(app, story, tokens)


def test_own_files_are_kept_by_browsers_until_they_change(app: App) -> None:
    async def story(browser: Visitor) -> None:
        page = await browser.text("/")
        for name in NAMES:
            path = asset_path(name)
            assert path in page
            answer = await browser.get(path)
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            older = await browser.get(f"/static/000000000000/{name}")
            assert (older.status_code, older.headers["cache-control"]) == (200, "no-cache")
        for path in (
            "/static/x/nothing.css",
            "/static/x/../application.py",
            "/static/x/../__init__.py",
            "/static",
        ):
            assert (await browser.get(path)).status_code == 404, path

    visit(app, story)


def test_a_reader_chooses_the_language(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        # Before anybody has signed in, too.
        assert '<html lang="en">' in await browser.text("/sign-in")
        assert "登录" in (await browser.get("/sign-in", **{"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"})).text
        chosen = await browser.send("/language", {"language": "zh", "next": "/sign-in"})
        assert chosen.headers["location"] == "/sign-in"
        assert "Max-Age=31536000" in chosen.headers["set-cookie"]
        assert '<html lang="zh">' in await browser.text("/sign-in")
        await browser.send("/language", {"language": "klingon"})
        assert '<html lang="en">' in await browser.text("/sign-in")
        assert (await browser.send("/language", {"language": "zh"}, "http://evil.test")).status_code == 403

    visit(app, story, tokens)


def test_a_message_that_somebody_forged_is_text(app: App) -> None:
    async def story(browser: Visitor) -> str:
        browser.client.cookies.set("tarry_said", "%3Cscript%3Ealert(1)%3C%2Fscript%3E%FF")
        return await browser.text("/")

    page = visit(app, story)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def mounted(app: App, kind: str, tokens: Tokens) -> tuple[Any, Any]:
    door = tarry.asgi(app, tokens=tokens.file)
    if kind == "fastapi":
        web: Any = FastAPI()
        web.mount("/queue", door)
        return web, door
    return Starlette(routes=[Mount("/a/queue", app=door)]), door


def tell(application: Any, story: Callable[[Visitor], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        async with caller(application) as client:
            await story(Visitor(client))

    run(told)


@pytest.mark.parametrize(("kind", "root"), [("fastapi", "/queue"), ("starlette", "/a/queue")])
def test_below_a_path_of_another_application(app: App, tokens: Tokens, kind: str, root: str) -> None:
    job = app.client.store.find(Query())[0].id.hex()

    async def story(browser: Visitor) -> None:
        asked = await browser.get(f"{root}/queues")
        assert asked.headers["location"] == f"{root}/sign-in?next=%2Fqueues"
        entered = await browser.client.post(
            f"{root}/sign-in?next=/queues", data={"token": "operator-token"}, headers={"origin": ORIGIN}
        )
        assert entered.headers["location"] == f"{root}/queues"
        assert f"Path={root}" in entered.headers["set-cookie"].split("; ")
        for path in ("/", "/queues", "/queues/mail", "/jobs?state=ready", f"/jobs/{job}", "/tasks/mail.send", "/hosts"):
            text = await browser.text(root + path)
            for link in re.findall(r'(?:href|src|action|data-live)="([^"]*)"', text):
                assert link.startswith((f"{root}/", "#", "?")), (path, link)
        for name in NAMES:
            assert (await browser.get(root + asset_path(name))).headers["cache-control"].startswith("public")
        assert (await browser.client.head(f"{root}/live")).status_code == 200
        proof = await browser.proof(f"{root}/queues/mail")
        paused = await browser.send(f"{root}/queues/mail/pause", {"csrf": proof, "next": "/queues/mail"})
        assert paused.headers["location"] == f"{root}/queues/mail"
        assert f"Path={root}" in paused.headers["set-cookie"].split("; ")
        assert 'aria-current="page">Queues' in await browser.text(f"{root}/queues")
        missing = await browser.get(f"{root}/nowhere")
        assert missing.status_code == 404
        assert f'href="{root}/queues"' in missing.text
        left = await browser.send(f"{root}/sign-out")
        assert left.headers["location"] == f"{root}/sign-in"
        assert (await browser.get(f"{root}/")).status_code == 303

    web, door = mounted(app, kind, tokens)
    tell(web, story)
    door.close()
    assert app.client.store.queues() == {"mail": True}


def test_below_the_path_of_a_proxy(app: App) -> None:
    async def story(browser: Visitor) -> None:
        for root in ("", "/of/tarry"):
            assert f'href="{root}/queues"' in await browser.text(f"{root}/")
            paused = await browser.act(f"{root}/queues/mail/pause", {"next": "/queues"}, f"{root}/queues/mail")
            assert paused.headers["location"] == f"{root}/queues"
            assert (await browser.client.get(f"{root}/v1/queues")).json()["queues"][0]["queue"] == "mail"
            put = await browser.client.post(f"{root}/v1/jobs", json={"task": "mail.send", "args": []})
            assert put.status_code == 201
        assert 'href="/of/tarry/queues"' in await browser.text("/of/tarry")
        assert (await browser.get("/of/tarryqueues")).status_code == 404
        assert (await browser.get("/of/tarry/of/tarry/queues")).status_code == 404

    visit(app, story, path="/of/tarry")


@pytest.mark.parametrize(("console", "status"), [("on", 303), ("read-only", 403), ("off", 404)])
def test_who_embeds_it_says_how_much_it_may(app: App, console: Any, status: int) -> None:
    door = tarry.asgi(app, console=console, host_names=["tarry.test"])

    async def story(browser: Visitor) -> None:
        proof = await browser.proof("/queues/mail") if console == "on" else ""
        assert (await browser.send("/queues/mail/pause", {"csrf": proof})).status_code == status

    tell(door, story)
    door.close()
