"""Threads that share a few connections get them in turn, also where the others call without a pause."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tarry.store.opening import open_store
from tarry.store.postgres.link import pool
from tarry.store.rules.base import Store
from tarry.store.shared.fair_condition import FairCondition

CALLS = 3000
"""Of all threads. So many that one that the machine holds up for half a second has its share all the same."""


@pytest.fixture(params=["postgres_url", "mariadb_url"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(pool, "MOST", 4)
    url = request.getfixturevalue(request.param)
    store = open_store(url + ("?connections=4" if request.param == "mariadb_url" else ""))
    yield store
    store.close()


def in_threads(number: int, call: Callable[[], object]) -> list[int]:
    """Calls without a pause in so many threads, `CALLS` times in all; how often each did."""
    left, made, all_there = iter(range(CALLS)), [0] * number, threading.Barrier(number)

    def work(thread: int) -> None:
        # Connections are made and threads have begun before the first counts.
        call()
        all_there.wait(60)
        for _ in left:
            call()
            made[thread] += 1

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(made) == CALLS
    return made


def test_all_threads_get_connections_equally_often(store: Store) -> None:
    # Of threads that overtake each other some have next to none, each time. On a busy host one call of a thread may
    # take as long as all the calls of the others: not three times.
    rounds: list[list[int]] = []
    while not rounds or min(rounds[-1]) <= CALLS / len(rounds[-1]) / 8:
        assert len(rounds) < 3, rounds
        rounds.append(in_threads(8, lambda: store.get([b"\0" * 16])))


def test_first_come_first_served() -> None:
    lock = threading.RLock()
    turns = FairCondition(lock)
    free: list[int] = []
    served: list[int] = []

    def wait(number: int) -> None:
        with lock:
            came.set()
            assert turns.wait_for(lambda: bool(free), 10)
            served.append(free.pop() and number)

    threads = []
    for number in range(6):
        came = threading.Event()
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        assert came.wait(10)
    with lock:
        # One that comes while something is free does not overtake.
        free += [1] * 6
        turns.notify()
        assert not turns.wait_for(lambda: bool(free), 0)
    for thread in threads:
        thread.join(10)
    assert served == [0, 1, 2, 3, 4, 5]


def test_who_gives_up_holds_up_nobody() -> None:
    turns = FairCondition(threading.RLock())
    with turns._changed:
        assert not turns.wait_for(lambda: False, 0.01)
        assert turns.wait_for(lambda: True, 0.01)
