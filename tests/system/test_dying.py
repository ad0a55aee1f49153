"""Processes are killed, stopped and cut off; no job is lost, and only one that was on counts it."""

import os
import signal
import time
from collections import Counter

import pytest
from msgspec import json

from tests.cli.project import until
from tests.system.scene import APP, Scene

pytestmark = pytest.mark.usefixtures("checked_history")


def test_a_worker_killed_at_fifty_async_jobs(scene: Scene) -> None:
    scene.serve()
    jobs = scene.put("app.await_gate", "go", times=50)
    scene.begun(50, asleep=50)
    (worker,) = scene.pids()
    killed = time.time()
    scene.kill(worker)
    until(lambda: len(scene.ledger("began")) == 100)
    took = max(line.at for line in scene.ledger("began")) - killed
    print(f"50 jobs ran again {took:.3f} s after their worker was killed")
    assert took < 5
    scene.open("go")
    until(scene.all_finished)
    assert set(scene.states().values()) == {"done"}
    assert scene.times("began") == dict.fromkeys(jobs, 2)
    assert scene.times("ended") == dict.fromkeys(jobs, 1)
    assert {(job.attempt, job.crashes) for job in scene.jobs()} == {(1, 0)}
    assert {line.attempt for line in scene.ledger()} == {1}


def test_a_worker_killed_at_one_sync_job_and_the_async_beside_it(scene: Scene) -> None:
    scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=10)
    (sync,) = scene.put("app.wait", "go")
    scene.begun(11, asleep=10)
    scene.kill(scene.pids()[0])
    scene.begun(22)
    scene.open("go")
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys([*asyncs, sync], 1)
    assert {job: scene.job(job).attempt for job in (*asyncs, sync)} == dict.fromkeys(asyncs, 1) | {sync: 2}
    assert scene.job(sync).note == b'"attempt 2"'


@pytest.mark.parametrize("task", ["app.die", "app.adie"])
def test_what_kills_three_workers_is_poison_and_its_neighbours_are_innocent(scene: Scene, task: str) -> None:
    scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=20)
    (killer,) = scene.put(task, 20)
    behind = scene.put("app.add", 1, 1, times=20) if task == "app.die" else []
    scene.ended(killer)
    dead = scene.job(killer)
    assert (dead.state, dead.crashes, dead.failures) == ("dead", 3, 3), dead.note
    assert json.decode(dead.note)["type"] == "Poison"
    assert [line.attempt for line in scene.ledger("dies")] == [1, 2, 3]
    (mourned,) = until(lambda: scene.ledger("mourned"))
    assert (mourned.job, [mourned.pid]) == (killer, scene.pids("keeper"))
    assert [line.attempt for line in scene.ledger("failed")] == [1, 2, 3]
    scene.open("go")
    until(scene.all_finished)
    assert {(scene.job(id).state, scene.job(id).attempt) for id in (*asyncs, *behind)} == {("done", 1)}
    # What ended just before the killer's turn may have died unsettled, and then it ran once more.
    assert scene.times("ended").keys() == {*asyncs, *behind}
    assert {scene.times("ended")[id] for id in asyncs} == {1}
    assert scene.said("stop") == "stopped"


GREEDY = """

@app.task
def greedy() -> None:
    tell("dies")
    much = b"x" * 300_000_000
    time.sleep(600)
    print(len(much))
"""


def test_what_takes_too_much_memory_is_poison_and_its_neighbours_end(scene: Scene) -> None:
    scene.write("app.py", APP + GREEDY)
    scene.settings('[pools.default]\nworkers = 1\nmax_memory = "200MB"\nkill_memory = "200MB"\n')
    scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=3)
    (greedy,) = scene.put("app.greedy")
    scene.ended(greedy)
    dead = scene.job(greedy)
    assert (dead.state, dead.crashes, json.decode(dead.note)["type"]) == ("dead", 3, "Poison")
    assert scene.log().count(f"more than kill_memory; jobs on, each counts a death: {greedy} (app.greedy)") == 3
    scene.open("go")
    until(scene.all_finished)
    assert {(scene.job(id).state, scene.job(id).attempt, scene.job(id).crashes) for id in asyncs} == {("done", 1, 0)}


SHUTS = """

@app.task
def shuts() -> None:
    tell("dies")
    os.closerange(3, 1024)


@app.task
def shuts_and_goes_on() -> None:
    shuts()
    time.sleep(600)


@app.task
async def ashuts() -> None:
    shuts()


@app.task
async def ashuts_and_waits() -> None:
    shuts()
    await asyncio.sleep(600)


@app.task
def shuts_from_a_thread() -> None:
    thread = threading.Thread(target=os.closerange, args=(3, 1024))
    thread.start()
    thread.join()
    tell("dies")
"""


