"""Signals and approvals by HTTP."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, approve, wait_for
from tarry.client.flows import approvals
from tarry.model.flow.signal import Signal
from tarry.server.console.concerns import flow_concerns
from tarry.server.console.views import flows as flows_page
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tests.server.http.calling import page as page_of
from tests.server.http.calling import request as call


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name="ship", queue="shop")
    def ship(order: str) -> Any:
        return wait_for("paid", key=order)

    @app.task(name="refund", queue="bank")
    def refund(order: str) -> Any:
        said = approve(f"refund of {order}", key=order, timeout="2d")
        return [said.ok, said.by, said.note]

    yield app
    app.close()


@pytest.fixture
def access(tmp_path: Path) -> TokenAccess:
    """The tokens ann (for the queue bank), bob (for shop) and root."""
    queues = {"ann": '["bank"]', "bob": '["shop"]', "root": '["*"]'}
    file = tmp_path / "tokens.toml"
    parts = (
        f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = ["read", "operate", "put"]\nqueues = {its}\n'
        for name, its in queues.items()
    )
    file.write_text("".join(parts))
    return TokenAccess(file)


def result(app: App, id: str) -> Any:
    app.drain()
    return app.client.get(id).result(0)


def test_a_signal_wakes_whoever_waits(app: App) -> None:
    job = app.named("ship").enqueue("7")
    app.drain()
    sent = {"name": "paid", "key": "7", "value": {"cents": 70}, "id": "payment-1"}
    assert call(app, "POST", "/v1/signals", json=sent).json() == {"woken": 1}
    # Sent again, it is the same one.
    assert call(app, "POST", "/v1/signals", json=sent).json() == {"woken": 0}
    assert result(app, job.id) == {"cents": 70}


def test_an_early_signal_is_kept(app: App) -> None:
    assert call(app, "POST", "/v1/signals", json={"name": "paid", "key": "8"}).json() == {"woken": 0}
    job = app.named("ship").enqueue("8")
    assert result(app, job.id) is None
    assert str(job.state) == "done"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "x" * 70_000}, "signal: the value of signal 'paid' has 70,002 bytes; 65,536 can be kept"),
        ({"keep": "x"}, "signal: keep"),
        ({"name": "approve:refund of 7"}, "name: approve: is for decisions: POST /v1/approvals/{key}"),
        ({"key": ""}, "body: key:"),
        ({"key": "ä" * 300}, "signal: the key of a signal has 600 bytes; 500 are possible"),
    ],
)
def test_what_is_wrong_is_told(app: App, wrong: dict[str, Any], said: str) -> None:
    got = call(app, "POST", "/v1/signals", json={"name": "paid", "key": "7"} | wrong)
    assert (got.status_code, got.json()["detail"][: len(said)]) == (422, said)


def test_a_signal_takes_a_caller_for_all_queues(app: App, access: TokenAccess) -> None:
    sent = {"name": "paid", "key": "7"}
    assert call(app, "POST", "/v1/signals", json=sent, token="bob", access=access).status_code == 403
    assert call(app, "POST", "/v1/signals", json=sent, token="root", access=access).status_code == 200


def test_an_approval(app: App, access: TokenAccess) -> None:
    job = app.named("refund").enqueue("7")
    app.drain()
    (waiting,) = call(app, "GET", "/v1/approvals").json()["approvals"]
    assert (waiting["key"], waiting["question"], waiting["id"]) == ("7", "refund of 7", job.id)
    assert (waiting["task"], waiting["queue"], waiting["flow"]) == ("refund", "bank", None)
    assert waiting["until"] - waiting["since"] == pytest.approx(2 * 86400, abs=60)
    got = call(app, "POST", "/v1/approvals/7", json={"ok": True, "note": "fine"}, token="ann", access=access)
    assert got.json() == {"key": "7", "question": "refund of 7", "ok": True, "by": "ann", "woken": 1}
    assert call(app, "GET", "/v1/approvals").json()["approvals"] == []
    assert result(app, job.id) == [True, "ann", "fine"]
    acts = call(app, "GET", "/v1/audit").json()["acts"]
    assert [(act["act"], act["who"], act["queue"], act["outcome"]) for act in acts] == [
        ("decide_approval", "ann", "bank", "done")
    ]


def test_who_may_not_see_the_job_may_not_decide(app: App, access: TokenAccess) -> None:
    app.named("refund").enqueue("7")
    app.drain()
    assert call(app, "GET", "/v1/approvals", token="bob", access=access).json()["approvals"] == []
    assert call(app, "POST", "/v1/approvals/7", json={"ok": True}, token="bob", access=access).status_code == 404
    assert len(call(app, "GET", "/v1/approvals").json()["approvals"]) == 1


def test_a_decision_is_for_the_jobs_that_its_caller_may_see(app: App, access: TokenAccess) -> None:
    theirs, mine = app.named("refund").enqueue("7"), app.named("refund").using(queue="shop").enqueue("7")
    app.drain()
    decided = call(app, "POST", "/v1/approvals/7", json={"ok": True, "note": "by bob"}, token="bob", access=access)
    assert (decided.status_code, decided.json()["woken"]) == (200, 1)
    assert result(app, mine.id) == [True, "bob", "by bob"]
    assert theirs.state == "scheduled", "it waits for its own decision, however often it is woken"
    later = app.named("refund").enqueue("7")
    app.drain()
    assert later.state == "scheduled", "one that is kept is not for it"
    seen = call(app, "GET", "/v1/approvals", token="ann", access=access).json()["approvals"]
    assert {one["id"] for one in seen} == {theirs.id, later.id}
    decided = call(app, "POST", "/v1/approvals/7", json={"ok": False}, token="ann", access=access)
    assert (decided.status_code, decided.json()["woken"]) == (200, 2)
    assert result(app, theirs.id) == result(app, later.id) == [False, "ann", ""]


def test_an_approval_that_nothing_waits_for(app: App) -> None:
    got = call(app, "POST", "/v1/approvals/7", json={"ok": True})
    assert (got.status_code, got.json()["detail"]) == (
        404, "no job waits for an approval with the key '7': it is decided, or not asked yet",
    )  # fmt: skip
    job = app.named("refund").enqueue("7")
    app.drain()
    job.cancel()
    assert call(app, "GET", "/v1/approvals").json()["approvals"] == []
    assert call(app, "POST", "/v1/approvals/7", json={"ok": True}).status_code == 404


def test_a_key_of_several_questions(app: App) -> None:
    @app.task(name="ask", queue="bank")
    def ask() -> Any:
        return approve("closing", key="7").ok

    first, second = app.named("refund").enqueue("7"), app.named("ask").enqueue()
    app.drain()
    got = call(app, "POST", "/v1/approvals/7", json={"ok": False})
    assert (got.status_code, got.json()["detail"]) == (
        409, "several questions have the key '7', name one of them: 'closing', 'refund of 7'",
    )  # fmt: skip
    listed = call(app, "GET", "/v1/approvals?question=closing").json()["approvals"]
    assert [one["id"] for one in listed] == [second.id]
    assert call(app, "POST", "/v1/approvals/7", json={"ok": False, "question": "closing"}).json()["woken"] == 1
    assert result(app, second.id) is False
    assert str(first.state) == "scheduled"


def test_of_two_who_decide_at_once_the_first_counts(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    job = app.named("refund").enqueue("7")
    app.drain()
    flows, answers = app.client.store.flows, []
    send = flows.signal

    def late(signal: Signal, now: int) -> int:
        """Somebody else is faster."""
        monkeypatch.setattr(flows, "signal", send)
        answers.append(call(app, "POST", "/v1/approvals/7", json={"ok": True, "note": "first"}).status_code)
        return send(signal, now)

    monkeypatch.setattr(flows, "signal", late)
    second = call(app, "POST", "/v1/approvals/7", json={"ok": False, "note": "second"})
    assert (answers, second.status_code) == ([200], 409)
    assert second.json()["detail"] == "'refund of 7' with the key '7' is decided already"
    # A job that asks the same again is not to find the second one.
    assert len(flows.signals(ids.parse(job.id), "approve:refund of 7", "7", 0)) == 1
    assert result(app, job.id) == [True, "", "first"]


@pytest.mark.parametrize("count", [6, 7, 10])
def test_however_many_wait_each_is_found_and_can_be_decided(
    app: App, access: TokenAccess, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Also behind many that the caller may not see."""
    monkeypatch.setattr(approvals, "PAGE", 3)
    monkeypatch.setattr(flow_concerns, "PAGE", 3)
    monkeypatch.setattr(flows_page, "MOST_SHOWN", 3)
    keys = [f"{number:02}" for number in range(count)]
    jobs = {key: app.named("refund").enqueue(key).id for key in keys}
    app.drain()
    path, seen = "/v1/approvals?limit=4", list[str]()
    while path:
        answer = call(app, "GET", path).json()
        seen += [one["key"] for one in answer["approvals"]]
        path = f"/v1/approvals?limit=4&cursor={answer['next']}" if answer["next"] else ""
    assert seen == keys
    page, pages = page_of(app, "/approvals"), 1
    assert f"refund of {keys[-1]}" not in page
    while following := re.search(r'href="([^"]*)" rel="next"', page):
        page, pages = page_of(app, following[1].replace("&amp;", "&")), pages + 1
    assert f"refund of {keys[-1]}" in page
    assert pages == -(-count // 3)
    assert "More than 3 jobs wait for a decision." in page_of(app, "/")
    assert f"<b>refund of {keys[-1]}</b>" in page_of(app, f"/jobs/{jobs[keys[-1]]}")
    assert call(app, "GET", "/v1/approvals", token="bob", access=access).json() == {
        "approvals": [], "missing": None, "next": "",
    }  # fmt: skip
    decided = {"ok": True, "question": f"refund of {keys[-1]}"}
    assert call(app, "POST", f"/v1/approvals/{keys[-1]}", json=decided).json()["woken"] == 1
    assert call(app, "POST", f"/v1/approvals/{keys[-2]}", json={"ok": True}).json()["woken"] == 1


@pytest.mark.parametrize("cursor", ["x", "AA", "%FF", "bnVsbA", "WyJhIiwiYiIsImMiXQ"])
def test_a_cursor_of_somebody_s_own_is_told(app: App, cursor: str) -> None:
    got = call(app, "GET", f"/v1/approvals?cursor={cursor}")
    assert (got.status_code, got.json()["detail"]) == (422, "cursor: not one that an answer had")
