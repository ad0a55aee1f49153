"""What may be a task, and what is refused, with the reason and the way out."""

import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tarry import App
from tarry.store.memory.store import MemoryStore


@pytest.fixture
def strict() -> Iterator[App]:
    app = App(MemoryStore())
    yield app
    app.close()


class Mailer:
    def __init__(self, host: str = "") -> None:
        self.host = host

    def send(self, to: str) -> str:
        return self.host + to

    @staticmethod
    def plain(to: str) -> str:
        return to

    @classmethod
    def made(cls, to: str) -> str:
        return to


class Counter:
    def __call__(self) -> Iterator[int]:
        yield 1


def numbers() -> Iterator[int]:
    yield 1


async def moments() -> AsyncIterator[int]:
    yield 1


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


def unnamed(fn: Callable[..., Any]) -> Callable[..., Any]:
    def inner(*args: Any) -> Any:
        return fn(*args)

    return inner


@logged
def decorated(a: int) -> int:
    return a


def module_level(a: int, b: int = 0) -> int:
    return a + b


def closure() -> Callable[[], Any]:
    host, port = "localhost", 25

    def connect() -> Any:
        return host, port

    return connect


def nested() -> Callable[[], Any]:
    def uses_nothing_around_it() -> int:
        return 1

    return uses_nothing_around_it


HERE = "tests.tasks.test_importable."
LOCAL: list[tuple[Callable[..., Any], str]] = [
    (Mailer().send, HERE + "Mailer.send is a method bound to an object (Mailer). A worker in another process imports"),
    (Mailer.made, HERE + "Mailer.made is a method bound to an object (type)."),
    (Mailer.send, HERE + "Mailer.send is a method: it needs a 'self'."),
    ([].append, "list.append is a method bound to an object (list)."),
    (lambda: 1, HERE + "<lambda> is a lambda: it has no name."),
    (closure(), HERE + "closure.<locals>.connect is a closure: it uses 'host' and 'port' from the code around it."),
    (unnamed(module_level), HERE + "unnamed.<locals>.inner is a closure: it uses 'fn' from the code around it."),
    (functools.partial(closure()), HERE + "closure.<locals>.connect is a closure"),
    (nested(), HERE + "nested.<locals>.uses_nothing_around_it is a nested function"),
    (functools.partial(nested()), HERE + "nested.<locals>.uses_nothing_around_it is a nested function"),
]


@pytest.mark.parametrize(("fn", "why"), LOCAL)
def test_what_lives_in_this_process_only_is_refused(strict: App, fn: Callable[..., Any], why: str) -> None:
    for declared in (strict.task, strict.task(name="own")):
        with pytest.raises(TypeError) as caught:
            declared(fn)
        text = str(caught.value)
        assert text.startswith(why)
        assert "at module level" in text or "to module level" in text, "the way out"
        assert "\n" not in text
    assert strict.tasks == {}


@pytest.mark.parametrize("fn", [Mailer().send, lambda: 1, closure(), nested(), unnamed(module_level)])
def test_it_may_be_a_task_where_all_workers_are_of_this_process(fn: Callable[..., Any]) -> None:
    app = App(MemoryStore(), closures=True)
    assert app.task(name="own")(fn).fn == fn


def of_a_class(cls: type, /) -> None: ...


NEVER: list[tuple[Any, str]] = [
    (Mailer, HERE + "Mailer is a class: a call would make an object"),
    (numbers, HERE + "numbers is a generator function: a call only makes a generator"),
    (moments, HERE + "moments is an async generator function: a call only makes a generator"),
    (Counter(), "is a generator function"),
    (functools.partial(numbers), "is a generator function"),
    (staticmethod(module_level), HERE + "module_level is a staticmethod object and not a function yet."),
    (classmethod(of_a_class), HERE + "of_a_class is a classmethod object and not a function yet."),
]


@pytest.mark.parametrize("closures", [False, True])
@pytest.mark.parametrize(("fn", "why"), NEVER)
def test_what_no_worker_can_call_is_refused(fn: Any, why: str, closures: bool) -> None:
    with pytest.raises(TypeError) as caught:
        App(MemoryStore(), closures=closures).task(fn)
    assert why in str(caught.value)


def test_a_method_in_the_making_is_refused(strict: App) -> None:
    with pytest.raises(TypeError, match=r"Shop\.pay is a method: it needs a 'self'"):

        class Shop:
            @strict.task
            def pay(self) -> None: ...


def test_what_stands_at_module_level_is_taken(strict: App) -> None:
    for fn in (module_level, decorated, Mailer.plain, os.getpid):
        assert strict.task(fn).fn is fn
    partial = functools.partial(module_level, b=1)
    assert strict.task(name="partial")(partial)(1) == 2


def test_a_static_method_is_a_task_below_its_decorator() -> None:
    app = App(MemoryStore(), closures=True)

    class Shop:
        @staticmethod
        @app.task
        def pay(amount: int) -> int:
            return amount

    assert Shop.pay(3) == 3
    assert Shop.pay.enqueue(3).state == "ready"