@pytest.mark.parametrize("task", ["shuts", "shuts_and_goes_on", "ashuts", "ashuts_and_waits", "shuts_from_a_thread"])
def test_what_closes_the_descriptors_of_its_worker_is_poison_and_its_neighbours_end(scene: Scene, task: str) -> None:
    scene.write("app.py", APP + SHUTS)
    scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=3)
    scene.begun(3, asleep=3)
    (killer,) = scene.put(f"app.{task}")
    behind = scene.put("app.add", 1, 1, times=50)
    began = time.time()
    scene.ended(killer)
    took = time.time() - began
    print(f"{task}: {took:.1f} s to its third death")
    dead = scene.job(killer)
    assert (dead.state, dead.crashes, json.decode(dead.note)["type"]) == ("dead", 3, "Poison")
    assert scene.log().count("status 4: a job closed its descriptors") >= 3
    assert took < 30, "each was deaf for up to 12 s"
    scene.open("go")
    until(scene.all_finished)
    assert {scene.job(id).state for id in (*asyncs, *behind)} == {"done"}
    # At each death two may count it: the job that ran in the thread, and the one that ran the loop's last step.
    deaths = scene.log().count("status 4: a job closed its descriptors")
    assert sum(scene.job(id).crashes for id in (killer, *asyncs, *behind)) <= 2 * deaths


