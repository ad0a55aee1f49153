"""Places of secrets (`env:`, `file:`) in HTTP tasks: a caller for some queues has workers read none of them."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.config.config import Config, Push
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.memory.store import MemoryStore
from tests.server.http.calling import request

TOKENS = {"root": "", "shop": 'queues = ["shop-*"]\ntasks = ["shop.*"]\n'}
PLACES = ("env:ORDER_SECRET", "file:/run/secrets/order")
URL, OTHER = "https://shop.example/hook", "https://other.example/hook"
KEPT = {"url": URL, "queue": "shop-a", "headers": {"Authorization": PLACES[0]}, "secrets": [PLACES[1]]}


@pytest.fixture
def app() -> App:
    app = App(MemoryStore())
    app.configure(Config(push=Push(secrets=list(PLACES))))
    return app


@pytest.fixture
def access(tmp_path: Path) -> TokenAccess:
    file = tmp_path / "tokens.toml"
    tokens = (f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = ["admin"]\n' for name in TOKENS)
    file.write_text("".join(map("".join, zip(tokens, TOKENS.values(), strict=True))))
    return TokenAccess(file)


def write(app: App, access: TokenAccess, who: str, verb: str, task: str, settings: dict[str, Any]) -> httpx.Response:
    body = {"task": task, "settings": settings} if verb == "POST" else settings
    path = "/v1/tasks" if verb == "POST" else f"/v1/tasks/{task}"
    answer: httpx.Response = request(app, verb, path, token=who, access=access, json=body)
    return answer


def check_refused(answer: httpx.Response, field: str) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].endswith(field)
    assert "write the value itself, or take it out" in answer.json()["detail"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", ["POST", "PUT"])
def test_a_caller_for_some_queues_adds_no_task_with_a_place(
    app: App, access: TokenAccess, verb: str, place: str
) -> None:
    for field, value, told in (
        ("headers", {"X-S": place}, "headers"),
        ("secret", place, "secret"),
        ("secrets", [place], "secret"),
    ):
        settings = {"url": URL, "queue": "shop-a", field: value}
        check_refused(write(app, access, "shop", verb, "shop.new", settings), told)
        assert write(app, access, "root", verb, f"shop.{field}", settings).is_success
    assert write(app, access, "shop", verb, "shop.new", {"url": URL, "queue": "shop-a", "secret": "x" * 30}).is_success


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": OTHER}, "headers"),
        # What stays visible can be sent again without being known.
        ({**KEPT, "url": OTHER}, "headers"),
        ({"url": OTHER, "headers": None}, "secret"),
        ({"url": OTHER, "headers": None, "secrets": ["***1"]}, "secret"),
        ({"headers": {"X-Other": PLACES[0]}}, "headers"),
        ({"headers": {"Authorization": PLACES[1]}}, "headers"),
        ({"secrets": [PLACES[0]]}, "secret"),
    ],
)
@pytest.mark.parametrize("verb", ["PATCH", "PUT"])
def test_it_keeps_one_only_where_it_is(
    app: App, access: TokenAccess, verb: str, changes: dict[str, Any], field: str
) -> None:
    assert write(app, access, "root", "POST", "shop.notify", KEPT).status_code == 201
    settings = changes if verb == "PATCH" else {**KEPT, **changes}
    check_refused(write(app, access, "shop", verb, "shop.notify", settings), field)
    assert app.http.endpoints["shop.notify"].settings == KEPT


def test_it_may_change_all_the_rest(app: App, access: TokenAccess) -> None:
    assert write(app, access, "root", "POST", "shop.notify", KEPT).status_code == 201
    for verb, settings in (
        ("PATCH", {"url": f"{URL}/new", "delay": "1m"}),
        ("PUT", {**KEPT, "headers": {"authorization": PLACES[0], "x": "1"}}),
        ("PATCH", {"url": OTHER, "headers": {"Authorization": "own"}, "secrets": None}),
    ):
        assert write(app, access, "shop", verb, "shop.notify", settings).is_success


def test_a_caller_for_all_queues_writes_it_again_for_another_host(app: App, access: TokenAccess) -> None:
    assert write(app, access, "root", "POST", "shop.notify", KEPT).status_code == 201
    refused = write(app, access, "root", "PATCH", "shop.notify", {"url": OTHER})
    assert refused.status_code == 422
    assert "the header Authorization was written for https://shop.example" in refused.json()["detail"]
    assert write(app, access, "root", "PATCH", "shop.notify", {**KEPT, "url": OTHER}).is_success
