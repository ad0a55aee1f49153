"""What the commands for processes say; what happens to the jobs is in tests/system."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from tarry.cli import processes
from tarry.runtime.board.reader import Board, ChildStatus
from tests.cli.project import Project, until
from tests.servers.server import free_port


def test_nothing_runs(project: Project) -> None:
    ran = project.tarry("status")
    assert (ran.status, ran.out, ran.err) == (3, f"not running ({project.pid_file})\n", "")
    ran = project.tarry("status", "--json")
    assert (ran.status, ran.out) == (3, '{"state":"not running"}\n')
    for command in ("stop", "quit"):
        assert project.said(command) == f"no master is running ({project.pid_file})"
        assert project.facts(command) == {"state": "not running"}
    assert project.refused("reload") == f"no master is running ({project.pid_file}): `tarry start` starts one"


def test_status_of_what_runs(project: Project) -> None:
    project.settings("[pools.default]\nworkers = 2\n[pools.mail]\nqueues = ['mail']\n")
    master = project.serve()
    told = project.facts("status")
    assert (told["pid"], told["state"], told["alive"]) == (master.pid, "serving", True)
    named = [(child["role"], child["pool"], child["number"]) for child in told["children"]]
    assert named == [("keeper", "", 1), ("worker", "default", 1), ("worker", "default", 2), ("worker", "mail", 1)]
    assert {child["boot"] for child in told["children"]} == {"ready"}
    lines = project.said("status").splitlines()
    assert lines[0].startswith(f"master pid {master.pid}, serving, generation 1, since ")
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "keeper", "worker default.1", "worker default.2", "worker mail.1",
    ]  # fmt: skip
    until(lambda: all(child["rss"] > 2**20 for child in project.facts("status")["children"]))


@pytest.mark.parametrize("wrong", ["[pools.default]\nworker = 3\n", "[queues.mail]\nlimit = 'many'\n"])
def test_a_master_is_seen_and_stopped_while_its_settings_are_wrong(project: Project, wrong: str) -> None:
    master = project.serve()
    project.settings(wrong)
    ran = project.tarry("status")
    assert ran.status == 0
    assert ran.out.startswith(f"master pid {master.pid}, serving")
    assert ran.err.startswith("tarry: tarry.toml:")
    assert project.tarry("status", "--json").status == 0
    assert "tarry.toml:" in project.refused("reload")
    ran = project.tarry("stop")
    assert (ran.status, ran.out) == (0, "stopped\n")
    assert "tarry.toml:" in ran.err
    assert master.wait() == 0


def test_settings_that_cannot_be_read_name_no_master(project: Project) -> None:
    project.settings("[pools.default\n")
    assert "tarry.toml:" in project.refused("status")


def test_status_after_a_killed_master(project: Project) -> None:
    master = project.serve()
    master.kill()
    master.wait()
    assert project.tarry("status").status == 3
    assert project.said("stop").startswith("no master is running")


def test_stop_and_quit_speak_json(project: Project) -> None:
    project.serve()
    assert project.facts("stop") == {"state": "stopped"}
    project.serve()
    assert project.facts("quit") == {"state": "ended"}
    until(lambda: not project.processes())


def test_stop_gives_up_waiting_in_time_and_tells_for_whom(project: Project) -> None:
    master = project.serve()
    (worker,) = project.pids()
    os.kill(worker, signal.SIGSTOP)
    ran = project.tarry("stop", "--timeout", "1.5")
    assert ran.status == 1
    *waited, last = ran.err.splitlines()
    assert any(line.startswith("waiting for worker default.1 pid") for line in waited)
    assert last == "tarry: still running after 1.5 s; `tarry quit` ends it now"
    os.kill(worker, signal.SIGCONT)
    assert master.wait(20) == 0


def test_quit_does_not_wait_for_who_does_not_answer(project: Project) -> None:
    master = project.serve()
    for pid in project.pids():
        os.kill(pid, signal.SIGSTOP)
    assert project.tarry("quit").out == "ended\n"
    assert master.wait(20) == 0
    until(lambda: not project.processes())


def test_restart_is_quit_and_start(project: Project) -> None:
    first = project.serve()
    project.said("restart", "-d")
    assert first.wait(20) == 0
    told = project.facts("status")
    assert told["state"] == "serving"
    assert told["pid"] != first.pid
    project.said("quit")
    project.said("restart", "-d")
    assert project.facts("status")["pid"] != told["pid"]


@pytest.mark.parametrize("words", [("start",), ("start", "-d"), ("restart", "-d")])
def test_what_cannot_start_says_so_before_it_tries(project: Project, words: tuple[str, ...]) -> None:
    project.write("tarry.toml", "colour = 3")
    assert "unknown setting colour" in project.refused(*words)
    until(lambda: not project.processes())


def test_it_starts_with_a_door_alone_since_tasks_may_be_registered_later(project: Project) -> None:
    project.write("tarry.toml", f'[server]\nhttp = "127.0.0.1:{free_port()}"\n')
    project.serve()
    until(lambda: "no app and no [tasks]: HTTP tasks that `tarry tasks add` registers: " in project.log())
    if os.geteuid() == 0:
        until(lambda: "started as root: tasks may do anything" in project.log())


def test_a_pid_file_that_cannot_be_made(project: Project) -> None:
    project.write("file", "")
    project.settings('[master]\npid_file = "file/tarry.pid"\n')
    assert "file/tarry.pid cannot be written (Not a directory): set master.pid_file" in project.refused("start")
    assert "file/tarry.log cannot be written (Not a directory)" in project.refused("start", "-d")
    until(lambda: not project.processes())


def test_a_log_that_cannot_be_written(project: Project) -> None:
    project.write("file", "")
    project.settings('[master]\nlog = "file/tarry.log"\n')
    for words in (("start",), ("start", "-d")):
        assert "set master.log" in project.refused(*words)
    until(lambda: not project.processes())


def test_a_daemon_logs_beside_its_pid_file_and_leaves_nothing_in_the_terminal(project: Project) -> None:
    said = project.said("start", "-d")
    assert said == f"app:app serves: master {project.board().pid}, log {project.pid_file.with_suffix('.log')}"
    again = msgspec.json.decode(project.tarry("restart", "-d", "--json").out)
    assert again == {"state": "serving", "pid": project.board().pid, "log": str(project.pid_file.with_suffix(".log"))}
    log = project.pid_file.with_suffix(".log")
    until(lambda: "app:app: jobs run in 1 worker" in log.read_text())
    pid = project.facts("status")["pid"]
    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert "Umask:\t0027" in Path(f"/proc/{pid}/status").read_text()
    project.said("stop")
    until(lambda: not project.processes())


def test_a_place_in_which_nobody_sits_has_no_pid() -> None:
    children = [ChildStatus("worker", "default", n, 1, n * 7, "gone", "", 0.0, 0, 0, 0, -1.0, "", []) for n in (0, 1)]
    told = processes.facts(Board(1, "serving", 0.0, children))
    assert [child["pid"] for child in told["children"]] == [None, 7]
