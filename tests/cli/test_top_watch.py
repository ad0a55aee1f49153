import threading
from collections.abc import Callable, Iterator

import pytest

from tarry.cli.top.poller import SLOW, Watch
from tarry.errors import StoreUnavailable
from tests.cli.place import until


class Eye:
    """Sees numbers; may be blind or slow."""

    def __init__(self) -> None:
        self.looks = 0
        self.blind: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.at_once, self.most_at_once, self.closed = 0, 0, False

    def look(self) -> int:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.looks += 1
        self.gate.wait(10)
        self.at_once -= 1
        if self.blind:
            raise self.blind
        return self.looks

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def eye() -> Eye:
    return Eye()


Watching = Callable[..., Watch[int]]


@pytest.fixture
def watching(eye: Eye) -> Iterator[Watching]:
    made: list[Watch[int]] = []

    def start(interval: float = 0.01) -> Watch[int]:
        made.append(Watch(eye, interval, lambda: None, 3.0))
        made[-1].start()
        return made[-1]

    yield start
    eye.gate.set()
    for watch in made:
        watch.close(10)


def test_it_looks_again_and_again(eye: Eye, watching: Watching) -> None:
    watch = watching()
    until(lambda: (watch.answer or 0) > 3)
    assert watch.told(0.0) == ("", 0.0)


def test_trouble_is_told_and_the_last_answer_stays(eye: Eye, watching: Watching) -> None:
    watch = watching()
    until(lambda: watch.answer)
    eye.blind = StoreUnavailable("gone fishing")
    until(lambda: watch.trouble)
    assert watch.trouble == "gone fishing"
    assert watch.answer
    eye.blind = None
    until(lambda: not watch.trouble)


def test_an_error_that_nobody_foresaw_is_trouble_too(eye: Eye, watching: Watching) -> None:
    eye.blind = ZeroDivisionError()
    watch = watching()
    until(lambda: watch.trouble == "ZeroDivisionError")
    eye.blind = None
    until(lambda: watch.answer)


def test_a_look_that_hangs_is_told_of_and_is_the_only_one(eye: Eye, watching: Watching) -> None:
    eye.gate.clear()
    watch = watching()
    until(lambda: eye.looks)
    watch.soon()
    why, seconds = watch.told(1e12)
    assert why == "it does not answer"
    assert seconds > SLOW
    eye.gate.set()
    until(lambda: eye.looks > 2)
    assert eye.most_at_once == 1


def test_it_rests_longer_than_a_look_takes(eye: Eye) -> None:
    watch = Watch(eye, 0.01, lambda: None, 3.0)
    watch.took = 5.0
    assert watch._pause() == 15.0
    watch.took = 500.0
    assert watch._pause() == 60.0


def test_closed_it_gives_back_what_it_holds(eye: Eye, watching: Watching) -> None:
    watch = watching(3600)
    until(lambda: watch.answer)
    watch.close(10)
    assert eye.closed


def test_one_that_hangs_is_not_waited_for(eye: Eye, watching: Watching) -> None:
    eye.gate.clear()
    watch = watching()
    until(lambda: eye.looks)
    watch.close(0.01)
    assert not eye.closed
