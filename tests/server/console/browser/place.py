"""A real master with real work, and a person who looks at its console in a real browser."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from tarry.server.identity.passwords import hash_password
from tests.cli.project import Project, until
from tests.server.console.visiting import Tokens
from tests.servers.server import free_port

APP = Path(__file__).with_name("app.py").read_text()
TIMEOUT = 60_000
"""Milliseconds that a test waits for anything on a page."""
expect.set_options(timeout=TIMEOUT)
PASSING = "Failed to load resource"
"""How Chromium reports each answer that is an error."""


class Place(Project):
    """A master whose queues `mail`, `slow`, `hooks` and `stuck` are served; jobs of other queues wait."""

    def __init__(self, directory: Path, store: str = "") -> None:
        super().__init__(directory, APP)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.store_url = store or f"sqlite:///{self.database}"
        self.tokens = Tokens(directory / "tokens.toml").add("ann", "admin").add("rob", "read")
        file = directory / "passwords.toml"
        file.touch(0o600)
        file.write_text(f'[passwords.eve]\nscrypt = "{hash_password("eve-password")}"\nscopes = ["read"]\n')
        self.settings(
            (f'store = "{store}"\n' if store else "")
            + '[pools.all]\nqueues = ["mail", "slow", "hooks", "stuck"]\nthreads = 4\n[push]\nallow = ["127.0.0.0/8"]\n'
            f'[server]\nhttp = "{urlsplit(self.url).netloc}"\ntokens = "tokens.toml"\n'
            'passwords = "passwords.toml"\n'
        )
        self.serve()
        self.api = httpx.Client(base_url=self.url, headers={"authorization": "Bearer ann-token"}, timeout=20)

    def add(self, task: str, *args: Any, **options: Any) -> str:
        """Puts a job, and returns its id."""
        answer = self.api.post("/v1/jobs", json={"task": f"app.{task}", "args": args, **options})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def state(self, id: str) -> str:
        answer = self.api.get(f"/v1/jobs/{id}")
        return str(answer.json()["state"]) if answer.status_code == 200 else "gone"

    def becomes(self, id: str, state: str) -> None:
        until(lambda: self.state(id) == state)

    def close(self) -> None:
        self.api.close()
        super().close()


class Endpoint:
    """Where HTTP tasks send their jobs; it answers {"code": 200}."""

    def __init__(self) -> None:
        bodies: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "13")
                self.end_headers()
                self.wfile.write(b'{"code": 200}')

            def log_message(self, *_: object) -> None: ...

        self.bodies = bodies
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Person:
    """Somebody with a browser. At the end, nothing may have gone wrong in it unseen."""

    def __init__(self, context: BrowserContext, place: Place) -> None:
        self.context, self.place = context, place
        self.complaints: list[str] = []
        self.posted: list[str] = []
        """The paths of the forms that were sent."""
        self.passing = 0
        """Answers with an error that the browser has reported."""
        context.set_default_timeout(TIMEOUT)
        context.on("request", self._see_request)
        context.on("console", self._see_message)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.page = context.new_page()

    def _see_request(self, request: Request) -> None:
        if request.method == "POST":
            self.posted.append(urlsplit(request.url).path)
        if not request.url.startswith((f"{self.place.url}/", "about:")):
            self.complaints.append(f"a request to {request.url}")

    def _see_message(self, message: ConsoleMessage) -> None:
        if message.text.startswith(PASSING):
            self.passing += 1
        elif message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.place.url + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status)
        return self.page

    def press(self, name: str, within: str = "main") -> None:
        """Presses the button of that name, or opens what it opens."""
        area = self.page.locator(within)
        area.get_by_role("button", name=name, exact=True).or_(area.locator("summary", has_text=name)).first.click()

    def confirm(self, name: str) -> None:
        """Presses the button that asks first, and then the one that does it."""
        opened = self.page.locator("details", has=self.page.locator("summary", has_text=name)).first
        opened.locator("summary").first.click()
        opened.get_by_role("button", name=name, exact=True).click()

    def is_told(self, text: str) -> None:
        self.sees(text, ".said")

    def sees(self, text: str, within: str = "main") -> None:
        self.page.locator(within, has_text=text).first.wait_for()

    def check(self) -> None:
        assert self.complaints == []


MakePerson = Callable[..., Person]


@contextmanager
def people(browser: Browser, place: Place) -> Iterator[MakePerson]:
    """Makes persons, who are signed in as ann; `token=""`: as nobody. Looks at the end whether all went well."""
    made: list[Person] = []

    def make(token: str = "ann-token", **options: Any) -> Person:
        context = browser.new_context(**options)
        person = Person(context, place)
        made.append(person)
        if token:
            cookie = _sign_in(place, token)
            context.add_cookies([{"name": "tarry_session", "value": cookie, "url": place.url}])
        return person

    yield make
    for person in made:
        # Chromium may hang if it is closed in the middle of a navigation.
        person.page.goto("about:blank")
        person.context.close()
    for person in made:
        person.check()


def _sign_in(place: Place, token: str) -> str:
    answer = httpx.post(f"{place.url}/sign-in", data={"token": token}, headers={"origin": place.url}, timeout=20)
    assert answer.status_code == 303, answer.text
    return answer.cookies["tarry_session"]
