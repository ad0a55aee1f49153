"""`tarry replay`, and the logs that it reads under a real master."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.model import lifecycle
from tests.cli.project import Project, until
from tests.push.server import Server

SETTINGS = """
[push]
allow = ["127.0.0.1"]
log = "logs/push"
[tasks.hook]
url = "URL"
"""

PRODUCER = """
from app import app
for n in range(300):
    app.enqueue("hook", {"n": n, "text": n * "x"})
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def logs(project: Project, server: Server) -> Path:
    project.settings(SETTINGS.replace("URL", server.url()))
    return project.directory / "logs" / "push"


def lose(project: Project, *names: str) -> None:
    with project.store() as store:
        jobs = [project.job(name) for name in names]
        assert all(store.apply([lifecycle.forget(job) for job in jobs], store.time()))


def lines(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def test_what_was_lost_is_put_back(project: Project, logs: Path) -> None:
    first, second = (project.enqueue("hook", f'{{"n": {n}}}') for n in range(2))
    before = project.job(first)
    lose(project, first)
    words = ("replay", "--from", logs, "--since", "1h")
    shown = project.said(*words, "--dry-run").splitlines()
    assert shown[0].split() == ["id", "task", "queue", "due"]
    assert shown[1].startswith(f"{first}  hook  default ")
    assert shown[2] == "1 job would be put back, 1 known to the store, 0 ended, 0 lines not readable"
    assert [job.id for job in project.jobs()] == [project.job(second).id]
    assert project.said(*words) == "1 job put back, 1 known to the store, 0 ended, 0 lines not readable"
    assert msgspec.structs.replace(project.job(first), state_since=0) == msgspec.structs.replace(before, state_since=0)
    nothing = {"expired": 0, "held": 0, "misplaced": 0, "unreadable": 0}
    assert project.facts(*words) == {"put_back": 0, "known": 2, "ended": 0, **nothing}
    assert project.said("jobs", "delete", first) == f"{first} deleted"
    assert project.facts("replay", "--from", logs / "request.log", "--since", "3600")["ended"] == 1


def test_what_is_done_to_many_is_written_down(project: Project, logs: Path) -> None:
    jobs = [project.enqueue("hook") for _ in range(2)]
    project.said("jobs", "cancel", "--task", "hook", "--yes")
    told = [(line["event"], line["job"]) for line in lines(logs / "request.log")]
    assert told == [*(("accepted", job) for job in jobs), *(("cancelled", job) for job in jobs)]
    lose(project, *jobs)
    assert project.facts("replay", "--from", logs, "--since", "1h")["ended"] == 2


def test_lines_that_cannot_be_read_are_named(project: Project, logs: Path) -> None:
    project.enqueue("hook")
    with (logs / "request.log").open("a") as file:
        file.write("garbage\n" * 12)
    ran = project.tarry("replay", "--from", logs, "--since", "1h")
    assert (ran.status, ran.out) == (0, "0 jobs put back, 1 known to the store, 0 ended, 12 lines not readable\n")
    told = [f"tarry: {logs}/request.log, line {number}: not readable" for number in range(2, 12)]
    assert ran.err.splitlines() == [*told, "tarry: and 2 lines more"]


def test_a_key_that_another_holds_is_named(project: Project, logs: Path) -> None:
    lost = project.enqueue("hook", "--key", "k")
    lose(project, lost)
    other = project.enqueue("hook", "--key", "k")
    ran = project.tarry("replay", "--from", logs, "--since", "1h")
    assert ran.err == f"tarry: hook {lost} is left: its key 'k' is held by {other}\n"
    assert "1 with a key that another holds" in ran.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "nowhere", "--since", "1h"], "nowhere is not there: --from names it, or the directory of [push]"),
        (["--from", ".", "--since", "1h"], "request.log is not there: --from names it, or the directory of [push] log"),
    ],
)
def test_what_is_wrong_is_told(project: Project, words: list[str], told: str) -> None:
    assert project.refused("replay", *words).startswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", ".", "--since", "soon"], "--since 'soon' is no time: write it as in 2030-12-31T23:59Z, or how lo"),
        (["--from", ".", "--since", "2999-01-01"], "--since 2999-01-01 is yet to come"),
    ],
)
def test_a_wrong_call_is_told(project: Project, words: list[str], told: str) -> None:
    assert project.misused("replay", *words).startswith(told)


@pytest.mark.parametrize("since", ["2026-01-01T00:00:00Z", "2026-01-01 00:00", "2026-01-01T00:00:00.5+02:00", "90s"])
def test_times_as_people_write_them(project: Project, logs: Path, since: str) -> None:
    project.enqueue("hook")
    assert project.facts("replay", "--from", logs, "--since", since)["known"] == 1


def test_logs_that_are_rotated_under_load_lose_nothing(project: Project, logs: Path, server: Server) -> None:
    """They are moved away again and again, each time with a HUP to the master, while jobs come and go."""
    project.settings(SETTINGS.replace("URL", server.url()) + "[pools.default]\nworkers = 2\n")
    master = project.serve()
    command = [sys.executable, "-c", PRODUCER]
    producers = [subprocess.Popen(command, cwd=project.directory, env=project.environ) for _ in range(2)]
    for rotated in range(1, 4):
        until(lambda: (logs / "notify.log").exists() and (logs / "request.log").exists())
        for name in ("request", "notify"):
            (logs / f"{name}.log").rename(logs / f"{name}.log.{rotated}")
        generation = project.board().notice.generation
        os.kill(master.pid, signal.SIGHUP)
        until(lambda: project.board().notice.generation > generation)  # noqa: B023
        project.enqueue("hook")
    assert [producer.wait(60) for producer in producers] == [0, 0]
    until(lambda: len([job for job in project.jobs() if job.state == "done"]) == 2 * 300 + 3, 60)
    jobs = {job.id.hex() for job in project.jobs()}
    accepted, attempts = (
        [line["job"].replace("-", "") for line in lines(*logs.glob(f"{name}.log*"))] for name in ("request", "notify")
    )
    assert sorted(accepted) == sorted(jobs)
    assert set(attempts) == jobs
    assert project.facts("replay", "--from", logs, "--since", "1h")["ended"] == len(jobs)
    assert project.tarry("stop").status == 0


def test_a_hup_makes_a_worker_let_go_of_what_was_rotated(project: Project, logs: Path) -> None:
    project.serve()
    job = project.enqueue("hook")
    until(lambda: project.job(job).state == "done")
    (worker,) = project.pids()
    assert opened(worker, "notify.log") == [logs / "notify.log"]
    (logs / "notify.log").rename(logs / "notify.log.1")
    os.kill(worker, signal.SIGHUP)
    until(lambda: not opened(worker, "notify.log.1"))
    assert project.pids() == [worker]


def opened(pid: int, name: str) -> list[Path]:
    """The files that a process has open and whose names begin so."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(Path(os.readlink(link)))
    return [path for path in found if path.name.startswith(name)]
