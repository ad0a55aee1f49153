"""What wakes a pump that expects something, instead of sleeping."""

import threading
import time

import pytest

from tarry.model.outcome import Returned
from tarry.worker.run.runner import OutcomeQueue
from tests.worker.manual_pump import MakePump

LONG = 30.0


def asleep() -> None:
    pytest.fail("nobody sleeps here")


def wake_when_expected(outcomes: OutcomeQueue) -> None:
    while not outcomes._is_expected:
        time.sleep(0)
    outcomes.wake()


def test_whoever_is_woken_while_it_expects_an_end_is_told() -> None:
    """A report of progress wakes by the same call: the pump must not sleep then as if nothing had come."""
    outcomes = OutcomeQueue(asleep)
    assert not outcomes.expect(0.0)
    waker = threading.Thread(target=wake_when_expected, args=(outcomes,))
    waker.start()
    assert outcomes.expect(LONG)
    waker.join(LONG)


def test_what_is_there_already_is_not_waited_for(make: MakePump) -> None:
    outcomes = OutcomeQueue(asleep)
    assert outcomes.expect(LONG, lambda: True)
    manual = make()
    manual.insert()
    manual.turns()
    outcomes.add(manual.sync.on[0], Returned(b"1"), hurry=False)
    assert outcomes.expect(LONG)


def test_ends_are_gathered_until_all_have_come(make: MakePump) -> None:
    outcomes, manual = OutcomeQueue(asleep), make(threads=2)
    manual.insert(2)
    manual.turns()
    one, other = manual.sync.on

    def end_both() -> None:
        while not outcomes._enough:
            time.sleep(0)
        outcomes.add(one, Returned(b"1"), hurry=True)
        outcomes.add(other, Returned(b"1"), hurry=False)

    ender = threading.Thread(target=end_both)
    ender.start()
    outcomes.gather(2, LONG)
    assert len(outcomes.ended) == 2
    ender.join(LONG)
    outcomes.gather(2, LONG)


def test_ends_are_not_gathered_for_long() -> None:
    outcomes = OutcomeQueue(asleep)
    outcomes.gather(1, 0.001)
    assert not outcomes.ended
    assert not outcomes.expect(0.0)
