import threading
from collections.abc import Callable, Iterator

import pytest

from tarry.cli.top.dashboard import SLOW, Poller
from tarry.errors import StoreUnavailable
from tests.cli.project import until


class FakeSource:
    """Sees numbers; may be blind or slow."""

    def __init__(self) -> None:
        self.polls = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.at_once, self.most_at_once, self.closed = 0, 0, False

    def look(self) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.polls += 1
        self.gate.wait(10)
        self.at_once -= 1
        if self.error:
            raise self.error
        return self.polls

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


StartPoller = Callable[..., Poller[int]]


@pytest.fixture
def start_poller(source: FakeSource) -> Iterator[StartPoller]:
    pollers: list[Poller[int]] = []

    def start(interval: float = 0.01) -> Poller[int]:
        pollers.append(Poller(source, interval, lambda: None, 3.0))
        pollers[-1].start()
        return pollers[-1]

    yield start
    source.gate.set()
    for poller in pollers:
        poller.close(10)


def test_it_looks_again_and_again(source: FakeSource, start_poller: StartPoller) -> None:
    poller = start_poller()
    until(lambda: (poller.answer or 0) > 3)
    assert poller.problem(0.0) == ("", 0.0)


def test_trouble_is_told_and_the_last_answer_stays(source: FakeSource, start_poller: StartPoller) -> None:
    poller = start_poller()
    until(lambda: poller.answer)
    source.error = StoreUnavailable("gone fishing")
    until(lambda: poller.trouble)
    assert poller.trouble == "gone fishing"
    assert poller.answer
    source.error = None
    until(lambda: not poller.trouble)


def test_an_error_that_nobody_foresaw_is_trouble_too(source: FakeSource, start_poller: StartPoller) -> None:
    source.error = ZeroDivisionError()
    poller = start_poller()
    until(lambda: poller.trouble == "ZeroDivisionError")
    source.error = None
    until(lambda: poller.answer)


def test_a_look_that_hangs_is_told_of_and_is_the_only_one(source: FakeSource, start_poller: StartPoller) -> None:
    source.gate.clear()
    poller = start_poller()
    until(lambda: source.polls)
    poller.poll_now()
    why, seconds = poller.problem(1e12)
    assert why == "it does not answer"
    assert seconds > SLOW
    source.gate.set()
    until(lambda: source.polls > 2)
    assert source.most_at_once == 1


def test_it_rests_longer_than_a_look_takes(source: FakeSource) -> None:
    poller = Poller(source, 0.01, lambda: None, 3.0)
    poller.took = 5.0
    assert poller._pause() == 15.0
    poller.took = 500.0
    assert poller._pause() == 60.0


def test_closed_it_gives_back_what_it_holds(source: FakeSource, start_poller: StartPoller) -> None:
    poller = start_poller(3600)
    until(lambda: poller.answer)
    poller.close(10)
    assert source.closed


def test_one_that_hangs_is_not_waited_for(source: FakeSource, start_poller: StartPoller) -> None:
    source.gate.clear()
    poller = start_poller()
    until(lambda: source.polls)
    poller.close(0.01)
    assert not source.closed
