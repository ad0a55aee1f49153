"""Asks for pages of the console and fills in its forms as a browser does, without a socket."""

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tarry import App
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.server.service import DoorSettings
from tests.server.http.calling import api, run

T = TypeVar("T")
ORIGIN = "http://tarry.test"
_PROOF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


class Visitor:
    """One browser: it keeps cookies, and says where its forms come from."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={"accept": "text/html", **headers})

    async def text(self, path: str) -> str:
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def proof(self, path: str = "/new-task") -> str:
        """The proof in the forms of that page."""
        found = _PROOF.search(await self.text(path))
        assert found, f"no form at {path}"
        return found[1]

    async def send(
        self, path: str, form: Mapping[str, Any] | None = None, origin: str | None = ORIGIN
    ) -> httpx.Response:
        """A form as it stands, without the proof."""
        headers = {"accept": "text/html"} | ({} if origin is None else {"origin": origin})
        return await self.client.post(path, data=dict(form or {}), headers=headers)

    async def act(self, path: str, form: Mapping[str, Any] | None = None, page: str = "/new-task") -> httpx.Response:
        """A form of that page, filled in."""
        return await self.send(path, {"csrf": await self.proof(page), **(form or {})})

    async def sign_in(self, token: str, where: str = "/") -> httpx.Response:
        return await self.client.post(
            "/sign-in", params={"next": where}, data={"token": token}, headers={"origin": ORIGIN}
        )


@asynccontextmanager
async def visitor(app: App, tokens: "Tokens | None" = None, **settings: Any) -> AsyncIterator[Visitor]:
    """A browser at the app's console."""
    access = None if tokens is None else TokenAccess(tokens.file)
    async with api(app, DoorSettings(**settings), access) as client:
        yield Visitor(client)


def visit(
    app: App, story: Callable[[Visitor], Coroutine[Any, Any, T]], tokens: "Tokens | None" = None, **settings: Any
) -> T:
    """Runs the story with a browser at the app's console."""

    async def told() -> T:
        async with visitor(app, tokens, **settings) as browser:
            return await story(browser)

    return run(told)


class Tokens:
    """A file of tokens. The token of each name is that name, and a bit more."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines: dict[str, str] = {}

    def add(self, name: str, *scopes: str, queues: str = '["*"]', token: str = "") -> "Tokens":
        written = digest(token or f"{name}-token").hex()
        self._lines[name] = f'[tokens.{name}]\nsha256 = "{written}"\nscopes = {list(scopes)}\nqueues = {queues}\n'
        return self._write()

    def remove(self, name: str) -> "Tokens":
        del self._lines[name]
        return self._write()

    def _write(self) -> "Tokens":
        # As a whole, as `tarry tokens` does: a server that reads a part of it would end what others have.
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text("".join(self._lines.values()))
        fresh.replace(self.file)
        return self


def outcomes(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Who did what, and how it ended, as the audit log has it."""
    records = [one for one in caplog.records if one.name == "tarry.audit"]
    return [(one.caller, one.act, one.outcome.partition(":")[0]) for one in records]  # type: ignore[attr-defined]
