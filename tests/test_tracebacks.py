"""Tracebacks of tasks begin in the code of the app, whatever leads there."""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tarry import App, step
from tarry.errors import JobFailed
from tarry.model.attempts import attempts_of
from tarry.model.verdict import RetryAfter
from tarry.store.rules import ids
from tarry.tracebacks import format_app_traceback


def fail() -> None:
    raise ValueError("no money")


def first_frame(text: str) -> str:
    """The function of the first frame, in the last of the tracebacks in the text."""
    lines = text.rpartition("Traceback (most recent call last):\n")[2].splitlines()
    assert "/tarry/worker/" not in lines[0]
    return lines[0].rpartition(" in ")[2]


def plain(app: App) -> Any:
    @app.task(name="pay", retry=None)
    def pay() -> None:
        fail()

    return pay


def coroutine(app: App) -> Any:
    @app.task(name="pay", retry=None)
    async def pay() -> None:
        fail()

    return pay


def step_of(app: App) -> Any:
    @app.task(name="pay", retry=None)
    def pay() -> None:
        step(fail)

    return pay


def caused(app: App) -> Any:
    @app.task(name="pay", retry=None)
    def pay() -> None:
        try:
            fail()
        except ValueError as error:
            raise KeyError("till") from error

    return pay


def in_batch(app: App) -> Any:
    @app.task(name="pay", batch=10, wait=0.01, retry=None)
    def pay(bills: list[int]) -> None:
        fail()

    return pay


def around(make: Callable[[App], Any], is_async: bool) -> Callable[[App], Any]:
    def made(app: App) -> Any:
        if is_async:

            @app.middleware("run")
            async def guard(job: Any, call_next: Any) -> Any:
                return await call_next(job)
        else:

            @app.middleware("run")
            def guard(job: Any, call_next: Any) -> Any:
                return call_next(job)

        return make(app)

    return made


@pytest.mark.parametrize(
    ("make", "first"),
    [(plain, "pay"), (coroutine, "pay"), (step_of, "pay"), (caused, "pay"), (in_batch, "pay"),
     (around(plain, False), "guard"), (around(coroutine, True), "guard")],
)  # fmt: skip
@pytest.mark.parametrize("runs_in", ["drain", "worker"])
def test_the_stored_traceback(make: Callable[[App], Any], first: str, runs_in: str) -> None:
    app = App("memory://", closures=True)
    pay = make(app)
    handle = pay.enqueue(1) if make is in_batch else pay.enqueue()
    if runs_in == "drain":
        app.drain()
    else:
        with app.running(threads=1), pytest.raises(JobFailed):
            handle.result(timeout=10)
    (job,) = app.client.store.get([ids.parse(handle.id)])
    assert job is not None
    note = msgspec.json.decode(job.note)
    assert first_frame(note["traceback"]) == first
    assert first_frame(attempts_of(job).attempts[-1].traceback) == first
    app.close()


def test_a_hook_as_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://", closures=True)
    pay = plain(app)

    @app.on_failure
    def weep(job: Any, error: BaseException) -> None:
        raise KeyError("tears")

    pay.enqueue()
    with caplog.at_level(logging.ERROR, "tarry.worker"):
        app.drain()
    (record,) = [one for one in caplog.records if "weep" in one.getMessage()]
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert record.exc_info[2].tb_frame.f_code.co_name == "weep"
    app.close()


def test_an_error_of_its_own_keeps_all() -> None:
    with pytest.raises(ValueError, match="no duration") as caught:
        RetryAfter("soon")
    own = caught.value.with_traceback(caught.value.__traceback__.tb_next if caught.value.__traceback__ else None)
    assert "microseconds" in format_app_traceback(own)
