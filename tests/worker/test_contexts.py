"""What a job sets for itself alone does not reach the next job, whatever runs it."""

import decimal
import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tarry import App, CurrentJob
from tarry.testing import Jobs
from tests.worker.bench import Bench

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def touch() -> list[Any]:
    """What the job finds; it leaves something else."""
    found = [tenant.get(), decimal.getcontext().prec]
    tenant.set("acme")
    decimal.getcontext().prec = 5
    return found


def plain(app: App) -> Any:
    return app.task(name="t")(lambda number: touch())


def batch(app: App) -> Any:
    return app.task(name="t", batch=1)(lambda numbers: [touch() for _ in numbers])


def hooked(app: App) -> Any:
    task = plain(app)

    @task.on_success
    def leave(job: CurrentJob, value: object) -> None:
        touch()

    return task


def awaits(app: App) -> Any:
    @app.task(name="t")
    async def t(number: int) -> list[Any]:
        return touch()

    return t


def awaits_batch(app: App) -> Any:
    @app.task(name="t", batch=1)
    async def t(numbers: list[int]) -> list[list[Any]]:
        return [touch() for _ in numbers]

    return t


@pytest.mark.parametrize("make", [plain, batch, hooked, awaits, awaits_batch])
@pytest.mark.parametrize("uvloop", [False, True])
def test_context_variables_and_decimals_do_not_leak(bench: Bench, make: Callable[[App], Any], uvloop: bool) -> None:
    task = make(bench.app)
    jobs = [task.enqueue(number) for number in range(4)]
    # One at a time, and the others wait for it: so the next one begins where the last one ended.
    bench.work(threads=1, coroutines=1, uvloop=uvloop)
    assert [job.result(timeout=15) for job in jobs] == [["nobody", 28]] * 4


@pytest.mark.parametrize("make", [plain, awaits])
def test_the_test_kit_does_not_leak_either(jobs: Jobs, make: Callable[[App], Any]) -> None:
    # As in a test that has used decimals itself.
    decimal.getcontext()
    task = make(jobs.app)
    handles = [task.enqueue(number) for number in range(2)]
    jobs.drain()
    assert [handle.result(timeout=0) for handle in handles] == [["nobody", 28]] * 2
    assert [tenant.get(), decimal.getcontext().prec] == ["nobody", 28]


DJANGO = """
import sys
from django.conf import settings
settings.configure(USE_TZ=True, TIME_ZONE="UTC", LANGUAGE_CODE="en", USE_I18N=True)
import django
django.setup()
from django.utils import timezone, translation
from tarry import App

app = App(sys.argv[1], closures=True)

def touch() -> list[str]:
    found = [translation.get_language(), timezone.get_current_timezone_name()]
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    return found

@app.task
def plain() -> list[str]:
    return touch()

@app.task
async def coroutine() -> list[str]:
    return touch()

with app.running(threads=1, coroutines=1):
    for task in (plain, coroutine):
        jobs = [task.enqueue() for _ in range(3)]
        print([job.result(timeout=30) for job in jobs])
app.close()
"""


def test_the_language_and_the_zone_of_django_do_not_leak(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO, f"sqlite:///{tmp_path}/tarry.db"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.splitlines() == [str([["en", "UTC"]] * 3)] * 2, ran.stderr
