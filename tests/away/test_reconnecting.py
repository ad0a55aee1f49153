"""A worker whose way to its store breaks at each step of its return: it is back soon, and each job runs once."""

import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.errors import StoreError
from tarry.store.rules.base import Store
from tarry.store.shared import backoff as waits
from tests.away.proxy import Proxy, behind_proxy
from tests.every_store.test_away_calls import SERVERS
from tests.servers.fixtures import empty_server, started
from tests.servers.redis import RedisServer
from tests.worker.bench import Bench, until

MOST = 40
"""Requests and replies of one return, at most."""
JOBS = 5
CUTS: dict[str, Callable[[Proxy, int], None]] = {
    "a reply is lost": Proxy.lose,
    "a request is refused": lambda proxy, number: proxy.end_after(number - 1),
}
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])


def patiently(open_store: Callable[[], Store]) -> Store:
    """The time for an answer is so short that a busy server may not keep it."""
    opened: list[Store] = []

    def is_open() -> bool:
        with contextlib.suppress(StoreError):
            opened.append(open_store())
        return bool(opened)

    until(is_open)
    return opened[0]


class CutWorker:
    """A worker behind a proxy, and an app that reaches the same store without it."""

    def __init__(self, url: str, options: str) -> None:
        through, self.proxy = behind_proxy(url)
        self.runs = Counter[str]()
        self._direct, app = App(url, closures=True), App(through + options, closures=True)
        for one in (self._direct, app):
            one.task(name="run")(self._run)
        self._bench = Bench(app, lambda: patiently(lambda: app.open_store(durable=False)))
        self._worker = self._bench.work(threads=3)

    def _run(self, number: str) -> None:
        self.runs[number] += 1

    def is_back(self) -> bool:
        return not self._worker.pump._exchanger.is_away

    def enqueue(self, *numbers: str) -> None:
        self._direct.tasks["run"].enqueue_many([(number,) for number in numbers])

    def lose_store(self) -> None:
        """Returns once the worker knows that its store is away."""
        self.proxy.refuses()
        self.enqueue(f"{len(self.runs)}, which wakes it")
        until(lambda: not self.is_back())

    def unfinished(self) -> list[str]:
        return [tally.state for tally in self._direct.client.store.counts() if not tally.state.finished]

    def return_cut(self, cut: Callable[[Proxy, int], None], number: int) -> bool:
        """Lets it return until that request or reply; False if all was done before."""
        self.proxy.passes()
        cut(self.proxy, number)
        until(lambda: self.proxy.lost or (self.is_back() and not self.unfinished()))
        return self.proxy.lost

    def close(self) -> None:
        self.proxy.passes()
        self._bench.close()
        self._direct.close()
        self.proxy.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(waits, "LONGEST_PAUSE", 0.02)


@pytest.fixture(params=SERVERS)
def worker(request: pytest.FixtureRequest, quick: None) -> Iterator[CutWorker]:
    worker = CutWorker(empty_server(request, request.param), SERVERS[request.param])
    yield worker
    worker.close()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that has on disk what it has answered."""
    yield from started(RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always"))


def returns(
    worker: CutWorker, cut: Callable[[Proxy, int], None], every: int, amid: Callable[[], None] = lambda: None
) -> int:
    """Cuts each return `every` steps later, until one needs no more steps; at which it was. amid: done at each cut."""
    for number in itertools.count(1, every):
        assert number < MOST, "a return has no end"
        worker.lose_store()
        worker.enqueue(*(f"{number}.{each}" for each in range(JOBS)))
        is_cut = worker.return_cut(cut, number)
        if is_cut:
            amid()
        worker.proxy.passes()
        until(lambda: worker.is_back() and not worker.unfinished())
        if not is_cut:
            break
    assert set(worker.runs.values()) == {1}
    return number


@EVERY
@pytest.mark.parametrize("cut", CUTS)
def test_cut_off_again_at_each_step_of_its_return_it_is_back_soon(
    worker: CutWorker, cut: str, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tarry.worker")
    began = time.monotonic()
    assert returns(worker, CUTS[cut], every) > 2
    assert "the store is back after " in caplog.text
    assert time.monotonic() - began < MOST


@EVERY
@pytest.mark.parametrize("cut", CUTS)
def test_killed_amid_each_step_of_a_return_a_server_has_its_worker_back_soon(
    quick: None, killed: RedisServer, cut: str, every: int
) -> None:
    worker = CutWorker(killed.url, SERVERS["redis"])

    def kill() -> None:
        killed.kill()
        killed.start()

    try:
        assert returns(worker, CUTS[cut], every, kill) > 2
    finally:
        worker.close()
