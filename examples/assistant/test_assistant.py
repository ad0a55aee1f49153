"""The conversations, as a reader would test their own."""

import pytest

from examples.assistant import model
from examples.assistant.app import answer, app
from examples.assistant.model import Reply
from tarry.testing import Jobs


def test_the_money_goes_back_once_a_person_agrees(jobs: Jobs) -> None:
    job = answer.enqueue("ann", "My order 7 arrived broken!")
    jobs.drain()
    assert job.state == "scheduled", "it waits for a person, and holds no slot"
    app.approve("refund", key=job.id, by="bob")
    jobs.drain()
    assert job.result().startswith("We are sorry. order 7: 42 euro go back")


def test_nobody_agrees(jobs: Jobs) -> None:
    refused, silent = answer.enqueue_many([("ann", "order 7?"), ("bob", "order 8?")])
    jobs.drain()
    app.approve("refund", key=refused.id, by="bob", ok=False)
    jobs.drain()
    jobs.advance("1d")
    jobs.drain()
    assert [refused.result(), silent.result()] == ["A colleague will write to you."] * 2


def test_a_crash_does_not_ask_the_model_again(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(messages: list[str]) -> Reply:
        asked.append(len(messages))
        return model.ask(messages)

    monkeypatch.setattr("examples.assistant.app.ask", ask)
    jobs.kill_worker_during(answer)
    job = answer.enqueue("ann", "Where is my parcel?")
    jobs.drain()
    assert job.result() == "Which order is it?"
    assert asked == [1]
