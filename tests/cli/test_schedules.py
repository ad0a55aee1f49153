import time
from datetime import UTC, datetime

import pytest

from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import MINUTE, SECOND
from tarry.model.schedules.schedule import ScheduledRun
from tarry.store.rules import ids
from tests.cli.project import Project

APP = """
from tarry import App, Cron

app = App()

@app.task(cron=[Cron("0 9 * * mon-fri", args=("eu",)), Cron("@every 90s", name="often", zone="UTC")],
          zone="Europe/Paris", missed="skip")
def report(shop: str = "all") -> None: ...

@app.task(cron="@daily")
def clean() -> None: ...

@app.task
def other() -> None: ...
"""


@pytest.fixture(autouse=True)
def _app(project: Project) -> None:
    project.write("app.py", APP)


def test_they_are_listed(project: Project) -> None:
    clean, report, often = sorted(project.facts("schedules")["schedules"], key=lambda fact: fact["cron"] != "@daily")
    assert clean["name"] == clean["task"] == "app.clean"
    assert clean["next"] % 86400 == 0
    assert {name: report[name] for name in ("name", "task", "cron", "zone", "missed", "last", "paused")} == {
        "name": "app.report", "task": "app.report", "cron": "0 9 * * mon-fri", "zone": "Europe/Paris",
        "missed": "skip", "last": None, "paused": False,
    }  # fmt: skip
    assert (often["name"], often["task"], often["zone"]) == ("often", "app.report", "UTC")
    assert often["next"] % 90 == 0
    assert 0 < often["next"] - time.time() + 60 < 150
    lines = project.said("schedules", "list").splitlines()
    assert lines[0].split() == ["name", "task", "cron", "zone", "days", "next", "last"]
    assert lines[1].split()[:4] == ["app.clean", "app.clean", "@daily", "UTC"]
    assert lines[2].split()[:8] == ["app.report", "app.report", "0", "9", "*", "*", "mon-fri", "Europe/Paris"]
    assert " in " in lines[3]
    assert lines[3].endswith("-")


ON_DAYS = """
from tarry import App, Calendar, Cron

app = App()

@app.task(cron=[Cron("0 9 * * *", calendar="de", name="named"), Cron("@daily", calendar=Calendar("sat"), name="own")])
def report() -> None: ...
"""


def test_the_days_of_a_calendar_are_told(project: Project) -> None:
    project.write("app.py", ON_DAYS)
    project.settings("[calendars.de]\nonly = [2099-12-31]\n")
    named, own = project.facts("schedules")["schedules"]
    assert (named["calendar"], named["next"]) == ("de", 4102390800.0)
    assert own["calendar"] == "sat"
    assert datetime.fromtimestamp(own["next"], UTC).isoweekday() == 6
    lines = project.said("schedules").splitlines()
    assert lines[0].split()[:5] == ["name", "task", "cron", "zone", "days"]
    assert " UTC   de    2099-12-31 " in lines[1]
    project.settings("")
    told = "schedule named: the settings have no [calendars.de]; they have: none"
    assert project.refused("schedules") == told
    start = project.tarry("start")
    assert start.status == 1
    assert told in start.err


def test_the_last_runs_of_one_are_shown(project: Project) -> None:
    assert project.facts("schedules", "show", "often")[0]["runs"] == []
    done = project.said("enqueue", "app.clean")
    noon = 1_795_003_200_000_000
    runs = [
        ScheduledRun(noon, end="left_out", ticks=3),
        ScheduledRun(noon + MINUTE, "0" * 32, "dead", noon + MINUTE + SECOND, noon + 2 * MINUTE),
        ScheduledRun(noon + 2 * MINUTE, "1" * 32),
        ScheduledRun(noon + 3 * MINUTE, done),
        ScheduledRun(noon + 4 * MINUTE, end="refused"),
    ]
    state = ScheduleState("@every 90s UTC", noon, noon, noon, runs=runs)
    with project.store() as store:
        assert schedule_state.write(store, "often", state, None)
    (shown,) = project.facts("schedules", "show", "often")
    assert (shown["name"], shown["last"]) == ("often", noon / SECOND)
    seen = [(run["state"], run["kept"], run["delay"], run["duration"], run["ticks"]) for run in shown["runs"]]
    assert seen == [
        ("left_out", False, None, None, 3),
        ("dead", False, 1.0, 59.0, 1),
        ("gone", False, None, None, 1),
        ("ready", True, None, None, 1),
        ("refused", False, None, None, 1),
    ]
    lines = project.said("schedules", "show", "often").splitlines()
    assert lines[0].split() == ["name", "often"]
    at = [line.split() for line in lines].index(["tick", "state", "delay", "took", "job"])
    assert [line.split()[3:] for line in lines[at + 1 :]] == [
        ["left", "out", "(3", "ticks)", "-", "-", "-"],
        ["dead", "1s", "59s", "0" * 32],
        ["no", "longer", "kept", "-", "-", "1" * 32],
        ["ready", "-", "-", done],
        ["refused", "-", "-", "-"],
    ]


