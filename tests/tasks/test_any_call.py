"""Any call that Python binds runs with exactly these arguments, on each way to a job; any other is refused."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry import App
from tarry.compat.celery.attempt import make_function
from tarry.errors import ArgumentError
from tarry.store.memory.store import MemoryStore
from tarry.tasks.arguments.codec import Codec
from tests.server.http.calling import request

# Names that mean something to tarry, to its way to write a call, or to Python.
NAMES = [
    "a",
    "b",
    "x",
    "self",
    "args",
    "kwargs",
    "rest",
    "task",
    "queue",
    "priority",
    "key",
    "delay",
    "call",
    "fn",
    "name",
]
ODD_NAMES = ["*", "**", "", "a b", "é", "*args", "rest_a", "__class__", "0"]
VALUES = st.one_of(st.integers(-5, 5), st.none(), st.sampled_from(["", "*", "x"]), st.just([1, 2]), st.just({"x": 1}))


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Any]:
    """A function of any signature, which returns what it got by the name of each parameter."""
    names = draw(st.permutations(NAMES))
    only, both, named = (draw(st.integers(0, 2)) for _ in range(3))
    defaults = draw(st.integers(0, only + both))
    first = [f"{name}={9}" if at >= only + both - defaults else name for at, name in enumerate(names[: only + both])]
    if only:
        first.insert(only, "/")
    rest = draw(st.booleans())
    last = [name + draw(st.sampled_from(["", "=8"])) for name in names[4 : 4 + named]]
    star = [f"*{names[6]}"] if rest else ["*"] if last else []
    extra = [f"**{names[7]}"] if draw(st.booleans()) else []
    scope: dict[str, Any] = {}
    exec(f"def fn({', '.join([*first, *star, *last, *extra])}):\n    return dict(locals())", scope)
    fn: Callable[..., Any] = scope["fn"]
    return fn


@st.composite
def calls(draw: st.DrawFn) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """A function and a call of it; Python binds most of them."""
    fn = draw(functions())
    names = [*inspect.signature(fn).parameters, *draw(st.lists(st.sampled_from([*NAMES, *ODD_NAMES]), max_size=2))]
    args = draw(st.lists(VALUES, max_size=5))
    return fn, args, draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=4)) if names else {}


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def returned(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the function returns, as JSON has it; None: Python does not bind the call."""
    try:
        return as_json(fn(*args, **kwargs))
    except TypeError:
        return None


@given(calls())
def test_what_was_given_is_what_comes(call: tuple[Callable[..., Any], list[Any], dict[str, Any]]) -> None:
    fn, args, kwargs = call
    expected = returned(fn, args, kwargs)
    # The second is what a task of `tarry.compat.celery` runs.
    for codec in (Codec("any", fn), Codec("any", make_function(None, fn, bind=False))):
        if expected is None:
            with pytest.raises(ArgumentError):
                codec.encode(args, kwargs)
            continue
        came, named = codec.decode(codec.encode(args, kwargs))
        assert as_json(fn(*came, **named)) == expected


def rest_and_extra(*args: Any, **kwargs: Any) -> Any:
    return dict(locals())


def only_and_extra(x: Any = 0, /, **kw: Any) -> Any:
    return dict(locals())


def all_kinds(x: Any, /, y: Any = 1, *rest: Any, self: Any = 2, key: Any, **task: Any) -> Any:
    return dict(locals())


def options(self: Any, task: Any, queue: Any, delay: Any, args: Any = 1, kwargs: Any = 2) -> Any:
    return dict(locals())


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True)
    yield app
    app.close()


HARD: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (rest_and_extra, (1,), {"args": 2}),
    (rest_and_extra, (), {"kwargs": 2, "self": 3, "name": 4}),
    (rest_and_extra, (1, 2), {"*": 3, "**": {"a": 1}, "": 4}),
    (only_and_extra, (1,), {"x": 5}),
    (only_and_extra, (), {"x": 5, "kw": 6}),
    (all_kinds, (1,), {"x": 2, "key": 3, "rest": 4, "task": 5}),
    (all_kinds, (1, 2, 3), {"key": 4, "y_": 5}),
    (options, (), {"self": 1, "task": 2, "queue": 3, "delay": 4}),
    (options, (1, 2), {"queue": 3, "delay": 4, "kwargs": 5}),
]
CASES = pytest.mark.parametrize(("fn", "args", "kwargs"), HARD, ids=range(len(HARD)))


def posted(app: App, task: Any, args: Any, kwargs: Any) -> Any:
    body = {"task": task.name, "args": msgspec.json.decode(task.codec.encode(args, kwargs))}
    answer = request(app, "POST", "/v1/jobs", json=body)
    assert answer.status_code < 300, answer.text
    return app.get(answer.json()["id"])


@CASES
def test_each_way_to_a_job_keeps_them(app: App, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    task: Any = app.task(name="any")(fn)
    handles = {
        "enqueue": task.enqueue(*args, **kwargs),
        "awaited": asyncio.run(task.aenqueue(*args, **kwargs)),
        "by name": app.enqueue("any", *args, **kwargs),
        "options": task.using(priority=1, retry=None).enqueue(*args, **kwargs),
        "many": task.enqueue_many([task.call(*args, **kwargs)])[0],
        "http": posted(app, task, args, kwargs),
    }
    with app.flow("any") as f:
        f.add(task.call(*args, **kwargs))
    app.drain()
    expected = returned(fn, args, kwargs)
    assert {way: handle.result(0) for way, handle in handles.items()} == dict.fromkeys(handles, expected)
    assert next(f.handle.nodes()).result(0) == expected
    assert task(*args, **kwargs) == fn(*args, **kwargs)


def test_what_an_older_tarry_stored_is_read_as_it_was() -> None:
    stored: list[tuple[bytes, Callable[..., Any], Any]] = [
        (b'{"*":[1],"args":2}', rest_and_extra, {"args": [1], "kwargs": {"args": 2}}),
        (b'{"x":5,"y":1}', only_and_extra, {"x": 5, "kw": {"y": 1}}),
        (b'{"x":1,"y":2,"*":[3],"key":4,"more":5}', all_kinds,
         {"x": 1, "y": 2, "rest": [3], "self": 2, "key": 4, "task": {"more": 5}}),
        (b'{"**":7}', rest_and_extra, {"args": [], "kwargs": {"**": 7}}),
        (b'[1,2]', rest_and_extra, {"args": [1, 2], "kwargs": {}}),
    ]  # fmt: skip
    for body, fn, expected in stored:
        came, named = Codec("any", fn).decode(body)
        assert as_json(fn(*came, **named)) == expected


def test_a_result_of_a_flow_cannot_stand_where_it_has_no_place_of_its_own(app: App) -> None:
    task: Any = app.task(name="any")(only_and_extra)
    refused = pytest.raises(ArgumentError, match=r"any\(\*\*kw\): a result here")
    with refused, app.flow("any") as f:
        f.add(task.call(1, x=f.add(task.call(1)).result))
