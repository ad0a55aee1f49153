"""HTTP tasks in a test: nothing goes out, and what comes back is for the test to say."""

from pathlib import Path
from typing import Any

import pytest

from tarry import App, State
from tarry.config.config import Config
from tarry.model.duration import MINUTE
from tarry.push.http.sign import Signer
from tarry.testing import Jobs, Reply, Sent

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://shop.example/orders/{order}"


def app_with(directory: Path, **settings: Any) -> App:
    app = App("sqlite:////nowhere/at/all.db", closures=True)
    app.configure(Config(tasks={"order.timeout": {"url": URL, **settings}}, directory=directory))
    return app


def test_it_is_delivered_nowhere_and_answered_with_200(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path, delay="10m", secret=SECRET, headers={"X-Key": "k"})
    job = app.enqueue("order.timeout", {"order": 7})
    jobs.assert_enqueued("order.timeout", {"order": 7}, delay="10m", count=1)
    jobs.assert_enqueued("order.timeout", order=7)
    jobs.assert_not_enqueued("order.timeout", {"order": 8})
    assert jobs.drain() == 0
    jobs.advance("10m")
    assert jobs.drain() == 1
    assert (job.state, job.result()["status"]) == (State.DONE, 200)
    (sent,) = jobs.sent("order.timeout")
    assert (sent.method, sent.url, sent.json) == ("POST", "https://shop.example/orders/7", {"order": 7})
    assert (sent.headers["x-key"], sent.headers["webhook-id"]) == ("k", job.id)
    signature = Signer([SECRET]).signature(job.id, int(sent.headers["webhook-timestamp"]), sent.body)
    assert sent.headers["webhook-signature"] == signature
    assert jobs.sent("other") == []


def test_answers_are_given_one_after_the_other(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path)
    jobs.answers["order.timeout"] = 503, None, 200
    job = app.enqueue("order.timeout", {"order": 7})
    jobs.drain()
    assert (job.state, job.record().due - jobs._backend.time.time) == (State.SCHEDULED, MINUTE)
    jobs.advance("1m")
    jobs.drain()
    assert "maybe delivered" in str(job.record().note)
    jobs.advance("3m")
    jobs.drain()
    assert job.state is State.DONE
    assert [sent.headers["tarry-attempt"] for sent in jobs.sent()] == ["1", "2", "3"]


def test_a_function_answers_and_a_rule_decides(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path, retry_when="res.code != 200", schedule=["1m"])

    def answer(sent: Sent) -> Reply:
        return Reply(json={"code": 200 if sent.json["order"] == 7 else 1})

    jobs.answers["order.timeout"] = answer
    good, bad = (app.enqueue("order.timeout", {"order": order}) for order in (7, 8))
    jobs.drain()
    assert (good.state, bad.state) == (State.DONE, State.SCHEDULED)
    jobs.advance("1m")
    jobs.drain()
    assert bad.state is State.DEAD


def test_410_disables_it_for_the_test_alone(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path, url="https://shop.example/orders")  # no placeholder: it is gone for every job
    jobs.answers["order.timeout"] = 410
    job = app.enqueue("order.timeout", {"order": 7})
    jobs.drain()
    jobs.advance("1h")
    jobs.drain()
    assert (job.state.finished, len(jobs.sent())) == (False, 1)
    assert not app.http.endpoints["order.timeout"].enabled


def test_a_retry_after_and_an_order_are_kept(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path, order="{order}")
    jobs.answers["order.timeout"] = Reply(429, headers={"Retry-After": "600"}), 200
    first, second = (app.enqueue("order.timeout", {"order": 7, "n": n}) for n in (1, 2))
    jobs.drain()
    assert not second.state.finished
    jobs.advance("10m")
    jobs.drain()
    jobs.advance("1s")
    jobs.drain()
    assert (first.state, second.state) == (State.DONE, State.DONE)
    assert [sent.json["n"] for sent in jobs.sent()] == [1, 1, 2]


def test_inline_awaited_and_by_workers_too(jobs: Jobs, tmp_path: Path) -> None:
    app = app_with(tmp_path)
    with jobs.inline():
        assert app.enqueue("order.timeout", {"order": 1}).result()["status"] == 200
    with app.running():
        assert app.enqueue("order.timeout", {"order": 2}).result(15)["status"] == 200
    assert [sent.json["order"] for sent in jobs.sent()] == [1, 2]


@pytest.mark.parametrize("said", [20, "200", True, 3.5, [200, "no"], []])
def test_what_is_no_answer_is_refused(jobs: Jobs, said: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"answers\['hook'\]: "):
        jobs.answers["hook"] = said
