"""Jobs of HTTP tasks: what goes out, what comes of it, and what is kept of it."""

import json
import time
from typing import Any

import pytest

from tarry import State
from tarry.errors import ArgumentError
from tarry.model.duration import MINUTE, SECOND
from tarry.push.delivery.task import DUE
from tarry.push.http.sign import Signer
from tests.engine.bench import finished, note, until
from tests.push.fixture import Desk
from tests.push.server import Line, answer, end_before_answer, hang, raw

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_object_that_was_enqueued_is_what_arrives(any_desk: Desk) -> None:
    any_desk.configure(hook={"url": "/orders/{order}"})
    job = any_desk.app.enqueue("hook", {"order": 7, "name": "Zoë"})
    any_desk.deliver()
    assert finished(job) is State.DONE
    (seen,) = any_desk.server.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/orders/7", '{"order":7,"name":"Zoë"}'.encode())
    assert seen.header("content-type") == "application/json"
    assert (seen.header("webhook-id"), seen.header("idempotency-key")) == (job.id, f'"{job.id}"')
    assert (seen.header("tarry-attempt"), seen.header("webhook-signature")) == ("1", None)
    result = job.result()
    assert (result["status"], result["answer"], result["outcome"]) == (200, "ok", "delivered")
    assert result["address"] == f"127.0.0.1:{any_desk.server.port}"


@pytest.mark.parametrize(
    ("args", "kwargs", "sent"),
    [
        (({"a": 1},), {}, b'{"a":1}'),
        ((), {"a": 1}, b'{"a":1}'),
        ((), {}, b"{}"),
        (([1, 2],), {}, b"[1,2]"),
        (("text",), {}, b'"text"'),
    ],
)
def test_whatever_json_it_is(desk: Desk, args: Any, kwargs: Any, sent: bytes) -> None:
    desk.configure(hook={})
    job = desk.app.enqueue("hook", *args, **kwargs)
    desk.deliver()
    assert finished(job) is State.DONE
    assert desk.server.seen[0].body == sent


def test_bytes_of_another_client_go_out_as_they_are(desk: Desk) -> None:
    desk.configure(hook={})
    desk.app.http.load()
    body = b' {"order" : 7.0 }'
    (job,) = desk.app.client.put([desk.app.client.job("hook", body)])
    desk.deliver()
    assert finished(job) is State.DONE
    assert desk.server.seen[0].body == body


def test_several_values_are_none(desk: Desk) -> None:
    desk.configure(hook={})
    with pytest.raises(ArgumentError, match="hook: 2 arguments were given; one JSON value is sent"):
        desk.app.enqueue("hook", 1, 2)
    with pytest.raises(ArgumentError, match="hook: the body cannot travel as JSON"):
        desk.app.enqueue("hook", {"a": object()})


def test_it_is_signed_anew_at_each_attempt(desk: Desk) -> None:
    desk.configure(hook={"secret": SECRET, "schedule": [0.001], "headers": {"x-key": "k"}})
    desk.server.says("/", answer(500))
    job = desk.app.enqueue("hook", {"a": 1})
    desk.deliver()
    assert finished(job) is State.DEAD
    assert [seen.header("tarry-attempt") for seen in desk.server.seen] == ["1", "2"]
    for seen in desk.server.seen:
        timestamp = int(seen.header("webhook-timestamp") or 0)
        assert abs(timestamp - time.time()) < 60
        assert seen.header("webhook-signature") == Signer([SECRET]).signature(job.id, timestamp, b'{"a":1}')
        assert seen.header("x-key") == "k"
    assert len({seen.header("tarry-due") for seen in desk.server.seen}) == 1


def test_the_task_s_settings_place_its_jobs(desk: Desk) -> None:
    desk.configure(hook={"delay": "10m", "queue": "hooks", "priority": 5, "timeout": 20})
    now = desk.app.client.clock.now()
    waiting = desk.job(desk.app.enqueue("hook", {}))
    assert (waiting.queue, waiting.priority, waiting.state) == ("hooks", 5, State.SCHEDULED)
    assert abs(waiting.due - now - 10 * MINUTE) < 5 * SECOND
    assert json.loads(waiting.headers) == {DUE: str(waiting.due)}
    task = desk.app.tasks["hook"]
    at_once, many = task.using(delay=0).enqueue({}), task.enqueue_many([({},), ({"a": 1},)])
    assert desk.job(at_once).due < waiting.due
    assert {desk.job(job).state for job in many} == {State.SCHEDULED}


def test_each_attempt_is_on_record(any_desk: Desk) -> None:
    any_desk.configure(hook={"schedule": [0.001, 0.001]})
    any_desk.server.says("/", answer(503, b'{"busy":true}', [("X-Node", "7")]))
    job = any_desk.app.enqueue("hook", {})
    any_desk.deliver()
    assert finished(job) is State.DEAD
    first, second, third = any_desk.records(job)
    assert [one.attempt for one in (first, second, third)] == [1, 2, 3]
    assert (third.status, third.outcome, third.reason) == (503, "again", "answered 503 Service Unavailable")
    assert (third.answer, dict(third.headers)["x-node"]) == ('{"busy":true}', "7")
    assert (first.answer, first.headers) == ('{"busy":true}', ())
    assert third.address == f"127.0.0.1:{any_desk.server.port}"
    assert third.elapsed > 0
    assert note(job)["message"] == "answered 503 Service Unavailable; after 3 attempts no other follows"


