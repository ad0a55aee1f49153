import re
from typing import Any

import pytest

from tarry.cli.operate.queues import _when_empty
from tarry.client.queue_records import QueueBands, QueueDetail, QueueRecord
from tarry.store.rules.waiting import CappedCount
from tests.cli.project import Project


def test_queues_tell_their_depths(project: Project) -> None:
    project.enqueue("app.add", "1")
    project.enqueue("app.add", "1", "--delay", "1h")
    project.enqueue("app.greet", '"Ann"')
    project.said("enqueue", "app.removed", "--force")
    told = project.facts("queues")
    default, mail = (one for one in told["queues"] if one["ready"])
    assert (default["queue"], default["ready"], default["scheduled"], default["paused"]) == ("default", 2, 1, False)
    assert (mail["queue"], mail["ready"], mail["running"], mail["done"]) == ("mail", 1, 0, 0)
    assert mail["oldest_ready"] == project.facts("jobs", "--queue", "mail")["jobs"][0]["due"]
    said = project.said("queues", "list").splitlines()
    assert said[0].split()[:3] == ["queue", "scheduled", "ready"]
    assert said[1].split()[:3] == ["default", "1", "2"]
    assert len(said) == 2 + len(told["queues"])
    assert said[-1] == "1 job waits for the task app.removed, which this app does not know"


def test_one_queue_is_shown(project: Project) -> None:
    project.put("app.add", 1, times=2)
    project.put("app.add", 1, priority=5)
    project.put("app.add", 1, delay="90m", times=3)
    (facts,) = project.facts("queues", "show", "default")
    assert facts["bands"]["normal"] == {"count": 2, "at_least": False}
    said = dict(re.split(r"  +", line) for line in project.said("queues", "show", "default").splitlines())
    assert (said["queue"], said["ready"], said["ready, high band"], said["ready, normal band"]) == (
        "default", "3", "1", "2",
    )  # fmt: skip
    assert (said["due in hour 2"], said["due later"], said["put, last 5 minutes"]) == ("3", "0", "0")
    assert said["empty"] == "not at this pace: no more jobs end than are put"
    assert project.misused("queues", "show") == "show which queue? tarry queues show NAME"
    assert project.refused("queues", "show", "defalt").startswith("no queue defalt; did you mean default?")


def test_without_jobs_there_are_the_queues_of_the_tasks(project: Project) -> None:
    assert [(one["queue"], one["ready"]) for one in project.facts("queues")["queues"]] == [("default", 0), ("mail", 0)]
    assert len(project.said("queues").splitlines()) == 3


def test_pause_and_resume(project: Project) -> None:
    project.enqueue("app.greet", '"Ann"')
    assert project.said("queues", "pause", "mail", "new", "--force") == "mail, new paused"
    assert {q["queue"]: q["paused"] for q in project.facts("queues")["queues"]} == {
        "default": False,
        "mail": True,
        "new": True,
    }
    assert project.said("queues").splitlines()[2].endswith("paused")
    resumed = project.facts("queues", "resume", "mail", "new")
    assert [(one["queue"], one["paused"]) for one in resumed] == [("mail", False), ("new", False)]
    assert {q["queue"]: q["paused"] for q in project.facts("queues")["queues"]} == {"default": False, "mail": False}


def test_purge_deletes_what_waits(project: Project) -> None:
    project.put("app.add", 1, times=1200)
    project.put("app.add", 1, delay="1h")
    (cancelled,) = project.put("app.add", 2)
    project.said("jobs", "cancel", cancelled)
    (kept,) = project.put("app.greet", "Ann", queue="mail")
    ran = project.tarry("queues", "purge", "default")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("1,201 jobs match; delete them?")
    assert project.said("queues", "purge", "default", "--yes") == "1,201 jobs deleted"
    assert {job["id"] for job in project.facts("jobs")["jobs"]} == {cancelled, kept}
    assert [one["changed"] for one in project.facts("queues", "purge", "mail", "default", "--yes")] == [1, 0]
    assert project.said("queues", "purge", "mail", "--dry-run") == "0 jobs would be deleted"


def test_a_bound_is_set_by_hand_and_reset(project: Project) -> None:
    project.settings("[queues.mail]\nmax_waiting = 3\n")
    set_by_hand = ("queues", "bound", "mail", "--max-waiting", "2", "--when-full", "drop_oldest")
    assert project.said(*set_by_hand) == "mail: 2 may wait, then drop_oldest"
    assert project.said("queues", "reset-bound", "mail") == "mail: 3 may wait, then refuse"
    assert project.facts("queues", "reset-bound", "slow")[0]["max_waiting"] is None
    assert project.misused("queues", "bound", "mail") == "bound needs --max-waiting"
    assert (
        project.misused("queues", "bound", "mail", "--max-waiting", "-1")
        == "--max-waiting: expected a whole number >= 0"
    )


