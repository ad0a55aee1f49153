"""Jobs of HTTP tasks: what is sent, the outcome, and the records."""

import json
import time
from typing import Any

import pytest

from tarry import State
from tarry.errors import ArgumentError
from tarry.model.duration import MINUTE, SECOND
from tarry.push.delivery.http_task import DUE
from tarry.push.http.sign import Signer
from tests.push.fixture import DeliveryFixture
from tests.push.server import Connection, answer, end_before_answer, hang, raw
from tests.worker.bench import finished, note, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_object_that_was_enqueued_is_what_arrives(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={"url": "/orders/{order}"})
    job = any_delivery.app.enqueue("hook", {"order": 7, "name": "Zoë"})
    any_delivery.deliver()
    assert finished(job) is State.DONE
    (seen,) = any_delivery.server.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/orders/7", '{"order":7,"name":"Zoë"}'.encode())
    assert seen.header("content-type") == "application/json"
    assert (seen.header("webhook-id"), seen.header("idempotency-key")) == (job.id, f'"{job.id}"')
    assert (seen.header("tarry-attempt"), seen.header("webhook-signature")) == ("1", None)
    result = job.result()
    assert (result["status"], result["answer"], result["outcome"]) == (200, "ok", "delivered")
    assert result["address"] == f"127.0.0.1:{any_delivery.server.port}"


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
def test_whatever_json_it_is(delivery: DeliveryFixture, args: Any, kwargs: Any, sent: bytes) -> None:
    delivery.configure(hook={})
    job = delivery.app.enqueue("hook", *args, **kwargs)
    delivery.deliver()
    assert finished(job) is State.DONE
    assert delivery.server.seen[0].body == sent


def test_bytes_of_another_client_go_out_as_they_are(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    delivery.app.http.load()
    body = b' {"order" : 7.0 }'
    (job,) = delivery.app.client.insert_jobs([delivery.app.client.make_job("hook", body)])
    delivery.deliver()
    assert finished(job) is State.DONE
    assert delivery.server.seen[0].body == body


def test_several_values_are_none(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    with pytest.raises(ArgumentError, match="hook: 2 arguments were given; one JSON value is sent"):
        delivery.app.enqueue("hook", 1, 2)
    with pytest.raises(ArgumentError, match="hook: the body cannot travel as JSON"):
        delivery.app.enqueue("hook", {"a": object()})


def test_it_is_signed_anew_at_each_attempt(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"secret": SECRET, "schedule": [0.001], "headers": {"x-key": "k"}})
    delivery.server.says("/", answer(500))
    job = delivery.app.enqueue("hook", {"a": 1})
    delivery.deliver()
    assert finished(job) is State.DEAD
    assert [seen.header("tarry-attempt") for seen in delivery.server.seen] == ["1", "2"]
    for seen in delivery.server.seen:
        timestamp = int(seen.header("webhook-timestamp") or 0)
        assert abs(timestamp - time.time()) < 60
        assert seen.header("webhook-signature") == Signer([SECRET]).signature(job.id, timestamp, b'{"a":1}')
        assert seen.header("x-key") == "k"
    assert len({seen.header("tarry-due") for seen in delivery.server.seen}) == 1


def test_the_task_s_settings_place_its_jobs(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"delay": "10m", "queue": "hooks", "priority": 5, "timeout": 20})
    now = delivery.app.client.clock.now()
    waiting = delivery.job(delivery.app.enqueue("hook", {}))
    assert (waiting.queue, waiting.priority, waiting.state) == ("hooks", 5, State.SCHEDULED)
    assert abs(waiting.due - now - 10 * MINUTE) < 5 * SECOND
    assert json.loads(waiting.headers) == {DUE: str(waiting.due)}
    task = delivery.app.tasks["hook"]
    at_once, many = task.using(delay=0).enqueue({}), task.enqueue_many([({},), ({"a": 1},)])
    assert delivery.job(at_once).due < waiting.due
    assert {delivery.job(job).state for job in many} == {State.SCHEDULED}
    spread = [delivery.job(job) for job in task.enqueue_many([({},), ({},)], over="1h")]
    assert [abs(job.due - now - n * 30 * MINUTE) < 5 * SECOND for n, job in enumerate(spread)] == [True, True]
    assert [json.loads(job.headers) for job in spread] == [{DUE: str(job.due)} for job in spread]


def test_a_delivery_is_put_off_for_so_long_at_most(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"queue": "hooks"})
    put_off = delivery.app.named("hook").using(key="k", delay="10m", on_duplicate="replace", max_delay="1h")
    first = put_off.enqueue({"n": 1})
    latest = delivery.job(first).state_since + 60 * MINUTE
    later = delivery.app.named("hook").using(key="k", delay="2d", on_duplicate="replace").enqueue({"n": 2})
    assert (later.id, later.is_new) == (first.id, False)
    assert (delivery.job(first).due, delivery.job(first).body) == (latest, b'{"n":2}')


