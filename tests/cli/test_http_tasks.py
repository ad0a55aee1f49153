"""`tarry tasks add|edit|remove|try`, and HTTP tasks under a real master."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.project import Project, until
from tests.push.server import Server, answer, end_before_answer, hang

HOOK = "url=https://shop.example/hook?token=sesame"
ALLOW = '[push]\nallow = ["127.0.0.1"]\n'


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_one_is_added_listed_edited_and_removed(project: Project) -> None:
    assert project.said(
        "tasks", "add", "order.timeout", HOOK, "delay=10m", 'schedule=["1m", "3m"]', "secret=" + "x-" * 16
    )
    fact = project.facts("tasks")["tasks"][-1]
    assert (fact["task"], fact["kind"], fact["from"], fact["retries"]) == ("order.timeout", "http", "store", 2)
    assert (fact["url"], fact["settings"]["secret"]) == ("https://shop.example/hook?...", "***")
    assert "https://shop.example/hook?..." in project.said("tasks")
    job = project.job(project.enqueue("order.timeout", '{"order": 7}'))
    assert (job.body, job.state) == (b'{"order":7}', "scheduled")
    assert project.said("tasks", "edit", "order.timeout", "delay=", "queue=hooks") == "order.timeout edited"
    fact = project.facts("tasks")["tasks"][-1]
    assert (fact["queue"], fact["waiting"], "delay" in fact["settings"]) == ("hooks", 1, False)
    told = project.said("tasks", "remove", "order.timeout")
    assert told == ("order.timeout removed; its 1 job waits: add it again, or tarry jobs delete --task order.timeout")
    for command in ("queues", "tasks"):
        assert "1 job waits for the task order.timeout, which this app does not know" in project.said(command)
    assert "order.timeout: 1 job waits" in project.tarry("check").out
    project.said("tasks", "add", "order.timeout", HOOK)
    assert "which this app does not know" not in project.said("queues")


def test_who_answers_for_it_and_what_it_is_for_is_listed(project: Project) -> None:
    project.said("tasks", "add", "hook", HOOK, "owner=shop team", "description=2030")
    assert [project.facts("tasks")["tasks"][-1][name] for name in ("owner", "description")] == ["shop team", "2030"]
    assert "tasks.hook.owner: no text of at most 2,000" in project.refused(
        "tasks", "edit", "hook", f"owner={'x' * 2001}"
    )


def test_what_may_be_meant_otherwise_is_told_when_it_is_registered(project: Project) -> None:
    rule, secret = "retry_when=res.code != 200", f"secret={'c2VjcmV0' * 4}"
    told = project.tarry("tasks", "add", "hook", HOOK, rule, secret)
    assert told.out == "hook added\n"
    assert "tarry: hook: retry_when does not look at the status" in told.err
    assert "tarry: hook: secret 1 of 1 could be base64, and is used as it stands" in told.err
    told = project.tarry("tasks", "edit", "hook", "retry_when=status != 200", f"secret=whsec_{'c2VjcmV0' * 4}")
    assert (told.out, told.err) == ("hook edited\n", "")
    assert "c2VjcmV0" not in project.tarry("tasks", "edit", "hook", f"secret={'c2VjcmV0' * 4}").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add", "hook", "delay=1m"], 'tasks.hook.url: it is missing; write url = "https://host/path"'),
        (["add", "hook", HOOK, "dealy=1m"], "unknown setting tasks.hook.dealy; did you mean delay?"),
        (["add", "hook", "url=http://10.0.0.7/"], "tasks.hook.url: 10.0.0.7, private: not reached, unless [push]"),
        (["add", "hook", HOOK, "retry_when=res.code !="], "tasks.hook.retry_when, at 12: "),
        (["add", "app.greet", HOOK], "app.greet is a function of the app; give the HTTP task another name"),
        (["add", "filed", HOOK], "filed stands in tarry.toml:2 already: edit it there"),
        (["edit", "filed", "delay=1m"], "filed stands in tarry.toml:2: edit it there, and `tarry reload`"),
        (["remove", "filed"], "filed stands in tarry.toml:2: take it out there"),
        (["remove", "hook"], "no task hook; tarry tasks lists them"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(project: Project, words: list[str], told: str) -> None:
    project.settings('[tasks.filed]\nurl = "https://a.example/"\n')
    assert project.refused("tasks", *words).startswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add"], "add which task? tarry tasks add NAME"),
        (["add", "hook", HOOK, "1m"], "'1m' sets nothing; write SETTING=VALUE, as in url=https://host/path"),
        (["edit", "hook"], "edit what? tarry tasks edit hook SETTING=VALUE"),
        (["try", "hook"], "try with what? tarry tasks try hook --response FILE"),
        (["list", "hook"], "list takes no names; `tarry tasks` shows them all"),
    ],
)
def test_a_wrong_call_is_told_in_a_line(project: Project, words: list[str], told: str) -> None:
    assert project.misused("tasks", *words).startswith(told)


def test_an_answer_is_tried(project: Project) -> None:
    project.settings('[tasks.hook]\nurl = "https://a.example/"\nretry_when = "res.code != 200"\n')
    project.write("good", '{"code": 200}')
    project.write("bad", 'HTTP/1.1 503 Busy\r\nRetry-After: 600\r\n\r\n{"code": 1}')
    assert (
        project.said("tasks", "try", "hook", "--response", "good") == "delivered: answered 200 OK; the rule is content"
    )
    assert project.said("tasks", "try", "hook", "--response", "bad") == (
        "again, after the first attempt in 10m: answered 503 Service Unavailable; the rule says so: res.code != 200"
    )
    (fact,) = project.facts("tasks", "try", "hook", "--response", "-", stdin="")
    assert (fact["outcome"], fact["delay"]) == ("again", 60.0)


def test_one_of_the_configuration_can_be_disabled_and_enabled(project: Project) -> None:
    project.settings(
        '[tasks.filed]\nurl = "https://a.example/"\n[tasks.off]\nurl = "https://a.example/"\nenabled = false\n'
    )
    project.said("tasks", "edit", "filed", "enabled=false")
    assert [fact["enabled"] for fact in project.facts("tasks")["tasks"][-2:]] == [False, False]
    project.said("tasks", "edit", "filed", "enabled=true")
    assert [fact["enabled"] for fact in project.facts("tasks")["tasks"][-2:]] == [True, False]
    assert project.refused("tasks", "edit", "off", "enabled=true").startswith(
        "off stands in tarry.toml:4: edit it there"
    )


def test_without_an_app_there_are_http_tasks(project: Project) -> None:
    project.write("tarry.toml", '[tasks.hook]\nurl = "https://a.example/"\n')
    assert [fact["task"] for fact in project.facts("tasks")["tasks"]] == ["hook"]
    assert project.job(project.enqueue("hook", '{"a": 1}')).lane == ""


def test_without_an_app_a_master_delivers(project: Project, server: Server) -> None:
    project.write("tarry.toml", f'[tasks.hook]\nurl = "{server.url("/hook")}"\n{ALLOW}')
    assert "none named: 1 task" in project.said("check")
    project.serve()
    job = project.enqueue("hook", '{"a": 1}')
    until(lambda: project.job(job).state == "done")
    assert "HTTP tasks: jobs run in 1 worker" in project.log()
    project.said("reload")
    project.write("tarry.toml", "")
    assert "no app is named any more; it was HTTP tasks" in project.tarry("reload").err


def test_check_looks_for_secrets(project: Project) -> None:
    project.settings('[tasks.hook]\nurl = "https://shop.example/"\nsecret = "env:NOT_THERE"\n')
    assert "env:NOT_THERE: the variable NOT_THERE is not set here" in project.tarry("check").out
    assert "NOT_THERE" not in project.tarry("check", NOT_THERE="a secret of sixteen").out


def test_without_an_app_jobs_of_one_that_was_removed_are_warned_about(project: Project) -> None:
    project.write("tarry.toml", "")
    project.said("tasks", "add", "hook", HOOK)
    project.enqueue("hook", "{}")
    project.said("tasks", "remove", "hook")
    for command in ("queues", "tasks"):
        assert "1 job waits for the task hook, which was removed" in project.said(command)


def test_a_master_delivers_those_of_the_file_and_those_added_while_it_runs(project: Project, server: Server) -> None:
    project.settings(f'[tasks.filed]\nurl = "{server.url("/filed")}"\n{ALLOW}')
    project.serve()
    filed = project.enqueue("filed", '{"a": 1}')
    until(lambda: project.job(filed).state == "done")
    project.said("tasks", "add", "added", f"url={server.url('/added')}")
    added = project.enqueue("added", '{"b": 2}')
    until(lambda: project.job(added).state == "done")
    assert [(seen.path, seen.body) for seen in server.seen] == [("/filed", b'{"a":1}'), ("/added", b'{"b":2}')]
    assert "'status': 200" in project.said("jobs", "show", added)
    server.says("/added", answer(410))
    gone = project.enqueue("added", "{}")
    until(lambda: "disabled: " in project.said("tasks"))
    assert "1 job waits for the task added, which is disabled" in project.said("queues")
    assert '"outcome":"disabled"' in project.said("jobs", "show", gone)


def test_a_cancel_says_whether_it_was_sent(project: Project, server: Server) -> None:
    server.says("/slow", hang)
    project.settings(f'[tasks.hook]\nurl = "{server.url("/slow")}"\n{ALLOW}')
    waiting = project.enqueue("hook", "{}", "--delay", "1h", "--key", "k")
    assert project.said("jobs", "cancel", "--task", "hook", "--key", "k") == f"{waiting} cancelled: it was never sent"
    project.serve()
    sent = project.enqueue("hook", "{}")
    until(lambda: server.seen)
    assert project.facts("jobs", "cancel", sent) == [
        {"id": sent, "cancelled": True, "sent": True, "detail": "it had been sent already: maybe delivered"}
    ]
    assert "it had been sent already" in project.said("jobs", "show", sent)
    assert project.tarry("jobs", "cancel", sent).out == (
        f"{sent} left as it is: it is cancelled already: maybe delivered\n"
    )


def test_who_looks_sees_that_nothing_is_sent(project: Project, server: Server) -> None:
    assert project.facts("top")["http"] == []
    server.says("/", end_before_answer)
    project.settings(f'[tasks.hook]\nurl = "{server.url()}"\nschedule = [0.01, 0.01, 0.01, 0.01, 0.01, "1h"]\n{ALLOW}')
    project.serve()
    for _ in range(30):
        project.put("hook", {})
    one: dict[str, Any] = {}

    def open() -> bool:
        one.update(project.facts("top")["http"][0])
        return bool(one["circuit"] == "open")

    until(open)
    assert (one["task"], one["at_once"], one["enabled"]) == ("hook", 0, True)
    assert one["waiting"]
    assert "the connection ended without an answer" in one["trouble"]
    until(lambda: "jobs wait for the task hook, which is open" in project.said("queues"))
    assert "http task" in project.said("top")


def test_a_master_with_a_wrong_task_says_why_it_does_not_start(project: Project) -> None:
    project.settings('[tasks.hook]\nurl = "https://a.example/"\nretry_when = "res."\n')
    master = project.start()
    assert master.wait(30) == 1
    assert "tarry.toml:4: tasks.hook.retry_when, at" in project.log()
