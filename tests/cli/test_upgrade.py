"""`tarry upgrade`: a new master takes the place of the old one, or nothing comes of it."""

import os
import signal
import socket
import stat
import subprocess
import sysconfig
import time
import venv
from pathlib import Path

import msgspec
import pytest

import tarry
from tarry.process.remote_control import SURELY_RUNS
from tarry.runtime.board.layout import READY, SERVING
from tarry.runtime.board.reader import read
from tarry.runtime.board.scoreboard import ASIDE, DRAFT, Scoreboard, aside_path, board_path
from tarry.runtime.pidfile import holder
from tarry.runtime.upgrades import write_request
from tests.cli.project import SMALL_APP, Project, alive, until
from tests.cli.serving import answers, putters, serve

SLOW_APP = (
    SMALL_APP
    + """
import pathlib, time

@app.task
def until_told() -> str:
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return "told"
"""
)


def refused(project: Project) -> str:
    """What an upgrade that fails says last."""
    result = project.tarry("upgrade")
    assert result.status == 1, result
    (line,) = result.complaints
    return line.removeprefix("tarry: ")


def test_no_request_fails_over_upgrades(project: Project) -> None:
    port = serve(project)
    with putters(port) as each:
        for _ in range(3):
            before = project.board().pid
            said = project.said("upgrade")
            now = project.board().pid
            assert now != before
            assert said == f"upgraded: master {now} serves; the one before it ends when its jobs have"
            assert holder(project.pid_file) == now
            until(lambda before=before: not alive(before))  # type: ignore[misc]
    assert [one.trouble for one in each] == [[], [], [], []]
    assert len(project.jobs()) == sum(len(one.ids) for one in each) > 100
    files = {path.name for path in project.pid_file.parent.iterdir()}
    assert not [name for name in files if name.endswith((".new", ".upgrade")) or ASIDE in name]
    project.said("stop")
    until(lambda: not project.processes())
    assert not project.pid_file.exists()


def test_the_old_master_waits_for_its_jobs_and_the_new_one_obeys(project: Project) -> None:
    project.write("app.py", SLOW_APP)
    project.settings("")
    old = project.serve()
    id = project.enqueue("app.until_told")
    until((project.directory / "begun").exists)
    project.said("upgrade")
    assert project.board().pid != old.pid
    # Commands are for the new one.
    project.said("scale", "default", "2")
    until(lambda: len(project.pids()) == 2)
    project.said("reload")
    assert alive(old.pid)
    (project.directory / "go").touch()
    until(lambda: not alive(old.pid) or old.poll() is not None)
    assert old.wait() == 0
    assert project.job(id).state.name == "DONE"
    assert project.job(id).attempt == 1
    assert project.board().state == "serving"


def test_a_new_master_that_cannot_serve_leaves_the_old_one(project: Project) -> None:
    port = serve(project)
    before, children = project.board().pid, project.pids("server")
    app = (project.directory / "app.py").read_text()
    project.write("app.py", "import nothing_of_this_name\n")
    said = refused(project)
    assert said.startswith("the upgrade came to nothing, and what ran goes on: ")
    assert "nothing_of_this_name" in said
    assert (project.board().pid, project.pids("server")) == (before, children)
    assert answers(port)
    project.write("app.py", app)
    project.said("upgrade")
    assert answers(port)


def test_settings_that_are_wrong_leave_the_old_one(project: Project) -> None:
    master = project.serve()
    project.settings("[master]\nterm_grace = 'soon'\n")
    # The command does not read them for its own sake.
    assert "term_grace" in refused(project)
    assert project.board().pid == master.pid
    project.settings("")
    os.kill(project.board().pid, signal.SIGHUP)
    until(lambda: project.board().notice.done == 1)


def test_a_unix_socket_passes_to_the_new_master_and_goes_with_it(project: Project) -> None:
    serve(project, http="unix:run/http.sock")
    path = project.directory / "run" / "http.sock"
    before = project.board().pid
    project.said("upgrade")
    until(lambda: not alive(before))
    assert stat.S_ISSOCK(path.stat().st_mode)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    project.said("stop")
    assert not path.exists()


def test_a_daemon_is_upgraded_by_one(project: Project) -> None:
    project.said("start", "-d")
    before = project.board().pid
    project.said("upgrade")
    now = project.board().pid
    until(lambda: not alive(before))
    assert Path(f"/proc/{now}/cwd").resolve() == project.directory
    assert project.facts("upgrade")["state"] == "upgraded"
    project.said("stop")


@pytest.mark.parametrize("is_ready", [False, True])
def test_the_new_master_serves_though_the_old_one_is_killed(project: Project, is_ready: bool) -> None:
    old = project.serve()
    asked = project.command("upgrade")
    draft = board_path(project.pid_file).with_name(board_path(project.pid_file).name + DRAFT)
    until(draft.exists)
    # It says nothing more, not even that the new one may begin.
    old.send_signal(signal.SIGSTOP)
    if is_ready:
        until(lambda: (board := read(draft)) and all(child.boot == READY for child in board.children))
    new = read(draft)
    assert new is not None
    old.kill()
    old.wait()
    until(lambda: holder(project.pid_file) == new.pid and project.board().state == SERVING)
    assert asked.wait() == 0
    project.said("stop")


