"""Cancelling a job in each of its states, and whether it was ever sent."""

import json
import socket
import threading

import pytest

from tarry import State
from tarry.errors import JobCancelled, JobNotFound
from tarry.push.delivery.cancel import BEFORE, MAYBE, NEVER, UNKNOWN
from tarry.store.conformance.cases.jobs import taken
from tests.push.fixture import DeliveryFixture
from tests.push.server import Connection, answer, end_before_answer, hang
from tests.worker.bench import finished, note, until


@pytest.mark.parametrize("delay", [0, 100])
def test_one_that_waits_is_never_sent(any_delivery: DeliveryFixture, delay: int) -> None:
    any_delivery.configure(hook={"delay": delay})
    job = any_delivery.app.enqueue("hook", {})
    came = any_delivery.app.http.cancel(job.id, "changed my mind")
    assert (came.cancelled, came.sent, came.said) == (True, False, NEVER)
    assert note(job)["message"] == f"changed my mind; {NEVER}"
    with pytest.raises(JobCancelled, match=f"was cancelled: changed my mind; {NEVER}"):
        job.result(0)


def test_a_plain_cancel_says_it_in_the_record(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"delay": 100})
    job = delivery.app.enqueue("hook", {})
    assert job.cancel()
    assert note(job)["message"] == NEVER


def test_one_that_connects_is_never_sent(any_delivery: DeliveryFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(15)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/"
        any_delivery.configure(hook={"url": url, "connect_timeout": 20, "timeout": 30})
        job = any_delivery.app.enqueue("hook", {})
        any_delivery.deliver()
        with listening.accept()[0]:  # and no TLS follows
            came = any_delivery.app.http.cancel(job.id)
            assert (came.cancelled, came.sent, came.said) == (True, False, NEVER)
    assert (note(job)["message"], json.loads(job.record().note)["sent"]) == (NEVER, False)


def test_one_that_was_sent_and_is_not_answered_is_maybe_delivered(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={})
    any_delivery.server.says("/", hang)
    job = any_delivery.app.enqueue("hook", {})
    any_delivery.deliver()
    until(lambda: any_delivery.server.seen)
    came = any_delivery.app.http.cancel(job.id, "too late")
    assert (came.cancelled, came.sent, came.said) == (True, True, MAYBE)
    assert note(job)["message"] == f"too late; {MAYBE}"


def test_an_answer_that_comes_as_it_is_cancelled_is_told(
    delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not hear of the cancel before."""
    delivery.configure(hook={})
    gate = threading.Event()

    async def script(line: Connection) -> None:
        store.wake_for_recall = lambda: None  # type: ignore[method-assign]
        assert job.cancel()
        gate.set()
        await answer(200)(line)

    store = delivery.app.client.store
    delivery.server.says("/", script)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert gate.wait(15)
    until(lambda: json.loads(job.record().note).get("sent"))
    assert (job.state, note(job)["message"]) == (State.CANCELLED, MAYBE)


def test_one_of_which_an_attempt_was_sent_before_says_so(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": ["1h"]})
    delivery.server.says("/", end_before_answer)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().failures)
    came = delivery.app.http.cancel(job.id)
    assert (came.cancelled, came.sent, came.said) == (True, True, BEFORE)


def test_one_that_was_never_reached_says_so(delivery: DeliveryFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    delivery.configure(hook={"url": url, "schedule": ["1h"]})
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    until(lambda: job.record().failures)
    assert delivery.app.http.cancel(job.id).said == NEVER


def test_one_that_has_ended_stays_as_it_is(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    done, dead = delivery.app.enqueue("hook", {}), delivery.app.enqueue("hook", {"no": "more"})
    delivery.server.says("/", answer(200))
    delivery.deliver()
    assert finished(done) is State.DONE
    came = delivery.app.http.cancel(done.id)
    assert (came.cancelled, came.sent, came.said) == (False, True, "it is done already: delivered")
    assert finished(dead)
    with pytest.raises(JobNotFound):
        delivery.app.http.cancel("no id")


def test_a_worker_that_does_not_say_is_not_waited_for(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    job = delivery.app.enqueue("hook", {})
    delivery.app.http.load()
    taken(delivery.store(), now=delivery.app.client.clock.now())
    came = delivery.app.http.cancel(job.id, timeout=0.1)
    assert (came.cancelled, came.sent, came.said) == (True, None, UNKNOWN)


def test_one_that_goes_back_with_its_worker_keeps_that_it_was_sent(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    delivery.server.says("/", hang)
    job = delivery.app.enqueue("hook", {})
    worker = delivery.deliver()
    until(lambda: delivery.server.seen)
    delivery.server.says("/", answer(200))
    worker.pump.interrupt_all()
    assert finished(job) is State.DONE
    assert (delivery.records(job)[0].maybe, delivery.records(job)[0].reason) == (
        True,
        "broken off here before an answer came; maybe delivered",
    )
