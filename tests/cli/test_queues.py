import re

import pytest

from tests.cli.project import Place


def test_queues_tell_their_depths(place: Place) -> None:
    place.enqueue("app.add", "1")
    place.enqueue("app.add", "1", "--delay", "1h")
    place.enqueue("app.greet", '"Ann"')
    place.said("enqueue", "app.removed", "--force")
    told = place.facts("queues")
    default, mail = told["queues"]
    assert (default["queue"], default["ready"], default["scheduled"], default["paused"]) == ("default", 2, 1, False)
    assert (mail["queue"], mail["ready"], mail["running"], mail["done"]) == ("mail", 1, 0, 0)
    assert mail["oldest_ready"] == place.facts("jobs", "--queue", "mail")[0]["due"]
    assert told["unknown_tasks"] == {"app.removed": 1}
    said = place.said("queues", "list").splitlines()
    assert said[0].split()[:3] == ["queue", "scheduled", "ready"]
    assert said[1].split()[:3] == ["default", "1", "2"]
    assert said[-1] == "1 job waits for the task app.removed, which this app does not know"


def test_no_queues(place: Place) -> None:
    assert place.facts("queues") == {"queues": [], "unknown_tasks": {}, "held_tasks": {}}
    assert len(place.said("queues").splitlines()) == 1


def test_pause_and_resume(place: Place) -> None:
    place.enqueue("app.greet", '"Ann"')
    assert place.said("queues", "pause", "mail", "new", "--force") == "mail, new paused"
    assert {q["queue"]: q["paused"] for q in place.facts("queues")["queues"]} == {"mail": True, "new": True}
    assert place.said("queues").splitlines()[1].endswith("paused")
    assert place.facts("queues", "resume", "mail", "new") == {"resumed": ["mail", "new"]}
    assert {q["queue"]: q["paused"] for q in place.facts("queues")["queues"]} == {"mail": False}


def test_purge_deletes_what_waits(place: Place) -> None:
    place.put("app.add", 1, times=1200)
    place.put("app.add", 1, delay="1h")
    (cancelled,) = place.put("app.add", 2)
    place.said("jobs", "cancel", cancelled)
    (kept,) = place.put("app.greet", "Ann", queue="mail")
    ran = place.tarry("queues", "purge", "default")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Delete the 1,201 jobs that wait in default, for good?")
    assert place.said("queues", "purge", "default", "--yes") == "1,201 jobs deleted"
    assert {job["id"] for job in place.facts("jobs")} == {cancelled, kept}
    assert place.facts("queues", "purge", "mail", "default", "--yes") == {"deleted": 1}


@pytest.mark.parametrize("action", ["pause", "resume", "purge"])
def test_a_queue_has_to_be_named(place: Place, action: str) -> None:
    assert place.misused("queues", action) == f"{action} which queue? tarry queues {action} NAME"


@pytest.mark.parametrize("action", ["pause", "resume", "purge"])
def test_a_queue_that_nothing_knows_is_refused(place: Place, action: str) -> None:
    place.settings('[queues.slow]\nlimit = 5\n[pools.default]\nqueues = ["bulk", "default", "mail"]\n')
    assert place.refused("queues", action, "mial") == "no queue mial; did you mean mail? --force takes it all the same"
    assert place.refused("queues", action, "mail", "xyz") == "no queue xyz; --force takes it all the same"
    assert place.facts("queues")["queues"] == []
    for known in ("default", "mail", "slow", "bulk"):
        place.said("queues", action, known, "--yes")
    place.said("queues", action, "mial", "--yes", "--force")


def test_tasks_as_found(place: Place) -> None:
    add, _, greet = place.facts("tasks", "list")
    assert add == {
        "task": "app.add", "kind": "sync", "queue": "default", "priority": 0, "timeout": None, "retries": 12,
    }  # fmt: skip
    assert greet == {
        "task": "app.greet", "kind": "async", "queue": "mail", "priority": 5, "timeout": 30.0, "retries": 3,
    }  # fmt: skip
    lines = place.said("tasks").splitlines()
    assert lines[0].split() == ["task", "kind", "queue", "priority", "timeout", "retries"]
    assert lines[3].split() == ["app.greet", "async", "mail", "5", "30.0", "3"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("app = (", r"SyntaxError.*app.py:1\)$"),
        ("import nowhere\n", r"No module named 'nowhere' \(.*app.py:1\)$"),
        ("x = 1\n", r"app app:app: app has no app; name its App, as module:app$"),
        ("app = 5\n", r"app app:app is int, not a tarry App$"),
        ("raise SystemExit(4)\n", r"SystemExit: 4 \(.*app.py:1\)$"),
    ],
)
def test_an_app_that_is_of_no_use(place: Place, text: str, told: str) -> None:
    place.write("app.py", text)
    assert re.search(told, place.refused("tasks"))
