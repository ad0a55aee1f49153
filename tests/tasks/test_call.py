"""Calls as values, for `enqueue_many`."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tarry import App, ArgumentError


class Pair(NamedTuple):
    to: str
    name: str


def send(to: str, name: str = "") -> str:
    return to + name


def other(to: str) -> str:
    return to


def taken(app: App, jobs: Any) -> list[bytes]:
    return [app.get(job.id).record().body for job in jobs]


def test_every_way_to_write_a_call(app: App) -> None:
    task = app.task(send)
    calls: list[Any] = [
        task.call("a"),
        task.call("b", name="x"),
        task.call(to="c"),
        ("d",),
        ["e", "x"],
        Pair("f", "x"),
        {"to": "g"},
        OrderedDict(name="x", to="h"),
        MappingProxyType({"to": "i"}),
    ]
    bodies = [b'["a"]', b'{"to":"b","name":"x"}', b'{"to":"c"}', b'["d"]', b'["e","x"]', b'["f","x"]', b'{"to":"g"}']
    bodies += [b'{"to":"h","name":"x"}', b'{"to":"i"}']
    assert taken(app, task.enqueue_many(calls)) == bodies
    assert taken(app, task.using(priority=5).enqueue_many(calls)) == bodies
    assert taken(app, asyncio.run(task.aenqueue_many(calls))) == bodies


def test_calls_may_come_one_by_one(app: App) -> None:
    task = app.task(send)

    def calls() -> Iterator[Any]:
        for number in range(3):
            yield task.call(f"{number}@b")

    assert taken(app, task.enqueue_many(calls())) == [b'["0@b"]', b'["1@b"]', b'["2@b"]']


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["a@b"], r"send: 'a@b' is no call; give a tuple, a mapping by name, or send\.call\(\.\.\.\)"),
        ([5], "send: 5 is no call"),
        ([("a",), None], "send: None is no call"),
        ([("a",), (5,)], "send: argument to: Expected str, got int"),
        ([("a",), {"to": "x", "nmae": "y"}], "send: got an unexpected keyword argument 'nmae'"),
        ([{5: "x"}], "send: keywords must be strings"),
        ([("a",), ()], "send: missing a required argument: 'to'"),
    ],
)
def test_one_wrong_call_and_none_is_stored(app: App, calls: list[Any], message: str) -> None:
    task = app.task(name="send")(send)
    with pytest.raises(ArgumentError, match=message):
        task.enqueue_many(calls)
    assert app.client.store.counts() == []


def test_a_call_is_its_own_tasks_only(app: App) -> None:
    task, another = app.task(name="send")(send), app.task(name="other")(other)
    with pytest.raises(ArgumentError, match=r"send: <Call other\('a'\)> is a call of another task"):
        task.enqueue_many([another.call("a")])


def test_a_call_is_not_made_and_says_what_it_is(app: App) -> None:
    task = app.task(name="send")(send)
    call = task.call("a", name="x")
    assert repr(call) == "<Call send('a', name='x')>"
    assert task(*call.args, **call.kwargs) == "ax"
    assert app.client.store.counts() == []


def test_many_jobs_of_one_call_are_alike_but_for_their_arguments(app: App) -> None:
    task = app.task(name="send", priority=3, expires=60)(send)
    jobs = [job.record() for job in task.using(delay=5, queue="slow").enqueue_many([("a",), ("b",), ("c",)])]
    assert len({job.id for job in jobs}) == 3
    assert sorted(job.id for job in jobs) == [job.id for job in jobs]
    assert {(job.queue, job.priority, job.due, job.expires, job.state_since) for job in jobs} == {
        ("slow", 3, jobs[0].due, jobs[0].due + 60_000_000, jobs[0].state_since)
    }
