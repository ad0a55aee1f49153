"""Canvases beside those of the real Celery: the same results, values and options, case by case."""

import json
import subprocess
import sys
from typing import Any

import pytest

import tarry.compat.celery as canvas
from tarry.compat.celery import Celery
from tarry.model.overrides import timeout_of
from tarry.testing.kit import Jobs
from tests.compat.celery.canvas_cases import OPTIONS, RUN, SENT, VALUES, define

pytest.importorskip("celery")

app = Celery("beside", set_as_current=False)
m = define(app, canvas)


@pytest.fixture(scope="module")
def real() -> dict[str, list[Any]]:
    """What the real Celery gives for each case."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.compat.celery.real_canvas"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[Any]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def outcome(result: Any) -> Any:
    if result is None:
        return ["nothing"]
    try:
        return ["gave", result.get(timeout=1)]
    except Exception as error:
        return ["raised", type(error).__name__, str(error)]


@pytest.mark.parametrize("number", range(len(RUN)))
def test_a_canvas_gives_what_it_gives_there(jobs: Jobs, real: dict[str, list[Any]], number: int) -> None:
    result = RUN[number](m)
    jobs.drain()
    assert json.loads(json.dumps(outcome(result))) == real["run"][number]


@pytest.mark.parametrize("number", range(len(RUN)))
def test_an_eager_canvas_gives_the_same(jobs: Jobs, real: dict[str, list[Any]], number: int) -> None:
    app.conf.task_always_eager = True
    try:
        assert json.loads(json.dumps(outcome(RUN[number](m)))) == real["run"][number]
    finally:
        app.conf.task_always_eager = False
    assert jobs.enqueued() == []


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_call_is_the_same_value_as_there(jobs: Jobs, real: dict[str, list[Any]], number: int) -> None:
    assert json.loads(json.dumps(VALUES[number](m))) == real["values"][number]


@pytest.mark.parametrize("number", range(len(SENT)))
def test_options_are_for_the_calls_for_which_they_are_there(
    jobs: Jobs, real: dict[str, list[Any]], number: int
) -> None:
    expected = real["sent"][number * len(OPTIONS) :]
    for options, theirs in zip(OPTIONS, expected, strict=False):
        before = {found.job.id for found in jobs.enqueued()}
        SENT[number](m).apply_async(**options)
        jobs.drain()
        ours = [facts(found) for found in jobs.enqueued() if found.job.id not in before and _is_call(found)]
        assert sorted(ours, key=str) == theirs, options


def _is_call(found: Any) -> bool:
    return str(found.job.record().task).startswith("cases.")


def facts(found: Any) -> list[Any]:
    record = found.job.record()
    return [record.task, record.queue, record.priority, bool(record.expires), timeout_of(record.headers, None)]
