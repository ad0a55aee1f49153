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
    of_keys = {"has_keys": False, "paused": False, "waiting": None, "oldest": None, "weight": None, "max_waiting": None}
    assert project.facts("limits")["limits"] == [
        {"limit": "queue:mail", "at_once": 10, "rate": "100 in 1 s", "running": 0, "set_by": "code", **of_keys},
        {"limit": "task:app.add", "at_once": 3, "rate": None, "running": 0, "set_by": "code", **of_keys},
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


TENANTS = """
from tarry import App
app = App()

@app.task(limit_by=lambda account: account)
def bill(account: str, n: int) -> int: return n
"""


def test_one_tenant_has_numbers_of_its_own_while_everything_runs(project: Project) -> None:
    project.write("app.py", TENANTS)
    ann, bob = "each:app.bill=ann/eu", "each:app.bill=bob"
    assert project.said("limits", "pause", ann) == f"{ann}: paused, 0 running, 0 waiting"
    project.said("start", "-d")
    held, _, other = (project.said("enqueue", "app.bill", f'["{who}", 1]') for who in ("ann/eu", "ann/eu", "bob"))
    until(lambda: project.facts("jobs", "show", other)[0]["state"] == "done")
    assert f"{ann} is paused: no job of this key starts." in project.said("jobs", "why", held)
    assert project.said(
        "limits", "set", bob, "--limit", "20", "--rate", "100/s", "--weight", "5", "--max-waiting", "7"
    ).startswith(f"{bob}: 20 at once, 100 in 1 s, weight 5, at most 7 waiting, ")
    assert project.said("limits").splitlines()[-1].endswith("code; some keys have their own")
    heads, *rows = project.said("limits", "--of", "each:app.bill").splitlines()
    assert heads.split() == ["key", "at", "once", "rate", "weight", "running", "waiting", "may", "wait", "paused"]
    assert [row.split() for row in rows] == [
        [ann, "-", "-", "1", "0", "2", "-", "yes"],
        [bob, "20", "100", "in", "1", "s", "5", "0", "0", "7", "-"],
    ]
    assert len(project.facts("limits", "--of", "each:app.bill", "--most", "1")["limits"]) == 1
    project.said("limits", "resume", ann)
    until(lambda: project.facts("jobs", "show", held)[0]["state"] == "done")
    project.said("limits", "reset", bob)
    assert project.facts("limits") == {"limits": []}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("set",), "set which limit? tarry limits set queue:NAME, task:NAME, each:NAME, or each:NAME=KEY"),
        (("set", "queue:mail"), "set to what? Give --limit, --rate, --weight or --max-waiting"),
        (
            ("set", "task:shop.bill", "--weight", "2"),
            "task:shop.bill has no keys that take turns: --weight is for each:NAME",
        ),
        (
            ("set", "each:shop.bill", "--max-waiting", "2"),
            "each:shop.bill is no key: --max-waiting is for each:NAME=KEY",
        ),
        (("set", "queue:mail", "--max-waiting", "2"), "queue:mail is no key: --max-waiting is for each:NAME=KEY"),
        (("set", "each:shop.bill=ann", "--max-waiting", "-1"), "--max-waiting: expected a whole number >= 0"),
        (("set", "each:shop.bill=ann", "--weight", "0"), "--weight: expected a whole number >= 1"),
        (("set", "each:shop.bill=ann", "--weight", "1001"), "--weight: expected a whole number <= 1000"),
        (
            ("set", "mail", "--limit", "1"),
            "limit: 'mail' names no limit: queue:NAME, task:NAME, or each:NAME for each key",
        ),
        (("set", "queue:mail", "--rate", "often"), "rate: rate 'often': so many in a period"),
        (("reset", "queue:mail", "--limit", "1"), "reset takes no --limit"),
        (("list", "queue:mail"), "list takes no names; `tarry limits` shows them all"),
        (("set", "queue:mail", "--limit", "many"), "--limit: expected a whole number, got text"),
        (("set", "queue:mail", "--limit", "-1"), "--limit: expected a whole number >= 0"),
        (("set", "each:=ann", "--limit", "1"), "limit: 'each:' names no limit"),
        (("set", "task:shop.bill=ann", "--limit", "1"), "task:shop.bill has no keys; those of the task are each:shop"),
        (("pause", "each:shop.bill"), "each:shop.bill is no key: each:NAME=KEY"),
        (("set", "queue:mail", "--rate", "9999999999/s"), "rate: rate '9999999999/s': so many in a period"),
        (("set", "each:app.add=ann", "--limit", "1"), "limit: app.add has no tenants"),
        (("pause", "each:shop.bill=ann", "each:app.add=ann"), "limit: app.add has no tenants"),
        (("list", "--of", "queue:mail"), "queue:mail has no keys; they are those of each:NAME"),
        (("list", "--of", "each:shop.bill=ann"), "each:shop.bill=ann has no keys"),
        (("list", "--of", "each:shop.bill", "--most", "0"), "--most: expected a whole number >= 1"),
        (("list", "--most", "5"), "--most is about keys: give --of too"),
        (("list", "--after", "ann"), "--after is about keys: give --of too"),
    ],
)
def test_what_cannot_be_set_is_told_and_changes_nothing(project: Project, words: tuple[str, ...], told: str) -> None:
    assert project.misused("limits", *words).startswith(told)
    assert project.facts("limits") == {"limits": []}


def test_a_key_of_a_task_that_nobody_knows_is_told_of(project: Project) -> None:
    """It is no error: the app of another host may have the task."""
    project.write("app.py", TENANTS)
    typo = project.tarry("limits", "set", "each:app.bil=ann", "--limit", "2")
    assert (typo.status, typo.out) == (0, "each:app.bil=ann: 2 at once, 0 running, 0 waiting\n")
    assert typo.complaints == [
        "tarry: no task app.bil is known here, and no job of it is kept: what was set holds once there is one"
    ]
    assert project.tarry("limits", "pause", "each:app.bill=ann").complaints == []
    project.said("enqueue", "elsewhere.bill", "1", "--force")
    assert project.tarry("limits", "set", "each:elsewhere.bill=ann", "--limit", "2").complaints == []


def test_where_no_key_has_numbers_the_table_is_that_of_keys(project: Project) -> None:
    project.write("app.py", TENANTS)
    heads = project.said("limits", "--of", "each:app.bill").split()
    assert heads == ["key", "at", "once", "rate", "weight", "running", "waiting", "may", "wait", "paused"]


def test_how_many_jobs_of_a_key_may_wait_holds_for_every_producer(project: Project) -> None:
    project.write("app.py", TENANTS)
    ann = "each:app.bill=ann"
    assert project.said("limits", "set", ann, "--max-waiting", "1") == f"{ann}: at most 1 waiting, 0 running, 0 waiting"
    project.said("enqueue", "app.bill", '["ann", 1]')
    refused = project.tarry("enqueue", "app.bill", '["ann", 2]')
    assert f"{ann} is full: 1 of its jobs are ready in queue default, and its max_waiting is 1" in str(
        refused.complaints
    )
    project.said("enqueue", "app.bill", '["bob", 1]')
    (shown,) = project.facts("limits", "--of", "each:app.bill")["limits"]
    assert (shown["limit"], shown["max_waiting"], shown["waiting"]) == (ann, 1, 1)
    project.said("limits", "set", ann, "--max-waiting", "0")
    assert "takes no new jobs: its max_waiting is 0" in str(
        project.tarry("enqueue", "app.bill", '["ann", 2]').complaints
    )
    project.said("limits", "reset", ann)
    project.said("enqueue", "app.bill", '["ann", 2]')
