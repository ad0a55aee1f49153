"""A process is killed before and after each call of the place and of the store: no job is without its object."""

import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.config.config import Config, PayloadsConfig
from tarry.store.payloads import sweep
from tarry.store.payloads.file_place import FilePlace
from tarry.store.sqlite.store import SqliteStore
from tests.cli.project import until

LARGE = "x" * 20_000
_CALLS = ((FilePlace, "write"), (FilePlace, "delete"), (SqliteStore, "insert"), (SqliteStore, "exchange"))


def make_app(directory: Path) -> Any:
    app = App(f"sqlite:///{directory}/jobs.db", closures=True)
    app.configure(Config(payloads=PayloadsConfig(to=f"file://{directory}/large", over=100)))

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    return app


def work(app: Any) -> None:
    """Enqueues two jobs, one of which finds its key taken, and runs them."""
    for text in (LARGE, LARGE + "y"):
        app.tasks["echo"].using(key="one").enqueue(text)
    app.tasks["echo"].enqueue(LARGE)
    app.drain(timeout=20)
    look_through(app)


def look_through(app: Any) -> None:
    store = app.client.store
    chore = sweep.PayloadSweep(store.payloads, "ann", store.time)
    while chore.step():
        pass


def run_all(app: Any, jobs: list[Any]) -> None:
    until(lambda: app.drain() >= 0 and all(job.state.finished for job in jobs))


def kill_at(number: int, patch: pytest.MonkeyPatch) -> None:
    """Makes this process kill itself at that border of a call: even numbers before, odd ones after."""
    borders = count()

    def counted(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            _die_at(number, next(borders))
            answer = inner(*args, **options)
            _die_at(number, next(borders))
            return answer

        return call

    for owner, name in _CALLS:
        patch.setattr(owner, name, counted(getattr(owner, name)))


def _die_at(number: int, border: int) -> None:
    if border == number:
        os.kill(os.getpid(), signal.SIGKILL)


def run_killed(directory: Path, number: int, patch: pytest.MonkeyPatch) -> bool:
    """Whether it was killed."""
    if pid := os.fork():
        status = os.waitpid(pid, 0)[1]
        assert status in (0, signal.SIGKILL)
        return status != 0
    try:
        signal.alarm(60)
        kill_at(number, patch)
        work(make_app(directory))
        os._exit(0)
    finally:
        os._exit(3)


def test_no_job_is_without_its_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The oldest objects go at once, so that every sweep is the one a day later.
    monkeypatch.setattr(sweep, "OLD", -10.0)
    monkeypatch.setattr(sweep, "EVERY", 0)
    monkeypatch.setattr(sweep, "_HOLD_FOR", 0)
    for number in count():
        directory = tmp_path / str(number)
        (directory / "large").mkdir(parents=True)
        with monkeypatch.context() as patch:
            was_killed = run_killed(directory, number, patch)
        app = make_app(directory)
        look_through(app)
        jobs = list(app.jobs(task="echo"))
        run_all(app, jobs)
        assert {job.result() for job in jobs} <= {LARGE, LARGE + "y"}
        look_through(app)
        assert len(list((directory / "large").rglob("*-arguments-*"))) == len(jobs)
        app.close()
        if not was_killed:
            assert number > 10
            assert len(jobs) == 2
            return
