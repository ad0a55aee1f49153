"""Pages full of hostile text, in a browser that records what they ask for."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Request

from tests.server.console.hostile import access, addresses, fill, hostile_app
from tests.server.http.serving import RunningServer, served

FOREIGN = """
() => [...document.querySelectorAll(
  "#evil, [hx-post], [hx-trigger], [onerror], script:not([src^='/static/']), img:not([src^='/static/']),"
  + "a[href^='javascript:'], iframe, object, embed, base, meta[http-equiv]"
)].map(each => each.outerHTML)
"""
REFRESHED = """
() => new Promise(resolve => {
  document.addEventListener("refreshed", resolve, { once: true });
  document.dispatchEvent(new Event("visibilitychange"));
})
"""
"""As if the reader came back to the page: it asks for what it shows anew."""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    # In a thread of its own: that of the browser has an event loop that runs.
    with ThreadPoolExecutor(1) as pool:
        app = pool.submit(hostile_app).result()
    with served(app, access(tmp_path_factory.mktemp("tokens"))) as server:
        yield server
    app.close()


def test_a_page_asks_for_nothing_but_its_own(server: RunningServer, browser: Browser) -> None:
    url = str(server.client.base_url).rstrip("/")
    paths = list(addresses(fill(server.service.app)))
    # With the proof of the session: what a page makes of a text could act as its reader.
    entered = server.client.post("/sign-in", data={"token": "root"}, headers={"origin": url})
    context = browser.new_context()
    context.add_cookies([{"name": "tarry_session", "value": entered.cookies["tarry_session"], "url": url}])
    page = context.new_page()
    asked: list[Request] = []
    refreshed: set[str] = set()
    trouble: list[str] = []
    page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - of a list it keeps no method
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text))
    for path in paths:
        asked.clear()
        answer = page.goto(url + path)
        assert answer is not None
        assert answer.status == 200, path
        assert page.evaluate(FOREIGN) == [], path
        # One of each kind: what replaces it takes the same way on all.
        if path.rpartition("/")[0] not in refreshed and page.locator("[data-refresh]").count():
            refreshed.add(path.rpartition("/")[0])
            page.evaluate(REFRESHED)
            assert page.evaluate(FOREIGN) == [], path
        assert strangers(asked, path) == [], path
    context.close()
    assert trouble == []


def strangers(asked: list[Request], path: str) -> list[str]:
    """The requests that are not of the page itself."""
    own = path.partition("?")[0]
    return [
        f"{request.method} {request.url}"
        for request in asked
        if request.method != "GET"
        or not (urlsplit(request.url).path == own or urlsplit(request.url).path.startswith(("/static/", "/live")))
    ]
