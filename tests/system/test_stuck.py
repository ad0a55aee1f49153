"""Jobs that do not end when they should: each is ended all the same, within a second, and is the only one to pay."""

import time

import pytest
from msgspec import json

from tarry.model.job import Job
from tests.cli.project import until
from tests.system.scene import APP, Scene

STUCK = """

import collections
import hashlib
import itertools
import re
import socket
import subprocess

TIMEOUT = 1.0


@app.task(timeout=TIMEOUT)
def spins() -> None:
    tell("began")
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@app.task
def goes_on() -> None:
    tell("began")
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass


@app.task(timeout=TIMEOUT)
def sleeps() -> None:
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


@app.task(timeout=TIMEOUT)
def holds() -> None:
    "No other thread runs, and no signal is looked at."
    tell("began")
    collections.deque(itertools.count(), maxlen=0)


@app.task(timeout=TIMEOUT)
def matches() -> None:
    tell("began")
    re.match("(a+)+$", "a" * 60 + "b")


@app.task(timeout=TIMEOUT)
def computes() -> None:
    "In C, with the interpreter's lock let go."
    tell("began")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


@app.task(timeout=TIMEOUT)
def waits(how: str) -> None:
    "In a call that may take for ever, and without a care for timeouts."
    tell("began")
    if how == "sleep":
        time.sleep(3600)
    elif how == "lock":
        threading.Event().wait()
    elif how == "socket":
        socket.create_server(("127.0.0.1", 0)).accept()
    elif how == "process":
        subprocess.run(["sleep", "3600"])
    elif how == "loop":
        asyncio.run(asyncio.sleep(3600))


@app.task
def waits_on() -> None:
    tell("began")
    time.sleep(3600)


@app.task(timeout=TIMEOUT)
def stops() -> None:
    "The whole process, so that it cannot even write where it is."
    tell("began")
    os.kill(os.getpid(), signal.SIGSTOP)


@app.task(timeout=TIMEOUT)
async def blocks() -> None:
    tell("began")
    time.sleep(3600)


@app.task(timeout=TIMEOUT)
async def aholds() -> None:
    tell("began")
    collections.deque(itertools.count(), maxlen=0)


@app.task(timeout=TIMEOUT)
async def swallows() -> None:
    tell("began")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@app.task(timeout=TIMEOUT)
async def swallows_all() -> None:
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)


@app.task(timeout=TIMEOUT)
async def waits_for_one_that_swallows() -> None:
    async def swallowing() -> None:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(3600)

    tell("began")
    await asyncio.create_task(swallowing())


@app.task
async def hogs(gate: str) -> None:
    tell("began")
    while not (HERE / gate).exists():
        time.sleep(0.01)
    tell("ended")


@app.task(timeout=TIMEOUT)
async def patient() -> None:
    tell("began")
    await asyncio.sleep(3600)


@app.task(timeout=TIMEOUT)
def spins_among_others() -> None:
    "Threads that never stay in a frame."
    def deep(n: int) -> int:
        return deep(n - 1) + 1 if n else 0

    def goes_deep() -> None:
        while True:
            deep(20)

    sys.setswitchinterval(1e-5)
    for _ in range(8):
        threading.Thread(target=goes_deep, daemon=True).start()
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            goes_deep()


@app.task(batch=3, wait=5, timeout=TIMEOUT)
def together_stuck(numbers: list[int]) -> None:
    tell("began")
    while 2 in numbers:
        with contextlib.suppress(BaseException):
            time.sleep(3600)
"""

CLEANS = """

@app.task(timeout=0.2)
def cleans() -> None:
    try:
        while True:
            time.sleep(0.01)
    except TimeLimit:
        tell("TimeLimit")
        while not (HERE / "clean").exists():
            time.sleep(0.01)
        raise


@app.task(timeout=0.2)
async def acleans() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        tell("TimeLimit")
        while not (HERE / "clean").exists():
            await asyncio.sleep(0.01)
        raise
"""
TIMEOUT = 1.0
WITHIN = 1.0 + 2.0
"""Seconds after its timeout: the promise, and what a machine that is busy with other tests may take besides."""

SYNC = ["spins", "sleeps", "holds", "matches", "computes"]
LOOP = ["blocks", "aholds"]
GIVEN_UP = ["swallows", "swallows_all"]


