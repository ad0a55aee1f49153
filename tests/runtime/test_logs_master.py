"""The logs of real masters: every line about a job says which, and what a job says is kept with it."""

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import Project, until

APP = """
import logging
from tarry import App

app = App(retry=None)
log = logging.getLogger("shop")

@app.task(name="sync", queue="mail")
def sync(name: str) -> None:
    print("printed by", name)
    log.info("logged by %s", name)
    raise ValueError(name)

@app.task(name="loop")
async def loop(name: str) -> None:
    print("printed by", name)
    log.info("logged by %s", name)
    raise ValueError(name)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Project]:
    """A directory with an app that talks, and no process of it afterwards."""
    place = Project(tmp_path, APP)
    yield place
    place.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[socket.socket]:
    """Listens as syslog or the journal would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "socket"))
        server.settimeout(30)
        yield server


def receive_lines(server: socket.socket, *texts: str) -> dict[str, str]:
    """For each text, the first line that comes with it in it."""
    found: dict[str, str] = {}
    while len(found) < len(texts):
        line = server.recv(99_999).decode()
        found |= {text: line for text in texts if text in line and text not in found}
    return found


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def lines_about(log: Path, id: str) -> list[dict[str, Any]]:
    return [line for line in lines(log) if line.get("job") == id]


def test_syslog_hears_of_which_job_each_line_is(place: Project, server: socket.socket) -> None:
    place.settings("[master]\nlog = 'syslog:///" + str(place.directory / "socket") + "'\n")
    master = place.serve()
    assert receive_lines(server, "jobs run in 1 worker")["jobs run in 1 worker"].startswith("<30>1 ")
    names = {
        task: place.put(task, "it" + task, queue=queue)[0] for task, queue in (("sync", "mail"), ("loop", "default"))
    }
    texts = [*(f"logged by it{task}" for task in names), *(f"ValueError: it{task}" for task in names)]
    for text, line in receive_lines(server, *texts).items():
        task = text[-4:]
        queue = "mail" if task == "sync" else "default"
        facts = f'[tarry@32473 job="{names[task]}" task="{task}" queue="{queue}" attempt="1" worker="default.1"]'
        assert facts in line
        assert f" tarry {master.pid} " not in line, "it comes from the worker"
    # A print is several writes, so those of two jobs may mix.
    until(lambda: sorted(place.log()) == sorted("printed by itloop\nprinted by itsync\n"))


def test_the_journal_hears_of_the_master_and_the_jobs(place: Project, server: socket.socket) -> None:
    place.settings(f"[master]\nlog = 'journal://{place.directory}/socket'\n")
    place.serve()
    (id,) = place.put("sync", "it")
    line = receive_lines(server, "logged by it")["logged by it"]
    assert f"\nTARRY_JOB={id}\nTARRY_TASK=sync\n" in line
    assert "SYSLOG_IDENTIFIER=tarry\n" in line


def test_a_file_is_followed_by_all_when_it_is_rotated_and_nobody_is_told(place: Project) -> None:
    place.settings("[master]\nlog = 'logs/tarry.log'\nlog_format = 'json'\n")
    log = place.directory / "logs" / "tarry.log"
    place.serve()
    (one,) = place.put("sync", "one")
    until(lambda: len(lines_about(log, one)) == 2)
    log.rename(log.with_suffix(".1"))
    (two,) = place.put("loop", "two")
    until(lambda: len(lines_about(log, two)) == 2)
    logged, failed = lines_about(log, two)
    assert (logged["message"], logged["logger"], logged["worker"]) == ("logged by two", "shop", "default.1")
    assert (failed["level"], failed["task"], failed["queue"], failed["attempt"]) == ("ERROR", "loop", "default", 1)
    assert lines_about(log, one) == []


@pytest.mark.parametrize("role", ["worker", "keeper"])
def test_a_child_that_hears_hup_looks_again_at_once(place: Project, role: str) -> None:
    place.settings("[master]\nlog = 'logs/tarry.log'\n")
    log = place.directory / "logs" / "tarry.log"
    place.serve()
    log.rename(log.with_suffix(".1"))
    (pid,) = place.pids(role)
    os.kill(pid, signal.SIGHUP)
    until(log.exists)
    assert place.pids(role) == [pid]


def test_a_log_whose_directory_is_gone_comes_back_with_it(place: Project) -> None:
    place.settings("[master]\nlog = 'logs/tarry.log'\nlog_format = 'json'\n")
    log = place.directory / "logs" / "tarry.log"
    place.serve()
    until(lambda: "jobs run in" in log.read_text())
    shutil.rmtree(log.parent)
    (one,) = place.put("sync", "one")
    until(lambda: "ValueError: one" in place.log())
    assert 1 <= place.log().count("no log lines can be written to the file") <= 3, "once for each process"
    log.parent.mkdir()

    def back() -> bool:
        place.put("sync", "again")
        return any("the log is back after" in line["message"] for line in lines(log))

    until(back)
    assert one in place.log()


def test_jobs_show_shows_what_a_job_said(place: Project) -> None:
    place.settings("[pools.default]\nkeep_output = '1KB'\n")
    place.serve()
    ids = [place.put(task, "it")[0] for task in ("sync", "loop")]
    until(lambda: [place.job(id).state for id in ids] == ["dead", "dead"])
    for id in ids:
        shown = place.said("jobs", "show", id)
        assert shown.endswith("output    of attempt 1:\n  printed by it\n  INFO shop: logged by it")
        (facts,) = place.facts("jobs", "show", id)
        assert facts["output"] == {"text": "printed by it\nINFO shop: logged by it\n", "attempt": 1, "left_out": 0}
        assert facts["progress"] is None


def test_nothing_is_kept_where_a_pool_says_so(place: Project) -> None:
    place.settings("[pools.default]\nkeep_output = 0\n")
    place.serve()
    (id,) = place.put("sync", "it")
    until(lambda: place.job(id).state == "dead")
    (facts,) = place.facts("jobs", "show", id)
    assert facts["output"] is None
    assert "output" not in place.said("jobs", "show", id)


def test_a_daemon_with_syslog_leaves_its_output_beside_the_pid_file(place: Project, server: socket.socket) -> None:
    place.settings(f"[master]\nlog = 'syslog://{place.directory}/socket'\n")
    with contextlib.ExitStack() as stack:
        stack.callback(place.tarry, "quit")
        assert place.tarry("start", "-d").status == 0
        place.put("sync", "it")
        receive_lines(server, "logged by it")
        until(lambda: "printed by it" in place.pid_file.with_suffix(".log").read_text())
