"""What Prometheus makes of the figures: names, rules, alerts, and the board for Grafana."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.metrics.names import METRICS
from tests.cli.project import Project, until
from tests.metrics.prometheus import RULES, Prometheus, board, board_expressions, rule_expressions
from tests.metrics.reading import fetch, scrape
from tests.servers.fixtures import started
from tests.servers.server import Missing, free_port, program

pytestmark = pytest.mark.timeout(180)

APP = """
from tarry import App, Retry

app = App()

@app.task(queue="mail", retry=Retry(1, base=0.1))
def send(number: int) -> None:
    if number % 5 == 0:
        raise ValueError("no such address")

@app.task(cron="0 3 * * *")
def clean() -> None: ...
"""
SETTINGS = """
[tasks.hook]
url = "http://127.0.0.1:{door}/healthz"
method = "GET"
[push]
allow = ["127.0.0.0/8"]
[metrics]
listen = "127.0.0.1:{metrics}"
[server]
http = "127.0.0.1:{door}"
"""


NOT_SHOWN = {
    "tarry_build_info": "the list of stores at the top of the board asks for it",
    "tarry_master_start_time_seconds": "whoever asks for it looks at one host: `tarry status` has it",
    "tarry_process_start_time_seconds": "as above",
    "tarry_schedule_last_run_timestamp_seconds": "missed ticks, and how late a schedule is, are shown",
    "tarry_stored_schedules_last_run_timestamp_seconds": "as above",
    "tarry_connections_accepted_total": "those that are open, and those refused, are shown",
}
"""Figures that the board leaves out, and why."""


class Watched(NamedTuple):
    """A tarry that has worked, and the ports of its two doors."""

    project: Project
    metrics: int
    door: int


def promtool() -> str:
    try:
        return program("promtool")
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Jobs that were done, tried again and dead, one that was pushed, a schedule."""
    found = Watched(Project(tmp_path_factory.mktemp("watched"), APP), free_port(), free_port())
    project = found.project
    project.settings(SETTINGS.format(door=found.door, metrics=found.metrics))
    project.serve()
    project.enqueue("app.send", "0")
    project.enqueue("hook", "{}")
    until(lambda: "tarry_push_attempts_total" in scrape(found.metrics))
    until(lambda: scrape(found.metrics).get("tarry_jobs_total", {}).get(("dead", "mail", "app.send")) == 1)
    fetch(found.door, path="/v1/queues")
    yield found
    project.close()


def names_in(expressions: dict[str, str]) -> set[str]:
    """The figures that are asked for; those that rules record have a colon before them."""
    found = {name for text in expressions.values() for name in re.findall(r"(?<![\w:])tarry_\w+(?!\w*:)", text)}
    assert found
    return found


@pytest.mark.parametrize("door", ["metrics", "door"])
def test_promtool_finds_nothing_to_mend_in_a_scrape(watched: Watched, door: str) -> None:
    text = fetch(getattr(watched, door))
    ran = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_scrape_shows_every_figure_and_no_other(watched: Watched) -> None:
    seen = set(scrape(watched.metrics)) | set(scrape(watched.door))
    whole = {re.sub("_(bucket|count|sum)$", "", name) for name in seen if name.startswith("tarry_")}
    assert whole == set(METRICS)


@pytest.mark.parametrize("asked", [rule_expressions(), board_expressions()], ids=["rules", "board"])
def test_what_is_asked_for_is_shown(watched: Watched, asked: dict[str, str]) -> None:
    assert names_in(asked) <= set(scrape(watched.metrics)) | set(scrape(watched.door))


def test_the_board_shows_every_figure_but_these() -> None:
    shown = {re.sub("_(bucket|count|sum)$", "", name) for name in names_in(board_expressions())}
    assert set(METRICS) - shown == set(NOT_SHOWN)
    assert all(NOT_SHOWN.values())


def test_what_is_asked_for_has_a_name() -> None:
    """Also where no tarry runs that shows it."""
    asked = names_in(rule_expressions() | board_expressions())
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in asked} <= set(METRICS)


def test_recorded_figures_that_are_asked_for_are_recorded() -> None:
    asked = {name for text in rule_expressions().values() for name in re.findall(r"\w+:tarry_\w+:\w+", text)}
    assert asked <= set(rule_expressions())


def test_the_rules_are_valid_and_their_alerts_come_and_go() -> None:
    ran = subprocess.run([promtool(), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tests = Path(__file__).with_name("alerts.yml")
    ran = subprocess.run([promtool(), "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_is_tested() -> None:
    text = Path(__file__).with_name("alerts.yml").read_text(encoding="utf-8")
    alerts = {name for name in rule_expressions() if name.startswith("Tarry")}
    fired = set(re.findall(r"- alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n", text))
    assert alerts == fired


def test_the_board_is_for_any_grafana_and_any_store() -> None:
    found = board()
    variables = [one["name"] for one in found["templating"]["list"]]
    assert variables == ["datasource", "job", "queue"]
    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    for panel in panels:
        for target in panel["targets"]:
            assert 'job="$job"' in target["expr"], panel["title"]


@pytest.fixture
def prometheus(watched: Watched, tmp_path: Path) -> Iterator[Prometheus]:
    """It scrapes the keeper by two names, as if there were two hosts, and the server."""
    targets = [f"127.0.0.1:{watched.metrics}", f"localhost:{watched.metrics}", f"127.0.0.1:{watched.door}"]
    yield from started(Prometheus(tmp_path / "prometheus", targets))


def test_a_real_prometheus_answers_the_whole_board(watched: Watched, prometheus: Prometheus) -> None:
    """Nothing of the store is counted twice."""
    until(lambda: len(prometheus.query("count(tarry_queue_depth) by (instance)")) == 3, 60)
    watched.project.put("app.send", 1, times=20, queue="mail")
    until(lambda: prometheus.query("job_queue_task_outcome:tarry_jobs:rate5m > 0"), 60)
    nothing = [title for title, asked in board_expressions().items() if not prometheus.query(asked)]
    # Of what did not happen there are no figures: failures within a minute, paused queues, troubles.
    assert set(nothing) <= {f"Failures, by task {ref}" for ref in "AB"} | {
        "Errors, by id A",
        "Paused queues A",
        "Schedules: missed ticks, how late, and paused C",
        "Schedules that the store keeps: missed ticks, and how late B",
        "Trouble of hosts B",
        "Trouble of hosts C",
    }
    done = len([job for job in watched.project.jobs() if job.state == "done"])
    asked = board_expressions()["Jobs in the store, by state A"]
    until(lambda: prometheus.values(asked, "state")["done"] == done)
    assert {rule["health"] for rule in prometheus.rules()} == {"ok"}