@pytest.fixture
def stuck_scene(scene: Scene) -> Scene:
    scene.write("app.py", APP + STUCK)
    scene.settings("[pools.default]\nthreads = 2\n")
    scene.serve()
    return scene


def note(job: Job) -> dict[str, str]:
    told: dict[str, str] = json.decode(job.note)
    return told


def began(scene: Scene, id: str) -> float:
    (line,) = [line for line in scene.ledger("began") if line.job == id and line.attempt == 1]
    return line.at


def ended_late(scene: Scene, id: str) -> float:
    """Seconds from its timeout to its end in the store."""
    until(lambda: scene.job(id).state == "dead")
    return scene.job(id).state_since / 1e6 - began(scene, id) - TIMEOUT


def neighbours(scene: Scene) -> list[str]:
    """Of both kinds, in the same worker."""
    jobs = [*scene.put("app.wait", "go"), *scene.put("app.await_gate", "go", times=5)]
    scene.begun(len(jobs), asleep=5)
    return jobs


def all_done_uncounted(scene: Scene, jobs: list[str]) -> None:
    scene.open("go")
    until(lambda: all(scene.job(id).state == "done" for id in jobs))
    assert {(scene.job(id).attempt, scene.job(id).failures, scene.job(id).crashes) for id in jobs} == {(1, 0, 0)}


def timed_out(scene: Scene, task: str) -> tuple[int, list[str], str]:
    """Its worker, its neighbours in there, and its id: of one that ended in time, whatever it thought of that."""
    others = neighbours(scene)
    (worker,) = scene.pids()
    (job,) = scene.put(f"app.{task}")
    late = ended_late(scene, job)
    print(f"{task}: ended {late:.3f} s after its timeout")
    assert 0 <= late < WITHIN
    return worker, others, job


@pytest.mark.parametrize("task", [*SYNC, *LOOP])
def test_the_process_of_a_stuck_job_is_killed_and_its_neighbours_run_again(stuck_scene: Scene, task: str) -> None:
    scene = stuck_scene
    worker, others, job = timed_out(scene, task)
    ended = scene.job(job)
    assert (ended.failures, ended.crashes, note(ended)["type"]) == (1, 0, "TimeLimit")
    assert f"in {task}\n" in note(ended)["traceback"] + "\n"
    all_done_uncounted(scene, others)
    assert scene.replaced(worker)


def test_a_process_whose_threads_go_on_tells_where_they_were(stuck_scene: Scene) -> None:
    """Who reads their frames without the interpreter reads freed memory, and the process dies before it has told."""
    scene = stuck_scene
    _, _, job = timed_out(scene, "spins_among_others")
    assert "in spins_among_others\n" in note(scene.job(job))["traceback"]


@pytest.mark.parametrize("how", ["sleep", "lock", "socket", "process", "loop"])
def test_in_the_main_thread_a_call_that_waits_is_left_at_the_timeout(scene: Scene, how: str) -> None:
    scene.write("app.py", APP + STUCK)
    scene.serve()
    (worker,) = scene.pids()
    (job,) = scene.put("app.waits", how)
    late = ended_late(scene, job)
    print(f"waits ({how}): ended {late:.3f} s after its timeout")
    assert 0 <= late < WITHIN
    assert note(scene.job(job))["message"] == "stopped after its timeout of 1 s"
    assert "in waits\n" in note(scene.job(job))["traceback"]
    (after,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(after).state == "done")
    assert scene.pids() == [worker]


def test_in_the_main_thread_a_call_that_waits_is_left_at_a_cancel(scene: Scene) -> None:
    scene.write("app.py", APP + STUCK)
    scene.serve()
    (worker,) = scene.pids()
    (job,) = scene.put("app.waits_on")
    scene.begun(1)
    scene.said("jobs", "cancel", job)
    (after,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(after).state == "done")
    assert scene.pids() == [worker]


def test_the_log_says_that_a_worker_is_killed_for_a_job_that_was_cancelled(scene: Scene) -> None:
    scene.write("app.py", APP + STUCK)
    scene.settings("[pools.default]\nthreads = 2\n")
    scene.serve()
    (job,) = scene.put("app.goes_on")
    scene.begun(1)
    scene.said("jobs", "cancel", job)
    until(lambda: f"job {job} (app.goes_on) still ran" in scene.log())
    assert "after its start, though it was cancelled" in scene.log()


