"""SIGKILL of the master at any line of its log: its children end, what they held goes on after the next start, and
nothing is lost nor run twice."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.project import until
from tests.servers.server import free_port
from tests.system.scene import Scene

pytestmark = pytest.mark.usefixtures("checked_history")

SETTINGS = '[pools.default]\nworkers = 2\nlease = "60s"\n'


WAITS = """
while not (HERE / "import").exists():
    time.sleep(0.01)
"""


class Story(threading.Thread):
    """A master whose log is read line by line, and which is killed at that one of its lines."""

    def __init__(self, scene: Scene, at: int) -> None:
        super().__init__(daemon=True)
        self.master = subprocess.Popen(
            [sys.executable, "-m", "tarry", "start"],
            cwd=scene.directory,
            env=scene.environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.killed_at = 0.0
        """Of the monotonic clock; 0: it had fewer lines."""
        self._at = at
        self.start()

    def run(self) -> None:
        assert self.master.stderr is not None
        own = f"tarry.master[{self.master.pid}]"
        for line in self.master.stderr:
            self.lines.append(line)
            if own in line and sum(own in each for each in self.lines) == self._at:
                self.killed_at = time.monotonic()
                self.master.kill()

    def reaches(self, text: str) -> bool:
        """Whether it came so far."""
        until(lambda: any(text in line for line in self.lines) or self.master.poll() is not None)
        return self.master.poll() is None

    def over(self) -> None:
        self.master.wait(30)
        self.join(30)
        assert self.master.stderr is not None
        self.master.stderr.close()


@contextmanager
def killed(scene: Scene, at: int) -> Iterator[Story]:
    """The story up to that line, and all its processes are gone."""
    story = Story(scene, at)
    try:
        yield story
    finally:
        story.master.kill()
        until(lambda: not scene.processes())
        story.over()


def put(scene: Scene) -> list[str]:
    return [*scene.put("app.work", 0.02, times=20), *scene.put("app.awork", 0.02, times=20)]


def told(scene: Scene, at: int) -> list[str]:
    """Start, reload and stop with jobs on, up to that line; answers the jobs that were put."""
    scene.settings(SETTINGS)
    jobs = put(scene)
    with killed(scene, at) as story:
        if story.reaches("jobs run in"):
            jobs += put(scene)
            story.master.send_signal(signal.SIGHUP)
        if story.reaches("generation 2 serves"):
            jobs += put(scene)
            story.master.send_signal(signal.SIGINT)
        story.master.wait(30)
        until(lambda: not scene.processes())
        took = time.monotonic() - story.killed_at
    if story.killed_at:
        print(f"line {at}: all gone {took:.2f} s after the kill")
        assert took < 5
    return jobs


def goes_on(scene: Scene, jobs: list[str]) -> None:
    """No process holds a job, and the next start runs what is left, without waiting for a lease to end."""
    assert {job.state for job in scene.jobs()} <= {"ready", "done"}, scene.log()
    began = time.monotonic()
    master = scene.serve()
    until(scene.all_finished)
    assert time.monotonic() - began < 20
    master.send_signal(signal.SIGINT)
    assert master.wait(30) == 0
    assert scene.states() == dict.fromkeys(jobs, "done")
    assert scene.times("ended") == dict.fromkeys(jobs, 1)
    assert {(job.attempt, job.crashes) for job in scene.jobs()} == {(1, 0)}


@pytest.mark.parametrize("at", range(4, 30, 5))
def test_at_a_line_of_its_log(scene: Scene, at: int) -> None:
    goes_on(scene, told(scene, at))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("at", range(1, 36))
def test_at_every_line_of_its_log(scene: Scene, at: int) -> None:
    goes_on(scene, told(scene, at))


def test_who_was_still_starting_claims_nothing(scene: Scene) -> None:
    scene.settings(SETTINGS)
    scene.write("app.py", (scene.directory / "app.py").read_text() + WAITS)
    jobs = put(scene)
    with killed(scene, 3) as story:
        story.master.wait(30)
        scene.open("import")
        until(lambda: not scene.processes())
    assert "ready" not in "".join(story.lines)
    assert not scene.ledger()
    assert {(job.state, job.epoch) for job in scene.jobs()} == {("ready", 0)}
    goes_on(scene, jobs)


@pytest.mark.parametrize("path", [False, True], ids=["port", "path"])
def test_the_next_one_waits_until_an_orphan_lets_go_of_its_address(scene: Scene, path: bool) -> None:
    there = "unix:http.sock" if path else f"127.0.0.1:{free_port()}"
    scene.settings(f'{SETTINGS}[server]\nhttp = "{there}"\n')
    scene.write("app.py", (scene.directory / "app.py").read_text() + WAITS)
    story = Story(scene, 4)
    story.master.wait(30)
    assert "server 1 started" in story.lines[-1]
    following = scene.start()
    until(lambda: "http waits up to 10 s for " in scene.log())
    scene.open("import")
    story.over()
    until(lambda: "jobs run in" in scene.log())
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 0
