import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from tarry import App
from tarry.client.group_commit import CommitBounds, GroupCommit
from tarry.errors import PartlyUnavailable, StoreError, StoreUnavailable
from tarry.model.job import Job
from tests.every_store.struck import StruckThread, needs_safe_with
from tests.worker.bench import LIMIT, until, wait_for


class Calls:
    """Doubles numbers; keeps what it was called with; the first call waits for the door."""

    def __init__(self, fails: Callable[[list[int]], BaseException | None] = lambda items: None) -> None:
        self.batches: list[list[int]] = []
        self.entered = threading.Event()
        self.door = threading.Event()
        self._fails = fails

    def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(list(items))
        if len(self.batches) == 1:
            self.entered.set()
            wait_for(self.door)
        error = self._fails(items)
        if error is not None:
            raise error
        return [2 * item for item in items]


class Callers:
    """Threads that each ask for one item, and what became of it."""

    def __init__(self, batcher: "GroupCommit[int, int]") -> None:
        self.answers: dict[int, int | BaseException] = {}
        self._batcher = batcher
        self._threads: list[threading.Thread] = []

    def ask(self, *items: int) -> None:
        for item in items:
            thread = threading.Thread(target=self._ask, args=(item,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _ask(self, item: int) -> None:
        try:
            self.answers[item] = self._batcher.do(item)
        except BaseException as error:
            self.answers[item] = error

    def join(self) -> None:
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), "a caller hangs"


def first_then_others(calls: Calls, most: int, *items: int) -> Callers:
    """The first item's call is under way while the others come."""
    batcher = GroupCommit(calls, CommitBounds(most))
    callers = Callers(batcher)
    callers.ask(items[0])
    wait_for(calls.entered)
    callers.ask(*items[1:])
    until(lambda: len(batcher._waiting) == len(items) - 1)
    calls.door.set()
    callers.join()
    return callers


def test_a_lone_call_is_made_at_once() -> None:
    calls = Calls()
    calls.door.set()
    assert GroupCommit(calls).do(4) == 8
    assert calls.batches == [[4]]


def test_calls_made_meanwhile_become_one() -> None:
    calls = Calls()
    callers = first_then_others(calls, 500, *range(50))
    assert callers.answers == {n: 2 * n for n in range(50)}
    assert [len(batch) for batch in calls.batches] == [1, 49]


def test_a_batch_has_a_largest_size() -> None:
    calls = Calls()
    callers = first_then_others(calls, 10, *range(36))
    assert callers.answers == {n: 2 * n for n in range(36)}
    assert [len(batch) for batch in calls.batches] == [1, 10, 10, 10, 5]


def test_one_bad_item_fails_its_caller_alone() -> None:
    calls = Calls(lambda items: ValueError("no 7") if 7 in items else None)
    callers = first_then_others(calls, 500, *range(10))
    bad = callers.answers.pop(7)
    assert isinstance(bad, ValueError)
    assert callers.answers == {n: 2 * n for n in range(10) if n != 7}


def test_a_store_that_is_away_fails_for_all_with_one_call() -> None:
    calls = Calls(lambda items: StoreUnavailable("away") if len(items) > 1 else None)
    callers = first_then_others(calls, 500, *range(10))
    assert callers.answers.pop(0) == 0
    assert {str(error) for error in callers.answers.values()} == {"away"}
    assert [type(error) for error in callers.answers.values()] == [StoreUnavailable] * 9
    assert len(calls.batches) == 2


def test_a_call_that_answers_too_little_is_an_error_and_no_hang() -> None:
    def short(items: list[int]) -> list[int]:
        return []

    with pytest.raises(ValueError, match="not enough values"):
        GroupCommit(short).do(1)


def test_an_interrupt_of_who_flushes_for_all_leaves_nobody_waiting() -> None:
    calls = Calls(lambda items: KeyboardInterrupt() if len(items) > 1 else None)
    callers = first_then_others(calls, 500, *range(10))
    assert callers.answers.pop(0) == 0
    kinds = [type(error) for error in callers.answers.values()]
    assert kinds.count(KeyboardInterrupt) == 1
    assert kinds.count(StoreUnavailable) == 8


async def _all(batcher: "GroupCommit[int, int]", items: range) -> list[int]:
    return await asyncio.wait_for(asyncio.gather(*(batcher.ado(item) for item in items)), LIMIT)


def test_coroutines_share_calls_and_get_answers_in_order() -> None:
    calls = Calls()
    calls.door.set()
    batcher = GroupCommit(calls)
    assert asyncio.run(_all(batcher, range(200))) == [2 * n for n in range(200)]
    assert sum(map(len, calls.batches)) == 200
    assert len(calls.batches) < 50
    batcher.close()


def test_more_coroutines_than_a_batch_may_have_get_their_answers_all() -> None:
    calls = Calls()
    batcher = GroupCommit(calls)

    async def ask_all() -> list[int]:
        # All others ask while the first is under way.
        asked = asyncio.create_task(_all(batcher, range(3000)))
        await asyncio.to_thread(wait_for, calls.entered)
        await asyncio.sleep(0)
        calls.door.set()
        return await asked

    assert asyncio.run(ask_all()) == [2 * n for n in range(3000)]
    assert max(map(len, calls.batches)) == 500
    batcher.close()


def test_three_thousand_enqueues_of_coroutines_at_once(app: App) -> None:
    @app.task
    def pay(number: int) -> None: ...

    async def at_once() -> int:
        jobs = await asyncio.wait_for(asyncio.gather(*(pay.aenqueue(number) for number in range(3000))), LIMIT)
        return len({job.id for job in jobs})

    assert asyncio.run(at_once()) == 3000
    assert sum(tally.count for tally in app.client.store.counts()) == 3000


class Turn:
    """A lock; calls back once, when it was given up first."""

    def __init__(self, given_up: Callable[[], None]) -> None:
        self._lock, self._given_up = threading.Lock(), [given_up]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._given_up:
            self._given_up.pop()()


def test_a_coroutine_that_comes_just_as_the_thread_is_done_is_not_left() -> None:
    batcher, done, come = GroupCommit[int, int](lambda items: items), threading.Event(), threading.Event()

    def given_up() -> None:
        done.set()
        wait_for(come)

    batcher._turn = Turn(given_up)  # type: ignore[assignment]

    async def ask() -> list[int]:
        first = asyncio.ensure_future(batcher.ado(1))
        await asyncio.to_thread(wait_for, done)
        second = asyncio.ensure_future(batcher.ado(2))
        await asyncio.sleep(0)
        come.set()
        return list(await asyncio.wait_for(asyncio.gather(first, second), LIMIT))

    assert asyncio.run(ask()) == [1, 2]
    batcher.close()


def test_threads_and_coroutines_share_one_line() -> None:
    calls = Calls()
    batcher = GroupCommit(calls)
    callers = Callers(batcher)
    callers.ask(0)
    wait_for(calls.entered)
    callers.ask(*range(1, 20))
    answers: list[int] = []

    def ask(start: int) -> None:
        answers.extend(asyncio.run(_all(batcher, range(start, start + 20))))

    loops = [threading.Thread(target=ask, args=(start,), daemon=True) for start in (20, 40)]
    for thread in loops:
        thread.start()
    until(lambda: len(batcher._waiting) == 59)
    calls.door.set()
    callers.join()
    for thread in loops:
        thread.join(LIMIT)
    assert callers.answers == {n: 2 * n for n in range(20)}
    assert sorted(answers) == [2 * n for n in range(20, 60)]
    assert [len(batch) for batch in calls.batches] == [1, 59]
    batcher.close()


def test_coroutines_get_errors_too() -> None:
    calls = Calls(lambda items: ValueError(f"no {items}") if 3 in items else None)
    calls.door.set()
    batcher = GroupCommit(calls)

    async def some() -> list[object]:
        return await asyncio.gather(*(batcher.ado(item) for item in range(5)), return_exceptions=True)

    answers = asyncio.run(some())
    assert [answer for answer in answers if isinstance(answer, int)] == [0, 2, 4, 8]
    assert isinstance(answers[3], ValueError)
    batcher.close()


def test_a_loop_that_closed_while_it_waited_hurts_nobody() -> None:
    calls = Calls()
    batcher = GroupCommit(calls)

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.ado(1), 0.01)

    asyncio.run(impatient())
    calls.door.set()
    assert batcher.do(2) == 4
    assert asyncio.run(_all(batcher, range(3))) == [0, 2, 4]
    batcher.close()


