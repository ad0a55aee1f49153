import pytest

from tests.cli.project import Project, until

LIMITED = """
from tarry import App
app = App()

@app.task(limit=3)
def add(a: int) -> int: return a
"""


def test_limits_of_code_and_configuration_are_in_force_once_a_worker_came(project: Project) -> None:
    project.write("app.py", LIMITED)
    project.settings('[queues.mail]\nlimit = 10\nrate = "100/s"')
    assert project.facts("limits") == {"limits": []}
    project.said("start", "-d")
    assert project.facts("limits")["limits"] == [
        {"limit": "queue:mail", "at_once": 10, "rate": "100 in 1 s", "running": 0, "set_by": "code"},
        {"limit": "task:app.add", "at_once": 3, "rate": None, "running": 0, "set_by": "code"},
    ]
    heads, mail, add = project.said("limits", "list").splitlines()
    assert heads.split() == ["limit", "at", "once", "rate", "running", "set", "by"]
    assert mail.split() == ["queue:mail", "10", "100", "in", "1", "s", "0", "code"]
    assert add.split() == ["task:app.add", "3", "-", "0", "code"]


def test_a_limit_set_by_hand_stays_until_reset(project: Project) -> None:
    project.write("app.py", LIMITED)
    assert project.said("limits", "set", "task:app.add", "--limit", "1") == "task:app.add: 1 at once"
    project.said("start", "-d")
    assert [(one["at_once"], one["set_by"]) for one in project.facts("limits")["limits"]] == [(1, "hand")]
    assert project.said("limits", "reset", "task:app.add") == "task:app.add: 3 at once"
    assert [(one["at_once"], one["set_by"]) for one in project.facts("limits")["limits"]] == [(3, "code")]


def test_a_limit_of_nought_stops_and_a_reset_lets_go(project: Project) -> None:
    project.said("limits", "set", "queue:default", "--limit", "0")
    (job,) = project.put("app.add", 1)
    project.said("start", "-d")
    project.put("app.greet", "Ann", queue="mail")
    until(lambda: {j["task"]: j["state"] for j in project.facts("jobs")["jobs"]}["app.greet"] == "done")
    assert project.facts("jobs", "show", job)[0]["state"] == "ready"
    assert project.said("limits", "reset", "queue:default") == "queue:default: no limit"
    until(lambda: project.facts("jobs", "show", job)[0]["state"] == "done")


def test_a_reset_brings_back_what_the_settings_of_http_tasks_say(project: Project) -> None:
    hook = '[tasks.{}]\nurl = "http://127.0.0.1:9/{{shop.id}}"\n{}\n'
    order = 'order = "{shop.id}"'
    project.settings(hook.format("hook", 'concurrency = 3\nrate = "5/s"') + hook.format("line", order))
    project.said(
        "tasks", "add", "stored", "url=https://shop.example/{shop.id}", "concurrency=4", order.replace(" ", "")
    )
    names = ("task:hook", "task:line", "each:line", "task:stored", "each:stored")
    project.said("limits", "set", *names, "--limit", "7")
    found = {one["limit"]: (one["at_once"], one["rate"]) for one in project.facts("limits", "reset", *names)}
    assert found == {
        "task:hook": (3, "5 in 1 s"),
        "task:line": (2**31, None),
        "each:line": (1, None),
        "task:stored": (4, None),
        "each:stored": (1, None),
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("set",), "set which limit? tarry limits set queue:NAME, task:NAME, or each:NAME"),
        (("set", "queue:mail"), "set to what? Give --limit, --rate, or both"),
        (
            ("set", "mail", "--limit", "1"),
            "limit: 'mail' names no limit: queue:NAME, task:NAME, or each:NAME for each key",
        ),
        (("set", "queue:mail", "--rate", "often"), "rate: rate 'often': so many in a period"),
        (("reset", "queue:mail", "--limit", "1"), "reset takes no --limit"),
        (("list", "queue:mail"), "list takes no names; `tarry limits` shows them all"),
        (("set", "queue:mail", "--limit", "-1"), "--limit: expected `int` >= 0"),
    ],
)
def test_what_cannot_be_set_is_told_and_changes_nothing(project: Project, words: tuple[str, ...], told: str) -> None:
    assert project.misused("limits", *words).startswith(told)
    assert project.facts("limits") == {"limits": []}
