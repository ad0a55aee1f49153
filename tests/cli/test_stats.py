import pytest
from msgspec import json

from tarry.keeper.backlog import sample_backlogs
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.store.queries.deploys import PREFIX, Deploy
from tarry.store.rules.base import NORMAL, Want
from tarry.store.sqlite.store import SqliteStore
from tarry.terminal import sparkline
from tests.cli.project import Project


def test_stats_of_today_are_by_queue_and_task(project: Project) -> None:
    project.put("app.add", 1, times=3)
    (cancelled,) = project.put("app.greet", "Ann", queue="mail")
    project.said("jobs", "cancel", cancelled)
    heads, add, greet, *lines = project.said("stats").splitlines()
    assert heads.split()[:8] == ["queue", "task", "put", "done", "failed", "dead", "cancelled", "expired"]
    assert add.split()[:8] == ["default", "app.add", "3", "0", "0", "0", "0", "0"]
    assert greet.split()[:8] == ["mail", "app.greet", "1", "0", "0", "0", "1", "0"]
    assert [line.split() for line in lines] == [["put", "\u2588", "4"], ["cancelled", "\u2588", "1"]]


@pytest.mark.parametrize(("option", "step", "points"), [("--hours", 3600, 24), ("--days", 86400, 30)])
def test_stats_by_time(project: Project, option: str, step: int, points: int) -> None:
    project.put("app.add", 1, times=2)
    facts = project.facts("stats", option)
    assert (facts["step"], len(facts["points"])) == (step, points)
    assert facts["points"][-1]["put"] == facts["total"]["put"] == 2
    assert facts["to"] - facts["from"] == step * points
    last = project.said("stats", option).splitlines()[points]
    assert last.split()[-12] == "2"
    assert last.split()[-2:] == ["-", "-"]
    with project.store() as store:
        now = store.time()
        store.history.sample(now, store, lambda store: sample_backlogs(store, now))
    assert project.said("stats", option).splitlines()[points].split()[-2] == "2"
    assert project.facts("stats", option)["points"][-1]["ready"] == 2
    assert project.facts("stats", option, "--queue", "mail")["points"][-1]["ready"] == 0
    assert project.facts("stats", option, "--task", "app.add")["points"][-1]["ready"] is None


def test_stats_of_one_queue_or_task(project: Project) -> None:
    project.put("app.add", 1, times=2)
    project.put("app.greet", "Ann", queue="mail")
    assert project.facts("stats", "--queue", "mail")["total"]["put"] == 1
    assert [one["task"] for one in project.facts("stats", "--task", "app.add")["tasks"]] == ["app.add"]


def test_stats_in_all(project: Project) -> None:
    project.put("app.add", 1, times=3)
    project.put("app.greet", "Ann", queue="mail")
    heads, add, greet = project.said("stats", "--total").splitlines()
    assert (heads.split()[2], add.split()[:3], greet.split()[:3]) == (
        "put", ["default", "app.add", "3"], ["mail", "app.greet", "1"],
    )  # fmt: skip
    assert project.facts("stats", "--total", "--queue", "mail")["ever"]["total"]["put"] == 1


def test_stats_of_nothing(project: Project) -> None:
    assert len(project.said("stats").splitlines()) == 1


def test_stats_show_what_deliveries_were_answered(project: Project) -> None:
    project.put("app.add", 1, times=3)
    with project.store() as store:
        now = store.time()
        jobs = store.claim([Want("default", NORMAL, 3)], 3, "ann", SECOND, now)
        outcomes: list[Outcome] = [Returned(status=200), Raised(b"", final=True, status=500), Returned(status=200)]
        ends = [lifecycle.after(job, end, DEFAULT, now) for job, end in zip(jobs, outcomes, strict=True)]
        assert store.apply(ends, now) == [True] * 3
    assert project.said("stats").splitlines()[-1] == "  answers 200: 2, 500: 1"
    assert project.facts("stats")["total"]["statuses"] == {"200": 2, "500": 1}