def test_closing_ends_the_thread() -> None:
    calls = Calls()
    calls.door.set()
    batcher = GroupCommit(calls)
    asyncio.run(_all(batcher, range(1)))
    flusher = batcher._thread
    assert flusher is not None
    assert flusher.is_alive()
    batcher.close()
    assert not flusher.is_alive()


def test_fifty_enqueues_at_the_same_moment_are_few_store_calls(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def pay(number: int) -> None: ...

    sizes: list[int] = []
    insert = app.client.store.insert

    def counted(jobs: Sequence[Job]) -> list[bytes]:
        sizes.append(len(jobs))
        return insert(jobs)

    monkeypatch.setattr(app.client._inserter.batcher, "_call", counted)

    async def at_once() -> list[str]:
        jobs = await asyncio.gather(*(pay.aenqueue(number) for number in range(50)))
        return [job.record().body.decode() for job in jobs]

    assert asyncio.run(at_once()) == [f"[{number}]" for number in range(50)]
    assert sum(sizes) == 50
    assert len(sizes) <= 10


def test_who_waits_too_long_for_others_is_told_and_nothing_of_his_is_sent() -> None:
    calls = Calls()
    batcher = GroupCommit(calls, limit=0.5)
    callers = Callers(batcher)
    callers.ask(1)
    wait_for(calls.entered)
    with pytest.raises(StoreUnavailable, match=r"busy or away, and of 0\.5 s too .* nothing was sent to it"):
        batcher.do(2)
    with pytest.raises(StoreUnavailable, match=r"busy or away, and of 0\.5 s too .* nothing was sent to it"):
        asyncio.run(batcher.ado(3))
    calls.door.set()
    callers.join()
    assert (callers.answers, calls.batches) == ({1: 2}, [[1]])
    assert batcher.do(4) == 8
    batcher.close()


def test_a_coroutine_waits_no_longer_for_its_own_call_either() -> None:
    calls = Calls()
    batcher = GroupCommit(calls, limit=0.5)
    with pytest.raises(StoreUnavailable, match=r"no answer .* within 0\.5 s; it may be stored all the same"):
        asyncio.run(batcher.ado(1))
    calls.door.set()
    until(lambda: calls.batches == [[1]])
    batcher.close()


def test_coroutines_wait_each_for_its_own_time() -> None:
    """By one timer for all, which the first of them has set."""

    async def asked() -> list[float]:
        loop, begun = asyncio.get_running_loop(), []
        waits = []
        for number in range(3):
            begun.append(loop.time())
            waits.append(asyncio.ensure_future(batcher.ado(number)))
            await asyncio.sleep(0.1)
        waits[1].cancel()
        took = []
        for start, wait in ((begun[0], waits[0]), (begun[2], waits[2])):
            with pytest.raises(StoreUnavailable):
                await wait
            took.append(loop.time() - start)
        return took

    calls = Calls()
    batcher = GroupCommit(calls, limit=0.3)
    took = asyncio.run(asked())
    assert all(0.29 <= seconds < LIMIT for seconds in took), took
    calls.door.set()
    batcher._limit = LIMIT
    assert asyncio.run(batcher.ado(4)) == 8, "in another loop"
    batcher.close()


def test_of_a_batch_some_may_fail() -> None:
    def half(items: list[int]) -> list[int]:
        bad: dict[int, StoreError] = {at: StoreUnavailable(f"no {n}") for at, n in enumerate(items) if n % 2}
        if bad:
            raise PartlyUnavailable("some", [2 * n for n in items], bad)
        return [2 * n for n in items]

    assert GroupCommit(half).do(2) == 4
    with pytest.raises(StoreUnavailable, match="no 3"):
        GroupCommit(half).do(3)


@needs_safe_with
def test_what_is_thrown_at_any_moment_leaves_the_lock_free() -> None:
    batcher = GroupCommit[int, int](lambda items: items)
    with StruckThread(lambda: batcher.do(1)) as thread:
        thread.throw(times=500)
    assert thread.errors == []
