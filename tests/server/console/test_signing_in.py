"""Signing in and out, who may see the console, and where one is led."""

import logging
from html import escape
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from tarry import App
from tarry.server.console.assets import asset_path
from tarry.server.console.sign_in_session import COOKIE
from tarry.server.identity.tokens import TokenAccess
from tarry.server.service import DoorService
from tarry.server.serving.console import Console
from tests.server.console.visiting import ORIGIN, Tokens, Visitor, outcomes, visit
from tests.server.http.calling import api, run


def test_without_tokens_nobody_signs_in(app: App) -> None:
    async def story(browser: Visitor) -> None:
        assert "mail" in await browser.text("/queues")
        asked = await browser.get("/sign-in?next=/queues")
        assert (asked.status_code, asked.headers["location"]) == (303, "/queues")
        assert "Sign out" not in await browser.text("/")

    visit(app, story)


def test_a_page_leads_to_the_sign_in_and_from_there_back(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        asked = await browser.get("/jobs?state=ready&queue=mail")
        assert asked.status_code == 303
        assert asked.headers["location"] == "/sign-in?next=%2Fjobs%3Fstate%3Dready%26queue%3Dmail"
        form = await browser.text(asked.headers["location"])
        assert 'action="/sign-in?next=/jobs%3Fstate%3Dready%26queue%3Dmail"' in form
        assert "mail.send" not in form
        entered = await browser.sign_in("reader-token", "/jobs?state=ready&queue=mail")
        assert (entered.status_code, entered.headers["location"]) == (303, "/jobs?state=ready&queue=mail")
        assert "mail.send" in await browser.text("/jobs")

    visit(app, story, tokens)


def test_the_cookie_is_kept_from_scripts_and_other_sites(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> tuple[str, str]:
        plain = (await browser.sign_in("reader-token")).headers["set-cookie"]
        headers = {"origin": "https://tarry.test"}
        proxied = await browser.client.post("/sign-in", data={"token": "reader-token"}, headers=headers)
        return plain, proxied.headers["set-cookie"]

    plain, proxied = visit(app, story, tokens)
    assert plain.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=43200"} <= set(plain.split("; "))
    assert "Secure" not in plain.split("; ")
    # The browser speaks TLS to a proxy, which speaks plain HTTP to the server.
    assert "Secure" in proxied.split("; ")


@pytest.mark.parametrize("token", ["", "wrong", "reader", "é", "x" * 10_000, "reader-token\r\nx: y"])
def test_a_wrong_token_is_refused(app: App, tokens: Tokens, token: str) -> None:
    async def story(browser: Visitor) -> httpx.Response:
        answer = await browser.sign_in(token)
        assert COOKIE not in browser.client.cookies
        return answer

    answer = visit(app, story, tokens)
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert not token or token not in answer.text


def test_a_token_that_may_not_look_is_told_so_at_once(app: App, tokens: Tokens) -> None:
    tokens.add("shop", "put")

    async def story(browser: Visitor) -> httpx.Response:
        answer = await browser.sign_in("shop-token")
        assert COOKIE not in browser.client.cookies
        return answer

    answer = visit(app, story, tokens)
    assert answer.status_code == 403
    assert "token shop may not read" in answer.text


def test_a_form_of_another_site_signs_nobody_in(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        for origin in (None, "", "null", "http://evil.test", "http://tarry.test.evil.test", "http://tarry.test:81"):
            answer = await browser.send("/sign-in", {"token": "chief-token"}, origin)
            assert answer.status_code == 403, origin
        assert not browser.client.cookies

    visit(app, story, tokens)


def test_attempts_are_audited_without_the_token(app: App, tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    async def story(browser: Visitor) -> None:
        await browser.sign_in("wrong-token")
        await browser.sign_in("reader-token")

    caplog.set_level(logging.INFO, "tarry.audit")
    visit(app, story, tokens)
    assert outcomes(caplog) == [("anybody", "sign_in", "NotAuthenticated"), ("reader", "sign_in", "done")]
    assert "-token" not in caplog.text


def test_signing_out(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        await browser.sign_in("reader-token")
        page = await browser.text("/")
        assert "reader" in page
        assert "Sign out" in page
        left = await browser.send("/sign-out")
        assert (left.status_code, left.headers["location"]) == (303, "/sign-in")
        assert COOKIE not in browser.client.cookies
        assert (await browser.get("/")).status_code == 303

    visit(app, story, tokens)


def test_another_site_signs_nobody_out(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        await browser.sign_in("reader-token")
        assert (await browser.send("/sign-out", origin="http://evil.test")).status_code == 403
        assert (await browser.get("/")).status_code == 200

    visit(app, story, tokens)


ELSEWHERE = [
    "//evil.test", "/\\evil.test", "\\\\evil.test", "http://evil.test", "https:evil.test", "evil.test",
    "javascript:alert(1)", "/\t/evil.test", "/\n/evil.test", "/ok\r\nset-cookie: a=b", "\x00//evil.test",
    "///evil.test", " //evil.test", "",
]  # fmt: skip


@pytest.mark.parametrize("where", ELSEWHERE)
def test_nobody_is_led_to_another_site(app: App, tokens: Tokens, where: str) -> None:
    async def story(browser: Visitor) -> None:
        entered = await browser.sign_in("operator-token", where)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        chosen = await browser.send("/language", {"language": "zh", "next": where})
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/")
        paused = await browser.act("/queues/mail/pause", {"next": where}, "/queues/mail")
        assert (paused.status_code, paused.headers["location"]) == (303, "/")

    visit(app, story, tokens)


def test_a_copied_cookie_is_of_no_use_once_its_session_was_left(app: App, tokens: Tokens) -> None:
    """In another server process too, which has seen the session before."""

    async def story() -> None:
        access = [TokenAccess(tokens.file) for _ in range(2)]
        async with api(app, access=access[0]) as one, api(app, access=access[1]) as other:
            browser, thief, elsewhere = Visitor(one), Visitor(other), Visitor(other)
            await browser.sign_in("chief-token")
            thief.client.cookies.set(COOKIE, one.cookies[COOKIE])
            proof = await thief.proof()
            assert (await thief.send("/queues/mail/pause", {"csrf": proof})).status_code == 303
            await browser.send("/sign-out")
            assert (await thief.get("/queues")).headers["location"].startswith("/sign-in")
            assert (await thief.send("/queues/mail/resume", {"csrf": proof})).status_code == 401
            stream = await thief.client.get("/live", headers={"accept": "text/event-stream"})
            assert stream.status_code == 401
            # Others with the same token stay.
            assert (await elsewhere.sign_in("chief-token")).status_code == 303
            assert (await elsewhere.get("/queues")).status_code == 200

    run(story)
    assert app.client.store.queues() == {"mail": True}


def test_pages_and_forms_count_as_calls_do(app: App) -> None:
    routes = [route for route in Console(DoorService(app)).routes() if isinstance(route, Route)]
    paths = [route.path for route in routes if "/static/" not in route.path]

    async def story(browser: Visitor) -> None:
        assert (await browser.get("/queues")).status_code == 200
        for path in paths:
            for answer in (await browser.get(path), await browser.send(path)):
                assert answer.status_code in (429, 405), path
                assert answer.status_code == 405 or int(answer.headers["retry-after"]) > 0
        assert (await browser.client.get("/v1/queues")).status_code == 429
        # The page of that error has its style.
        assert (await browser.get(asset_path("console.css"))).status_code == 200

    visit(app, story, rate_per_address="1/h")


@pytest.mark.parametrize("where", ["/jobs/0190", "/queues/a%20b?x=1&y=//z", "/%2F%2Fevil.test", "/a//b"])
def test_pages_of_the_console_are_led_to(app: App, tokens: Tokens, where: str) -> None:
    async def story(browser: Visitor) -> None:
        entered = await browser.sign_in("reader-token", where)
        assert entered.headers["location"] == where

    visit(app, story, tokens)


def test_whoever_has_a_page_open_is_sent_to_sign_in_when_the_session_is_over(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        refreshed = await browser.client.get("/queues", headers={"tarry-refresh": "true"})
        assert (refreshed.status_code, refreshed.text) == (401, "")
        stream = await browser.client.get("/live", headers={"accept": "text/event-stream"})
        assert stream.status_code == 401

    visit(app, story, tokens)


def test_a_page_keeps_its_address_whatever_the_names_in_it(app: App, tokens: Tokens) -> None:
    app.named("mail.send").using(queue="odd ?#%&+é").enqueue()
    path = "/queues/odd%20%3F%23%25%26%2B%C3%A9"

    async def story(browser: Visitor) -> None:
        asked = await browser.get(path)
        await browser.sign_in("operator-token")
        back = httpx.URL(asked.headers["location"]).params["next"]
        page = await browser.text(back)
        assert "odd ?#%&amp;+é" in page
        # Its forms come back to it.
        assert f'name="next" value="{escape(back)}"' in page

    visit(app, story, tokens)


def test_the_host_of_the_request_counts_where_there_are_no_tokens(app: App) -> None:
    async def story(browser: Visitor) -> None:
        # tarry.test is a name, which its owner may have lead to this machine.
        assert (await browser.get("/queues")).status_code == 403
        assert (await browser.send("/queues/mail/pause", {"csrf": "x"})).status_code == 403
        assert (await browser.get("/queues", host="127.0.0.1:7800")).status_code == 200

    visit(app, story, needs_local_host=True)


def test_headers_of_proxies_are_not_believed(app: App, tokens: Tokens) -> None:
    forged = {"x-forwarded-proto": "https", "x-forwarded-host": "evil.test", "x-forwarded-prefix": "/evil"}
    forged |= {"x-forwarded-for": "10.0.0.1", "forwarded": "host=evil.test;proto=https"}

    async def story(browser: Visitor) -> None:
        headers = {"origin": ORIGIN, **forged}
        entered = await browser.client.post("/sign-in", data={"token": "reader-token"}, headers=headers)
        assert entered.headers["location"] == "/"
        assert "Secure" not in entered.headers["set-cookie"]
        page = (await browser.get("/", **forged)).text
        assert "evil" not in page
        foreign = {"origin": "http://evil.test", **forged}
        refused = await browser.client.post("/sign-in", data={"token": "reader-token"}, headers=foreign)
        assert refused.status_code == 403

    visit(app, story, tokens)


def test_a_session_is_for_one_store(app: App, tokens: Tokens, tmp_path: Path) -> None:
    other = App(f"sqlite:///{tmp_path}/other.db")

    async def cookie(browser: Visitor) -> str:
        await browser.sign_in("chief-token")
        return browser.client.cookies[COOKIE]

    async def use(browser: Visitor) -> int:
        browser.client.cookies.set(COOKIE, found)
        return (await browser.get("/")).status_code

    found = visit(app, cookie, tokens)
    assert visit(app, use, tokens) == 200
    assert visit(other, use, tokens) == 303
    other.close()
