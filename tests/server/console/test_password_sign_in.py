"""Signing in with a name and a password."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.server.console import sign_in
from tarry.server.console.sign_in_session import COOKIE
from tarry.server.identity.passwords import open_access
from tarry.server.identity.sign_in_tries import FREE
from tarry.server.service import DoorService
from tarry.server.serving.application import create_application
from tests.server.console.visiting import ORIGIN, Tokens, Visitor, outcomes
from tests.server.http.calling import api, caller, run
from tests.server.test_passwords import section


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords.toml"
    path.touch(0o600)
    path.write_text(section("ann", "secret-1", 'scopes = ["read"]\nqueues = ["mail"]') + section("cy", "secret-3"))
    return path


def visit(
    app: App, file: Path, story: Callable[[Visitor], Coroutine[Any, Any, None]], tokens: Path | None = None
) -> None:
    async def told() -> None:
        async with api(app, None, open_access(tokens, file)) as client:
            await story(Visitor(client))

    run(told)


async def enter(browser: Visitor, name: str, password: str, where: str = "/") -> httpx.Response:
    form = {"name": name, "password": password}
    return await browser.client.post("/sign-in", params={"next": where}, data=form, headers={"origin": ORIGIN})


def test_a_person_signs_in_and_out(app: App, file: Path) -> None:
    async def story(browser: Visitor) -> None:
        asked = await browser.get("/queues")
        assert asked.headers["location"] == "/sign-in?next=%2Fqueues"
        form = await browser.text("/sign-in?next=/queues")
        assert 'autocomplete="username"' in form
        assert 'name="token"' not in form
        assert "tarry passwords add NAME" in form
        entered = await enter(browser, "ann", "secret-1", "/queues")
        assert (entered.status_code, entered.headers["location"]) == (303, "/queues")
        page = await browser.text("/queues")
        assert "ann" in page
        assert "Sign out" in page
        await browser.send("/sign-out")
        assert (await browser.get("/queues")).status_code == 303

    visit(app, file, story)


def test_its_scopes_and_queues_are_those_of_its_entry(app: App, file: Path) -> None:
    app.named("mail.send").using(queue="other").enqueue()

    async def story(browser: Visitor) -> None:
        await enter(browser, "ann", "secret-1")
        assert "other" not in await browser.text("/queues")
        assert (await browser.get("/queues/other")).status_code == 403
        assert "/queues/mail/pause" not in await browser.text("/queues/mail")
        assert (await browser.send("/queues/mail/pause")).status_code == 403

    async def other(browser: Visitor) -> None:
        await enter(browser, "cy", "secret-3")
        assert "other" in await browser.text("/queues")

    visit(app, file, story)
    visit(app, file, other)


def test_a_wrong_password_is_refused_and_what_was_typed_kept(
    app: App, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(browser: Visitor) -> None:
        answer = await enter(browser, "ann", "secret-7")
        assert answer.status_code == 401
        assert 'value="ann"' in answer.text
        assert "secret-7" not in answer.text
        assert "the name or the password is wrong" in answer.text
        assert COOKIE not in browser.client.cookies

    with caplog.at_level("INFO", "tarry.audit"):
        visit(app, file, story)
    assert outcomes(caplog)[-1] == ("anybody", "sign_in", "NotAuthenticated")


def test_a_session_ends_with_the_entry_and_with_its_change(
    app: App, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.server.identity.entries.CHECK_EVERY", 0.0)

    async def story(browser: Visitor) -> None:
        await enter(browser, "ann", "secret-1")
        await browser.text("/queues")
        file.write_text(section("ann", "secret-22") + section("cy", "secret-3"))
        assert (await browser.get("/queues")).status_code == 303
        await enter(browser, "ann", "secret-22")
        await browser.text("/queues")
        file.write_text(section("cy", "secret-3"))
        assert (await browser.get("/queues")).status_code == 303

    visit(app, file, story)


def test_after_failures_there_is_a_pause(app: App, file: Path) -> None:
    async def story(browser: Visitor) -> None:
        for _ in range(FREE):
            assert (await enter(browser, "ann", "wrong")).status_code == 401
        refused = await enter(browser, "ann", "secret-1")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "too many failures to sign in" in refused.text
        assert 'name="password"' in refused.text
        assert (await enter(browser, "cy", "secret-3")).status_code == 303

    visit(app, file, story)


def test_passwords_are_looked_at_one_after_another_and_others_are_served_meanwhile(
    app: App, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, most = 0, 0
    monkeypatch.setattr(sign_in, "MOST_IN_LINE", 4)
    access = open_access(None, file)

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(access, name)

        def sign_in(self, *args: str) -> Any:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass
            at_once -= 1
            return access.sign_in(*args)

    async def told() -> None:
        async with api(app, None, Slow()) as client:
            browser = Visitor(client)
            tries = [enter(browser, f"name {number}", "wrong") for number in range(sign_in.MOST_IN_LINE + 5)]
            answers = await asyncio.gather(*tries, browser.get("/sign-in"))
            found = [answer.status_code for answer in answers]
            assert found[-1] == 200
            assert found.count(503) == 5
            assert set(found) <= {200, 401, 429, 503}

    run(told)
    assert most == 1


def test_one_address_leaves_room_in_the_line_for_others(app: App, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tarry.audit")

    async def told() -> None:
        service = DoorService(app, access=open_access(None, file))
        application = create_application(service)
        try:
            async with caller(application, "192.0.2.1") as one, caller(application, "192.0.2.2") as other:
                tries = [enter(Visitor(one), f"name {number}", "wrong") for number in range(sign_in.MOST_IN_LINE + 8)]
                *refused, entered = await asyncio.gather(*tries, enter(Visitor(other), "ann", "secret-1"))
            assert entered.status_code == 303
            found = [answer.status_code for answer in refused]
            assert found.count(503) == len(tries) - sign_in.MOST_OF_ADDRESS
        finally:
            await asyncio.to_thread(service.close)

    run(told)
    # What is told to be busy writes no line.
    assert len(outcomes(caplog)) == sign_in.MOST_OF_ADDRESS + 1


def test_tokens_are_for_whoever_has_one(app: App, file: Path, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        form = await browser.text("/sign-in")
        assert 'name="token"' in form
        assert 'name="password"' in form
        assert (await browser.sign_in("reader-token")).status_code == 303
        await browser.text("/queues")
        wrong = await browser.sign_in("wrong")
        assert "<details open>" in wrong.text

    visit(app, file, story, tokens.file)


def test_the_api_has_no_passwords(app: App, file: Path) -> None:
    async def story(browser: Visitor) -> None:
        answer = await browser.client.get("/v1/queues", auth=("ann", "secret-1"))
        assert answer.status_code == 401
        assert "this server has no tokens for programs" in answer.text
        await enter(browser, "ann", "secret-1")
        assert (await browser.client.get("/v1/queues")).status_code == 401

    visit(app, file, story)
