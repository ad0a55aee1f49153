"""A job that is no longer wanted, at each point of its life: whether it was ever sent."""

import json
import socket
import threading

import pytest

from tarry import State
from tarry.errors import JobCancelled, JobNotFound
from tarry.push.delivery.cancel import BEFORE, MAYBE, NEVER, UNSAID
from tarry.store.conformance.cases import taken
from tests.engine.bench import finished, note, until
from tests.push.fixture import Desk
from tests.push.server import Line, answer, end_before_answer, hang


@pytest.mark.parametrize("delay", [0, 100])
def test_one_that_waits_is_never_sent(any_desk: Desk, delay: int) -> None:
    any_desk.configure(hook={"delay": delay})
    job = any_desk.app.enqueue("hook", {})
    came = any_desk.app.http.withdraw(job.id, "changed my mind")
    assert (came.cancelled, came.sent, came.said) == (True, False, NEVER)
    assert note(job)["message"] == f"changed my mind; {NEVER}"
    with pytest.raises(JobCancelled, match=f"was cancelled: changed my mind; {NEVER}"):
        job.result(0)


def test_a_plain_cancel_says_it_in_the_record(desk: Desk) -> None:
    desk.configure(hook={"delay": 100})
    job = desk.app.enqueue("hook", {})
    assert job.cancel()
    assert note(job)["message"] == NEVER


def test_one_that_connects_is_never_sent(any_desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(15)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/"
        any_desk.configure(hook={"url": url, "connect_timeout": 20, "timeout": 30})
        job = any_desk.app.enqueue("hook", {})
        any_desk.deliver()
        with listening.accept()[0]:  # and no TLS follows
            came = any_desk.app.http.withdraw(job.id)
            assert (came.cancelled, came.sent, came.said) == (True, False, NEVER)
    assert (note(job)["message"], json.loads(job.record().note)["sent"]) == (NEVER, False)


def test_one_that_was_sent_and_is_not_answered_is_maybe_delivered(any_desk: Desk) -> None:
    any_desk.configure(hook={})
    any_desk.server.says("/", hang)
    job = any_desk.app.enqueue("hook", {})
    any_desk.deliver()
    until(lambda: any_desk.server.seen)
    came = any_desk.app.http.withdraw(job.id, "too late")
    assert (came.cancelled, came.sent, came.said) == (True, True, MAYBE)
    assert note(job)["message"] == f"too late; {MAYBE}"


def test_an_answer_that_comes_as_it_is_cancelled_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker does not hear of the cancel before."""
    desk.configure(hook={})
    gate = threading.Event()

    async def script(line: Line) -> None:
        store.ring_recall = lambda: None  # type: ignore[method-assign]
        assert job.cancel()
        gate.set()
        await answer(200)(line)

    store = desk.app.client.store
    desk.server.says("/", script)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    assert gate.wait(15)
    until(lambda: json.loads(job.record().note).get("sent"))
    assert (job.state, note(job)["message"]) == (State.CANCELLED, MAYBE)


def test_one_of_which_an_attempt_was_sent_before_says_so(desk: Desk) -> None:
    desk.configure(hook={"schedule": ["1h"]})
    desk.server.says("/", end_before_answer)
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().failures)
    came = desk.app.http.withdraw(job.id)
    assert (came.cancelled, came.sent, came.said) == (True, True, BEFORE)


def test_one_that_was_never_reached_says_so(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    desk.configure(hook={"url": url, "schedule": ["1h"]})
    job = desk.app.enqueue("hook", {})
    desk.deliver()
    until(lambda: job.record().failures)
    assert desk.app.http.withdraw(job.id).said == NEVER


def test_one_that_has_ended_stays_as_it_is(desk: Desk) -> None:
    desk.configure(hook={})
    done, dead = desk.app.enqueue("hook", {}), desk.app.enqueue("hook", {"no": "more"})
    desk.server.says("/", answer(200))
    desk.deliver()
    assert finished(done) is State.DONE
    came = desk.app.http.withdraw(done.id)
    assert (came.cancelled, came.sent, came.said) == (False, True, "it is done already: delivered")
    assert finished(dead)
    with pytest.raises(JobNotFound):
        desk.app.http.withdraw("no id")


def test_a_worker_that_does_not_say_is_not_waited_for(desk: Desk) -> None:
    desk.configure(hook={})
    job = desk.app.enqueue("hook", {})
    desk.app.http.load()
    taken(desk.store(), now=desk.app.client.clock.now())
    came = desk.app.http.withdraw(job.id, within=0.1)
    assert (came.cancelled, came.sent, came.said) == (True, None, UNSAID)


def test_one_that_goes_back_with_its_worker_keeps_that_it_was_sent(desk: Desk) -> None:
    desk.configure(hook={})
    desk.server.says("/", hang)
    job = desk.app.enqueue("hook", {})
    worker = desk.deliver()
    until(lambda: desk.server.seen)
    desk.server.says("/", answer(200))
    worker.pump.call_back()
    assert finished(job) is State.DONE
    assert (desk.records(job)[0].maybe, desk.records(job)[0].reason) == (
        True,
        "broken off here before an answer came; maybe delivered",
    )
