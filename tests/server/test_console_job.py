"""The page of a job: its course, its arguments, its call as code."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from tarry import App
from tarry.client.job_records import JobAttempt, job_record
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.model.moving import NEVER
from tarry.operate.jobs import JobAnswer
from tarry.push.delivery.delivery_record import AttemptRecord
from tarry.server.console.views.code import MOST_CODE, curl_call, python_call
from tarry.server.console.views.job_course import (
    JobMoment,
    ShownAttempt,
    deliveries,
    moments,
    shown_attempts,
    state_steps,
)
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Want
from tarry.store.rules.ids import uuid7
from tarry.tasks.arguments.masking import name_arguments
from tests.server.http.calling import page

AT = AttemptRecord(1, "2026-11-24T16:00:00.000Z", "again", "503")


def job(
    state: State = State.READY, later: float = 0, more_attempts: Sequence[JobAttempt] = (), **more: Any
) -> JobAnswer:
    made = Job(uuid7(), "mail", b'["ann"]', state=state, state_since=7 * SECOND, **more)
    record = job_record(made)
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return JobAnswer(
        **{**fields, "due": record.created + later},
        output=None,
        deliveries=[],
        attempts=list(more_attempts),
        attempts_left_out=0,
        acts=[],
        flow=None,
        steps=[],
        version="",
    )


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        (job(), "ready! running done"),
        (job(State.BLOCKED), "blocked! ready running done"),
        (job(State.SCHEDULED, 60), "scheduled! ready running done"),
        (job(State.SCHEDULED, 60, failures=1, epoch=1), "scheduled! ready* running* done"),
        (job(State.RUNNING, epoch=1), "ready* running! done"),
        (job(State.DONE, 60, epoch=1), "scheduled* ready* running* done!"),
        (job(State.DEAD, epoch=2, failures=2), "scheduled* ready* running* dead!"),
        # Nobody knows whether it was ready before it was cancelled.
        (job(State.CANCELLED), "cancelled!"),
    ],
)
def test_the_states_that_a_job_has_surely_passed_are_marked(seen: JobAnswer, steps: str) -> None:
    marks = {"was": "*", "now": "!", "next": ""}
    assert " ".join(f"{step.state}{marks[step.kind]}" for step in state_steps(seen)) == steps


def test_a_job_that_waits_for_a_signal_without_end_is_due_at_no_time() -> None:
    seen = job(State.SCHEDULED, NEVER / SECOND)
    assert [each.kind for each in moments(seen, [])] == ["put", "scheduled"]


def test_what_happened_is_told_in_order() -> None:
    seen = job(State.SCHEDULED, 60, failures=4, crashes=1, expires=9 * SECOND)
    sent = ShownAttempt(None, AT)
    assert list(moments(seen, [sent])) == [
        JobMoment("put", seen.created),
        JobMoment("attempt", 1795536000.0, attempt=sent),
        JobMoment("failed", count=2),
        JobMoment("lost", count=1),
        JobMoment("scheduled", 7),
        JobMoment("due", seen.due),
        JobMoment("expires", 9),
    ]
    assert [one.kind for one in moments(job(State.DONE), [])] == ["put", "done"]


def attempt(number: int, outcome: str, started: float = 1795536000.0, **more: Any) -> JobAttempt:
    fields: dict[str, Any] = {
        "ended": started + 2,
        "worker": "here|1:2:3:1",
        "host": "here",
        "error": "",
        "epoch": number,
    }
    return JobAttempt(attempt=number, outcome=outcome, started=started, **(fields | more))


def test_attempts_and_deliveries_are_one_list() -> None:
    """After a retry by hand the numbers begin again; an attempt that was not sent has no delivery."""
    old = AttemptRecord(1, "2026-11-24T15:00:00.000Z", "final", "410", elapsed=1.0)
    first, second = attempt(1, "failed", error="E: 503"), attempt(2, "interrupted")
    seen = job(State.SCHEDULED, 60, [first, second], failures=1, epoch=3)
    listed = shown_attempts(seen, [old, AT])
    assert listed == [ShownAttempt(None, old), ShownAttempt(first, AT), ShownAttempt(second)]
    assert [(one.number, one.outcome, one.kind, one.took, one.reason) for one in listed] == [
        (1, "final", "bad", 1.0, "410"),
        (1, "again", "bad", 2.0, "503"),
        (2, "interrupted", "", 2.0, ""),
    ]
    assert [one.kind for one in moments(seen, listed)] == ["put", "attempt", "attempt", "attempt", "scheduled", "due"]


def test_each_state_has_its_time() -> None:
    seen = job(State.DONE, 60, [attempt(1, "failed"), attempt(2, "done")], failures=1, epoch=2)
    assert [(step.state, step.since) for step in state_steps(seen)] == [
        (State.SCHEDULED, 1795536002.0),
        (State.READY, seen.due),
        (State.RUNNING, 1795536000.0),
        (State.DONE, 7),
    ]


def test_the_exchange_that_delivered_is_among_the_deliveries() -> None:
    note = b'{"attempt": 2, "at": "2026-11-24T16:01:00.000Z", "outcome": "delivered", "reason": ""}'
    assert [one.outcome for one in deliveries(job(State.DONE, note=note))] == ["delivered"]
    assert deliveries(job(State.DONE, note=b'"by hand"')) == []
    assert deliveries(job(State.DEAD, note=note)) == []


def test_arguments_by_position_get_their_names() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task
    def mail(to: str, password: str = "") -> None: ...

    assert name_arguments(mail, ["ann", "x"]) == {"to": "ann", "password": "x"}
    assert name_arguments(mail, ["ann"]) == {"to": "ann"}
    assert name_arguments(mail, ["ann", "x", "more"]) == ["ann", "x", "more"]
    assert name_arguments(mail, {"to": "ann"}) == {"to": "ann"}


def test_the_command_puts_the_same_job() -> None:
    seen = job(key="k's", priority=3, queue="mails")
    words = shlex.split(curl_call(seen, {"to": "a'b"}, False, "http://tarry.test/x", False).replace("\\\n", ""))
    assert words[:3] == ["curl", "http://tarry.test/x/v1/jobs", "--json"]
    assert json.loads(words[3]) == {
        "task": "mail",
        "args": {"to": "a'b"},
        "queue": "mails",
        "key": "k's",
        "priority": 3,
    }
    assert "$TARRY_TOKEN" in curl_call(seen, [], False, "http://tarry.test", True)
    assert '"body": [7]' in curl_call(seen, [7], True, "http://tarry.test", False)


@pytest.mark.parametrize(
    ("arguments", "is_http", "call"),
    [
        (["ann", None], False, "enqueue('ann', None)"),
        ({"to": "ann", "at": 7}, False, "enqueue(to='ann', at=7)"),
        ({"to-whom": 1}, False, "enqueue(**{'to-whom': 1})"),
        ({"order": 7}, True, "enqueue({'order': 7})"),
        (None, True, "enqueue(None)"),
    ],
)
def test_the_call_in_python(arguments: Any, is_http: bool, call: str) -> None:
    assert python_call(job(), arguments, is_http) == f"app.named('mail').using(queue='default').{call}"


def test_a_call_that_is_too_long_is_cut() -> None:
    text = python_call(job(), ["x" * (MOST_CODE + 1000)], False)
    assert len(text) < MOST_CODE + 50
    assert text.endswith("characters more")


def test_the_page_tells_why_the_job_waits_and_hides_secrets() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail", queue="mails")
    def mail(to: str, password: str = "") -> None: ...

    app.client.store.limit("queue:mails", Limit(1))
    first, second = mail.enqueue("ann"), mail.enqueue("bob", "hunter2")
    app.client.store.claim([Want("mails", 0, 1)], 1, "somebody", 60 * SECOND, app.client.clock.now())
    text = page(app, f"/jobs/{second.id}")
    assert "Limit queue:mails is reached: 1 of 1 run." in text
    assert f"/jobs/{first.id}/cancel" in text
    assert "hunter2" not in text
    assert "Secrets are hidden here too" in text
    assert "Secrets are hidden here too" not in page(app, f"/jobs/{first.id}")
    assert "&#34;to&#34;: &#34;bob&#34;" in text