@pytest.mark.parametrize("task", ["app.together", "app.atogether"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_kills_a_call_for_many_is_found_and_only_it_is_poison(scene: Scene, task: str, threads: int) -> None:
    scene.settings(f"[pools.default]\nworkers = 1\nthreads = {threads}\n")
    jobs = [id for number in range(20) for id in scene.put(task, number)]
    (late,) = scene.put("app.add", 1, 1, delay=0.5)
    # A worker that dies while the master starts would end the start.
    with scene.store() as store:
        store.pause("default", True)
        scene.serve()
        store.pause("default", False)
    scene.ended(*jobs, late)
    killer = jobs.pop(13)
    dead = scene.job(killer)
    assert (dead.state, dead.crashes, json.decode(dead.note)["type"]) == ("dead", 3, "Poison"), dead.note
    assert {scene.job(id).state for id in jobs} == {"done"}
    # With a second thread, one may be on by chance just when the killer is tried alone.
    assert max(scene.job(id).crashes for id in jobs) <= threads
    began = Counter(line.pid for line in scene.ledger("began") if line.job == killer)
    assert len(began) == 3, "three workers"
    # Once together; then alone, and perhaps again after its worker died beside it with the outcome unsettled.
    assert set(scene.times("began").values()) <= {1, 2, 3, 4}
    assert scene.times("ended").keys() == {*jobs, late}
    assert scene.said("stop") == "stopped"


def test_a_killed_master_leaves_workers_that_finish_and_claim_no_more(scene: Scene) -> None:
    scene.settings("[pools.default]\nworkers = 2\n")
    master = scene.serve()
    busy = scene.put("app.wait", "go", times=2)
    scene.begun(2)
    workers = scene.pids()
    scene.kill(master.pid)
    master.wait()
    until(lambda: scene.log().count("the master is gone") == 2)
    until(lambda: scene.processes() == sorted(workers))
    late = scene.put("app.add", 1, 1, times=5)
    scene.open("go")
    until(lambda: not scene.processes())
    assert scene.states() == dict.fromkeys(busy, "done") | dict.fromkeys(late, "ready")
    assert {scene.job(id).epoch for id in late} == {0}
    scene.serve()
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys([*busy, *late], 1)


def test_a_new_master_starts_while_workers_of_a_killed_one_still_work(scene: Scene) -> None:
    first = scene.serve()
    (busy,) = scene.put("app.wait", "go")
    scene.begun(1)
    (orphan,) = scene.pids()
    scene.kill(first.pid)
    first.wait()
    assert scene.tarry("status").status == 3
    scene.serve()
    (job,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(job).state == "done")
    assert [line.pid for line in scene.ledger("ended")] != [orphan]
    assert scene.job(busy).state == "running"
    scene.open("go")
    until(scene.all_finished)
    until(lambda: orphan not in scene.processes())
    assert scene.times("began") == {busy: 1}
    assert (scene.job(busy).attempt, scene.job(busy).epoch) == (1, 1)
    scene.stopped()


def test_when_all_are_killed_the_next_start_brings_everything_back_at_once(scene: Scene) -> None:
    scene.settings("[pools.default]\nworkers = 2\n")
    master = scene.serve()
    asyncs = scene.put("app.await_gate", "go", times=20)
    syncs = scene.put("app.wait", "go", times=2)
    scene.begun(22, asleep=20)
    for pid in (master.pid, *scene.processes()):
        scene.strike(pid)
    master.wait()
    until(lambda: not scene.processes())
    assert set(scene.states().values()) == {"running"}
    began = time.time()
    scene.serve()
    scene.begun(44)
    took = max(line.at for line in scene.ledger("began")) - began
    print(f"22 jobs ran again {took:.3f} s after the next start")
    assert took < 10, "only when the lease of 30 s ended?"
    scene.open("go")
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys([*asyncs, *syncs], 1)
    assert {scene.job(id).attempt for id in asyncs} == {1}


def test_the_log_says_that_a_lease_was_lost_where_a_worker_is_killed_for_it(scene: Scene) -> None:
    scene.settings('[pools.default]\nworkers = 2\nlease = "2s"\n')
    scene.serve()
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    (first,) = {line.pid for line in scene.ledger("began")}
    scene.halt(first)
    until(lambda: f"killed, pid {first}: job {job} (app.wait) still ran" in scene.log())
    assert "after its start, though its lease was lost" in scene.log()
    scene.open("go")
    scene.ended(job)


def test_a_worker_that_sleeps_beyond_its_lease_changes_nothing_any_more(scene: Scene) -> None:
    # Who sleeps on would be killed for what it is at, since that is no longer its own.
    scene.settings('[pools.default]\nworkers = 2\nlease = "2s"\nkill_after = "1m"\n')
    scene.serve()
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    (first,) = {line.pid for line in scene.ledger("began")}
    scene.halt(first)
    scene.begun(2)
    second = scene.ledger("began")[1].pid
    assert second != first
    scene.open("go")
    until(lambda: scene.job(job).state == "done")
    done = scene.job(job)
    assert (done.epoch, done.failures, done.crashes) == (2, 0, 0)
    os.kill(first, signal.SIGCONT)
    until(lambda: {line.pid for line in scene.ledger() if line.what != "began"} == {first, second})
    # It takes other jobs again, after its late outcome was refused.
    until(lambda: scene.put("app.add", 1, 1) and first in {line.pid for line in scene.ledger("ended")[1:]})
    assert scene.job(job) == done
    scene.stopped()


@pytest.mark.parametrize(("task", "crashes"), [("app.wait", {1}), ("app.await_gate", {0, 1})])
def test_a_worker_that_somebody_ends_by_term(scene: Scene, task: str, crashes: set[int]) -> None:
    scene.serve()
    (job,) = scene.put(task, "go")
    scene.begun(1)
    (worker,) = scene.pids()
    os.kill(worker, signal.SIGTERM)
    scene.begun(2)
    assert scene.ledger("began")[1].pid != worker
    scene.open("go")
    until(scene.all_finished)
    assert scene.times("ended") == {job: 1}
    # One that was on may have sent the signal; one that waits in the event loop counts it if it ran the last step.
    assert scene.job(job).crashes in crashes
    assert scene.job(job).attempt == 1 + scene.job(job).crashes


ENDS_ITS_WORKER = """

def end() -> None:
    tell("dies")
    os.kill(os.getpid(), signal.SIGTERM)


@app.task
def ends_worker_again_and_again() -> None:
    while True:
        end()
        time.sleep(0.1)


@app.task
async def aends_worker() -> None:
    end()
    await asyncio.sleep(600)


@app.task
async def aends_worker_in_thread() -> None:
    await asyncio.to_thread(end)
    time.sleep(600)
"""


@pytest.mark.parametrize("task", ["ends_worker_again_and_again", "aends_worker", "aends_worker_in_thread"])
def test_a_job_that_ends_its_worker_by_term_is_poison(scene: Scene, task: str) -> None:
    scene.write("app.py", APP + ENDS_ITS_WORKER)
    scene.serve()
    (neighbour,) = scene.put("app.await_gate", "go")
    scene.begun(1)
    (killer,) = scene.put(f"app.{task}")
    until(lambda: scene.job(killer).crashes == 2)
    # The neighbour may count as many, and then they are not run beside each other.
    scene.open("go")
    scene.ended(killer)
    dead = scene.job(killer)
    assert (dead.state, dead.crashes, json.decode(dead.note)["type"]) == ("dead", 3, "Poison")
    # It may wait for a moment, as a job that was on at two deaths too.
    until(lambda: scene.job(neighbour).state == "done")


def test_term_to_all_processes_at_once_counts_nothing(scene: Scene) -> None:
    master = scene.serve()
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    for pid in (*scene.pids(), *scene.pids("keeper"), master.pid):
        os.kill(pid, signal.SIGTERM)
    assert master.wait(20) == 0
    assert (scene.job(job).state, scene.job(job).attempt, scene.job(job).crashes) == ("ready", 1, 0)


def test_the_keeper_is_replaced_and_jobs_of_dead_workers_still_come_back(scene: Scene) -> None:
    scene.serve()
    jobs = scene.put("app.await_gate", "go", times=5)
    scene.begun(5, asleep=5)
    (keeper,), (worker,) = scene.pids("keeper"), scene.pids()
    os.kill(keeper, signal.SIGSTOP)
    scene.kill(worker)
    scene.kill(keeper)
    scene.begun(10)
    scene.open("go")
    until(scene.all_finished)
    assert scene.times("ended") == dict.fromkeys(jobs, 1)
    assert {job.attempt for job in scene.jobs()} == {1}
