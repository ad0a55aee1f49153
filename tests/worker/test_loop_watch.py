"""The log names the job that holds up the event loop, and where it stands."""

import asyncio
import inspect
import logging
import threading
import time

import pytest

from tarry.worker import pump, worker
from tarry.worker.run import loop_watch
from tests.worker.bench import LIMIT, Bench, finished, wait_for


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "HELD_FOR", 0.05)
    monkeypatch.setattr(worker, "BEAT_EVERY", 0.01)
    monkeypatch.setattr(pump, "LOOK_ANYWAY", 0.02)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "held up the event loop" in one.getMessage()]


def test_a_job_that_holds_up_the_loop_is_named_once_with_its_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    gate, again, seen = threading.Event(), threading.Event(), threading.Event()

    async def inner() -> None:
        gate.wait(LIMIT)
        await asyncio.sleep(0)
        seen.set()
        again.wait(LIMIT)

    @bench.app.task(name="hog")
    async def hog() -> int:
        await inner()
        return 1

    job = hog.enqueue()
    bench.work()
    wait_until_warned(caplog, 1)
    line = inspect.getsourcelines(inner)[1] + 1
    (said,) = warnings(caplog)
    assert said.startswith(f"hog {job.id} has held up the event loop for ")
    assert f" it is at {__file__}:{line} in inner: " in said
    gate.set()
    wait_for(seen)
    held_again = time.monotonic() + 0.2
    while time.monotonic() < held_again:
        seen.wait(0.01)
    again.set()
    assert finished(job) == "done"
    assert len(warnings(caplog)) == 1


def test_jobs_that_await_or_take_many_short_steps_are_not_named(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    @bench.app.task(name="patient")
    async def patient() -> None:
        await asyncio.sleep(0.2)

    @bench.app.task(name="busy")
    async def busy() -> None:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            await asyncio.sleep(0)

    jobs = [patient.enqueue(), busy.enqueue()]
    bench.work()
    assert [finished(job) for job in jobs] == ["done", "done"]
    assert warnings(caplog) == []


def wait_until_warned(caplog: pytest.LogCaptureFixture, many: int) -> None:
    caplog.set_level(logging.WARNING, "tarry.worker")
    end = time.monotonic() + LIMIT
    while len(warnings(caplog)) < many:
        assert time.monotonic() < end
        threading.Event().wait(0.005)
