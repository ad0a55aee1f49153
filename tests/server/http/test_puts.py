"""Putting jobs by HTTP: one, a list, lines; with every option that `using()` has."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tarry import App, StoreUnavailable
from tarry.errors import NotAllowed
from tarry.model.duration import HOUR
from tarry.model.job import Job
from tarry.model.overrides import cost_of
from tarry.operate.access import Scope
from tarry.server.http.methods import puts
from tarry.server.http.methods.put_request import PutRequest
from tarry.server.service import DoorService
from tarry.server.serving.application import create_application
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Query, Want
from tarry.tasks.arguments.options import Options
from tests.server.http.calling import api, caller, run

LINES = {"Content-Type": "application/x-ndjson"}
Tell = Callable[[httpx.AsyncClient], Awaitable[Any]]


@pytest.fixture
def app() -> App:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail", queue="mails")
    def mail(to: str, copies: int = 1) -> None: ...

    return app


def told(app: App, tell: Tell, **more: Any) -> Any:
    async def story() -> Any:
        async with api(app, **more) as client:
            return await tell(client)

    return run(story)


def put(app: App, body: Any, **headers: str) -> httpx.Response:
    got: httpx.Response = told(app, lambda client: client.post("/v1/jobs", json=body, headers=headers))
    return got


def put_lines(app: App, *lines: Any, **headers: str) -> httpx.Response:
    text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    got: httpx.Response = told(app, lambda client: client.post("/v1/jobs", content=text, headers=LINES | headers))
    return got


def put_text(app: App, text: bytes, headers: dict[str, str]) -> httpx.Response:
    got: httpx.Response = told(app, lambda client: client.post("/v1/jobs", content=text, headers=headers))
    return got


def stored(app: App) -> list[Job]:
    return app.client.store.find(Query(limit=10_000))


def problem(got: httpx.Response) -> tuple[int, str | None, str]:
    said = got.json()
    return got.status_code, said.get("field"), said["detail"]


def test_one_job() -> None:
    app = App(MemoryStore())
    got = put(app, {"task": "other.language", "args": {"a": [1, "ü"]}})
    assert got.status_code == 201
    (job,) = stored(app)
    assert got.json() == {"id": app.get(job.id).id, "state": "ready", "is_new": True}
    assert (job.task, job.queue, msgspec.json.decode(job.body)) == ("other.language", "default", {"a": [1, "ü"]})


def test_arguments_are_a_list_an_object_none_or_any_body() -> None:
    app = App(MemoryStore())
    for given in ({}, {"args": [1]}, {"args": {"a": 1}}, {"body": {"order": 7}}, {"body": 7}, {"body": None}):
        assert put(app, {"task": "t"} | given).status_code == 201
    assert [job.body for job in stored(app)] == [b"[]", b"[1]", b'{"a":1}', b'{"order":7}', b"[7]", b"[null]"]
    assert problem(put(app, {"task": "t", "args": 7})) == (422, "args", "args: expected a list, or an object by name")
    assert problem(put(app, {"task": "t", "args": [], "body": 1}))[:2] == (422, "body")


def test_a_known_task_checks_its_arguments_and_decides_what_is_left_out(app: App) -> None:
    assert put(app, {"task": "mail", "args": ["ann"]}).status_code == 201
    assert stored(app)[0].queue == "mails"
    status, _, detail = problem(put(app, {"task": "mail", "args": {"to": "ann", "copies": "two"}}))
    assert (status, "copies" in detail) == (422, True)
    assert problem(put(app, {"task": "mail"}))[0] == 422
    assert len(stored(app)) == 1


def test_a_job_costs_what_its_put_says_or_its_task() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(name="ask", rate="10/m", cost=lambda n: n)
    def ask(n: int) -> None: ...

    assert put(app, {"task": "ask", "args": [7]}).status_code == 201
    assert put(app, {"task": "ask", "args": [7], "cost": 3}).status_code == 201
    assert sorted(cost_of(job.headers) for job in stored(app)) == [3, 7]
    wanted = (422, "cost", "cost=11 is more than task:ask lets start in a whole period: 10 in 60 s")
    assert problem(put(app, {"task": "ask", "args": [11]})) == wanted


def test_each_option_of_using_has_its_field() -> None:
    # Of a process, of a broadcast, and of a schedule.
    python = set(Options.__struct_fields__) - {"connection", "per", "keeps_attempts"}
    assert set(PutRequest.__struct_fields__) == python | {"task", "args", "body"}


def test_options_do_what_using_does() -> None:
    app = App(MemoryStore())
    many = {
        "task": "t",
        "at": "2040-01-01T00:00:00Z",
        "key": "k",
        "unique_for": "2h",
        "priority": -3,
        "queue": "q",
        "expires": 60,
        "timeout": "5s",
        "retry": {"limit": None, "backoff": ["1s", 5], "jitter": 0.5, "within": "1d", "never": ["KeyError"]},
    }
    assert put(app, many).json()["state"] == "scheduled"
    (job,) = stored(app)
    assert (job.key, job.priority, job.queue, job.due) == ("k", -3, "q", 2208988800_000_000)
    assert (job.expires - job.due, job.key_ttl) == (60_000_000, 7200_000_000)
    other = app.client.make_job("t", b"[]", Options(timeout=5, retry=3))
    put(app, {"task": "t", "timeout": 5, "retry": 3, "delay": "1m"})
    assert other.headers in {each.headers for each in stored(app)}


def test_a_key_that_is_held_gives_the_job_that_holds_it() -> None:
    app = App(MemoryStore())
    first = put(app, {"task": "t", "key": "k", "delay": 60})
    again = put(app, {"task": "t", "key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "state": "scheduled", "is_new": False}
    replaced = put(app, {"task": "t", "key": "k", "args": [2], "on_duplicate": "replace"})
    assert replaced.json() == {"id": first.json()["id"], "state": "ready", "is_new": False}


def test_a_job_is_put_off_for_so_long_at_most() -> None:
    app = App(MemoryStore())
    bounded = {"task": "t", "key": "k", "delay": "1m", "on_duplicate": "postpone", "max_delay": "1h"}
    first = app.get(put(app, bounded).json()["id"])
    latest = first.record().state_since + HOUR
    later = {"task": "t", "key": "k", "at": "2090-01-01T00:00:00Z", "on_duplicate": "postpone"}
    assert put(app, later).json() == {"id": first.id, "state": "scheduled", "is_new": False}
    assert first.record().due == latest


def test_a_job_is_found_by_its_labels() -> None:
    app = App(MemoryStore())
    both, plan = ({"customer": "7", "plan": "a=b&c"}, {"plan": "a=b&c"})
    first, second, _ = put(app, [{"task": "t", "labels": each} for each in (both, plan, {})]).json()

    def listed(*labels: str) -> list[tuple[str, dict[str, str]]]:
        page = told(app, lambda client: client.get("/v1/jobs", params={"label": list(labels)}))
        return [(job["id"], job["labels"]) for job in page.json()["jobs"]]

    assert listed("customer=7") == listed("customer=7", "plan=a=b&c") == [(first["id"], both)]
    assert listed("plan=a=b&c") == [(first["id"], both), (second["id"], plan)]
    assert listed("customer=8") == []
    for wrong in ("customer", "", "a b=7", "customer=" + "7" * 257):
        got = told(app, partial(httpx.AsyncClient.get, url="/v1/jobs", params={"label": wrong}))
        assert problem(got)[:2] == (422, "label")


def test_a_newer_job_of_a_key_cancels_the_one_that_runs() -> None:
    app = App(MemoryStore())
    newest = {"task": "t", "key": "k", "running": "cancel"}
    first = app.get(put(app, newest).json()["id"])
    assert len(app.client.store.claim([Want("default", NORMAL, 1)], 1, "ann", HOUR, app.client.clock.now())) == 1
    second = put(app, newest | {"args": [2]})
    assert (second.status_code, second.json()["is_new"], first.state) == (201, True, "cancelled")
    third = put(app, newest | {"args": [3]})
    assert (third.status_code, third.json()["id"]) == (200, second.json()["id"])


def test_a_request_that_is_sent_again_is_stored_once() -> None:
    app = App(MemoryStore())
    name = {"Idempotency-Key": '"a-7"'}
    got = [put(app, {"task": "t", "args": [1]}, **name) for _ in range(2)]
    assert [each.status_code for each in got] == [201, 200]
    assert got[0].json()["id"] == got[1].json()["id"]
    assert problem(put(app, {"task": "t", "args": [2]}, **name))[0] == 422
    assert put(app, {"task": "t", "args": [1], "idempotency": "a-7"}).status_code == 200, (
        "the quotes are not part of it"
    )
    listed = [put(app, [{"task": "t"}, {"task": "t"}], **{"Idempotency-Key": "list"}).json() for _ in range(2)]
    assert [each["id"] for each in listed[0]] == [each["id"] for each in listed[1]]
    assert problem(put(app, {"task": "t"}, **{"Idempotency-Key": " "}))[:2] == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"delay": "soon"}, "delay"),
        ({"delay": 1, "at": 1}, "delay"),
        ({"at": "2030-01-01T00:00:00"}, "at"),
        ({"at": -1}, "at"),
        ({"priority": 2**41}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\0b"}, "queue"),
        ({"task": ""}, "task"),
        ({"task": "x" * 201}, "task"),
        ({"timeout": 0}, "timeout"),
        ({"retry": -1}, "retry"),
        ({"retry": {"jitter": 2}}, "retry.jitter"),
        ({"retry": {"backoff": []}}, "retry.backoff"),
        ({"at": "9999-12-31T23:59:59-14:00"}, "at"),
        ({"unique_for": "1h"}, "unique_for"),
        ({"on_duplicate": "drop"}, "on_duplicate"),
        ({"key": "k", "max_delay": 5}, "max_delay"),
        ({"running": "cancel"}, "running"),
        ({"key": "k", "running": "stop"}, "running"),
        ({"key": "k", "running": "cancel", "on_duplicate": "postpone"}, "running"),
        ({"key": "k", "leading": True, "on_duplicate": "replace"}, "leading"),
        ({"delays": 1}, "delays"),
        ({"key": "k", "idempotency": "i"}, "key"),
        ({"durable": "replica"}, None),
        ({"labels": ["customer"]}, "labels"),
        ({"labels": {"customer": 7}}, "labels[...]"),
        ({"labels": {"a b": "7"}}, "labels"),
        ({"labels": {f"n{number}": "" for number in range(17)}}, "labels"),
        ({"labels": {"customer": "7" * 257}}, "labels"),
        ({"cost": 0}, "cost"),
        ({"cost": 2**31 + 1}, "cost"),
        ({"cost": "3"}, "cost"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(given: dict[str, Any], field: str | None) -> None:
    app = App(MemoryStore())
    got = put(app, {"task": "t"} | given)
    assert problem(got)[:2] == (422, field), got.text
    assert stored(app) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"args": [1]}, "args[0]"),
        ({"args": {"to": 1}}, "args.to"),
        ({"args": {"to": "ann", "cc": 1}}, "args.cc"),
        ({"args": {"copies": 1}}, "args.to"),
        ({"args": []}, "args"),
        ({"body": {"to": 1}}, "body.to"),
    ],
)
def test_the_argument_that_does_not_fit_is_named(app: App, given: dict[str, Any], field: str) -> None:
    assert problem(put(app, {"task": "mail"} | given))[:2] == (422, field)
    assert problem(put(app, [{"task": "t"}, {"task": "mail"} | given]))[:2] == (422, f"[1].{field}")


DEEP = b"[" * 100_000 + b"]" * 100_000
UNREADABLE = [b'["\xff"]', b'["\\ud800"]', DEEP, b"[" * 201 + b"]" * 201]


@pytest.mark.parametrize("text", UNREADABLE, ids=["bytes", "half a pair", "deep", "one level too deep"])
@pytest.mark.parametrize("within", [b"%s", b"[%s]", b"%s\n"], ids=["one", "list", "line"])
def test_arguments_that_not_everybody_could_read_are_refused(text: bytes, within: bytes) -> None:
    app = App(MemoryStore())
    kind = LINES if within.endswith(b"\n") else {"Content-Type": "application/json"}
    for part in (b"args", b"body"):
        body = within % (b'{"task": "t", "%s": %s}' % (part, text))
        got = put_text(app, body, kind)
        status = json.loads(got.content)["error"]["status"] if kind is LINES else got.status_code
        assert status in (400, 422), got.text
    assert stored(app) == []


def test_arguments_may_be_nested_as_deeply_as_all_can_read() -> None:
    app = App(MemoryStore())
    deep: Any = "[[[" + "]"
    for _ in range(199):
        deep = [deep]
    id = put(app, {"task": "t", "body": {"a": deep}}).json()["id"]
    found = told(app, lambda client: client.get(f"/v1/jobs/{id}")).json()
    assert found["args"] == {"a": deep}


def test_a_list_is_stored_whole_or_not_at_all(app: App) -> None:
    got = put(app, [{"task": "mail", "args": [str(n)]} for n in range(1000)])
    assert got.status_code == 201
    assert [each["id"] for each in got.json()] == [app.get(job.id).id for job in stored(app)]
    wrong = put(app, [{"task": "t"}, {"task": "mail", "args": [7]}])
    assert problem(wrong)[:2] == (422, "[1].args[0]")
    assert problem(put(app, [{"task": "t"}, {"task": "t", "delay": "x"}]))[:2] == (422, "[1].delay")
    assert problem(put(app, [{"task": "t"}, {"tusk": "t"}]))[:2] == (422, "[1].tusk")
    assert len(stored(app)) == 1000
    assert put(app, []).json() == []


def test_of_a_list_each_job_has_its_answer() -> None:
    app = App(MemoryStore())
    put(app, {"task": "t", "args": [1], "idempotency": "i"})
    got = put(
        app,
        [{"task": "t"}, {"task": "t", "args": [2], "idempotency": "i"}, {"task": "t", "args": [1], "idempotency": "i"}],
    )
    assert got.status_code == 207
    assert [each.get("is_new") for each in got.json()] == [True, None, False]
    assert got.json()[1]["error"]["status"] == 422


def test_a_list_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts, "MOST_JOBS", 3)
    assert problem(put(App(MemoryStore()), [{"task": "t"}] * 4))[:2] == (413, "body")


def test_lines_are_stored_as_they_come_and_each_has_its_answer(app: App) -> None:
    lines = [{"task": "mail", "args": [str(n)]} for n in range(2500)]
    got = put_lines(app, *lines[:10], b"", b"{", {"task": "mail"}, *lines[10:])
    assert (got.status_code, got.headers["content-type"]) == (207, "application/x-ndjson")
    answers = [json.loads(line) for line in got.text.splitlines()]
    assert len(answers) == 2502
    assert [answer["error"]["status"] for answer in answers[10:12]] == [400, 422]
    assert answers[10]["error"]["detail"].startswith("the line 12 is no JSON")
    assert [answer["id"] for answer in answers if "id" in answer] == [app.get(job.id).id for job in stored(app)]
    assert put_lines(app, *lines[:2]).status_code == 201


def test_lines_may_come_in_any_pieces() -> None:
    app = App(MemoryStore())
    text = b"\n".join(b'{"task": "t", "args": [%d]}' % n for n in range(50))

    async def pieces() -> Any:
        for at in range(0, len(text), 7):
            yield text[at : at + 7]

    got = told(app, lambda client: client.post("/v1/jobs", content=pieces(), headers=LINES))
    assert len(got.text.splitlines()) == 50
    assert [job.body for job in stored(app)] == [b"[%d]" % n for n in range(50)]


def test_a_line_that_is_too_long_ends_the_request_and_those_before_it_have_their_answers() -> None:
    app = App(MemoryStore())
    app.client.factory.max_body = 1000
    got = put_lines(app, {"task": "t"}, {"task": "t", "args": ["x" * 2000]}, {"task": "t", "args": ["x" * 99_000]})
    answers = [json.loads(line) for line in got.text.splitlines()]
    assert [answer.get("error", {}).get("status") for answer in answers] == [None, 413, 413]
    assert len(stored(app)) == 1


def test_wrong_lines_without_end_end_the_request() -> None:
    async def story() -> httpx.Response:
        async with api(App(MemoryStore())) as client:
            headers = {"Content-Type": "application/x-ndjson"}
            return await client.post("/v1/jobs", content=b"{}\n" * 100_000, headers=headers)

    lines = run(story).text.splitlines()
    assert len(lines) == 1002, "1,001 wrong ones, and why there are no more"
    assert "more than 1000 lines are wrong" in lines[-1]


def test_lines_of_a_request_that_is_sent_again_are_stored_once() -> None:
    app = App(MemoryStore())
    lines = [{"task": "t", "args": [n]} for n in range(3)]
    got = [put_lines(app, *lines, **{"Idempotency-Key": "n"}).text for _ in range(2)]
    assert [json.loads(line)["id"] for line in got[0].splitlines()] == [
        json.loads(line)["id"] for line in got[1].splitlines()
    ]
    assert len(stored(app)) == 3


def test_a_form_is_no_job() -> None:
    got = told(App(MemoryStore()), lambda client: client.post("/v1/jobs", data={"task": "t"}))
    assert problem(got)[2] == (
        "send Content-Type: application/json or application/x-ndjson, not application/x-www-form-urlencoded"
    )


class HeldStore:
    """An app whose inserts wait until `goes_on` is set."""

    def __init__(self) -> None:
        self.app, self.calls, self.goes_on = App(MemoryStore()), list[int](), threading.Event()
        self._insert = self.app.client.store.insert
        self.app.client._inserter._insert = self._hold
        self.service = DoorService(self.app)

    def _hold(self, jobs: Any) -> Any:
        self.calls.append(len(jobs))
        assert self.goes_on.wait(20)
        return self._insert(jobs)

    def told(self, story: Callable[["HeldStore", httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
        """Tells the story once a first put waits for the store; ends the service then."""

        async def tell() -> None:
            async with asyncio.timeout(20), caller(create_application(self.service)) as client:
                first = asyncio.create_task(client.post("/v1/jobs", json={"task": "first"}))
                while not self.calls:
                    await asyncio.sleep(0.001)
                await story(self, client)
                assert (await first).status_code == 201

        run(tell)
        self.service.close()


def test_puts_that_come_together_are_committed_together() -> None:
    async def story(held: HeldStore, client: httpx.AsyncClient) -> None:
        others = [asyncio.create_task(client.post("/v1/jobs", json={"task": "t"})) for _ in range(100)]
        while held.service.ring.waiting < 100:
            await asyncio.sleep(0.001)
        held.goes_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*others)} == {201}

    held = HeldStore()
    held.told(story)
    assert held.calls == [1, 100]


def test_a_put_whose_sender_waits_no_longer_is_not_stored() -> None:
    async def story(held: HeldStore, client: httpx.AsyncClient) -> None:
        other = asyncio.create_task(client.post("/v1/jobs", json={"task": "patient"}))
        for prefers in ("wait=0", "respond-async, WAIT=0", "foo; bar, wait=0 ,x=1"):
            late = await client.post("/v1/jobs", json=[{"task": "late"}], headers={"Prefer": prefers})
            assert (late.status_code, "took too long" in late.json()["detail"]) == (503, True)
        held.goes_on.set()
        assert (await other).status_code == 201

    held = HeldStore()
    held.told(story)
    assert {job.task for job in held.app.client.store.find(Query())} == {"first", "patient"}


class Away(MemoryStore):
    away = False

    def insert(self, jobs: Any) -> list[bytes]:
        if self.away:
            raise StoreUnavailable("the store is away")
        return super().insert(jobs)


def test_a_store_that_is_away_says_when_to_try_again_and_which_job_it_was() -> None:
    store = Away()
    app = App(store)
    assert app.client.clock.now()
    store.away = True
    got = put(app, {"task": "t"})
    assert (got.status_code, got.headers["retry-after"]) == (503, "1")
    assert "stored" not in got.json(), "it may be stored"
    assert len(got.json()["id"]) == 36
    listed = put(app, [{"task": "t"}, {"task": "t"}])
    assert (listed.status_code, listed.json()["detail"]) == (503, "the store is away")


def test_a_job_in_the_outbox_is_accepted(tmp_path: Path) -> None:
    store = Away()
    app = App(store, outbox=tmp_path / "outbox.db")
    assert app.client.clock.now()
    store.away = True
    got = put(app, {"task": "t"})
    assert (got.status_code, got.json()["is_new"]) == (202, None)
    app.close()


class OnlyMails:
    name = "mails"
    namespace = ""
    queues = ("mails",)

    def check_task(self, task: str, queue: str | None) -> None: ...

    def check(self, scope: Scope, queue: str | None = None) -> None:
        if queue is not None and not self.allows(scope, queue):
            raise NotAllowed(f"not the queue {queue}")

    def allows(self, scope: Scope, queue: str) -> bool:
        return queue == "mails"

    def caller(self, headers: Any, address: str) -> "OnlyMails":
        return self


def test_a_caller_puts_only_into_its_queues(app: App) -> None:
    async def tell(client: httpx.AsyncClient) -> list[int]:
        bodies: list[Any] = [
            {"task": "mail", "args": ["a"]},
            {"task": "t"},
            [{"task": "mail", "args": ["a"]}, {"task": "t"}],
            {"task": "t", "queue": "mails"},
            {"task": "mail", "args": ["a"], "queue": "other"},
        ]
        return [(await client.post("/v1/jobs", json=body)).status_code for body in bodies]

    assert told(app, tell, access=OnlyMails()) == [201, 403, 403, 201, 403]
    assert len(stored(app)) == 2


def test_a_body_may_be_too_large() -> None:
    app = App(MemoryStore())
    app.client.factory.max_body = 100
    assert problem(put(app, {"task": "t", "args": ["x" * 200]}))[0] == 413


def test_long_lines_are_committed_in_chunks_that_the_ring_takes(app: App) -> None:
    """Together they take more than may wait: each is stored all the same."""
    text = json.dumps({"task": "nobody", "args": ["x" * 900_000]}).encode()
    got = put_lines(app, *[text] * 80)
    assert (got.status_code, got.text.count('"is_new":true')) == (201, 80), got.text[:500]
