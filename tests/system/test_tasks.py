"""What tasks may do to themselves, and what may be done to them while they run."""

import time
from collections import Counter
from pathlib import Path

import pytest
from msgspec import json

from tests.cli.project import until
from tests.system.scene import Scene


@pytest.mark.parametrize(
    ("task", "kind", "told"),
    [("app.exits", "SystemExit", "3"), ("app.unkeepable", "ResultError", "app.unkeepable returned object")],
)
def test_an_end_that_is_no_result(scene: Scene, task: str, kind: str, told: str) -> None:
    scene.serve()
    (worker,) = scene.pids()
    (job,) = scene.put(task)
    until(lambda: scene.job(job).state == "dead")
    note = json.decode(scene.job(job).note)
    assert note["type"] == kind
    assert told in note["message"]
    (after,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(after).state == "done")
    assert scene.pids() == [worker]


def test_a_busy_loop_ends_by_its_timeout_in_the_same_worker(scene: Scene) -> None:
    scene.serve()
    (worker,) = scene.pids()
    (job,) = scene.put("app.spin")
    until(lambda: scene.job(job).state == "dead", 60)
    note = json.decode(scene.job(job).note)
    assert (note["type"], note["message"]) == ("TimeLimit", "stopped after its timeout of 0.5 s")
    assert "in spin" in note["traceback"]
    (began,) = scene.ledger("began")
    assert time.time() - began.at < 4
    (after,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(after).state == "done")
    assert scene.pids() == [worker]


def test_what_ignores_its_timeout_dies_with_its_worker_and_its_neighbours_go_on(scene: Scene) -> None:
    scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=10)
    scene.begun(10, asleep=10)
    (worker,) = scene.pids()
    (job,) = scene.put("app.cling")
    behind = scene.put("app.add", 1, 1, times=5)
    until(lambda: scene.job(job).state == "dead", 60)
    assert 1.0 <= time.time() - scene.ledger("began")[10].at < 10
    stuck = scene.job(job)
    assert (stuck.failures, stuck.crashes) == (1, 0)
    note = json.decode(stuck.note)
    assert (note["type"], note["message"]) == (
        "TimeLimit", "it did not end after its timeout, so its worker was killed",
    )  # fmt: skip
    assert f"worker default.1 killed, pid {worker}: job" in scene.log()
    scene.open("go")
    until(scene.all_finished)
    assert {(scene.job(id).state, scene.job(id).attempt) for id in (*asyncs, *behind)} == {("done", 1)}


@pytest.mark.parametrize(("task", "told"), [("app.wait", "CalledBack"), ("app.await_gate", "cancelled")])
def test_a_cancel_reaches_what_runs(scene: Scene, task: str, told: str) -> None:
    scene.serve()
    (worker,) = scene.pids()
    (job,) = scene.put(task, "go")
    scene.begun(1)
    assert scene.said("jobs", "cancel", job) == f"{job} cancelled"
    cancelled = time.time()  # after the command, whose own start takes seconds on a busy machine
    until(lambda: scene.ledger(told))
    took = scene.ledger(told)[0].at - cancelled
    print(f"cancel reached {task} in {took:.3f} s")
    assert took < 3
    scene.open("go")
    (after,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(after).state == "done")
    assert scene.job(job).state == "cancelled"
    assert [line.job for line in scene.ledger("ended")] == [after]
    assert scene.pids() == [worker]


def test_cancel_of_many_reaches_what_runs(scene: Scene) -> None:
    scene.serve()
    jobs = scene.put("app.await_gate", "go", times=30)
    scene.begun(30)
    record = scene.facts("jobs", "cancel", "--state", "running", "--yes")
    assert (record["matched"], record["changed"]) == (30, 30)
    until(lambda: len(scene.ledger("cancelled")) == 30, 60)
    assert scene.states() == dict.fromkeys(jobs, "cancelled")


def test_a_paused_queue_rests_until_it_is_resumed(scene: Scene) -> None:
    scene.serve()
    scene.said("queues", "pause", "slow", "--force")
    (paused,) = scene.put("app.add", 1, 1, queue="slow")
    others = scene.put("app.add", 1, 1, times=20)
    until(lambda: all(scene.job(id).state == "done" for id in others))
    assert scene.job(paused).state == "ready"
    scene.said("queues", "resume", "slow")
    until(lambda: scene.job(paused).state == "done")


def test_a_job_is_not_early_and_hardly_late(scene: Scene) -> None:
    scene.serve()
    (id,) = scene.put("app.add", 1, 1, delay=1.0)
    until(lambda: scene.job(id).state == "done")
    (ended,) = scene.ledger("ended")
    late = ended.at - scene.job(id).due / 1e6
    print(f"late by {late * 1000:.1f} ms")
    assert 0 <= late < 2


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").replace("\0", " ")


def test_the_titles_of_processes_say_what_each_is(scene: Scene) -> None:
    pytest.importorskip("setproctitle")
    scene.is_real = True
    master = scene.serve()
    (worker,), (keeper,) = scene.pids(), scene.pids("keeper")
    assert (title(master.pid), title(keeper)) == ("tarry: master tarry.toml", "tarry: keeper")
    assert title(worker) == "tarry: worker default.1"
    (job,) = scene.put("app.wait", "go")
    until(lambda: title(worker) == "tarry: worker default.1 app.wait")
    scene.open("go")
    until(lambda: scene.job(job).state == "done")
    until(lambda: title(worker) == "tarry: worker default.1")
    scene.stopped()


def test_without_the_extra_all_works_and_titles_stay(scene: Scene) -> None:
    scene.write("setproctitle.py", "raise ImportError")
    scene.is_real = True
    master = scene.serve()
    assert "tarry start" in title(master.pid)
    (job,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(job).state == "done")
    scene.stopped()


def test_no_worker_runs_more_jobs_than_max_jobs_says(scene: Scene) -> None:
    scene.settings("[pools.default]\nworkers = 2\nmax_jobs = 20\n")
    scene.serve()
    jobs = [*scene.put("app.add", 1, 1, times=100), *scene.put("app.aadd", 1, 1, times=100)]
    until(scene.all_finished, 60)
    assert scene.times("ended") == dict.fromkeys(jobs, 1)
    by_worker = Counter(line.pid for line in scene.ledger("ended"))
    print(f"jobs by worker: {sorted(by_worker.values())}")
    assert max(by_worker.values()) <= 20
    scene.stopped()