@pytest.mark.parametrize("option", ["--hours", "--total"])
def test_stats_of_a_store_of_which_a_part_is_away(project: Project, option: str) -> None:
    project.settings('store = ["sqlite:///tarry.db", "sqlite:///gone/tarry.db"]\n')
    project.put("app.add", 1, times=3)
    ran = project.tarry("--json", "stats", option)
    found = json.decode(ran.out)
    assert (ran.status, found.get("ever", found)["total"]["put"]) == (0, 3)
    assert "gone/tarry.db is away" in ran.err


def mark_deploy(project: Project, version: str, ago: int, generation: int = 1) -> None:
    with project.store() as store:
        mark = Deploy(f"ahost|1.2:7:{generation}:0", generation, store.time() - ago * SECOND, version, "0.1", 1)
        assert store.kv_cas(f"{PREFIX}{mark.instance}:{generation}", json.encode(mark), None)


def test_stats_show_where_a_deploy_fell(project: Project) -> None:
    project.put("app.add", 1)
    heads = project.said("stats", "--hours").splitlines()[0]
    assert "deployed" not in heads
    mark_deploy(project, "1.0\x1b[31m", 3600 * 3)
    mark_deploy(project, "", 7200, 2)
    heads, *lines = project.said("stats", "--hours").splitlines()
    assert heads.split()[-1] == "deployed"
    marked = {24 - at: line for at, line in enumerate(lines[:24]) if not line.rstrip().endswith("-")}
    assert [text.partition("-")[2].split("-")[-1].strip() for text in marked.values()] == [
        "1.0\\x1b[31m", "generation 2",
    ]  # fmt: skip
    (line,) = [line for line in lines if line.lstrip().startswith("deployed")]
    assert line.split()[1:] == ["^^", "generation", "2,", "1.0\\x1b[31m"]


def test_stats_since_the_last_deploy(project: Project) -> None:
    assert "no deploy is known" in project.misused("stats", "--since", "deploy")
    project.put("app.add", 1, times=2)
    mark_deploy(project, "1.0", 60)
    facts = project.facts("stats", "--since", "deploy")
    assert (facts["step"], facts["total"]["put"]) == (60, 2)
    assert [one["version"] for one in facts["deploys"]] == ["1.0"]
    assert project.facts("stats", "--since", "deploy", "--hours")["step"] == 3600
    assert project.said("stats", "--since", "30h").splitlines()[1].split()[:3] == ["default", "app.add", "2"]


def test_a_long_time_is_a_short_line(project: Project) -> None:
    project.put("app.add", 1)
    (line,) = [line for line in project.said("stats", "--since", "23h").splitlines() if line.lstrip().startswith("put")]
    assert len(line) < 90


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "never"], "--since: 'never' is no time"),
        (["--since", "2h", "--total"], "leave out --since"),
        (["--since", "2024-01-01", "--hours"], "points; at most 1,500"),
    ],
)
def test_a_time_that_makes_no_sense_is_misused(project: Project, words: list[str], said: str) -> None:
    assert said in project.misused("stats", *words)


def test_hours_and_days_at_once_are_misused(project: Project) -> None:
    ran = project.tarry("stats", "--hours", "--days")
    assert ran.status == 2
    assert "not allowed with" in ran.err


@pytest.mark.parametrize(
    ("numbers", "line"), [([], ""), ([0, 0], "  "), ([1], "\u2588"), ([0, 1, 50, 100], " \u2581\u2584\u2588")]
)
def test_a_sparkline_is_as_high_as_its_numbers(numbers: list[int], line: str) -> None:
    assert sparkline(numbers) == line


def test_check_says_that_nobody_sums_up(project: Project) -> None:
    project.put("app.add", 1)
    facts = {fact["name"]: fact for fact in project.facts("check")["facts"]}
    assert (facts["history"]["value"], facts["history"]["advice"]) == ("1 records to be summed up", "")
    with project.store() as store:
        assert isinstance(store, SqliteStore)
        store._db.execute("WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 20000)"
                          " INSERT INTO tarry_journal (record) SELECT x'00' FROM n")  # fmt: skip
    ran = project.tarry("check")
    assert ran.status == 1
    assert "over 20,000 records to be summed up" in ran.out
    assert "run `tarry start` on a host" in ran.out
