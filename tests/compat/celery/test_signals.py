"""Signals of tasks and workers: when they are sent, and what is said of those that are not."""

import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.compat.celery import CeleryDifference, chain, chord, signals
from tarry.compat.celery.differences import forget_warnings
from tarry.compat.celery.signals import CelerySignal
from tarry.testing.kit import Jobs
from tests.compat.celery import moved

OF_TASKS = (
    "before_task_publish", "after_task_publish", "task_prerun", "task_postrun", "task_success", "task_failure",
    "task_retry", "task_revoked",
)  # fmt: skip
OF_WORKERS = ("worker_init", "worker_process_init", "worker_ready", "worker_process_shutdown", "worker_shutdown")
NEVER = ("task_received", "task_unknown", "celeryd_init", "beat_init", "heartbeat_sent", "after_setup_logger")


class Heard:
    """What was sent, in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, signal: CelerySignal, **named: Any) -> None:
        self.sent.append((signal.name, named))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]

    def of(self, name: str) -> dict[str, Any]:
        return next(named for found, named in self.sent if found == name)


@pytest.fixture
def heard() -> Iterator[Heard]:
    receiver = Heard()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CeleryDifference)
        for name in OF_TASKS + OF_WORKERS:
            getattr(signals, name).connect(receiver)
    yield receiver
    for name in OF_TASKS + OF_WORKERS:
        assert getattr(signals, name).disconnect(receiver)


def tasks_only(heard: Heard) -> list[str]:
    return [name for name in heard.names if name in OF_TASKS]


def test_a_call_that_ends_well(jobs: Jobs, heard: Heard) -> None:
    result = moved.add.delay(1, 2)
    assert heard.names == ["before_task_publish", "after_task_publish"]
    before = heard.of("before_task_publish")
    assert before["sender"] == moved.add.name
    assert (before["headers"]["id"], before["headers"]["task"]) == (result.id, moved.add.name)
    assert before["body"][:2] == ([1, 2], {})
    jobs.drain()
    assert tasks_only(heard)[2:] == ["task_prerun", "task_success", "task_postrun"]
    prerun, postrun = heard.of("task_prerun"), heard.of("task_postrun")
    assert (prerun["sender"], prerun["task_id"], prerun["args"]) == (moved.add, result.id, (1, 2))
    assert (postrun["retval"], postrun["state"], postrun["kwargs"]) == (3, "SUCCESS", {})
    assert heard.of("task_success")["result"] == 3


def test_one_that_fails(jobs: Jobs, heard: Heard) -> None:
    result = moved.fails.delay("no")
    jobs.drain()
    assert tasks_only(heard)[2:] == ["task_prerun", "task_failure", "task_postrun"]
    failure = heard.of("task_failure")
    assert (str(failure["exception"]), failure["task_id"]) == ("no", result.id)
    assert "ValueError" in str(failure["einfo"])
    assert failure["traceback"] is not None
    assert heard.of("task_postrun")["state"] == "FAILURE"


def test_one_that_is_tried_again(jobs: Jobs, heard: Heard) -> None:
    moved.once_more.delay()
    jobs.drain()
    jobs.advance(180)
    jobs.drain()
    told = tasks_only(heard)[2:]
    assert told[:3] == ["task_prerun", "task_retry", "task_postrun"]
    assert told[3:] == ["task_prerun", "task_success", "task_postrun"]
    assert "not yet" in str(heard.of("task_retry")["reason"])


def test_a_worker_that_dies_is_no_failure_while_the_job_comes_back(jobs: Jobs, heard: Heard) -> None:
    moved.add.delay(1, 2)
    jobs.kill_worker_during(moved.add.name)
    jobs.drain()
    assert "task_failure" not in heard.names
    assert heard.names.count("task_prerun") == 2


def test_one_that_is_revoked(jobs: Jobs, heard: Heard) -> None:
    result = moved.add.delay(1, 2)
    moved.plain.control.revoke(result.id)
    moved.plain.control.revoke(result.id)
    moved.plain.control.revoke([None, "nobody"])
    assert heard.names.count("task_revoked") == 1
    told = heard.of("task_revoked")
    assert (told["request"].id, told["sender"], told["terminated"]) == (result.id, moved.add, False)


def test_a_handler_may_change_headers_and_arguments(jobs: Jobs) -> None:
    def change(sender: str, headers: dict[str, Any], body: Any, **named: Any) -> None:
        headers["source"] = {"by": "handler"}
        if sender == moved.add.name:
            body[1]["y"] = 4

    signals.before_task_publish.connect(change)
    try:
        told, added = moved.headers.delay(), moved.add.delay(3, y=0)
    finally:
        signals.before_task_publish.disconnect(change)
    jobs.drain()
    assert (told.get()[0], added.get()) == ({"by": "handler"}, 7)


def test_a_chain_and_a_chord_are_announced_with_the_ids_of_their_jobs(jobs: Jobs, heard: Heard) -> None:
    chain(moved.add.s(1, 2), moved.add.s(3)).delay()
    chord([moved.add.s(1, 1)], moved.note.s()).delay()
    told = [named["headers"]["id"] for name, named in heard.sent if name == "before_task_publish"]
    assert set(told) == {job.job.id for job in jobs.enqueued(moved.add.name) + jobs.enqueued(moved.note.name)}
    jobs.drain()


def test_what_a_handler_raises_is_logged_and_changes_nothing(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    def broken(**named: Any) -> None:
        raise RuntimeError("a handler")

    signals.task_prerun.connect(broken)
    try:
        result = moved.add.delay(1, 2)
        with caplog.at_level(logging.ERROR, "tarry.celery"):
            jobs.drain()
    finally:
        signals.task_prerun.disconnect(broken)
    assert result.get() == 3
    assert "task_prerun" in caplog.text


def test_senders_and_double_connects() -> None:
    signal, calls = CelerySignal("x"), []

    @signal.connect(sender=moved.add)
    def one(**named: Any) -> None:
        calls.append(named["sender"])

    signal.connect(one, sender=moved.add)
    signal.connect(one, dispatch_uid="other")
    signal.send(moved.fails)
    assert calls == [moved.fails]
    signal.send(moved.add.name)
    assert len(calls) == 3


@pytest.mark.parametrize("name", NEVER)
def test_what_is_never_sent_is_said_at_connect(name: str) -> None:
    forget_warnings()
    signal = getattr(signals, name)
    with pytest.warns(CeleryDifference, match=f"signal {name}: it is never sent") as told:
        signal.connect(print)
    assert signal.disconnect(print)
    assert told[0].filename == __file__


LOGGING = """
import logging, logging.config
from tarry.compat.celery import Celery
from tarry.compat.celery.signals import setup_logging, worker_process_init, worker_process_shutdown
app = Celery("logging")

@setup_logging.connect
def own(**kwargs):
    logging.config.dictConfig({"version": 1, "root": {"level": "INFO", "handlers": ["out"]}, "handlers": {
        "out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}}})

@worker_process_init.connect
def begin(**kwargs):
    print("begins")

@worker_process_shutdown.connect
def end(**kwargs):
    print("ends")

@app.task
def work():
    logging.getLogger("shop").info("worked")

if __name__ == "__main__":
    logging.getLogger("tarry.worker")
    work.delay(); app.drain(); work.delay(); app.drain()
    print(logging.getLogger("tarry.worker").disabled)
    app.close()
"""


def test_a_worker_of_one_process_begins_once_and_logs_as_the_app_says(tmp_path: Path) -> None:
    (tmp_path / "own_logging.py").write_text(LOGGING)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import runpy; runpy.run_module('own_logging', run_name='__main__')"],
        cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["begins", "worked", "worked", "False", "ends"], ran.stderr
