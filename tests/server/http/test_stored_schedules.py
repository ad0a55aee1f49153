"""Schedules that are put by HTTP: kept, listed, changed and deleted; and who may do that."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.rules import ids
from tests.server.http.calling import request

HOOK: dict[str, Any] = {"task": "hook", "settings": {"url": "https://shop.example/hook", "queue": "out"}}


@pytest.fixture
def app() -> Iterator[App]:
    app = App("memory://", closures=True)

    @app.task(name="report", queue="mail", cron="@daily")
    def report(customer: int = 0) -> None: ...

    yield app
    app.close()


def ask(app: App, verb: str, path: str, access: Any = None, token: Any = "", **body: Any) -> tuple[int, Any]:
    answer = request(app, verb, path, access=access, token=token, **({"json": body} if body else {}))
    return answer.status_code, answer.json() if answer.content else None


def test_put_show_list_and_delete(app: App) -> None:
    put: dict[str, Any] = {
        "task": "report",
        "args": [7],
        "cron": "0 7 * * 1-5",
        "zone": "Europe/Paris",
        "jitter": "30s",
        "queue": "slow",
    }
    status, record = ask(app, "PUT", "/v1/schedules/report:7", **put)
    assert (status, record["name"], record["cron"], record["zone"], record["jitter"], record["source"]) == (
        200, "report:7", "0 7 * * 1-5", "Europe/Paris", 30.0, "stored",
    )  # fmt: skip
    assert ask(app, "PUT", "/v1/schedules/report:7", **put) == (200, record)
    detail = ask(app, "GET", "/v1/schedules/report:7")[1]
    assert (detail["args"], detail["queue"], detail["runs"]) == ([7], "slow", [])
    listed = ask(app, "GET", "/v1/schedules")[1]
    assert [(one["name"], one["source"]) for one in listed["schedules"]] == [("report", "code"), ("report:7", "stored")]
    assert [one["name"] for one in ask(app, "GET", "/v1/schedules?source=stored")[1]["schedules"]] == ["report:7"]
    assert [one["name"] for one in ask(app, "GET", "/v1/schedules?source=code")[1]["schedules"]] == ["report"]
    assert ask(app, "POST", "/v1/schedules/report:7/pause")[1]["paused"]
    assert not ask(app, "POST", "/v1/schedules/report:7/resume")[1]["paused"]
    (found,) = app.client.fetch([ids.parse(ask(app, "POST", "/v1/schedules/report:7/run")[1]["id"])])
    assert found is not None
    assert (found.queue, found.body) == ("slow", b"[7]")
    assert ask(app, "DELETE", "/v1/schedules/report:7") == (200, {"schedule": "report:7"})
    assert ask(app, "GET", "/v1/schedules/report:7")[0] == 404
    assert ask(app, "DELETE", "/v1/schedules/report:7")[0] == 404


def test_pages_of_a_list(app: App) -> None:
    for number in range(5):
        ask(app, "PUT", f"/v1/schedules/a:{number}", task="report", every="1h")
    seen, after = [], ""
    while after is not None:
        page = ask(app, "GET", f"/v1/schedules?limit=2&after={after}")[1]
        seen += [one["name"] for one in page["schedules"]]
        after = page["next"]
    assert seen == ["a:0", "a:1", "a:2", "a:3", "a:4", "report"]
    assert len(ask(app, "GET", "/v1/schedules?prefix=a:")[1]["schedules"]) == 5


def test_an_http_task(app: App) -> None:
    assert ask(app, "POST", "/v1/tasks", **HOOK)[0] == 201
    status, record = ask(app, "PUT", "/v1/schedules/hourly", task="hook", args={"shop": 7}, every="1h")
    assert (status, record["cron"]) == (200, "@every 1h")
    assert ask(app, "GET", "/v1/schedules/hourly")[1]["args"] == {"shop": 7}


@pytest.mark.parametrize(
    ("put", "status", "message"),
    [
        ({"task": "repotr", "every": 5}, 422, "no task repotr in this app; did you mean"),
        ({"task": "report"}, 422, "nothing says when"),
        ({"task": "report", "cron": "* * *"}, 422, "cron="),
        ({"task": "report", "every": 5, "zone": "Mars"}, 422, "zone="),
        ({"task": "report", "every": 5, "args": ["x"]}, 422, "report"),
        ({"task": "report", "every": 5, "args": 7}, 422, "args"),
        ({"task": "report", "at": "2030-01-01T00:00:00"}, 422, "needs a time zone"),
        ({"task": "report", "every": 5, "args": {"customer": "x" * 70_000}}, 413, "arguments take"),
        ({"task": "tarry.map", "every": 5}, 422, "tarry's own"),
        ({"task": "report", "every": 5, "more": 1}, 422, "more"),
        ({"task": "report", "every": 5, "labels": {"a b": "c"}}, 422, "label"),
    ],
)
def test_what_cannot_be(app: App, put: dict[str, Any], status: int, message: str) -> None:
    found, problem = ask(app, "PUT", "/v1/schedules/a", **put)
    assert (found, message in problem["detail"]) == (status, True), problem
    assert ask(app, "GET", "/v1/schedules?source=stored")[1]["schedules"] == []


def test_one_of_code_is_not_put_and_not_deleted(app: App) -> None:
    status, problem = ask(app, "PUT", "/v1/schedules/report", task="report", every=5)
    assert (status, "the code of task report has one of this name" in problem["detail"]) == (422, True), problem
    status, problem = ask(app, "DELETE", "/v1/schedules/report")
    assert (status, "take it out of the code, or pause it" in problem["detail"]) == (422, True), problem


def tokens(directory: Path, *callers: tuple[str, list[str], Sequence[str]]) -> TokenAccess:
    file = directory / "tokens.toml"
    for name, scopes, queues in callers:
        with file.open("a") as written:
            restricted = f"queues = {list(queues)}\n" if queues else ""
            written.write(f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = {scopes}\n{restricted}')
    file.chmod(0o600)
    return TokenAccess(file)


def test_pages_for_who_may_see_few(app: App, tmp_path: Path) -> None:
    """Also behind more of others than one answer looks at."""
    access = tokens(tmp_path, ("o", ["read"], ["other"]))
    for number in range(50):
        ask(app, "PUT", f"/v1/schedules/a:{number:02}", task="report", every=60)
    ask(app, "PUT", "/v1/schedules/b", task="report", every=60, queue="other")
    seen, after = [], ""
    while after is not None:
        page = ask(app, "GET", f"/v1/schedules?limit=1&after={after}", access, "o")[1]
        seen += [one["name"] for one in page["schedules"]]
        after = page["next"]
    assert seen == ["b"]
    seen, after = [], ""
    while after is not None:
        page = ask(app, "GET", f"/v1/schedules?limit=3&after={after}")[1]
        seen += [one["name"] for one in page["schedules"]]
        after = page["next"]
    assert seen == [*(f"a:{number:02}" for number in range(50)), "b", "report"]


def test_one_of_a_task_that_is_not_known_is_for_who_may_see_all(app: App, tmp_path: Path) -> None:
    access = tokens(tmp_path, ("d", ["admin", "read"], ["default"]))
    ask(app, "PUT", "/v1/schedules/a", task="report", every=60)
    # As of an app without it.
    app.client.tasks.pop("report")  # type: ignore[attr-defined]
    assert [one["name"] for one in ask(app, "GET", "/v1/schedules")[1]["schedules"]] == ["a"]
    assert ask(app, "GET", "/v1/schedules", access, "d")[1]["schedules"] == []
    assert ask(app, "GET", "/v1/schedules/a", access, "d")[0] == 404
    assert ask(app, "DELETE", "/v1/schedules/a", access, "d")[0] == 403


def test_who_may_do_that(app: App, tmp_path: Path) -> None:
    access = tokens(
        tmp_path,
        ("r", ["read"], ()),
        ("o", ["operate", "read"], ()),
        ("m", ["admin", "operate", "read"], ["mail"]),
        ("x", ["admin", "operate", "read"], ["other"]),
    )
    put = {"task": "report", "every": 60}
    for token in ("r", "o"):
        assert ask(app, "PUT", "/v1/schedules/a", access, token, **put)[0] == 403
    assert ask(app, "PUT", "/v1/schedules/a", access, "x", **put)[0] == 403
    assert ask(app, "PUT", "/v1/schedules/a", access, "m", queue="other", **put)[0] == 403
    assert ask(app, "PUT", "/v1/schedules/a", access, "m", **put)[0] == 200
    assert ask(app, "GET", "/v1/schedules/a", access, "x")[0] == 404
    assert ask(app, "GET", "/v1/schedules", access, "x")[1]["schedules"] == []
    assert ask(app, "DELETE", "/v1/schedules/a", access, "x")[0] == 403
    assert ask(app, "DELETE", "/v1/schedules/a", access, "o")[0] == 403
    assert ask(app, "POST", "/v1/schedules/a/pause", access, "o")[0] == 200
    assert ask(app, "DELETE", "/v1/schedules/a", access, "m")[0] == 200


def test_the_store_keeps_no_more_of_them(app: App) -> None:
    app.client.schedule_room.most = 1
    assert ask(app, "PUT", "/v1/schedules/a", task="report", every="1h")[0] == 200
    status, problem = ask(app, "PUT", "/v1/schedules/b", task="report", every="1h")
    assert (status, problem["type"]) == (422, "urn:tarry:problem:too-many-schedules")
    assert problem["detail"].startswith("schedule b: the store keeps 1 schedules, and no more: delete some, ")