@pytest.mark.parametrize("action", ["pause", "resume", "purge"])
def test_a_queue_has_to_be_named(project: Project, action: str) -> None:
    assert project.misused("queues", action) == f"{action} which queue? tarry queues {action} NAME"


@pytest.mark.parametrize("action", ["pause", "resume", "purge"])
def test_a_queue_that_nothing_knows_is_refused(project: Project, action: str) -> None:
    project.settings('[queues.slow]\nlimit = 5\n[pools.default]\nqueues = ["bulk", "default", "mail"]\n')
    assert (
        project.refused("queues", action, "mial") == "no queue mial; did you mean mail? --force takes it all the same"
    )
    assert project.refused("queues", action, "mail", "xyz") == "no queue xyz; --force takes it all the same"
    for known in ("default", "mail", "slow", "bulk"):
        project.said("queues", action, known, "--yes")
    project.said("queues", action, "mial", "--yes", "--force")


def test_tasks_as_found(project: Project) -> None:
    add, _, greet = project.facts("tasks", "list")["tasks"]
    assert add == {
        "task": "app.add", "kind": "sync", "queue": "default", "priority": 0, "timeout": None, "retries": 12,
            "owner": "", "description": "",
    }  # fmt: skip
    assert greet == {
        "task": "app.greet", "kind": "async", "queue": "mail", "priority": 5, "timeout": 30.0, "retries": 3,
            "owner": "", "description": "",
    }  # fmt: skip
    lines = project.said("tasks").splitlines()
    assert lines[0].split() == ["task", "kind", "queue", "priority", "timeout", "retries"]
    assert lines[3].split() == ["app.greet", "async", "mail", "5", "30.0", "3"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("app = (", r"SyntaxError.*app.py:1\)$"),
        ("import nowhere\n", r"No module named 'nowhere' \(.*app.py:1\)$"),
        ("x = 1\n", r"app app:app: app has no app; name its App, as module:app$"),
        ("app = 5\n", r"app app:app is int, not a tarry App; name its App, as module:app$"),
        ("raise SystemExit(4)\n", r"SystemExit: 4 \(.*app.py:1\)$"),
    ],
)
def test_an_app_that_is_of_no_use(project: Project, text: str, told: str) -> None:
    project.write("app.py", text)
    assert re.search(told, project.refused("tasks"))


@pytest.mark.parametrize(
    ("ready", "drains_in", "said"),
    [
        (0, 0.0, "now: no job is ready"),
        (7, None, "not at this pace: no more jobs end than are put"),
        (7, 90.0, "in 1m30s at this pace"),
    ],
)
def test_when_a_queue_is_empty(ready: int, drains_in: float | None, said: str) -> None:
    none = CappedCount(0)
    record = QueueRecord("mail", False, 0, ready, 0, 0, 0, 0, 0, None, None, None, None, None, 0, True)
    facts = {name: getattr(record, name) for name in record.__struct_fields__}
    bands = QueueBands(none, none, none)
    assert _when_empty(QueueDetail(**facts, bands=bands, came=0, left=0, drains_in=drains_in)) == said


def test_a_bounded_queue_is_refused_and_shown(project: Project) -> None:
    project.settings("[queues.mail]\nmax_waiting = 2\n")
    project.enqueue("app.greet", '"Ann"')
    project.enqueue("app.greet", '"Bob"', "--delay", "1h")
    refused = project.refused("enqueue", "app.greet", '"Cid"')
    assert refused.startswith("queue mail is full: 2 of its jobs wait; try again in ")
    project.enqueue("app.add", "1")


def test_a_reload_changes_the_bound(project: Project) -> None:
    project.settings("[pools.default]\nqueues = ['default']\n[queues.mail]\nmax_waiting = 1\n")
    project.serve()
    project.enqueue("app.greet", '"Ann"')
    mail = _queue(project, "mail")
    assert (mail["max_waiting"], mail["when_full"], mail["dropped"]) == (1, "refuse", 0)
    assert "1 of 1 wait" in project.said("queues")
    assert "queue mail is full" in project.refused("enqueue", "app.greet", '"Bob"')
    more = "max_waiting = 2\nwhen_full = 'drop_oldest'\n"
    project.settings(f"[pools.default]\nqueues = ['default']\n[queues.mail]\n{more}")
    assert project.tarry("reload").status == 0
    kept = [project.enqueue("app.greet", f'"{name}"') for name in ("Bob", "Cid", "Dan")][1:]
    assert {job["id"] for job in project.facts("jobs", "--queue", "mail")["jobs"]} == set(kept)
    assert _queue(project, "mail")["dropped"] == 2
    assert "2 of 2 wait, 2 dropped" in project.said("queues")


def _queue(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {queue["queue"]: queue for queue in project.facts("queues")["queues"]}
    return found[name]
