"""`--json` of a command that shows what a method answers is that answer, as the HTTP API has it."""

from typing import Any

import msgspec
import pytest

from tarry.operate import catalog
from tarry.operate.method import Method
from tests.cli.project import Project

NAMED = {"show_job": "", "explain_job": "", "get_queue": "mail", "get_task": "app.add", "get_limit": "queue:mail"}
"""What is named, of the methods that show one thing; empty: a job that is put."""

SHOWN = [
    one
    for one in catalog.METHODS
    if one.verb == "GET" and one.command and ("path" not in one.parts or one.name in NAMED)
]


@pytest.mark.parametrize("method", SHOWN, ids=lambda method: method.name)
def test_what_is_printed_is_the_answer_of_the_method(project: Project, method: Method) -> None:
    (id,) = project.put("app.add", 1)
    if method.name == "get_limit":
        project.said("limits", "set", "queue:mail", "--limit", "3")
    names = [NAMED[method.name] or id] if "path" in method.parts else []
    found: Any = msgspec.json.decode(project.tarry("--json", *method.command.split(), *names).out)
    (found,) = found if names else (found,)
    assert msgspec.to_builtins(msgspec.convert(found, method.answer), str_keys=True) == found


def test_stores_are_listed_with_what_an_operator_should_know(project: Project) -> None:
    project.put("app.add", 1)
    (store,) = project.facts("store")["stores"]
    assert (store["trouble"], store["draining"]) == ("", False)
    lines = project.said("store", "list").splitlines()
    assert lines[0].split() == ["store", "is", "latency"]
    assert lines[1].split()[:2] == [store["url"], "up"]
    assert [fact["name"] for fact in store["facts"]] == [line.partition("  ")[0] for line in lines[5:]]


def test_a_store_that_is_away_is_status_1(project: Project) -> None:
    project.put("app.add", 1)
    project.settings('store = ["sqlite:///tarry.db", "sqlite:///gone/tarry.db"]\n')
    ran = project.tarry("store", "list", "--json")
    up, away = msgspec.json.decode(ran.out)["stores"]
    assert (ran.status, up["trouble"], away["latency"]) == (1, "", None)
    assert away["trouble"]
