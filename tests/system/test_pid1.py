"""The master as process 1 of a namespace, as in a container; commands and signals are those of deploy/."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project import Project, until
from tests.deployed import container, image, signal_number, words
from tests.system.scene import APP, Scene

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")

STRAY = '''

import subprocess

@app.task
def leaves_a_stray(gate: str) -> int:
    """A process that has left its worker's group, and whose parent is gone: it falls to process 1."""
    subprocess.run(["sh", "-c", f"setsid sh -c 'while [ ! -e {gate} ]; do sleep 0.05; done' >/dev/null 2>&1 &"])
    return os.getppid()
'''

(STOP,) = map(signal_number, image()["STOPSIGNAL"])
(ENTRY,), (COMMAND,) = map(words, image()["ENTRYPOINT"]), map(words, image()["CMD"])


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Skips what needs a namespace where none may be made."""
    if not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespace may be made here: that takes root, with all its rights")


def contained(scene: Scene) -> "subprocess.Popen[bytes]":
    """`unshare`, whose only child is the master."""
    assert ENTRY == ["tarry"]
    with scene.log_file.open("ab") as log:
        started = subprocess.Popen(
            [*NAMESPACE, sys.executable, "-m", "tarry", *COMMAND],
            cwd=scene.directory,
            env=scene.environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    until(lambda: serving(scene) or started.poll() is not None)
    assert started.poll() is None, scene.log()
    return started


def end(outside: "subprocess.Popen[bytes]") -> None:
    """As `docker stop`: a `tarry stop` out here would signal our own process 1."""
    os.kill(child_of(outside.pid), STOP)
    assert outside.wait(20) == 0


def serving(place: Project) -> bool:
    return place.tarry("status").out.startswith("master pid 1, serving")


def child_of(pid: int) -> int:
    (one,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(one)


@pytest.mark.usefixtures("namespaces")
def test_it_reaps_strangers(scene: Scene) -> None:
    scene.write("app.py", APP + STRAY)
    outside = contained(scene)
    master = child_of(outside.pid)
    (job,) = scene.put("app.leaves_a_stray", "gone")
    until(lambda: scene.job(job).state == "done")
    assert scene.job(job).note == b"1"
    before = until(lambda: strays(master))
    scene.open("gone")
    until(lambda: not strays(master))
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)
    end(outside)


def strays(master: int) -> list[str]:
    """The master's children that are no tarry, zombies too."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return [pid for pid in children if b"tarry" not in _command_line(pid)]


def _command_line(pid: str) -> bytes:
    """As of a process of tarry's, if it was reaped meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b"tarry"


@pytest.mark.usefixtures("namespaces")
def test_the_stop_signal_ends_it_in_time_with_all_that_jobs_left(scene: Scene) -> None:
    scene.settings("[master]\nterm_grace = 1\n[pools.default]\nworkers = 2\n")
    scene.write("app.py", APP + STRAY)
    outside = contained(scene)
    (stray,) = scene.put("app.leaves_a_stray", "never")
    until(lambda: scene.job(stray).state == "done")
    (job,) = scene.put("app.wait", "never")
    scene.begun(1)
    os.kill(child_of(outside.pid), STOP)
    assert outside.wait(15) == 0
    until(lambda: not scene.processes())
    assert (scene.job(job).state, scene.job(job).attempt, scene.job(job).crashes) == ("ready", 1, 0)
    assert not scene.pid_file.exists()


@pytest.mark.usefixtures("namespaces")
def test_after_a_kill_the_next_one_starts_where_the_pid_file_says_1(scene: Scene) -> None:
    scene.settings('[pools.default]\nlease = "2s"\n')
    outside = contained(scene)
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    scene.kill(child_of(outside.pid))
    until(lambda: not scene.processes())
    assert scene.pid_file.read_text() == "1\n"
    assert outside.wait(20)
    again = contained(scene)
    scene.open("go")
    until(lambda: scene.job(job).state == "done")
    end(again)


def test_its_probes_say_when_it_lives_and_when_it_serves(scene: Scene) -> None:
    scene.write("app.py", APP + "\nwhile not (HERE / 'gate').exists():\n    time.sleep(0.01)\n")
    health = words(image()["HEALTHCHECK"][0].partition("CMD ")[2])
    probes = [container()[name]["exec"]["command"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [probe(scene, command) for command in (*probes, health)] == [False] * 4
    scene.start()
    until(lambda: probe(scene, health))
    assert [probe(scene, command) for command in probes] == [False, False, True]
    scene.open("gate")
    until(lambda: all(probe(scene, command) for command in probes))
    scene.stopped()
    assert [probe(scene, command) for command in (*probes, health)] == [False] * 4


def probe(scene: Scene, command: list[str]) -> bool:
    """Whether it succeeds, where `tarry` is the one that is tested."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        command, cwd=scene.directory, env=scene.environ | {"PATH": path}, capture_output=True, timeout=250, check=False
    )
    return ran.returncode == 0
