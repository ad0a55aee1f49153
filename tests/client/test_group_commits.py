"""What all group commits promise: enqueues of coroutines, puts of programs, acts on their way to the log of acts."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tarry.client.audit.log import Act
from tarry.client.audit.writer import ActWriter
from tarry.client.group_commit import CommitBounds, CommitTicket, GroupCommit
from tarry.errors import Busy, Draining, StoreAway, StoreUnavailable
from tarry.model.job import Job
from tarry.server.put_batcher import PutBatcher
from tarry.store.rules import ids
from tarry.tasks.arguments.options import NO_OPTIONS
from tests.worker.bench import LIMIT, until, wait_for


class GivenItems:
    """Numbers given to a group commit whose calls of the store can be held back, or fail."""

    def __init__(self, group: GroupCommit[Any, Any]) -> None:
        self.group = group
        self.calls: list[list[int]] = []
        self.stored: list[int] = []
        self.answers: dict[int, list[object]] = {}
        """What each was told; of acts, nobody is told."""
        self.error: Exception | None = None
        self.goes_on, self.is_called = threading.Event(), threading.Event()
        self.goes_on.set()
        group._call = self._called
        group._bounds = CommitBounds(call_items=3, tickets=5)

    def _called(self, items: Sequence[Any]) -> list[Any]:
        self.is_called.set()
        wait_for(self.goes_on)
        self.calls.append([self.number(item) for item in items])
        if self.error is not None:
            raise self.error
        self.stored += self.calls[-1]
        return self.results(self.calls[-1])

    def results(self, numbers: list[int]) -> list[Any]:
        return numbers

    def number(self, item: Any) -> int:
        return int(item)

    def item(self, number: int) -> Any:
        return number

    def give(self, *numbers: int) -> None:
        """On an event loop."""
        for number in numbers:
            self.answers[number] = []
            self.group.submit(CommitTicket(number, self.answers[number].append), asyncio.get_running_loop())

    async def hold(self) -> None:
        """From now on the store hangs, in a call with the number 0."""
        self.goes_on.clear()
        self.is_called.clear()
        self.give(0)
        await until_so(self.is_called.is_set)


class GivenPuts(GivenItems):
    def __init__(self) -> None:
        super().__init__(PutBatcher(lambda jobs, options: []))

    def number(self, item: Any) -> int:
        return int(item[0][0].body)

    def results(self, numbers: list[int]) -> list[Any]:
        return [[number] for number in numbers]

    def item(self, number: int) -> Any:
        return [Job(ids.uuid7(), "send", b"%d" % number)], [NO_OPTIONS]

    def give(self, *numbers: int) -> None:
        for number in numbers:
            told = self.answers[number] = []
            self.group.put(*self.item(number), lambda answers, told=told: told.extend(answers))  # type: ignore[attr-defined]


class GivenActs(GivenItems):
    def __init__(self) -> None:
        super().__init__(ActWriter(lambda: None))  # type: ignore[arg-type, return-value]

    def number(self, item: Any) -> int:
        return int(item.subject)

    def item(self, number: int) -> Any:
        return Act(number, "ann", "cancel_job", "done", subject=str(number))

    def give(self, *numbers: int) -> None:
        for number in numbers:
            self.group.record(self.item(number))  # type: ignore[attr-defined]


def enqueues() -> GivenItems:
    return GivenItems(GroupCommit[int, int](lambda items: items))


MAKE = [enqueues, GivenPuts, GivenActs]
each = pytest.mark.parametrize("make", MAKE, ids=["enqueues", "puts", "acts"])
Make = Callable[[], GivenItems]


async def until_so(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not is_so():
            await asyncio.sleep(0.001)


async def told(given: GivenItems, *numbers: int) -> list[object]:
    """What each was told, once; [] of acts."""
    if isinstance(given, GivenActs):
        return []
    await until_so(lambda: all(given.answers[number] for number in numbers))
    assert all(len(given.answers[number]) == 1 for number in numbers)
    return [given.answers[number][0] for number in numbers]


def run_with(make: Make, story: Callable[[GivenItems], Any]) -> GivenItems:
    """The story of a group that is closed afterwards."""

    async def run() -> GivenItems:
        given = make()
        try:
            await story(given)
        finally:
            given.goes_on.set()
            await asyncio.to_thread(given.group.close)
        return given

    return asyncio.run(run())


@each
def test_what_waits_goes_in_few_calls_in_its_order_and_each_is_told_once(make: Make) -> None:
    async def story(given: GivenItems) -> None:
        await given.hold()
        given.give(1, 2, 3, 4, 5)
        assert given.group.waiting == 5
        given.goes_on.set()
        await until_so(lambda: len(given.stored) == 6)
        assert given.calls == [[0], [1, 2, 3], [4, 5]]
        assert await told(given, 0, 1, 2, 3, 4, 5) in ([], [0, 1, 2, 3, 4, 5])
        assert await asyncio.to_thread(given.group.flush, LIMIT)

    assert run_with(make, story).group.refused == 0


@pytest.mark.parametrize(
    ("make", "who", "error"),
    [(enqueues, [6, 7], StoreUnavailable), (GivenPuts, [1, 2], Busy), (GivenActs, [1, 2], None)],
    ids=["enqueues", "puts", "acts"],
)
def test_what_waits_is_bounded_and_who_is_refused_is_told(make: Make, who: list[int], error: type | None) -> None:
    async def story(given: GivenItems) -> None:
        await given.hold()
        given.give(1, 2, 3, 4, 5, 6, 7)
        assert [type(answer) for answer in await told(given, *who)] in ([], [error, error])
        assert (given.group.waiting, given.group.refused) == (5, 2)
        given.goes_on.set()
        assert await asyncio.to_thread(given.group.flush, LIMIT)
        assert given.stored == [number for number in range(8) if number not in who]

    run_with(make, story)


@each
def test_while_the_store_is_away_each_is_told_or_waits_on(make: Make) -> None:
    async def story(given: GivenItems) -> None:
        await given.hold()
        given.give(1, 2)
        given.error = StoreAway("away")
        given.goes_on.set()
        answers = await told(given, 0, 1, 2)
        assert [type(answer) for answer in answers] in ([], [StoreAway] * 3)
        await until_so(lambda: given.calls)
        given.error = None
        given.give(3)
        assert await asyncio.to_thread(given.group.flush, LIMIT)
        assert await told(given, 3) in ([], [3])
        if not answers:
            # In their order, though the first call has failed.
            assert given.stored == [0, 1, 2, 3]

    run_with(make, story)


@each
def test_the_end_sends_what_waits_and_what_comes_later_is_refused(make: Make) -> None:
    async def story(given: GivenItems) -> None:
        await given.hold()
        given.give(1)
        ending = asyncio.create_task(asyncio.to_thread(given.group.close))
        await until_so(lambda: given.group._is_closed)
        given.give(2)
        answers = await told(given, 2)
        assert [type(answer) for answer in answers] in ([], [StoreUnavailable], [Draining])
        given.goes_on.set()
        await ending
        assert given.stored == [0, 1]
        assert await told(given, 0, 1) in ([], [0, 1])
        given.group.close()

    run_with(make, story)


@each
def test_the_end_has_a_limit_and_who_was_not_sent_is_told(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    async def story(given: GivenItems) -> None:
        await given.hold()
        given.give(1)
        await asyncio.to_thread(given.group.close, 0.01)
        answers = await told(given, 1)
        assert [type(answer) for answer in answers] in ([], [StoreUnavailable], [Draining])
        assert answers or "2 acts are not in the log of acts" in caplog.text
        given.goes_on.set()
        await until_so(lambda: given.stored == [0])
        assert await told(given, 0) in ([], [0])

    run_with(make, story)


@each
def test_a_forked_child_has_nothing_of_what_waits_in_its_parent(make: Make) -> None:
    given = make()
    given.goes_on.clear()
    for number in (0, 1, 2):
        given.group.add(CommitTicket(given.item(number)))
    wait_for(given.is_called)
    # As another thread has it in the middle of a step.
    with given.group._lock:
        child = os.fork()
        if child == 0:
            works = False
            try:
                works = _child_sends(given)
            finally:
                os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    given.goes_on.set()
    until(lambda: given.stored == [0, 1, 2])
    given.group.close()


def _child_sends(given: GivenItems) -> bool:
    given.goes_on = threading.Event()
    given.goes_on.set()
    given.group.add(CommitTicket(given.item(7)))
    return given.group.flush(LIMIT) and given.stored == [7]


@pytest.mark.parametrize(
    "make",
    [
        lambda: GivenItems(GroupCommit[int, int](lambda items: items, limit=0.05)),
        lambda: GivenItems(PutBatcher(lambda jobs, options: [], limit=0.05)),
    ],
    ids=["enqueues", "puts"],
)
def test_a_look_for_those_who_wait_too_long_that_fails_is_followed_by_the_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(given: GivenItems) -> None:
        group, failures = given.group, [ZeroDivisionError("a fault")] * 2
        expire, clock = group.expire, group._clock

        def fail_first(answer: Any) -> Any:
            if failures:
                raise failures.pop()
            return answer

        await given.hold()
        end = clock() + 0.05
        given.answers[1] = []
        group.submit(CommitTicket(1, given.answers[1].append, end, end), asyncio.get_running_loop())
        assert group._expiry is not None
        group._expiry._clock = lambda: fail_first(clock())
        await until_so(lambda: not failures)
        failures.append(ZeroDivisionError("another"))
        group._expiry._clock = clock
        monkeypatch.setattr(group, "expire", lambda *ticket: fail_first(expire(*ticket)))
        (answer,) = await told(given, 1)
        assert isinstance(answer, StoreUnavailable | Busy)

    run_with(make, story)
