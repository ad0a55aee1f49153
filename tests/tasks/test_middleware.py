"""What wraps each enqueue and each run, and what travels from the one to the other."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tarry import App, CurrentJob, State, current_job
from tarry.errors import ArgumentError, ConfigError
from tarry.tasks.new_job import NewJob
from tests.worker.bench import LIMIT, Bench, finished, note

kinds = pytest.mark.parametrize("kind", ["sync", "async"])
middleware_kinds = pytest.mark.parametrize("written", ["def", "async def"])

var: ContextVar[str] = ContextVar("var")
number: ContextVar[int | None] = ContextVar("number")


def made(app: App, kind: str, body: Callable[..., Any], **settings: Any) -> Any:
    """A task of that kind that does what `body` does."""

    def work(a: int = 0, b: int = 0) -> Any:
        return body(a, b)

    async def awork(a: int = 0, b: int = 0) -> Any:
        await asyncio.sleep(0)
        return body(a, b)

    return app.task(**settings)(work if kind == "sync" else awork)


def noting(app: App, side: Any, written: str, name: str, order: list[str]) -> None:
    """A middleware that notes when it begins and when it has ended, of whatever kind the rest is."""

    async def awaited(job: Any, call_next: Any) -> Any:
        order.append(f"{name} begins")
        try:
            await asyncio.sleep(0)
            answer = await call_next(job)
            await asyncio.sleep(0.001)
            return answer
        finally:
            order.append(f"{name} ends")

    def direct(job: Any, call_next: Any) -> Any:
        if job.is_async:
            return awaited(job, call_next)
        order.append(f"{name} begins")
        try:
            return call_next(job)
        finally:
            order.append(f"{name} ends")

    app.middleware(side)(direct if written == "def" else awaited)


AROUND = ["outer begins", "inner begins", "on", "inner ends", "outer ends"]


@kinds
@pytest.mark.parametrize("outer", ["def", "async def"])
@pytest.mark.parametrize("inner", ["def", "async def"])
def test_the_first_that_is_registered_is_the_outermost_around_a_run(
    bench: Bench, kind: str, outer: str, inner: str
) -> None:
    order: list[str] = []
    noting(bench.app, "run", outer, "outer", order)

    def add(a: int, b: int) -> int:
        order.append("on")
        return a + b

    task = made(bench.app, kind, add)
    noting(bench.app, "run", inner, "inner", order)
    bench.work()
    assert task.enqueue(1, b=2).result(LIMIT) == 3
    assert order == AROUND


async def put(kind: str, task: Any, *args: Any) -> Any:
    if kind == "sync":
        return await asyncio.to_thread(task.enqueue, *args)
    if kind == "in a coroutine":
        return task.enqueue(*args)
    return await task.aenqueue(*args)


@pytest.mark.parametrize("kind", ["sync", "async", "in a coroutine"])
@pytest.mark.parametrize("outer", ["def", "async def"])
@pytest.mark.parametrize("inner", ["def", "async def"])
def test_the_first_that_is_registered_is_the_outermost_around_an_enqueue(
    bench: Bench, kind: str, outer: str, inner: str
) -> None:
    order: list[str] = []
    noting(bench.app, "enqueue", outer, "outer", order)
    noting(bench.app, "enqueue", inner, "inner", order)
    task = made(bench.app, "sync", lambda a, b: a + b)
    job = asyncio.run(put(kind, task, 1, 2))
    order.insert(2, "on")
    assert order == AROUND
    assert job.is_new
    assert job.state is State.READY


@pytest.mark.parametrize("outer", ["def", "async def"])
@pytest.mark.parametrize("waits", [True, False])
def test_many_enqueues_go_through_one_by_one_and_are_stored_at_once(
    bench: Bench, outer: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    seen: list[Any] = []
    noting(bench.app, "enqueue", outer, "outer", order)

    @bench.app.middleware("enqueue")
    def keep(job: NewJob, call_next: Any) -> Any:
        seen.append((list(job.args), dict(job.kwargs)))
        job.headers["n"] = str(len(seen))
        return call_next(job)

    task = made(bench.app, "sync", lambda a, b: a + b)
    store = bench.app.client.store
    inserts: list[int] = []
    insert = store.insert

    def counted(jobs: Any) -> Any:
        inserts.append(len(jobs))
        return insert(jobs)

    monkeypatch.setattr(bench.app.client._inserter, "_insert", counted)
    calls = [(1, 2), {"a": 3, "b": 4}, task.call(5, b=6)]
    jobs = asyncio.run(task.aenqueue_many(calls)) if waits else task.enqueue_many(calls)
    assert inserts == [3]
    assert seen == [([1, 2], {}), ([], {"a": 3, "b": 4}), ([5], {"b": 6})]
    assert [job.record().headers for job in jobs] == [b'{"n":"1"}', b'{"n":"2"}', b'{"n":"3"}']
    assert [job.is_new for job in jobs] == [True] * 3
    assert order == ["outer begins", "outer ends"] * 3


def test_the_handle_of_one_of_many_is_known_before_it_is_stored(bench: Bench) -> None:
    early: list[tuple[str, bool | None]] = []

    @bench.app.middleware("enqueue")
    def keep(job: NewJob, call_next: Any) -> Any:
        handle = call_next(job)
        early.append((handle.id, handle.is_new))
        return handle

    task = made(bench.app, "sync", lambda a, b: None)
    first, second = task.using(key="one").enqueue_many([(1,), (2,)])
    assert early[0] == (first.id, None)
    assert second.id == first.id, "the key was taken by then"
    assert (first.is_new, second.is_new) == (True, False)


def test_options_may_differ_from_job_to_job(bench: Bench) -> None:
    @bench.app.middleware("enqueue")
    def spread(job: NewJob, call_next: Any) -> Any:
        job.using(priority=job.args[0], queue=f"q{job.args[0]}", delay=60)
        assert job.queue == f"q{job.args[0]}"
        return call_next(job)

    task = made(bench.app, "sync", lambda a, b: None)
    records = [job.record() for job in task.enqueue_many([(1,), (2,)])]
    assert [(record.priority, record.queue, record.state) for record in records] == [
        (1, "q1", State.SCHEDULED),
        (2, "q2", State.SCHEDULED),
    ]


def test_options_are_checked(bench: Bench) -> None:
    bench.app.middleware("enqueue")(lambda job, call_next: job.using(delay=1, at=1))
    with pytest.raises(ValueError, match="delay= and at= both say when"):
        made(bench.app, "sync", lambda a, b: None).enqueue()


def test_arguments_may_be_changed_on_the_way_and_are_checked(bench: Bench) -> None:
    @bench.app.middleware("enqueue")
    def change(job: NewJob, call_next: Any) -> Any:
        assert job.task == task.name
        assert repr(job) == f"<NewJob {task.name}>"
        job.args = [*job.args, "no number" if job.args[0] else 7]
        return call_next(job)

    task = made(bench.app, "sync", lambda a, b: a + b)
    bench.work()
    assert task.enqueue(0).result(LIMIT) == 7
    with pytest.raises(ArgumentError, match="argument b"):
        task.enqueue(1)


@kinds
def test_an_enqueue_may_be_answered_with_another_job(bench: Bench, kind: str) -> None:
    task = made(bench.app, "sync", lambda a, b: a + b)
    first = task.enqueue()
    bench.app.middleware("enqueue")(lambda job, call_next: first)
    assert asyncio.run(put(kind, task)) is first
    assert task.enqueue_many([(1,), (2,)]) == [first, first]


@pytest.mark.parametrize("kind", ["sync", "async"])
@middleware_kinds
def test_an_enqueue_that_is_not_answered_is_an_error(bench: Bench, kind: str, written: str) -> None:
    async def forget_it(job: NewJob, call_next: Any) -> Any:
        await call_next(job)

    def forget(job: NewJob, call_next: Any) -> Any:
        if not job.is_async:
            call_next(job)

    bench.app.middleware("enqueue")(forget if written == "def" else forget_it)
    task = made(bench.app, "sync", lambda a, b: None)
    with pytest.raises(TypeError, match="a middleware gave NoneType, not the job: `return call_next"):
        asyncio.run(put(kind, task))


@kinds
@middleware_kinds
def test_a_run_may_be_answered_without_the_task(bench: Bench, kind: str, written: str) -> None:
    async def cached_later(job: CurrentJob, call_next: Any) -> Any:
        return sum(job.args)

    bench.app.middleware("run")((lambda job, call_next: sum(job.args)) if written == "def" else cached_later)
    task = made(bench.app, kind, lambda a, b: pytest.fail("it ran"))
    bench.work()
    assert task.enqueue(2, 3).result(LIMIT) == 5


@kinds
@middleware_kinds
def test_errors_pass_through_and_may_be_turned_into_values(bench: Bench, kind: str, written: str) -> None:
    async def forgive_later(job: CurrentJob, call_next: Any) -> Any:
        try:
            return await call_next(job)
        except ValueError as error:
            return str(error)

    def forgive(job: CurrentJob, call_next: Any) -> Any:
        if job.is_async:
            return forgive_later(job, call_next)
        try:
            return call_next(job)
        except ValueError as error:
            return str(error)

    def body(a: int, b: int) -> None:
        raise ValueError("no") if a == 0 else KeyError("worse")

    bench.app.middleware("run")(forgive if written == "def" else forgive_later)
    task = made(bench.app, kind, body)
    bench.work()
    assert task.enqueue().result(LIMIT) == "no"
    job = task.enqueue(1)
    assert finished(job) is State.DEAD
    assert note(job)["type"] == "KeyError"


@kinds
@middleware_kinds
def test_what_a_middleware_sees_of_the_job(bench: Bench, kind: str, written: str) -> None:
    seen: list[Any] = []

    def look(job: CurrentJob, call_next: Any) -> Any:
        seen.append((job.task, list(job.args), dict(job.kwargs), dict(job.headers), job.attempt, job.is_async))
        seen.append(current_job().id == job.id)
        return call_next(job)

    async def look_later(job: CurrentJob, call_next: Any) -> Any:
        return await look(job, call_next)

    @bench.app.middleware("enqueue")
    def add(job: NewJob, call_next: Any) -> Any:
        job.headers["a"] = "b"
        return call_next(job)

    bench.app.middleware("run")(look if written == "def" else look_later)
    task = made(bench.app, kind, lambda a, b: dict(current_job().headers))
    bench.work()
    assert task.enqueue(1, b=2).result(LIMIT) == {"a": "b"}
    assert seen[0][1:] in [
        ([1], {"b": 2}, {"a": "b"}, 1, kind == "async"),
        ([], {"a": 1, "b": 2}, {"a": "b"}, 1, kind == "async"),
    ]
    assert seen[1]


@kinds
@middleware_kinds
def test_the_timeout_is_for_middleware_too(bench: Bench, kind: str, written: str) -> None:
    async def hang_later(job: CurrentJob, call_next: Any) -> Any:
        await asyncio.sleep(LIMIT)

    def hang(job: CurrentJob, call_next: Any) -> Any:
        if job.is_async:
            return hang_later(job, call_next)
        while True:
            threading.Event().wait(0.001)

    bench.app.middleware("run")(hang if written == "def" else partial(hang_later))
    task = made(bench.app, kind, lambda a, b: None, timeout=0.1)
    bench.work()
    job = task.enqueue()
    assert finished(job) is State.DEAD
    assert note(job)["type"] == "TimeLimit"


def test_an_async_middleware_around_a_sync_task_leaves_it_in_its_thread_with_no_loop_running(bench: Bench) -> None:
    threads: list[int] = []

    @bench.app.middleware("run")
    async def around(job: CurrentJob, call_next: Any) -> Any:
        var.set("set by middleware")
        async with asyncio.timeout(LIMIT):
            await asyncio.sleep(0.001)
            answer = await call_next(job)
        threads.append(threading.get_ident())
        return answer

    async def inside() -> str:
        return var.get()

    def body(a: int, b: int) -> str:
        threads.append(threading.get_ident())
        return asyncio.run(inside())

    task = made(bench.app, "sync", body)
    bench.work()
    assert task.enqueue().result(LIMIT) == "set by middleware"
    assert len(set(threads)) == 1


def test_async_middleware_of_both_sides_in_one_thread(bench: Bench) -> None:
    order: list[str] = []
    inner = made(bench.app, "sync", lambda a, b: None, name="inner")
    outer = made(bench.app, "sync", lambda a, b: inner.enqueue().id, name="outer")
    noting(bench.app, "run", "async def", "run", order)
    noting(bench.app, "enqueue", "async def", "enqueue", order)
    job = outer.enqueue()
    bench.work()
    inner_id = job.result(LIMIT)
    assert UUID(inner_id)
    assert finished(bench.app.get(inner_id)) is State.DONE
    assert order[:6] == ["enqueue begins", "enqueue ends", "run begins", "enqueue begins", "enqueue ends", "run ends"]


def test_middleware_that_is_an_object(bench: Bench) -> None:
    class Adding:
        def __init__(self, more: int) -> None:
            self.more = more

        async def __call__(self, job: CurrentJob, call_next: Any) -> Any:
            return await call_next(job) + self.more

    bench.app.middleware("run")(Adding(1))
    task = made(bench.app, "sync", lambda a, b: a)
    bench.work()
    assert task.enqueue(1).result(LIMIT) == 2


@kinds
def test_what_is_registered_after_the_first_job_counts_for_the_next(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, lambda a, b: a)
    bench.work()
    assert task.enqueue(1).result(LIMIT) == 1
    noted: list[str] = []
    noting(bench.app, "run", "def", "late", noted)
    assert task.enqueue(1).result(LIMIT) == 1
    assert noted == ["late begins", "late ends"]


@pytest.mark.parametrize(
    ("side", "bad", "error", "told"),
    [
        ("runs", lambda job, call_next: None, ConfigError, 'middleware\\(\'runs\'\\): "enqueue" or "run"'),
        ("run", lambda job: None, TypeError, r'middleware\("run"\): .* is called with two arguments, \(job, call_next'),
        ("enqueue", 7, TypeError, r'middleware\("enqueue"\) takes a function, not 7'),
    ],
)
def test_what_cannot_be_middleware(app: App, side: Any, bad: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        app.middleware(side)(bad)
