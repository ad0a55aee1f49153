"""What the app does by the clock, with real masters."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tarry.model.job import Job
from tests.cli.project import until
from tests.system.scene import APP, Scene

SCHEDULED = """
@app.task(cron="@every 1s", missed="all")
def tick() -> None:
    tell("ticked")
"""


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Scene]:
    """Another host, so to say, on the same store."""
    directory = tmp_path / "second"
    directory.mkdir()
    second = Scene(directory)
    yield second
    second.close()


def ticks(scene: Scene) -> list[Job]:
    return sorted(scene.jobs(task="app.tick"), key=lambda job: job.due)


def test_every_second_is_one_job_with_two_masters_and_a_killed_keeper(scene: Scene, second: Scene) -> None:
    for host in (scene, second):
        host.write("app.py", APP + SCHEDULED)
        host.settings(f'store = "sqlite:///{scene.database}"\n')
        host.serve()
    until(lambda: len(ticks(scene)) >= 3)
    scene.kill(scene.pids("keeper")[0])
    count = len(ticks(scene))
    until(lambda: len(ticks(scene)) >= count + 3)
    told = second.said("schedules").splitlines()[1]
    assert told.split()[:4] == ["app.tick", "app.tick", "@every", "1s"]
    second.said("schedules", "pause", "app.tick")
    jobs = ticks(scene)
    until(lambda: all(job.state == "done" for job in ticks(scene)))
    seconds = [job.due // 1_000_000 for job in jobs]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), "each second once, and none left out"
    assert all(count == 1 for count in (scene.times("ticked") + second.times("ticked")).values())
    late = sorted(job.created - job.due for job in jobs)
    print(f"made {late[len(late) // 2] / 1000:.1f} ms after the tick, at most {late[-1] / 1000:.1f}")


ON_DAYS = """
from tarry import Cron

@app.task(cron=Cron("@every 1s", calendar="work"))
def tick() -> None:
    tell("ticked")
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_reload_changes_a_calendar_and_the_runs_are_remembered(
    scene: Scene, request: pytest.FixtureRequest, kind: str
) -> None:
    url = f"sqlite:///{scene.database}"
    if kind == "redis":
        url = request.getfixturevalue("redis_server").url.rpartition("/")[0] + "/9"
    settings = f'store = "{url}"\n[calendars.work]\n'
    today = datetime.now(UTC).date()
    scene.write("app.py", APP + ON_DAYS)
    scene.settings(f"{settings}only = [2020-01-01]\n")
    scene.serve()
    (fact,) = scene.facts("schedules", "show", "app.tick")
    assert (fact["calendar"], fact["next"], fact["runs"]) == ("work", None, [])
    scene.settings("")
    failed = scene.tarry("reload")
    assert failed.status == 1
    assert "schedule app.tick: the settings have no [calendars.work]" in failed.err
    scene.settings(f"{settings}only = [{today}, {today + timedelta(days=1)}]\n")
    assert scene.tarry("reload").status == 0

    def ended() -> list[Any]:
        (fact,) = scene.facts("schedules", "show", "app.tick")
        return [run for run in fact["runs"] if run["state"] == "done"]

    until(lambda: len(ended()) >= 2)
    for run in ended():
        assert run["tick"] % 1 == 0
        assert run["kept"]
        assert 0 <= run["delay"] < 30
        assert 0 <= run["duration"] < 30
    assert "no longer" not in scene.said("schedules", "show", "app.tick")
    scene.stopped()


def test_a_pause_survives_a_restart(scene: Scene) -> None:
    scene.write("app.py", APP + SCHEDULED)
    scene.serve()
    until(lambda: ticks(scene))
    scene.said("schedules", "pause", "app.tick")
    scene.stopped()
    before = len(ticks(scene))
    scene.serve()
    (id,) = (one["id"] for one in scene.facts("schedules", "run", "app.tick"))
    until(lambda: scene.job(id).state == "done")
    (fact,) = scene.facts("schedules")["schedules"]
    assert (fact["paused"], fact["next"]) == (True, None)
    # The job of a tick that was on its way when the pause was said counts for those before it.
    assert len(ticks(scene)) == before + 1
    scene.said("schedules", "resume", "app.tick")
    resumed = scene.job(id).due
    until(lambda: len(ticks(scene)) >= before + 3)
    later = [job for job in ticks(scene)[before:] if job.due != resumed]
    assert later[0].due > resumed, "nothing of the pause is made up for"
    scene.stopped()
