"""The pool that the stores on servers have: bounded, no broken connection is lent, each process has its own."""

import contextlib
import gc
import os
import threading
import time

import pytest

from tarry.store.shared.deadline import until
from tarry.store.shared.pool import RESTS_FOR, ConnectionPool
from tests.worker.bench import LIMIT


class Connection:
    """To nothing."""

    alive = sound = True
    closed = False
    ended_by: BaseException | None = None


class FakePool(ConnectionPool[Connection]):
    def __init__(self, most: int = 2) -> None:
        super().__init__(most)
        self.opened = 0
        self.failure: Exception | None = None

    def _open(self, end: float) -> Connection:
        if self.failure is not None:
            raise self.failure
        self.opened += 1
        return Connection()

    def _prepare(self, connection: Connection) -> bool:
        return connection.alive

    def _restore(self, connection: Connection, error: BaseException | None) -> bool:
        connection.ended_by = error
        return connection.sound

    def _discard(self, connection: Connection) -> None:
        connection.closed = True

    def _busy_error(self) -> Exception:
        return TimeoutError("busy")


def test_an_idle_connection_is_lent_again() -> None:
    pool = FakePool()
    with pool.lend(1) as first:
        pass
    with pool.lend(1) as second:
        assert second is first
    assert pool.opened == 1


def test_those_that_nobody_needs_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pool = FakePool(3)
    with pool.lend(1) as first, pool.lend(1) as second, pool.lend(1) as third:
        pass

    def use(count: int) -> list[Connection]:
        """The connections that so many threads get at the same time."""
        with contextlib.ExitStack() as stack:
            return [stack.enter_context(pool.lend(1)) for _ in range(count)]

    for _ in range(3):
        now += RESTS_FOR
        assert use(3) == [first, second, third], "all are needed now and then"
    now += RESTS_FOR
    assert use(2) == [first, second]
    assert not third.closed, "it was used since the last look"
    use(2)
    now += RESTS_FOR
    assert use(1) == [first]
    assert (first.closed, second.closed, third.closed) == (False, False, True)
    now += RESTS_FOR
    use(1)
    assert second.closed
    assert use(2)[0] is first
    assert pool.opened == 4


def test_more_than_that_many_are_never_open() -> None:
    pool = FakePool(2)
    with pool.lend(1), pool.lend(1) as second:
        with pytest.raises(TimeoutError), pool.lend(0.01):
            pass
        took = threading.Thread(target=lambda: pool.lend(LIMIT).__enter__())
        took.start()
        pool.give_back(second)
        took.join(LIMIT)
        assert not took.is_alive()
        assert pool.opened == 2


def test_a_callers_deadline_ends_the_wait() -> None:
    pool = FakePool(1)
    with pool.lend(1), until(time.monotonic()):
        start = time.monotonic()
        with pytest.raises(TimeoutError), pool.lend(LIMIT):
            pass
        assert time.monotonic() - start < LIMIT / 2


@pytest.mark.parametrize("flaw", ["alive", "sound"])
def test_a_broken_connection_is_closed_and_not_lent(flaw: str) -> None:
    """Whether it is seen when it comes back, or when it is to be lent again."""
    pool = FakePool()
    with pool.lend(1) as first:
        setattr(first, flaw, False)
    with pool.lend(1) as second:
        assert first.closed
        assert second is not first


def test_a_store_is_told_how_a_loan_ended() -> None:
    pool, error = FakePool(), ZeroDivisionError()
    with pytest.raises(ZeroDivisionError), pool.lend(1) as connection:
        raise error
    assert connection.ended_by is error


def test_what_cannot_be_opened_takes_no_room() -> None:
    pool = FakePool(1)
    pool.failure = ConnectionError()
    for _ in range(3):
        with pytest.raises(ConnectionError), pool.lend(1):
            pass
    pool.failure = None
    with pool.lend(0.01):
        pass


def test_a_lost_connection_takes_no_room() -> None:
    """An exception at the worst moment may keep one from being given back."""
    pool = FakePool(1)
    pool.take([], 1)
    gc.collect()
    with pool.lend(0.01):
        pass


def test_closing_closes_those_in_use_when_they_come_back() -> None:
    pool = FakePool()
    with pool.lend(1) as used, pool.lend(1) as idle:
        pool.give_back(idle)
        pool.close()
        assert idle.closed
        assert not used.closed
    assert used.closed


def test_dropping_all_goes_on_with_new_ones() -> None:
    pool = FakePool(1)
    with pool.lend(1) as used:
        pool.drop_all()
        with pool.lend(1) as new:
            assert new is not used
    assert used.closed
    with pool.lend(1) as again:
        assert again is new


def test_that_very_connection() -> None:
    pool = FakePool()
    with pool.lend(1) as first, pool.lend(1) as second:
        assert not pool.take_this(first, 0.01), "it is in use"
        threading.Timer(0.05, pool.give_back, [first]).start()
        assert pool.take_this(first, LIMIT)
        second.sound = False
    assert not pool.take_this(second, LIMIT), "it is closed"


def test_a_forked_child_opens_its_own_and_closes_none_of_its_parent() -> None:
    pool = FakePool()
    with pool.lend(1) as parents:
        pass
    child = os.fork()
    if not child:
        try:
            with pool.lend(1) as own:
                right = own is not parents and not parents.closed
            pool.close()
            os._exit(0 if right and own.closed and not parents.closed else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pool.lend(1) as after:
        assert after is parents