def test_what_was_sent_and_not_answered_is_said_to_be_maybe_delivered(desk: Desk) -> None:
    desk.configure(hook={"schedule": ["1h"]})
    desk.server.says("/", end_before_answer)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().failures == 1)
    (record,) = desk.records(job)
    assert record.maybe
    assert "maybe delivered" in record.reason
    assert "maybe delivered" in note(job)["message"]
    assert job.state is State.SCHEDULED


def test_an_answer_that_breaks_off_behind_its_head_has_delivered(any_desk: Desk) -> None:
    any_desk.configure(hook={})
    any_desk.server.says("/", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Line.reset))
    jobs = [any_desk.app.enqueue("hook", {}) for _ in range(10)]
    any_desk.deliver()
    assert {finished(job) for job in jobs} == {State.DONE}
    result = jobs[0].result()
    assert (result["status"], result["reason"]) == (200, "answered 200 OK; the answer was cut off in its body")


def test_a_timeout_counts_as_an_attempt(desk: Desk) -> None:
    desk.configure(hook={"schedule": ["1h"], "timeout": 0.3})
    desk.server.says("/", hang)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().failures == 1)
    assert "no answer within" in note(job)["message"]


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "answered 404 Not Found"), (301, "answered 301 Moved Permanently")],
)
def test_what_no_attempt_can_change_is_final(desk: Desk, status: int, said: str) -> None:
    desk.configure(hook={})
    desk.server.says("/", answer(status))
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    assert finished(job) is State.DEAD
    assert said in note(job)["message"]
    assert len(desk.server.seen) == 1
    assert [one.outcome for one in desk.records(job)] == ["final"]


def test_a_body_that_lacks_what_the_url_needs_is_dead_at_once(desk: Desk) -> None:
    desk.configure(hook={"url": "/orders/{order}"})
    lacking = desk.app.enqueue("hook", {"id": 7})
    desk.app.http.load()
    desk.app.client.tasks = {}
    (broken,) = desk.app.client.put([desk.app.client.job("hook", b"no json")])
    desk.deliver()
    assert finished(lacking) is State.DEAD
    assert note(lacking)["message"] == "{order}: the body has no order there"
    assert finished(broken) is State.DEAD
    assert "the body is no JSON" in note(broken)["message"]
    assert not desk.server.seen


def test_a_rule_decides_on_the_answer(desk: Desk) -> None:
    desk.configure(hook={"retry_when": "res.code != 200", "schedule": [0.001] * 3})
    answers = iter([b'{"code":1}', b"", b'{"code":200}'])

    async def script(line: Any) -> None:
        await answer(200, next(answers))(line)

    desk.server.says("/", script)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    assert finished(job) is State.DONE
    assert job.result()["attempt"] == 3
    assert [one.reason.partition("; ")[2] for one in desk.records(job)] == [
        "the rule says so: res.code != 200",
        "the answer is empty, and the rule needs it: res.code != 200",
    ]


def test_a_retry_after_is_obeyed(desk: Desk) -> None:
    desk.configure(hook={"schedule": [0.001]})
    desk.server.says("/", answer(429, headers=[("Retry-After", "100")]))
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().failures == 1)
    now = desk.app.client.clock.now()
    assert 90 * SECOND < desk.job(job).due - now <= 100 * SECOND


def test_until_counts_from_the_first_due_time(desk: Desk) -> None:
    desk.configure(hook={"schedule": ["10s"], "until": "5s"})
    desk.server.says("/", answer(500))
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    assert finished(job) is State.DEAD
    assert note(job)["message"].endswith("after 1 attempts no other follows")
    assert job.retry()
    until(lambda: len(desk.server.seen) == 2)
    assert finished(job) is State.DEAD, "begun anew, it counts from then"


def test_a_secret_that_this_worker_lacks_uses_up_no_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    desk.configure(hook={"secret": "env:HOOK_SECRET"})
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().epoch and job.state is State.SCHEDULED)
    assert desk.job(job).failures == 0
    assert not desk.server.seen


def test_a_rule_that_this_worker_cannot_ask_sends_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.configure()
    desk.store().write("task:hook", json.dumps(desk.settings(retry_when="res.")).encode(), None)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().epoch and job.state is State.SCHEDULED)
    assert (desk.job(job).failures, desk.server.seen) == (0, [])
    assert "hook: nothing was sent: retry_when: " in caplog.text


def test_a_long_answer_is_kept_in_part_and_fails_nothing(desk: Desk) -> None:
    desk.configure(hook={})
    desk.server.says("/", answer(200, b"\x01" * 60_000))
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    assert finished(job) is State.DONE
    result = job.result()
    assert result["cut"]
    assert 1000 < len(result["answer"]) < 9000


def test_it_works_without_a_master(desk: Desk) -> None:
    desk.configure(hook={})
    job = desk.app.enqueue("hook", {"a": 1})
    assert desk.app.drain() == 1
    assert job.result()["status"] == 200
    with desk.app.running():
        assert desk.app.enqueue("hook", {"a": 2}).result(15)["status"] == 200
