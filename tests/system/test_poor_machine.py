"""A machine that has no processes, files or room to give: the master lives on, jobs wait, and none is lost."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarry.runtime import control
from tests.cli.disk import Disk
from tests.cli.project import alive, until
from tests.system.scene import Scene

TWO = '[pools.default]\nworkers = 2\nlease = "60s"\n'
AS_STRANGER = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups")
"""A user of whom there are no other processes; root has no limit of processes."""

Process = subprocess.Popen[bytes]


def serves(scene: Scene, master: Process) -> bool:
    board = control.status(scene.pid_file)
    return board is not None and (board.alive, board.pid, board.state) == (True, master.pid, "serving")


def asleep(scene: Scene, count: int, serve: Callable[[Scene], Process] = Scene.serve) -> tuple[Process, list[str]]:
    """Two workers, and so many jobs that wait in them."""
    scene.settings(TWO)
    master = serve(scene)
    jobs = scene.put("app.await_gate", "go", times=count)
    scene.begun(count, asleep=count)
    return master, jobs


def goes_on(scene: Scene, master: Process, jobs: list[str]) -> None:
    """It runs what is there, and ends; then nobody holds a job, and the next one starts and runs what comes."""
    scene.open("go")
    until(scene.all_finished)
    master.send_signal(signal.SIGINT)
    assert master.wait(30) == 0
    until(lambda: not scene.processes())
    jobs += scene.put("app.add", 1, 1, times=3)
    scene.serve()
    until(scene.all_finished)
    assert scene.states() == dict.fromkeys(jobs, "done")
    assert scene.times("ended") == dict.fromkeys(jobs, 1)


@contextmanager
def limited(master: Process, what: int, most: int) -> Iterator[None]:
    """The master alone may have no more than so many of these."""
    before = resource.prlimit(master.pid, what)
    resource.prlimit(master.pid, what, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(master.pid, what, before)


@contextmanager
def without_processes(master: Process) -> Iterator[None]:
    """The same, of processes, for a master of the stranger's, whom not even root may limit everywhere."""
    limit = [*AS_STRANGER, "prlimit", f"--pid={master.pid}"]
    subprocess.run([*limit, "--nproc=1:"], check=True)
    try:
        yield
    finally:
        subprocess.run([*limit, "--nproc=10000:"], check=True)


