"""Probes have no token: whoever asks is told whether the process lives and is ready, and nothing else."""

import asyncio
import re
from pathlib import Path

import pytest

from tarry import App
from tarry.server.identity.tokens import TokenAccess
from tarry.server.service import DoorService, DoorSettings
from tarry.server.serving.api import METHODS
from tarry.server.serving.application import create_application
from tests.server.console.visiting import Tokens
from tests.server.http.calling import caller, run

OPEN = {"healthz", "readyz"}


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
@pytest.mark.parametrize("root", ["", "/tarry"])
def test_probes_need_no_token_and_nothing_else_goes_without(app: App, tmp_path: Path, address: str, root: str) -> None:
    """At every address of the door: a port, a unix socket (which has no address), below the path of a proxy."""
    tokens = Tokens(tmp_path / "tokens.toml").add("reader", "read")
    service = DoorService(app, settings=DoorSettings(path="/tarry"), access=TokenAccess(tokens.file))
    wrong = {"authorization": "Bearer wrong"}

    async def story() -> dict[str, set[int]]:
        found = dict[str, set[int]]()
        async with caller(create_application(service), address) as client:
            for method in METHODS:
                path = root + re.sub(r"{\w+}", "x", method.route)
                answers = [await client.request(method.verb, path, headers=headers) for headers in ({}, wrong)]
                found[method.name] = {answer.status_code for answer in answers}
            assert [(await client.get(f"{root}/{name}")).text for name in OPEN] == ["ok\n"] * len(OPEN)
            service.drain()
            ending = await client.get(f"{root}/readyz")
            assert (ending.status_code, ending.text) == (503, "this server is ending\n")
        await asyncio.to_thread(service.close)
        return found

    found = run(story)
    assert {name: found.pop(name) for name in OPEN} == {name: {200} for name in OPEN}
    assert set(map(frozenset, found.values())) == {frozenset({401})}
