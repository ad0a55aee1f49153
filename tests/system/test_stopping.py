"""The ways to end a master with jobs on: nothing is lost, and no interruption by us counts."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.cli.project import until
from tests.system.scene import Scene

LONG_GRACE = "[master]\nterm_grace = 60\n"
"""Whoever waits for it waits too long."""


def both_kinds(scene: Scene) -> list[str]:
    """One sync job and ten async ones that run until the gate opens."""
    jobs = [*scene.put("app.wait", "go"), *scene.put("app.await_gate", "go", times=10)]
    scene.begun(11)
    return jobs


def back_uncounted(scene: Scene, jobs: list[str]) -> None:
    """Nobody lives, and every job is ready as if it had never begun."""
    until(lambda: not scene.processes())
    assert scene.states() == dict.fromkeys(jobs, "ready")
    assert {(job.attempt, job.crashes, job.owner) for job in scene.jobs()} == {(1, 0, "")}
    assert not scene.ledger("ended")


def test_stop_lets_them_finish_and_starts_no_more(scene: Scene) -> None:
    master = scene.serve()
    jobs = both_kinds(scene)
    (told,) = scene.put("app.await_stop")
    scene.begun(12)
    waiting = scene.put("app.wait", "go", times=3)
    master.send_signal(signal.SIGINT)
    # The master's state comes before the signal to the worker.
    until(lambda: scene.job(told).state == "done")
    late = scene.put("app.add", 1, 1)
    scene.open("go")
    assert master.wait(20) == 0
    until(lambda: not scene.processes())
    assert scene.states() == dict.fromkeys([*jobs, told], "done") | dict.fromkeys([*waiting, *late], "ready")
    assert {job.attempt for job in scene.jobs()} == {1}


def test_quit_gives_them_back_and_the_next_start_runs_them(scene: Scene) -> None:
    scene.settings(LONG_GRACE)
    master = scene.serve()
    jobs = both_kinds(scene)
    assert scene.said("quit") == "ended"
    assert master.wait(20) == 0
    back_uncounted(scene, jobs)
    scene.open("go")
    scene.serve()
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys(jobs, 1)


def second_int(scene: Scene, send: Callable[[int], None]) -> None:
    send(signal.SIGINT)
    until(lambda: scene.board().state == "stopping")
    send(signal.SIGINT)


def second_term(scene: Scene, send: Callable[[int], None]) -> None:
    send(signal.SIGTERM)
    until(lambda: scene.board().state == "stopping")
    send(signal.SIGTERM)


def int_then_quit_command(scene: Scene, send: Callable[[int], None]) -> None:
    send(signal.SIGINT)
    until(lambda: scene.board().state == "stopping")
    assert scene.tarry("quit").status == 0


@pytest.mark.parametrize("way", [second_int, second_term, int_then_quit_command])
def test_a_stop_that_becomes_a_quit(scene: Scene, way: Callable[[Scene, Callable[[int], None]], None]) -> None:
    scene.settings(LONG_GRACE)
    master = scene.serve()
    jobs = both_kinds(scene)
    way(scene, master.send_signal)
    assert master.wait(20) == 0
    back_uncounted(scene, jobs)


@pytest.mark.parametrize("grace", [0, 1.5])
def test_term_waits_for_the_grace_and_no_longer(scene: Scene, grace: float) -> None:
    scene.settings(f"[master]\nterm_grace = {grace}\n")
    master = scene.serve()
    jobs = both_kinds(scene)
    began = time.monotonic()
    master.send_signal(signal.SIGTERM)
    assert master.wait(20) == 0
    # The usual grace is 8 seconds.
    assert grace <= time.monotonic() - began < 8
    back_uncounted(scene, jobs)


def test_term_is_over_at_once_when_the_jobs_are(scene: Scene) -> None:
    scene.settings(LONG_GRACE)
    master = scene.serve()
    jobs = both_kinds(scene)
    master.send_signal(signal.SIGTERM)
    until(lambda: scene.board().state == "stopping")
    scene.open("go")
    assert master.wait(20) == 0
    assert scene.states() == dict.fromkeys(jobs, "done")


def test_restart_while_they_run(scene: Scene) -> None:
    scene.serve()
    jobs = both_kinds(scene)
    scene.said("restart", "-d")
    scene.begun(22)
    scene.open("go")
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys(jobs, 1)
    assert {job.attempt for job in scene.jobs()} == {1}
    scene.stopped()


def test_a_worker_told_to_finish_is_replaced(scene: Scene) -> None:
    scene.serve()
    jobs = both_kinds(scene)
    (worker,) = scene.pids()
    os.kill(worker, signal.SIGINT)
    scene.open("go")
    until(scene.all_finished)
    assert scene.replaced(worker)
    assert scene.times("began") == dict.fromkeys(jobs, 1)
    (id,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(id).state == "done")


def test_a_thread_that_a_task_left_running_does_not_keep_the_worker(scene: Scene) -> None:
    master = scene.serve()
    (job,) = scene.put("app.leaks")
    until(lambda: scene.job(job).state == "done")
    assert scene.said("stop", "--timeout", "20") == "stopped"
    assert master.wait(20) == 0
    until(lambda: not scene.processes())