def as_stranger(scene: Scene) -> Process:
    """A master of a user who has limits, and may use our files nevertheless."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root may become another user")
    caps = "+dac_override,+dac_read_search"
    may = [f"--inh-caps={caps}", f"--ambient-caps={caps}"]
    with scene.log_file.open("ab") as log:
        master = subprocess.Popen(
            [*AS_STRANGER, *may, sys.executable, "-m", "tarry", "start"],
            cwd=scene.directory,
            env=scene.environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until(lambda: serves(scene, master))
    return master


def test_no_room_for_another_process(scene: Scene) -> None:
    master, jobs = asleep(scene, 10, as_stranger)
    first, second = scene.pids()
    with without_processes(master):
        scene.kill(first)
        until(lambda: "Resource temporarily unavailable; again in" in scene.log())
        assert scene.tarry("reload").err.endswith("no canary could be started: Resource temporarily unavailable\n")
        assert (scene.board().state, scene.pids()) == ("serving", [second])
    until(lambda: len(scene.pids()) == 2)
    assert scene.tarry("reload").status == 0
    goes_on(scene, master, jobs)


def test_no_file_may_be_opened(scene: Scene) -> None:
    master, jobs = asleep(scene, 10)
    first, second = scene.pids()
    with limited(master, resource.RLIMIT_NOFILE, 3):
        scene.kill(first)
        until(lambda: "Too many open files; again in" in scene.log())
        assert "Too many open files" in scene.tarry("reload").err
        master.send_signal(signal.SIGUSR1)
        until(lambda: "no status" in scene.log())
        assert (scene.board().state, scene.pids()) == ("serving", [second])
    until(lambda: len(scene.pids()) == 2)
    assert scene.tarry("reload").status == 0
    goes_on(scene, master, jobs)


def test_no_room_for_the_scoreboard_of_a_start(scene: Scene, small: Disk) -> None:
    filler = small.fill(but=8192)
    scene.settings(f'{TWO}[master]\npid_file = "{small.path}/tarry.pid"\n')
    scene.pid_file = small.path / "tarry.pid"
    board = scene.pid_file.with_name("tarry.pid.board")
    for words in (("start",), ("start", "-d")):
        assert scene.refused(*words) == (
            f"{board} cannot be written (No space left on device): set master.pid_file to a place that can"
        )
        assert not list(small.path.glob("tarry.pid*"))
    filler.unlink()
    goes_on(scene, scene.serve(), [])


def test_no_room_for_the_scoreboard_to_grow(scene: Scene, small: Disk) -> None:
    scene.settings(f'{TWO}[master]\npid_file = "{small.path}/tarry.pid"\n')
    scene.pid_file = small.path / "tarry.pid"
    master = scene.serve()
    jobs = scene.put("app.await_gate", "go", times=10)
    scene.begun(10, asleep=10)
    # What the host remembers of its stores is written once the keeper has looked.
    until((small.path / "tarry.pid.stores").exists)
    filler = small.fill(but=4096)  # the message of `scale` itself needs some
    scene.said("scale", "default", 12)
    until(lambda: "the scoreboard cannot grow (No space left on device)" in scene.log())
    assert len(scene.pids()) >= 2
    scene.kill(scene.pids()[0])
    until(lambda: len(scene.pids()) >= 2)
    assert scene.log().count("the scoreboard cannot grow (No space left on device)") == 1
    filler.unlink()
    until(lambda: len(scene.pids()) == 12)
    scene.said("scale", "default", 2)
    goes_on(scene, master, jobs)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Disk]:
    """256 KB."""
    disk = Disk(tmp_path / "small", 2**18)
    yield disk
    disk.close()


def test_a_stale_pid_file_names_a_stranger(scene: Scene) -> None:
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        scene.pid_file.parent.mkdir()
        scene.pid_file.write_text(f"{stranger.pid}\n")
        assert scene.tarry("status").status == 3
        for word in ("stop", "quit"):
            assert scene.said(word).startswith("no master is running")
        for words in (("reload",), ("scale", "default", "3")):
            assert scene.refused(*words).startswith("no master is running")
        goes_on(scene, scene.serve(), scene.put("app.add", 1, 1))
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_twenty_starts_and_one_serves(scene: Scene) -> None:
    jobs = scene.put("app.add", 1, 1, times=20)
    starts = [scene.start() for _ in range(20)]
    until(lambda: [start.poll() for start in starts].count(None) == 1, 60)
    (master,) = [start for start in starts if start.poll() is None]
    assert [start.poll() for start in starts if start is not master] == [1] * 19
    refusal = f"tarry: a master is already running, pid {master.pid} ({scene.pid_file})\n"
    until(lambda: scene.log().count(refusal) == 19)
    until(lambda: serves(scene, master))
    goes_on(scene, master, jobs)


def test_the_directory_of_the_log_goes_and_comes_back(scene: Scene) -> None:
    logs = scene.directory / "logs"
    scene.settings(f'{TWO}[master]\nlog = "{logs}/tarry.log"\n')
    master = scene.serve()
    jobs = scene.put("app.await_gate", "go", times=10)
    scene.begun(10, asleep=10)
    shutil.rmtree(logs)
    master.send_signal(signal.SIGUSR1)
    until(lambda: f"no log lines can be written to the file {logs}/tarry.log" in scene.log())
    until(lambda: f"master pid {master.pid} serving" in scene.log())
    assert scene.tarry("reload").out == "reloaded: generation 2 serves\n"
    logs.mkdir()
    master.send_signal(signal.SIGHUP)
    until(lambda: (logs / "tarry.log").exists() and "reloaded: generation 3" in (logs / "tarry.log").read_text())
    assert "the log is back after" in (logs / "tarry.log").read_text()
    goes_on(scene, master, jobs)


def test_workers_die_while_the_master_is_stopped(scene: Scene) -> None:
    master, jobs = asleep(scene, 20)
    os.kill(master.pid, signal.SIGSTOP)
    for pid in scene.pids():
        scene.kill(pid)
    assert [child["pid"] for child in scene.facts("status")["children"] if child["role"] == "worker"]
    assert not any(alive(pid) for pid in scene.pids())
    os.kill(master.pid, signal.SIGCONT)
    scene.begun(40)
    goes_on(scene, master, jobs)
    assert {(job.attempt, job.crashes) for job in scene.jobs()} == {(1, 0)}
