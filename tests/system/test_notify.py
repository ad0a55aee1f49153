"""A real master under a service manager, as far as the manager's socket goes; signals are those of deploy/."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import until
from tests.deployed import signal_number, unit
from tests.runtime.notify_socket import NotifySocket
from tests.system.scene import APP, Scene

SLOW = "\nimport pathlib, time\nwhile not pathlib.Path('gate').exists():\n    time.sleep(0.01)\n"
ENVIRON = """

@app.task
def environ() -> list[str]:
    return [name for name in os.environ if name.startswith(("NOTIFY_", "WATCHDOG_"))]
"""

(STOP,) = map(signal_number, unit("tarry.service")["KillSignal"])


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    """All that is started afterwards is told of it."""
    manager = NotifySocket(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    yield manager
    manager.close()


def test_ready_is_said_when_it_serves_and_not_before(scene: Scene, manager: NotifySocket) -> None:
    scene.write("app.py", APP + SLOW)
    master = scene.start()
    until(lambda: "starting: 0 of 2 processes ready" in manager.lines("STATUS"))
    until(lambda: manager.lines("EXTEND_TIMEOUT_USEC"))
    assert not manager.lines("READY")
    scene.open("gate")
    until(lambda: manager.lines("READY"))
    assert scene.board().state == "serving"
    assert manager.lines("MAINPID") == [str(master.pid)]
    until(lambda: "serving: 2 of 2 processes ready" in manager.lines("STATUS"))
    scene.stopped()


def test_a_stop_is_said_and_time_asked_for_while_jobs_finish(scene: Scene, manager: NotifySocket) -> None:
    scene.settings("[master]\nterm_grace = 60\n")
    master = scene.serve()
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    manager.take()
    manager.messages.clear()
    master.send_signal(STOP)
    until(lambda: manager.lines("STOPPING"))
    until(lambda: manager.lines("EXTEND_TIMEOUT_USEC"))
    until(lambda: any("runs app.wait " in line for line in manager.lines("STATUS")))
    assert master.poll() is None
    scene.open("go")
    assert master.wait(20) == 0
    assert scene.job(job).state == "done"
    assert manager.lines("READY") == []


def test_the_watchdog_hears_from_the_master_at_half_its_time(
    scene: Scene, manager: NotifySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    scene.serve()
    began, before = time.monotonic(), len(manager.lines("WATCHDOG"))
    until(lambda: len(manager.lines("WATCHDOG")) >= before + 10)
    assert time.monotonic() - began > 1.5


def test_no_job_can_speak_for_the_master(scene: Scene, manager: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    scene.write("app.py", APP + ENVIRON)
    scene.serve()
    (job,) = scene.put("app.environ")
    until(lambda: scene.job(job).state == "done")
    assert scene.job(job).note == b"[]"


def test_a_start_that_fails_says_why_and_is_never_ready(scene: Scene, manager: NotifySocket) -> None:
    scene.write("app.py", "from tarry import App\n\napp = App()\nimport nowhere\n")
    assert scene.start().wait(20) == 1
    assert any("No module named 'nowhere'" in line for line in manager.lines("STATUS"))
    assert manager.lines("STOPPING")
    assert not manager.lines("READY")


def test_a_reload_is_announced_and_over_when_the_new_workers_serve(scene: Scene, manager: NotifySocket) -> None:
    master = scene.serve()
    (before,) = scene.pids()
    moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.take()
    manager.messages.clear()
    master.send_signal(signal.SIGHUP)
    until(lambda: manager.lines("RELOADING"))
    until(lambda: manager.lines("READY"))
    assert scene.pids() != [before]
    (told,) = manager.lines("MONOTONIC_USEC")
    assert int(told) >= moment
    scene.stopped()


def test_a_reload_that_fails_ends_ready_and_says_why(scene: Scene, manager: NotifySocket) -> None:
    master = scene.serve()
    before = scene.pids()
    manager.take()
    manager.messages.clear()
    scene.write("app.py", "import nowhere\n")
    master.send_signal(signal.SIGHUP)
    until(lambda: manager.lines("READY"))
    assert "the last reload failed: " in manager.lines("STATUS")[-1]
    assert "No module named 'nowhere'" in manager.lines("STATUS")[-1]
    assert scene.pids() == before
    scene.stopped()
