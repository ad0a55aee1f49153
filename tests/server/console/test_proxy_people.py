"""The console of people whom a proxy has signed in: no sign-in page, their rights, forms that nobody else can send."""

import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.config.server_settings import ServerConfig
from tarry.server.identity.proxy_access import configured_access
from tests.server.console.visiting import ORIGIN, Visitor
from tests.server.http.calling import api, run
from tests.server.http.test_proxy_sign_in import PEOPLE


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    people = tmp_path / "people.toml"
    people.write_text(PEOPLE)
    return ServerConfig(trusted_header="X-Forwarded-User", trusted_proxies=("127.0.0.1",), people=people)


def visit(app: App, config: ServerConfig, story: Callable[[Visitor], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        async with api(app, None, configured_access(config)) as client:
            await story(Visitor(client))

    run(told)


def become(browser: Visitor, name: str) -> None:
    browser.client.headers["x-forwarded-user"] = name


def test_a_person_of_the_proxy_needs_no_sign_in(app: App, config: ServerConfig) -> None:
    async def story(browser: Visitor) -> None:
        assert (await browser.get("/queues")).headers["location"] == "/sign-in?next=%2Fqueues"
        assert "come by way of that" in await browser.text("/sign-in")
        become(browser, "ann")
        text = await browser.text("/queues/mail")
        assert "proxy:ann" in text
        assert "Sign out" not in text
        assert "/queues/mail/pause" not in text
        assert (await browser.get("/sign-in?next=/jobs")).headers["location"] == "/jobs"
        become(browser, "eve")
        assert (await browser.get("/queues")).status_code == 403

    visit(app, config, story)


def test_a_form_is_of_the_person_who_got_it(app: App, config: ServerConfig) -> None:
    async def story(browser: Visitor) -> None:
        become(browser, "cy")
        theirs = await browser.proof("/queues/mail")
        become(browser, "bob")
        own = await browser.proof("/queues/mail")
        assert own != theirs
        path = "/queues/mail/pause"
        assert (await browser.send(path, {"csrf": theirs})).status_code == 403
        assert (await browser.send(path, {"csrf": ""})).status_code == 403
        assert (await browser.send(path, {"csrf": own}, "https://evil.example")).status_code == 403
        assert (await browser.send(path, {"csrf": own}, None)).status_code == 403
        # A cookie of ours that says the same is no proof.
        browser.client.cookies.set("tarry_session", "proxy:bob")
        become(browser, "cy")
        assert await browser.proof("/queues/mail") == theirs
        become(browser, "bob")
        assert (await browser.send(path, {"csrf": own})).status_code == 303
        headers = {"origin": "https://evil.example"}
        assert (await browser.client.post("/v1/queues/mail/resume", headers=headers)).status_code == 403
        assert (await browser.client.post("/v1/queues/mail/resume", headers={"origin": ORIGIN})).status_code == 200

    visit(app, config, story)


def test_pages_show_a_person_the_queues_of_its_role(app: App, config: ServerConfig) -> None:
    app.named("mail.send").using(queue="other").enqueue()

    async def story(browser: Visitor) -> None:
        become(browser, "cy")
        assert "other" not in re.sub("others?-", "", await browser.text("/queues"))
        assert (await browser.get("/queues/other")).status_code == 403

    visit(app, config, story)


@pytest.mark.parametrize("value", ["", "ann, bob", "x" * 200])
def test_a_bad_header_is_told_and_leads_nowhere(app: App, config: ServerConfig, value: str) -> None:
    async def story(browser: Visitor) -> None:
        become(browser, value)
        assert (await browser.get("/queues")).headers["location"].startswith("/sign-in")
        assert (await browser.get("/sign-in")).status_code == 200
        assert (await browser.sign_in("x")).status_code == 401
        assert (await browser.send("/queues/mail/pause", {"csrf": "x"})).status_code == 401

    visit(app, config, story)
