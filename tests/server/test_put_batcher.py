"""The ring of puts: what waits together is committed together, and whoever waits too long is told so."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tarry import App, Job
from tarry.errors import BodyTooLarge, Busy, Draining, StoreError, StoreUnavailable
from tarry.model import job as model
from tarry.server.put_batcher import PutAnswers, PutBatcher
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tests.server.http.calling import run

LIMIT = 20.0


class Inserted:
    """Stands between a ring and a client: can be held back, and notes each commit."""

    def __init__(self) -> None:
        self.app = App(MemoryStore())
        self.commits: list[list[str]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.is_called = threading.Event()
        self.error: Exception | None = None

    def __call__(self, jobs: Sequence[model.Job], options: Sequence[Options]) -> PutAnswers:
        self.is_called.set()
        assert self.goes_on.wait(LIMIT)
        self.commits.append([job.body.decode() for job in jobs])
        if self.error is not None:
            raise self.error
        return self.app.client.insert_each(jobs, options)

    def job(self, text: str) -> model.Job:
        return self.app.client.make_job("send", text.encode())

    @property
    def stored(self) -> set[str]:
        return {job.body.decode() for job in self.app.client.store.find(Query(limit=10_000))}


class Ring:
    """A ring whose replies are kept by name."""

    def __init__(self, **bounds: Any) -> None:
        self.inserted = Inserted()
        self.time = 0.0
        self.ring = PutBatcher(self.inserted, clock=lambda: self.time, **bounds)
        self.replies: dict[str, list[PutAnswers]] = {}

    def put(self, *texts: str, deadline: float | None = None) -> None:
        jobs = [self.inserted.job(text) for text in texts]
        replies = self.replies.setdefault(texts[0], [])
        self.ring.put(jobs, [NO_OPTIONS] * len(jobs), replies.append, deadline)

    async def hold(self) -> None:
        """From now on a commit hangs, one with the put `held`."""
        self.inserted.goes_on.clear()
        self.inserted.is_called.clear()
        self.put("held")
        await until(self.inserted.is_called.is_set)

    async def answered(self, *names: str) -> None:
        await until(lambda: all(self.replies[name] for name in names))

    def kinds(self, *names: str) -> list[type]:
        """What each of these was told, which has to be said once."""
        assert all(len(self.replies[name]) == 1 for name in names)
        return [type(self.replies[name][0][0]) for name in names]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not is_so():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def ring(**bounds: Any) -> AsyncIterator[Ring]:
    there = Ring(**bounds)
    try:
        yield there
    finally:
        there.inserted.goes_on.set()
        await asyncio.to_thread(there.ring.close)
        there.inserted.app.close()


def story(tell: Callable[[Ring], Awaitable[None]], **bounds: Any) -> None:
    async def told() -> None:
        async with ring(**bounds) as there:
            await tell(there)

    run(told)


def test_what_waits_together_is_committed_together_in_order() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("a", "b")
        there.put("c")
        assert there.ring.waiting == 2
        there.inserted.goes_on.set()
        await there.answered("held", "a", "c")
        assert there.inserted.commits == [["held"], ["a", "b", "c"]]
        assert there.kinds("held", "a", "c") == [Job, Job, Job]
        assert [each.record().body for each in there.replies["a"][0]] == [b"a", b"b"]  # type: ignore[union-attr]
        assert there.ring.waiting == 0

    story(tell)


def test_replies_come_on_the_thread_of_the_loop_in_the_order_of_the_puts() -> None:
    async def tell(there: Ring) -> None:
        threads, order = set(), []

        def reply_to(n: int) -> Callable[[PutAnswers], None]:
            def reply(_: PutAnswers) -> None:
                threads.add(threading.current_thread())
                order.append(n)

            return reply

        for n in range(500):
            there.ring.put([there.inserted.job(str(n))], [NO_OPTIONS], reply_to(n))
            if n % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(order) == 500)
        assert order == list(range(500))
        assert threads == {threading.current_thread()}
        assert len(there.inserted.stored) == 500

    story(tell)


def test_when_it_is_full_the_oldest_is_told_busy_and_the_others_are_stored() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        for name in "abcde":
            there.put(name)
        await there.answered("a", "b")
        assert there.kinds("a", "b") == [Busy, Busy]
        assert (there.ring.waiting, there.ring.refused) == (3, 2)
        there.inserted.goes_on.set()
        await there.answered("c", "d", "e")
        assert there.kinds("held", "c", "d", "e") == [Job] * 4
        assert there.inserted.stored == {"held", "c", "d", "e"}

    story(tell, most_requests=3)


def test_bytes_are_bounded_too() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("a" * 40)
        there.put("b" * 40)
        there.put("c" * 40)
        await there.answered("a" * 40)
        assert there.kinds("a" * 40) == [Busy]
        there.put("d" * 101)
        await there.answered("d" * 101)
        assert there.kinds("d" * 101) == [BodyTooLarge], "nobody else has to go for what would never fit"
        assert there.ring.waiting == 2
        there.inserted.goes_on.set()
        await there.answered("b" * 40, "c" * 40)
        there.put("e" * 100)
        await there.answered("e" * 100)
        assert there.kinds("e" * 100) == [Job], "what was committed counts no more"

    story(tell, most_bytes=100)


def test_whoever_has_stopped_waiting_is_not_stored() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("soon", deadline=5.0)
        there.put("late", deadline=50.0)
        there.time = 6.0
        there.inserted.goes_on.set()
        await there.answered("soon", "late")
        assert there.kinds("soon", "late") == [Busy, Job]
        assert there.inserted.stored == {"held", "late"}

    story(tell, limit=100.0)


def test_while_the_store_hangs_everybody_is_answered_once() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("waits")
        there.time = 10.5
        await there.answered("waits")
        assert there.kinds("waits") == [Busy], "it was never sent to the store"
        assert not there.replies["held"]
        there.time = 20.0
        await there.answered("held")
        (error,) = there.replies["held"][0]
        assert isinstance(error, StoreUnavailable)
        assert error.stored is None, "it may be stored all the same"
        there.inserted.goes_on.set()
        await until(lambda: there.inserted.stored == {"held"})
        there.put("next")
        await there.answered("next")
        assert there.kinds("held", "waits", "next") == [StoreUnavailable, Busy, Job]

    story(tell, limit=10.0)


def test_the_error_of_one_job_is_told_to_its_sender_alone() -> None:
    async def tell(there: Ring) -> None:
        insert = there.inserted.app.client.insert_each

        def insert_some(jobs: Sequence[model.Job], options: Sequence[Options]) -> PutAnswers:
            return [
                StoreError("no") if job.body == b"bad" else insert([job], [each])[0]
                for job, each in zip(jobs, options, strict=True)
            ]

        there.ring._insert = insert_some
        there.put("a", "bad", "b")
        there.put("c")
        await there.answered("a", "c")
        assert [type(each) for each in there.replies["a"][0]] == [Job, StoreError, Job]
        assert there.kinds("c") == [Job]

    story(tell)


def test_a_fault_in_a_commit_ends_neither_the_thread_nor_a_wait(caplog: Any) -> None:
    async def tell(there: Ring) -> None:
        there.inserted.error = ZeroDivisionError()
        there.put("a")
        await there.answered("a")
        there.inserted.error = None
        there.put("b")
        await there.answered("b")
        assert there.kinds("a", "b") == [ZeroDivisionError, Job]

    story(tell)
    assert "1 jobs could not be stored" in caplog.text


def test_a_reply_that_fails_keeps_no_other_from_its_answer(caplog: Any) -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.ring.put([there.inserted.job("a")], [NO_OPTIONS], lambda _: 1 / 0)  # type: ignore[arg-type]
        there.put("b")
        there.inserted.goes_on.set()
        await there.answered("b")
        assert there.kinds("b") == [Job]

    story(tell)
    assert "an answer could not be given" in caplog.text


def test_closing_commits_what_waits_and_later_puts_are_told_so() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("a")
        closing = asyncio.create_task(asyncio.to_thread(there.ring.close))
        await until(lambda: there.ring._is_closed)
        there.put("b")
        await there.answered("b")
        there.inserted.goes_on.set()
        await closing
        await there.answered("held", "a")
        assert there.kinds("held", "a", "b") == [Job, Job, Draining]
        assert there.inserted.stored == {"held", "a"}

    story(tell)


def test_closing_has_a_limit_and_what_was_not_sent_is_told_so() -> None:
    async def tell(there: Ring) -> None:
        await there.hold()
        there.put("a")
        await asyncio.to_thread(there.ring.close, 0.01)
        await there.answered("a")
        assert there.kinds("a") == [Draining]
        there.inserted.goes_on.set()
        await there.answered("held")
        assert there.kinds("held") == [Job]
        assert there.inserted.stored == {"held"}

    story(tell)


def test_a_ring_that_was_never_used_closes() -> None:
    PutBatcher(Inserted()).close()


def test_it_can_be_awaited_and_whoever_gives_up_harms_nobody() -> None:
    async def tell(there: Ring) -> None:
        there.inserted.goes_on.clear()
        given_up = asyncio.create_task(there.ring.aput([there.inserted.job("a")], [NO_OPTIONS]))
        await until(there.inserted.is_called.is_set)
        given_up.cancel()
        waits = asyncio.create_task(there.ring.aput([there.inserted.job("b")], [NO_OPTIONS]))
        await asyncio.sleep(0)
        there.inserted.goes_on.set()
        (handle,) = await waits
        assert isinstance(handle, Job)
        assert handle.record().body == b"b"
        assert there.inserted.stored == {"a", "b"}

    story(tell)


def test_loops_one_after_the_other_may_use_it() -> None:
    inserted = Inserted()
    ring = PutBatcher(inserted)
    for text in "ab":

        async def put(text: str = text) -> PutAnswers:
            return await ring.aput([inserted.job(text)], [NO_OPTIONS])

        (handle,) = run(put)
        assert isinstance(handle, Job)
    ring.close()
    assert inserted.stored == {"a", "b"}


def test_nothing_that_was_told_to_be_stored_is_lost_under_more_than_it_can_take() -> None:
    async def tell(there: Ring) -> None:
        names = [str(n) for n in range(3000)]
        for at, name in enumerate(names):
            there.put(name)
            if at % 200 == 0:
                await asyncio.sleep(0.001)
        await there.answered(*names)
        told = {name for name in names if isinstance(there.replies[name][0][0], Job)}
        assert there.inserted.stored == told
        assert there.ring.refused == len(names) - len(told)
        assert all(len(there.replies[name]) == 1 for name in names)

    story(tell, most_requests=50)