def test_each_attempt_is_on_record(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={"schedule": [0.001, 0.001]})
    any_delivery.server.says("/", answer(503, b'{"busy":true}', [("X-Request-Id", "7")]))
    job = any_delivery.app.enqueue("hook", {})
    any_delivery.deliver()
    assert finished(job) is State.DEAD
    first, second, third = any_delivery.records(job)
    assert [one.attempt for one in (first, second, third)] == [1, 2, 3]
    assert (third.status, third.outcome, third.reason) == (503, "again", "answered 503 Service Unavailable")
    assert (third.answer, dict(third.headers)["x-request-id"]) == ('{"busy":true}', "7")
    assert (first.answer, first.headers) == ('{"busy":true}', ())
    assert third.address == f"127.0.0.1:{any_delivery.server.port}"
    assert third.elapsed > 0
    assert note(job)["message"] == "answered 503 Service Unavailable; after 3 attempts no other follows"


def test_what_was_sent_and_not_answered_is_said_to_be_maybe_delivered(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": ["1h"]})
    delivery.server.says("/", end_before_answer)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().failures == 1)
    (record,) = delivery.records(job)
    assert record.maybe
    assert "maybe delivered" in record.reason
    assert "maybe delivered" in note(job)["message"]
    assert job.state is State.SCHEDULED


def test_an_answer_that_breaks_off_behind_its_head_has_delivered(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={})
    any_delivery.server.says("/", raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Connection.reset))
    jobs = [any_delivery.app.enqueue("hook", {}) for _ in range(10)]
    any_delivery.deliver()
    assert {finished(job) for job in jobs} == {State.DONE}
    result = jobs[0].result()
    assert (result["status"], result["reason"]) == (200, "answered 200 OK; the answer was cut off in its body")


def test_a_timeout_counts_as_an_attempt(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": ["1h"], "timeout": 0.3})
    delivery.server.says("/", hang)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().failures == 1)
    assert "no answer within" in note(job)["message"]


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "answered 404 Not Found"), (301, "answered 301 Moved Permanently")],
)
def test_what_no_attempt_can_change_is_final(delivery: DeliveryFixture, status: int, said: str) -> None:
    delivery.configure(hook={})
    delivery.server.says("/", answer(status))
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DEAD
    assert said in note(job)["message"]
    assert len(delivery.server.seen) == 1
    assert [one.outcome for one in delivery.records(job)] == ["final"]


def test_a_body_that_lacks_what_the_url_needs_is_dead_at_once(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"url": "/orders/{order}"})
    lacking = delivery.app.enqueue("hook", {"id": 7})
    delivery.app.http.load()
    delivery.app.client.factory.tasks = {}
    (broken,) = delivery.app.client.insert_jobs([delivery.app.client.make_job("hook", b"no json")])
    delivery.deliver()
    assert finished(lacking) is State.DEAD
    assert note(lacking)["message"] == "{order}: the body has no order there"
    assert finished(broken) is State.DEAD
    assert "the body is no JSON" in note(broken)["message"]
    assert not delivery.server.seen


def test_a_rule_decides_on_the_answer(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"retry_when": "res.code != 200", "schedule": [0.001] * 3})
    answers = iter([b'{"code":1}', b"", b'{"code":200}'])

    async def script(line: Any) -> None:
        await answer(200, next(answers))(line)

    delivery.server.says("/", script)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DONE
    assert job.result()["attempt"] == 3
    assert [one.reason.partition("; ")[2] for one in delivery.records(job)] == [
        "the rule says so: res.code != 200",
        "the answer is empty, and the rule needs it: res.code != 200",
    ]


def test_a_retry_after_is_obeyed(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": [0.001]})
    delivery.server.says("/", answer(429, headers=[("Retry-After", "100")]))
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().failures == 1)
    now = delivery.app.client.clock.now()
    assert 90 * SECOND < delivery.job(job).due - now <= 100 * SECOND


def test_until_counts_from_the_first_due_time(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": ["10s"], "until": "5s"})
    delivery.server.says("/", answer(500))
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DEAD
    assert note(job)["message"].endswith("after 1 attempts no other follows")
    assert job.retry()
    until(lambda: len(delivery.server.seen) == 2)
    assert finished(job) is State.DEAD, "begun anew, it counts from then"


def test_a_secret_that_this_worker_lacks_uses_up_no_attempt(
    delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_SECRET", raising=False)
    delivery.configure(hook={"secret": "env:HOOK_SECRET"})
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().epoch and job.state is State.SCHEDULED)
    assert delivery.job(job).failures == 0
    assert not delivery.server.seen


def test_a_rule_that_this_worker_cannot_ask_sends_nothing(
    delivery: DeliveryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.configure()
    delivery.store().kv_cas("task:hook", json.dumps(delivery.settings(retry_when="res.")).encode(), None)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().epoch and job.state is State.SCHEDULED)
    assert (delivery.job(job).failures, delivery.server.seen) == (0, [])
    assert "hook: nothing was sent: retry_when: " in caplog.text


def test_a_long_answer_is_kept_in_part_and_fails_nothing(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    delivery.server.says("/", answer(200, b"\x01" * 60_000))
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DONE
    result = job.result()
    assert result["cut"]
    assert 1000 < len(result["answer"]) < 9000


def test_it_works_without_a_master(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    job = delivery.app.enqueue("hook", {"a": 1})
    assert delivery.app.drain() == 1
    assert job.result()["status"] == 200
    with delivery.app.running():
        assert delivery.app.enqueue("hook", {"a": 2}).result(15)["status"] == 200
