"""A master in trouble, the alert that it sends, and the person who is woken by it."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct
from playwright.sync_api import Browser, Page, expect

from tests.cli.project import Project, until
from tests.server.console.browser.place import TIMEOUT
from tests.servers.server import free_port

APP = Path(__file__).with_name("app.py").read_text()
MOST_CLICKS = 3
"""From the alert, or the overview, to the cause."""


class Trouble(Project):
    """A master with a console, whose alerts go to a webhook of the test. settings: further ones. latency: after which a
    store is slow."""

    def __init__(self, directory: Path, settings: str = "", app: str = APP, latency: str = "10s") -> None:
        super().__init__(directory, app)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.inbox = Inbox()
        self.settings(
            # First, since keys of no table come before all tables.
            f'{settings}\n[server]\nhttp = "{urlsplit(self.url).netloc}"\n'
            f'[push]\nallow = ["127.0.0.0/8"]\n[alerts]\nto = ["{self.inbox.url}"]\nconsole = "{self.url}"\n'
            f'group = "0s"\nlatency = "{latency}"\n'
        )
        self.api = httpx.Client(base_url=self.url, timeout=30)

    def add(self, task: str, *args: object, **options: object) -> str:
        """Puts a job, and returns its id."""
        answer = self.api.post("/v1/jobs", json={"task": f"app.{task}", "args": args, **options})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def becomes(self, id: str, state: str) -> None:
        until(lambda: self.api.get(f"/v1/jobs/{id}").json().get("state") == state)

    def close(self) -> None:
        self.api.close()
        super().close()
        self.inbox.close()


class SentAlert(Struct):
    """What a webhook is told of one condition."""

    key: str
    state: str
    what: str
    url: str = ""


class _Message(Struct):
    alerts: list[SentAlert]


class Inbox:
    """Takes the messages of alerts."""

    def __init__(self) -> None:
        came: list[SentAlert] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                came.extend(msgspec.json.decode(body, type=_Message).alerts)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._came = came
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def gets(self, key: str) -> SentAlert:
        """The alert whose key begins so, once it has come."""
        return until(lambda: [one for one in self._came if one.key.startswith(key)])[0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Woken:
    """Who was woken, with a browser: counts the clicks, and the seconds that the pages took."""

    def __init__(self, page: Page, trouble: Trouble) -> None:
        self._page, self._trouble = page, trouble
        self._began, self.clicks = time.monotonic(), 0
        page.context.set_default_timeout(TIMEOUT)

    def opens(self, alert: SentAlert) -> None:
        """Follows the link of the alert: the first click."""
        assert alert.url.startswith(f"{self._trouble.url}/"), alert
        self._go(alert.url)
        self.clicks += 1

    def looks(self) -> None:
        """Opens the overview, without an alert."""
        self._go(self._trouble.url)

    def finds_first(self, text: str) -> None:
        """What needs attention first says so; it may take a moment until the page knows."""
        first = self._page.get_by_role("region", name="Needs attention").locator("li").first
        expect(first).to_contain_text(text)

    def clicks_on(self, link: str, within: str = "main") -> None:
        """One click."""
        self._page.locator(within).get_by_role("link", name=re.compile(re.escape(link))).first.click()
        self._page.wait_for_load_state()
        self.clicks += 1

    def knows(self, *causes: str) -> None:
        """The page says what the cause is, after few clicks enough."""
        for cause in causes:
            expect(self._page.locator("main")).to_contain_text(cause)
        assert self.clicks <= MOST_CLICKS
        print(f"{self.clicks} clicks, {time.monotonic() - self._began:.1f} s")

    def _go(self, url: str) -> None:
        answer = self._page.goto(url)
        assert answer is not None
        assert answer.status == 200, url


@contextmanager
def woken(browser: Browser, trouble: Trouble) -> Iterator[Woken]:
    """A person at a browser of one's own."""
    context = browser.new_context()
    page = context.new_page()
    yield Woken(page, trouble)
    # Chromium may hang if it is closed in the middle of a navigation.
    page.goto("about:blank")
    context.close()
