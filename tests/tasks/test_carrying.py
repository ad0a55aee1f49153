"""Context variables and headers that travel with a job, from its enqueue to its run."""

from collections import Counter
from contextvars import ContextVar
from typing import Any

import pytest

from tarry import App, CurrentJob, NewJob, State
from tarry.client.handle import Handle
from tarry.errors import ArgumentError, BodyTooLarge, ConfigError
from tarry.model.job import Job
from tarry.store.rules import ids
from tests.tasks.test_middleware import kinds, made
from tests.worker.bench import LIMIT, Bench, finished, note

var: ContextVar[str] = ContextVar("var")
number: ContextVar[int | None] = ContextVar("number")


@kinds
@pytest.mark.parametrize("many", [True, False])
def test_a_carried_variable_travels(any_bench: Bench, kind: str, many: bool) -> None:
    app = any_bench.app
    app.carry(var)
    app.carry(number, "the-number", encode=str, decode=int)
    seen: list[Any] = []

    @app.middleware("run")
    def look(job: CurrentJob, call_next: Any) -> Any:
        seen.append((var.get(None), number.get(None)))
        return call_next(job)

    app.on_success(lambda job, value: seen.append((var.get(None), number.get(None))))
    task = made(app, kind, lambda a, b: [var.get(None), number.get(None)])
    token, other = var.set("trace é"), number.set(5)
    job = task.enqueue_many([(1,)])[0] if many else task.enqueue(1)
    var.reset(token)
    number.reset(other)
    assert job.record().headers == '{"var":"trace é","the-number":"5"}'.encode()
    unset = task.enqueue()
    assert unset.record().headers == b""
    any_bench.work()
    assert job.result(LIMIT) == ["trace é", 5]
    assert unset.result(LIMIT) == [None, None]
    assert Counter(seen) == {("trace é", 5): 2, (None, None): 2}


def test_a_carried_variable_goes_on_to_the_jobs_of_the_job(bench: Bench) -> None:
    bench.app.carry(var)
    last = made(bench.app, "sync", lambda a, b: var.get(), name="last")
    first = made(bench.app, "async", lambda a, b: last.enqueue().id, name="first")
    token = var.set("on and on")
    job = first.enqueue()
    var.reset(token)
    bench.work()
    assert bench.app.get(job.result(LIMIT)).result(LIMIT) == "on and on"


def test_a_variable_is_read_when_the_job_is_made_and_a_header_set_by_hand_wins(bench: Bench) -> None:
    bench.app.carry(var)

    @bench.app.middleware("enqueue")
    async def late(job: NewJob, call_next: Any) -> Any:
        var.set("as middleware set it")
        if job.args:
            job.headers["var"] = "by hand"
        return await call_next(job)

    task = made(bench.app, "sync", lambda a, b: None)
    assert task.enqueue().record().headers == b'{"var":"as middleware set it"}'
    assert task.enqueue(1).record().headers == b'{"var":"by hand"}'
    assert var.get(None) is None


def test_none_does_not_travel(bench: Bench) -> None:
    bench.app.carry(number, encode=str, decode=int)
    task = made(bench.app, "sync", lambda a, b: None)
    token = number.set(None)
    assert task.enqueue().record().headers == b""
    number.reset(token)


def test_what_cannot_be_carried(app: App) -> None:
    wrong: Any = app.carry
    with pytest.raises(TypeError, match=r"carry\(\) takes a contextvars.ContextVar, not 'var'"):
        wrong("var")
    with pytest.raises(TypeError, match="encode= and decode= belong together"):
        wrong(number, encode=str)
    wrong(var)
    wrong(var)
    with pytest.raises(ConfigError, match="two variables are carried as 'var': give one of them another with name="):
        wrong(number, "var")
    wrong(number)
    number.set(5)
    task = made(app, "sync", lambda a, b: None)
    with pytest.raises(ArgumentError, match=r"the carried variable number is int, not text: app\.carry"):
        task.enqueue()
    number.set(None)


@pytest.mark.parametrize(
    ("name", "value", "error", "told"),
    [
        ("a", 1, ArgumentError, "header 'a' is int; names and values must be text"),
        ("a", "x" * 20_000, BodyTooLarge, "the headers take 20008 bytes; at most 16384"),
    ],
)
def test_headers_that_cannot_travel(app: App, name: str, value: Any, error: type[Exception], told: str) -> None:
    @app.middleware("enqueue")
    def add(job: NewJob, call_next: Any) -> Any:
        job.headers[name] = value
        return call_next(job)

    with pytest.raises(error, match=told):
        made(app, "sync", lambda a, b: None).enqueue()


@kinds
@pytest.mark.parametrize("headers", [b'{"number":"x"}', b'{"number":5}', b"[]"])
def test_a_variable_that_cannot_be_read_fails_the_attempt(bench: Bench, kind: str, headers: bytes) -> None:
    bench.app.carry(number, encode=str, decode=int)
    task = made(bench.app, kind, lambda a, b: pytest.fail("it ran without"))
    job = Job(ids.uuid7(), task.name, b"[]", due=bench.app.client.clock.now(), headers=headers)
    bench.store().insert([job])
    bench.work()
    handle: Handle[Any] = bench.app.get(job.id)
    assert finished(handle) is State.DEAD
    assert note(handle)["type"] in ("ValueError", "tarry.errors.ArgumentError")
