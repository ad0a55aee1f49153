"""Looks at a store: few, however many ask, and fewer of a store that is slow."""

import threading
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest

from tarry.errors import PartlyUnavailable, StoreAway, StoreUnavailable
from tarry.metrics.store_overview import CachedOverview, OverviewStore
from tarry.model.job import Job, State
from tarry.server.history_snapshot import HistorySnapshot, HistorySpan
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.history_reading import Period, read_cells
from tarry.store.rules.base import Tally
from tarry.store.rules.history.sums import MINUTES


class CountedStore(MemoryStore):
    """Counts how often its jobs were counted, which takes `takes` seconds of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.takes = 0.01
        self.looks = 0
        self.gate: threading.Event | None = None
        self.began = threading.Event()

    def clock(self) -> float:
        return self.seconds

    def counts(self) -> list[Tally]:
        self.looks += 1
        self.seconds += self.takes
        self.began.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        return super().counts()


class CountingLock:
    """A lock that says when so many have asked for it."""

    def __init__(self, most: int) -> None:
        self._lock, self._asked, self._most = threading.Lock(), 0, most
        self._counting = threading.Lock()
        self.waiting = threading.Event()

    def acquire(self, blocking: bool) -> bool:
        with self._counting:
            self._asked += 1
        if self._asked == self._most:
            self.waiting.set()
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire(True)

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


def looks_at(store: CountedStore, moments: Sequence[float], kept_for: float) -> int:
    """How many looks are made by those who ask at these moments."""
    look = CachedOverview(lambda: store, store.clock, lambda call: call())
    for moment in moments:
        store.seconds = max(store.seconds, moment)
        look.read(kept_for)
    return store.looks


def test_a_look_serves_all_who_ask_for_a_while(store: CountedStore) -> None:
    assert looks_at(store, [0, 1, 4.9, 6, 7], 5) == 2


def test_whoever_wants_it_fresh_gets_it_fresh(store: CountedStore) -> None:
    assert looks_at(store, [0, 1, 1.1], 0) == 3


def test_a_slow_store_is_looked_at_for_a_fifth_of_its_time(store: CountedStore) -> None:
    store.takes = 2.0
    # The first is ready at 2, and is kept until 10.
    assert looks_at(store, [0, 3, 9.9, 10.1, 11], 0) == 2


def test_a_look_that_failed_is_made_again(store: CountedStore) -> None:
    states = [True, False]

    def find() -> CountedStore:
        if states.pop(0):
            raise StoreAway("away")
        return store

    look = CachedOverview(find, store.clock, lambda call: call())
    with pytest.raises(StoreAway):
        look.read()
    assert look.read().counts == []


def test_while_a_slow_look_is_made_the_last_one_serves(store: CountedStore) -> None:
    store.takes = 2.0
    look = CachedOverview(lambda: store, store.clock, lambda call: call())
    first = look.read(0)
    store.gate, store.seconds = threading.Event(), store.seconds + 9
    store.began.clear()
    thread = threading.Thread(target=look.read, args=(0,))
    thread.start()
    assert store.began.wait(20)
    assert look.read(0) is first
    store.gate.set()
    thread.join(20)
    assert look.read(0) is not first


def test_nobody_waits_for_a_look_at_a_large_store(store: CountedStore) -> None:
    store.takes, started = 2.0, list[Callable[[], None]]()
    look = CachedOverview(lambda: store, store.clock, started.append)
    first = look.read()
    store.seconds += 9
    assert look.read() is first
    assert store.looks == 1
    for refresh in started:
        refresh()
    assert look.read() is not first
    assert store.looks == 2


def test_a_page_rather_shows_an_old_look_at_a_large_store_than_none(store: CountedStore) -> None:
    store.takes, started = 2.0, list[Callable[[], None]]()
    look = CachedOverview(lambda: store, store.clock, started.append)
    first = look.read()
    store.seconds += 300
    assert look.read(0, oldest=600) is first
    assert (store.looks, len(started)) == (1, 1)
    # Whoever has no such patience gets a new one; so does everybody after a while.
    second = look.read(0)
    assert second is not first
    store.seconds += 601
    assert look.read(0, oldest=600) is not second


def test_of_a_small_store_no_page_shows_an_old_look(store: CountedStore) -> None:
    look = CachedOverview(lambda: store, store.clock)
    first = look.read()
    store.seconds += 6
    assert look.read(5, oldest=600) is not first


def test_a_look_beside_the_callers_that_fails_is_not_lost(store: CountedStore) -> None:
    store.takes = 2.0
    states = [False, True, True]

    def find() -> CountedStore:
        if states.pop(0):
            raise StoreAway("away")
        return store

    look = CachedOverview(find, store.clock, lambda call: call())
    first = look.read()
    store.seconds += 9
    assert look.read() is first
    # It is too old to serve any longer.
    store.seconds += 9
    with pytest.raises(StoreAway):
        look.read()


def test_those_who_waited_for_a_store_that_is_away_do_not_ask_it_again(store: CountedStore) -> None:
    store.gate = threading.Event()

    def away() -> list[Tally]:
        CountedStore.counts(store)
        raise StoreAway("away")

    store.counts = away  # type: ignore[method-assign]
    look, lock, errors = (
        CachedOverview(lambda: store, store.clock, lambda call: call()),
        CountingLock(5),
        list[Exception](),
    )
    look._lock = lock  # type: ignore[assignment]

    def read() -> None:
        try:
            look.read()
        except StoreAway as error:
            errors.append(error)

    first = threading.Thread(target=read)
    first.start()
    assert store.began.wait(20)
    others = [threading.Thread(target=read) for _ in range(4)]
    for thread in others:
        thread.start()
    assert lock.waiting.wait(20)
    store.gate.set()
    for thread in [first, *others]:
        thread.join(20)
    assert (len(errors), store.looks) == (5, 1)
    del store.counts
    assert look.read().counts == []


def test_a_look_has_a_store_of_its_own_until_the_end() -> None:
    closed: list[bool] = []

    class ClosingStore(MemoryStore):
        def close(self) -> None:
            closed.append(True)

    opened = [ClosingStore(), ClosingStore()]
    own, shared = OverviewStore(lambda: (opened[0], True)), OverviewStore(lambda: (opened[0], False))
    assert own() is own() is opened[0]
    shared()
    shared.close()
    assert closed == []
    own.close()
    assert closed == [True]
    with pytest.raises(StoreUnavailable):
        own()
    # Nothing was opened.
    OverviewStore(lambda: (opened[1], True)).close()
    assert closed == [True]


@pytest.fixture
def history_look() -> tuple[HistorySnapshot, MemoryStore]:
    """Two jobs of mail were put, and one of shop."""
    store = MemoryStore()
    now = store.time()
    queues = enumerate(("mail", "mail", "shop"))
    store.insert(
        [Job(bytes([n]) * 16, "send", b"", queue, due=now, state=State.READY, state_since=now) for n, queue in queues]
    )
    store.history.sum_up(now)
    return HistorySnapshot(lambda: store), store


def test_a_history_is_read_once_for_all_who_ask(history_look: tuple[HistorySnapshot, MemoryStore]) -> None:
    look, store = history_look
    span = HistorySpan(MINUTES, 15, 60)
    found = look.read(span)
    store.history.drop(MINUTES, 2**40)
    assert look.read(span) is found
    assert found.view("ann", lambda queue: True, None, None).total.put == 3
    assert found.view("ann", lambda queue: True, "mail", None).total.put == 2
    # Another span is another read.
    assert look.read(HistorySpan(MINUTES, 60, 60)).view("ann", lambda queue: True, None, None).total.put == 0


def test_figures_are_made_once_for_each_caller(history_look: tuple[HistorySnapshot, MemoryStore]) -> None:
    found = history_look[0].read(HistorySpan(MINUTES, 15, 60))
    view = found.view("ann", lambda queue: True, None, None)
    assert found.view("ann", lambda queue: True, None, None) is view
    bob = found.view("bob", lambda queue: queue == "shop", None, None)
    assert bob.total.put == 1
    # However many queues are asked for, few are kept.
    views = [found.view("ann", lambda queue: True, f"q{n}", None) for n in range(100)]
    assert found.view("ann", lambda queue: True, "q99", None) is not views[99]
    assert found.view("ann", lambda queue: True, None, None) is view


def test_of_the_shards_that_are_there_a_history_is_read(
    history_look: tuple[HistorySnapshot, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    look, store = history_look
    part = read_cells(store.history, Period.last(MINUTES, 15, store.time()))
    away = Mock(side_effect=PartlyUnavailable("a shard is away", part))
    monkeypatch.setattr(store.history, "read", away)
    found = look.read(HistorySpan(MINUTES, 15, 60))
    assert found.view("ann", lambda queue: True, None, None).total.put == 3
    assert away.called
