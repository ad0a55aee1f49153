"""`tarry doctor`: what `tarry check` finds, the worst first."""

import pytest

from tarry.cli.project.doctor import Urgency, list_actions, urgency
from tarry.store.rules.base import Diagnostic
from tests.cli.project import Project


def test_where_all_is_well_there_is_nothing_to_do(project: Project) -> None:
    assert project.said("doctor") == "All is well."
    assert project.facts("doctor") == {"actions": [], "ok": True}


def test_the_worst_comes_first_and_each_is_a_line(project: Project) -> None:
    project.settings('[pools.default]\nqueues = ["mail"]\n')
    project.said("enqueue", "app.removed", "1", "--force", "--queue", "mail")
    project.database.chmod(0o666)
    ran = project.tarry("doctor")
    assert (ran.status, ran.err) == (1, "")
    first, *others, last = ran.out.splitlines()
    assert first.startswith("1. file rights: ")
    assert first.endswith(" (jobs may be lost, or read by others)")
    assert [line.split(":")[0] for line in others] == ["2. unknown task", "3. queue default"]
    assert (
        others[0]
        == "2. unknown task: deploy a worker that knows it, or delete its jobs (jobs do not run as they should)"
    )
    assert last == "3 things to do."
    told = project.tarry("doctor", "--json")
    assert told.status == 1
    assert '"ok":false' in told.out


def test_what_stops_everything_is_the_first_thing_to_do(project: Project) -> None:
    project.settings("[pools.default]\nworkers = 0\n")
    first, last = project.tarry("doctor").out.splitlines()
    assert first.startswith("1. configuration: tarry.toml:3: pools.default.workers: expected a whole number")
    assert first.endswith(" (nothing works until then)")
    assert last == "1 thing to do."


def fact(name: str, advice: str = "do it") -> Diagnostic:
    return Diagnostic(name, "so it is", advice)


def test_what_only_slows_is_nothing_that_must_be_done() -> None:
    (action,) = list_actions([fact("round trip"), fact("size", "")])
    assert not action.must
    found = list_actions([fact("round trip"), fact("queue mail"), fact("durability"), fact("queue bulk"), fact("app")])
    assert [action.name for action in found] == ["app", "durability", "queue mail", "queue bulk", "round trip"]
    assert [action.must for action in found] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("redis://b:6379", Urgency.NOTHING_WORKS),
        ("redis://b:6379 round trip", Urgency.COULD_BE_BETTER),
        ("redis://b:6379 durability", Urgency.JOBS_AT_RISK),
        ("clock offset", Urgency.JOBS_WAIT),
        ("task app.memory", Urgency.JOBS_WAIT),
        ("alerts to ops", Urgency.JOBS_WAIT),
    ],
)
def test_facts_of_shards_count_as_those_of_one_store(name: str, level: Urgency) -> None:
    assert urgency(fact(name)) == level