def test_pause_and_resume(project: Project) -> None:
    assert project.said("schedules", "pause", "often", "app.clean") == "often, app.clean paused"
    told = {fact["name"]: (fact["paused"], fact["next"] is None) for fact in project.facts("schedules")["schedules"]}
    assert told == {"app.clean": (True, True), "app.report": (False, False), "often": (True, True)}
    assert project.said("schedules").splitlines()[1].endswith("paused")
    resumed = project.facts("schedules", "resume", "often", "app.clean")
    assert [(fact["name"], fact["paused"]) for fact in resumed] == [("often", False), ("app.clean", False)]
    assert [fact["paused"] for fact in project.facts("schedules")["schedules"]] == [False] * 3


def test_run_now(project: Project) -> None:
    id = project.said("schedules", "run", "app.report")
    assert (project.job(id).task, project.job(id).body) == ("app.report", b'["eu"]')
    told = project.facts("schedules", "run", "app.clean", "often")
    assert {ids.text(job.id) for job in project.jobs()} == {id, *(one["id"] for one in told)}


@pytest.mark.parametrize("action", ["show", "pause", "resume", "run"])
def test_a_schedule_has_to_be_named(project: Project, action: str) -> None:
    assert project.misused("schedules", action) == f"{action} which schedule? tarry schedules {action} NAME"
    told = "no schedule app.other in this app; tarry schedules lists them"
    assert project.refused("schedules", action, "often", "app.other") == told
    assert project.jobs() == []


def test_list_takes_no_names(project: Project) -> None:
    assert project.misused("schedules", "list", "often").startswith("list takes no names")


def test_an_app_without_any(project: Project) -> None:
    project.write("app.py", "from tarry import App\napp = App()\n")
    assert project.facts("schedules") == {"schedules": [], "next": None}
    assert len(project.said("schedules").splitlines()) == 1
    assert project.refused("schedules", "run", "x") == "no schedule x in this app; tarry schedules lists them"


def test_the_store_keeps_no_more_of_them(project: Project) -> None:
    project.said("schedules", "put", "a", "app.report", "--every", "90s", TARRY_MAX_SCHEDULES="1")
    said = project.refused("schedules", "put", "b", "app.report", "--every", "90s", TARRY_MAX_SCHEDULES="1")
    assert said.startswith("schedule b: the store keeps 1 schedules, and no more: delete some, ")


def test_one_is_put_and_deleted(project: Project) -> None:
    said = project.said(
        "schedules", "put", "report:7", "app.report", '"eu"', "--cron", "0 7 * * 1-5", "--zone", "Europe/Paris"
    )
    assert said.startswith("report:7 put; next ")
    (shown,) = project.facts("schedules", "show", "report:7")
    assert (shown["source"], shown["args"], shown["zone"]) == ("stored", ["eu"], "Europe/Paris")
    assert project.said("schedules", "list", "--source", "stored").splitlines()[1].split()[-1] == "stored"
    assert "report:7 paused" in project.said("schedules", "pause", "report:7")
    assert "report:7 put; paused" in project.said("schedules", "put", "report:7", "app.report", "--every", "90s")
    assert project.said("schedules", "delete", "report:7") == "report:7 deleted"
    assert project.facts("schedules", "list", "--source", "stored")["schedules"] == []
    misused: tuple[tuple[tuple[str, ...], str], ...] = (
        (("put", "a"), "put what? tarry schedules put NAME TASK"),
        (("put", "a", "app.report", "eu", "--every", "5"), "is no JSON"),
        (("put", "a", "app.report"), "nothing says when"),
    )
    for words, message in misused:
        assert message in project.misused("schedules", *words)
    refused: tuple[tuple[tuple[str, ...], str], ...] = (
        (("put", "app.clean", "app.clean", "--every", "5"), "the code of task app.clean has one of this name"),
        (("delete", "app.clean"), "take it out of the code, or pause it"),
        (("delete", "zzz"), "no schedule zzz"),
    )
    for words, message in refused:
        assert message in project.refused("schedules", *words)
