"""A stream ends as soon as its reader may not see what comes: token, password or session are looked at with each
batch."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tarry import App
from tarry.server import event_streams
from tarry.server.console import sign_in
from tarry.server.console.sign_in_session import COOKIE
from tarry.server.identity import entries
from tarry.server.identity.tokens import TokenAccess
from tests.server.console.visiting import Tokens
from tests.server.http.serving import RunningServer, served, until

STREAMS = ("/v1/events?job={job}", "/v1/events?queue=mail", "/v1/events", "/live")
HEADERS = {"authorization": "Bearer reader-token"}


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.toml").add("reader", "read").add("other", "read")


@pytest.fixture
def server(app: App, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    @app.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    monkeypatch.setattr(event_streams, "TICK", 0.02)
    monkeypatch.setattr(entries, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(sign_in, "ENDED_KEPT", 0.0)
    with served(app, TokenAccess(tokens.file)) as server:
        yield server


def enter(server: RunningServer, token: str) -> str:
    """The cookie of a new session."""
    url = str(server.client.base_url).rstrip("/")
    entered = httpx.post(f"{url}/sign-in", data={"token": token}, headers={"origin": url})
    assert entered.status_code == 303
    return entered.cookies[COOKIE]


def leave(server: RunningServer, cookie: str) -> None:
    url = str(server.client.base_url).rstrip("/")
    left = httpx.post(f"{url}/sign-out", headers={"origin": url, "cookie": f"{COOKIE}={cookie}"})
    assert left.status_code == 303


class Reader:
    """Reads a stream in a thread of its own until it ends."""

    def __init__(self, server: RunningServer, path: str, cookie: str) -> None:
        self.lines: list[str] = []
        self._client = httpx.Client(base_url=server.client.base_url, timeout=20)
        headers = {"cookie": f"{COOKIE}={cookie}"} if path == "/live" else HEADERS
        self._thread = threading.Thread(target=self._read, args=(path, headers))
        self._thread.start()

    def _read(self, path: str, headers: dict[str, str]) -> None:
        with self._client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            self.lines.extend(response.iter_lines())

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._thread.join(20)
        self._client.close()
        assert not self.is_open


def end_by(server: RunningServer, change: Callable[[], object], paths: tuple[str, ...], cookie: str = "") -> None:
    """All these streams end by the change, and see nothing of what comes after it."""
    app = server.service.app
    job = app.tasks["send"].enqueue(1)
    own = cookie or enter(server, "reader-token")
    readers = [Reader(server, path.format(job=job.id), own) for path in paths]
    until(lambda: server.service.streams.open == len(readers))
    # What others have is none of theirs.
    stays = Reader(server, "/live", enter(server, "other-token"))
    until(lambda: server.service.streams.open == len(readers) + 1)
    change()
    later = app.tasks["send"].enqueue(2)
    until(lambda: server.service.streams.open == 1)
    for reader in readers:
        reader.close()
        assert later.id not in "".join(reader.lines)
        assert "event: end" in reader.lines
    assert stays.is_open
    server.service.drain()
    stays.close()


def test_a_token_that_is_removed_ends_them(server: RunningServer, tokens: Tokens) -> None:
    end_by(server, lambda: tokens.remove("reader"), STREAMS)


def test_a_token_that_is_narrowed_ends_them(server: RunningServer, tokens: Tokens) -> None:
    end_by(server, lambda: tokens.add("reader", "read", queues='["shop"]'), STREAMS)


def test_a_session_that_was_left_ends_its_stream(server: RunningServer) -> None:
    cookie = enter(server, "reader-token")
    end_by(server, lambda: leave(server, cookie), ("/live",), cookie)