def test_without_a_master_there_is_nothing_to_upgrade(project: Project) -> None:
    assert refused(project).startswith("no master is running")


def begin(project: Project) -> tuple["subprocess.Popen[bytes]", int]:
    """A master, and the pid of one that is to take its place and cannot as long as the file `late` is there."""
    project.write(
        "app.py",
        "import pathlib, time\nwhile pathlib.Path('late').exists():\n    time.sleep(0.01)\n" + SMALL_APP,
    )
    master = project.serve()
    (project.directory / "late").touch()
    write_request(project.pid_file)
    os.kill(master.pid, signal.SIGHUP)
    new = until(lambda: project.board().notice.upgrading)
    until(lambda: "worker default.1 started" in project.log().split("a new master starts")[1])
    return master, new


def test_an_old_master_that_dies_meanwhile_leaves_its_place_to_the_new_one(project: Project) -> None:
    master, new = begin(project)
    master.kill()
    master.wait()
    (project.directory / "late").unlink()
    until(lambda: holder(project.pid_file) == new)
    until(lambda: project.board().state == "serving")
    project.said("stop")


def test_a_master_that_waits_for_its_jobs_touches_nothing_of_a_later_upgrade(project: Project) -> None:
    late = "import pathlib, time\nwhile pathlib.Path('late').exists():\n    time.sleep(0.01)\n"
    project.write("app.py", late + SLOW_APP)
    oldest = project.serve()
    id = project.enqueue("app.until_told")
    until((project.directory / "begun").exists)
    project.said("upgrade")
    middle = project.board().pid
    (project.directory / "late").touch()
    write_request(project.pid_file)
    os.kill(middle, signal.SIGHUP)
    newest = until(lambda: project.board().notice.upgrading)
    draft = board_path(project.pid_file).with_name(board_path(project.pid_file).name + DRAFT)
    until(draft.exists)
    # The oldest is its parent.
    os.kill(middle, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{middle}").exists())
    (project.directory / "late").unlink()
    until(lambda: holder(project.pid_file) == newest and project.board().state == SERVING)
    (project.directory / "go").touch()
    assert oldest.wait(60) == 0
    assert project.job(id).state.name == "DONE"
    project.said("stop")


def test_jobs_of_a_master_that_waits_for_them_can_still_be_killed(project: Project) -> None:
    project.write("app.py", SLOW_APP)
    oldest = project.serve()
    id = project.enqueue("app.until_told")
    until((project.directory / "begun").exists)
    began = time.monotonic()
    for _ in range(2):
        before = project.board().pid
        project.said("upgrade")
    # The one between has no job, and ends.
    until(lambda: not alive(before))
    until(lambda: time.monotonic() > began + 2 * SURELY_RUNS)
    assert "its worker is killed and replaced" in project.said("jobs", "kill", id)
    assert oldest.wait(60) == 0
    assert not [path.name for path in project.pid_file.parent.iterdir() if ASIDE in path.name]
    (project.directory / "go").touch()
    project.said("stop")


def whereabouts(pid: int) -> dict[str, str]:
    """What the kernel tells of a process that may be stuck."""
    names = ("cmdline", "status", "wchan", "syscall", "stack")
    told = {name: Path(f"/proc/{pid}/{name}") for name in names}
    return {name: path.read_text(errors="replace")[:2000] for name, path in told.items() if os.access(path, os.R_OK)}


@pytest.mark.parametrize("numbers", [[signal.SIGQUIT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_a_master_that_is_stopped_meanwhile_takes_the_new_one_along(project: Project, numbers: list[int]) -> None:
    master, _ = begin(project)
    for number in numbers:
        os.kill(master.pid, number)
        until(lambda: "stopping" in project.log())
    # It waits for the new one: nobody holds the addresses any more once a stop says that it is done.
    assert master.wait(30) == 0
    # A keeper of the new one may be in the import of the app still, and is there until that ends.
    (project.directory / "late").unlink(missing_ok=True)
    try:
        until(lambda: project.processes() == [])
    except AssertionError:
        # Who is left, and where it waits.
        raise AssertionError([whereabouts(pid) for pid in project.processes()]) from None
    # What the host remembers of its stores outlasts the master.
    assert {path.name for path in project.pid_file.parent.iterdir()} <= {f"{project.pid_file.name}.stores"}


def test_one_that_is_to_rest_meanwhile_rests(project: Project) -> None:
    master, new = begin(project)
    os.kill(master.pid, signal.SIGWINCH)
    until(lambda: not alive(new))
    (project.directory / "late").unlink()
    assert (project.board().pid, project.board().state) == (master.pid, "resting")


def test_a_reload_that_is_asked_for_meanwhile_is_done_by_the_new_one(project: Project) -> None:
    master, new = begin(project)
    # The new one has read its settings already.
    project.settings("[pools.default]\nworkers = 2\n")
    os.kill(master.pid, signal.SIGHUP)
    (project.directory / "late").unlink()
    until(lambda: holder(project.pid_file) == new)
    until(lambda: project.board().notice.done == 1)
    until(lambda: len(project.pids()) == 2)


def test_one_that_is_asked_for_during_another_follows_it(project: Project) -> None:
    master, new = begin(project)
    # What is installed now may be newer than what the new one has loaded.
    asked = project.command("upgrade")
    (project.directory / "late").unlink()
    assert asked.wait(60) == 0
    assert project.board().pid not in (master.pid, new)
    project.said("stop")


def test_one_that_hangs_before_it_takes_signals_is_killed(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("site")
    hang = place / "hang"
    (place / "sitecustomize.py").write_text(
        f"import pathlib, sys, time\nwhile 'start' in sys.orig_argv and pathlib.Path({str(hang)!r}).exists():\n"
        "    time.sleep(0.01)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(place))
    port = serve(project)
    hang.touch()
    write_request(project.pid_file)
    os.kill(project.board().pid, signal.SIGHUP)
    new = until(lambda: project.board().notice.upgrading)
    assert answers(port)
    project.said("quit")
    until(lambda: not project.processes())
    assert not alive(new)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_new_master_that_is_killed_leaves_the_old_one(project: Project, number: int) -> None:
    project.write("app.py", "import pathlib, time\npathlib.Path('late').exists() and time.sleep(30)\n" + SMALL_APP)
    master = project.serve()
    (project.directory / "late").touch()
    request = project.pid_file.with_name(project.pid_file.name + ".upgrade")
    request.touch()
    os.kill(master.pid, signal.SIGHUP)
    new = until(lambda: project.board().notice.upgrading)
    draft = board_path(project.pid_file).with_name(board_path(project.pid_file).name + DRAFT)
    until(draft.exists)
    os.kill(new, number)
    until(lambda: project.board().notice.upgrade_trouble)
    # Also what it could not remove itself.
    until(lambda: not [path.name for path in project.pid_file.parent.iterdir() if DRAFT in path.name])
    assert project.board().pid == master.pid
    (project.directory / "late").unlink()
    project.said("upgrade")


def release(directory: Path) -> None:
    """An environment with an interpreter of its own, and the command."""
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    places = (Path(tarry.__file__).parents[1], Path(sysconfig.get_path("purelib")))
    (packages / "those.pth").write_text("".join(f"{place}\n" for place in places))
    command = directory / "bin" / "tarry"
    command.write_text(f"#!{directory}/bin/python\nfrom tarry.cli.main import main\nraise SystemExit(main())\n")
    command.chmod(0o755)


@pytest.mark.parametrize("words", [["tarry"], ["python", "-m", "tarry"]])
def test_where_a_link_leads_to_another_release_that_one_is_started(project: Project, words: list[str]) -> None:
    project.write("app.py", f"{SMALL_APP}\nimport sys\n@app.task\ndef where() -> str:\n    return sys.prefix\n")
    for name in ("1", "2"):
        release(project.directory / name)
    current = project.directory / "current"
    current.symlink_to("1")
    command = [str(current / "bin" / words[0]), *words[1:], "start", "-d"]
    subprocess.run(command, cwd=project.directory, env=project.environ, check=True, capture_output=True)
    current.unlink()
    current.symlink_to("2")
    before = project.board().pid
    project.said("upgrade")
    until(lambda: not alive(before))
    (id,) = project.put("app.where")
    until(lambda: project.job(id).state.name == "DONE")
    prefix = msgspec.json.decode(project.job(id).note, type=str)
    assert Path(prefix).resolve() == (project.directory / "2").resolve()
    (project.directory / "2" / "bin" / words[0]).unlink()
    assert "cannot be run (No such file or directory)" in refused(project)
    project.said("stop")


def test_what_killed_masters_left_of_an_upgrade_goes_at_the_next_start(project: Project) -> None:
    run = project.pid_file.parent
    project.settings("")
    project.serve()
    project.kill_all()
    (run / "tarry.pid.board").rename(run / "tarry.pid.board.old.76")
    for name in (".new", ".upgrade", ".board.new", ".board.77", ".board.new.78"):
        (run / f"tarry.pid{name}").touch()
    master = project.serve()
    # What a keeper notes of its stores stays; one that is killed while it writes leaves a draft of that, too.
    left = {path.name for path in run.iterdir() if "tarry.pid.stores" not in path.name}
    assert left == {"tarry.pid", "tarry.pid.board"}
    # A reload, though an upgrade had been asked of the one before.
    os.kill(master.pid, signal.SIGHUP)
    until(lambda: project.board().notice.done == 1)
    assert project.board().pid == master.pid


def test_the_board_of_a_master_that_waits_for_its_jobs_stays(project: Project) -> None:
    aside = aside_path(board_path(project.pid_file), os.getpid())
    aside.parent.mkdir()
    # Of this process, which lives.
    Scoreboard(aside)
    project.settings("")
    project.serve()
    assert aside.exists()