def test_a_stopped_process_is_killed_too(stuck_scene: Scene) -> None:
    scene = stuck_scene
    worker, others, job = timed_out(scene, "stops")
    assert (note(scene.job(job))["type"], note(scene.job(job))["traceback"]) == ("TimeLimit", "")
    all_done_uncounted(scene, others)
    assert scene.replaced(worker)


@pytest.mark.parametrize("task", GIVEN_UP)
def test_a_coroutine_that_swallows_its_cancellation_is_given_up_and_nobody_else_notices(
    stuck_scene: Scene, task: str
) -> None:
    scene = stuck_scene
    worker, others, job = timed_out(scene, task)
    ended = scene.job(job)
    assert note(ended)["type"] == "TimeLimit"
    assert note(ended)["message"] == "it did not end after its timeout of 1 s, so it was given up"
    assert f"in {task}\n" in note(ended)["traceback"]
    assert (ended.failures, ended.crashes) == (1, 0)
    all_done_uncounted(scene, others)
    assert scene.times("began") == dict.fromkeys([*others, job], 1)
    assert scene.pids() == [worker]


def test_what_a_given_up_job_left_in_the_loop_ends_with_the_process(stuck_scene: Scene) -> None:
    scene = stuck_scene
    worker, others, job = timed_out(scene, "waits_for_one_that_swallows")
    assert "in swallowing\n" in note(scene.job(job))["traceback"]
    assert scene.replaced(worker)
    all_done_uncounted(scene, others)
    assert (scene.job(job).failures, scene.job(job).crashes) == (1, 0)


def test_a_job_whose_time_is_over_while_another_blocks_the_loop(stuck_scene: Scene) -> None:
    """It is over in time, the other is within its rights: nobody is killed."""
    scene = stuck_scene
    (worker,) = scene.pids()
    (patient,) = scene.put("app.patient")
    scene.begun(1, asleep=1)
    (hog,) = scene.put("app.hogs", "go")
    late = ended_late(scene, patient)
    assert 0 <= late < WITHIN
    assert scene.job(hog).state == "running"
    assert note(scene.job(patient))["message"] == "its timeout of 1 s was over while app.hogs held up the event loop"
    assert "in patient\n" in note(scene.job(patient))["traceback"]
    scene.open("go")
    until(lambda: scene.job(hog).state == "done")
    assert scene.times("began") == {patient: 1, hog: 1}
    assert scene.pids() == [worker]


def test_a_call_for_many_that_is_stuck_is_followed_by_one_for_each(stuck_scene: Scene) -> None:
    scene = stuck_scene
    others = neighbours(scene)
    jobs = [id for number in range(3) for id in scene.put("app.together_stuck", number)]
    until(lambda: all(scene.job(id).state.finished for id in jobs))
    assert [scene.job(id).state for id in jobs] == ["done", "done", "dead"]
    stuck = scene.job(jobs[2])
    assert note(stuck)["type"] == "TimeLimit"
    assert "in together_stuck\n" in note(stuck)["traceback"] + "\n"
    all_done_uncounted(scene, others)


@pytest.mark.parametrize("timeout", [0.05, 0.3])
def test_a_short_timeout_is_kept_too(scene: Scene, timeout: float) -> None:
    scene.write("app.py", APP + STUCK.replace("TIMEOUT = 1.0", f"TIMEOUT = {timeout}"))
    scene.serve()
    (job,) = scene.put("app.sleeps")
    late = ended_late(scene, job) + TIMEOUT - timeout
    print(f"timeout {timeout}: ended {late:.3f} s after it")
    assert 0 <= late < WITHIN


def test_who_cleans_up_has_as_long_as_the_pool_says(scene: Scene) -> None:
    scene.write("app.py", APP + CLEANS)
    scene.settings('[pools.default]\nkill_after = "20s"\n')
    scene.serve()
    (worker,) = scene.pids()
    jobs = [*scene.put("app.cleans"), *scene.put("app.acleans")]
    until(lambda: len(scene.ledger("TimeLimit")) == 2)
    # Whoever waited no longer than by default would have ended them by now.
    until(lambda: time.time() - max(line.at for line in scene.ledger("TimeLimit")) > 1)
    assert {scene.job(id).state for id in jobs} == {"running"}
    scene.open("clean")
    until(lambda: all(scene.job(id).state == "dead" for id in jobs))
    assert {note(scene.job(id))["message"] for id in jobs} == {"stopped after its timeout of 0.2 s"}
    assert scene.pids() == [worker]
