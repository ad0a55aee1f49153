"""`tarry shards`, and what other commands say of several stores."""

import shutil
from pathlib import Path

import pytest

from tarry.store.outbox import Outbox
from tests.cli.project import Project, until


def stores(project: Project, *names: str) -> None:
    """Sets the shards, each a directory, with what follows a # at the end of its URL."""
    urls = []
    for name, mark, words in (name.partition("#") for name in names):
        (project.directory / name).mkdir(exist_ok=True)
        urls.append(f"sqlite:///{name}/tarry.db{mark}{words}")
    project.settings(f"store = {urls}\n".replace("'", '"'))


def hide(project: Project, name: str) -> Path:
    """Takes a shard away: its directory is elsewhere."""
    return (project.directory / name).rename(project.directory / f"{name}.hidden")


def counts(project: Project) -> dict[str, tuple[str, int | None]]:
    shards = project.facts("shards")["shards"]
    return {Path(row["shard"]).parent.name: (row["state"], row["ready"]) for row in shards}


@pytest.fixture
def spread(project: Project) -> Project:
    """Sixty jobs on two shards."""
    stores(project, "a", "b")
    project.write("many", "".join(f"[{n}]\n" for n in range(60)))
    project.said("enqueue", "app.add", "--batch", "many")
    return project


def test_shards_are_listed(spread: Project) -> None:
    found = counts(spread)
    assert {state for state, _ in found.values()} == {"up"}
    assert sum(ready or 0 for _, ready in found.values()) == 60
    assert "a/tarry.db  up" in spread.said("shards")


def test_one_is_added_and_one_is_drained(spread: Project) -> None:
    stores(spread, "a", "b", "c")
    assert spread.facts("shards", "move")["moved"] == counts(spread)["c"][1]
    stores(spread, "a#draining", "b", "c")
    assert counts(spread)["a"][0] == "draining"
    assert spread.said("shards", "move").endswith(" jobs moved")
    assert counts(spread)["a"] == ("draining", 0)
    assert "0 jobs moved" in spread.said("shards", "move", "--wait")
    stores(spread, "b", "c")
    assert sum(ready or 0 for _, ready in counts(spread).values()) == 60
    assert "All is well." in spread.said("check")


def test_one_that_is_away_is_told_everywhere(spread: Project) -> None:
    there = counts(spread)["a"][1]
    hide(spread, "b")
    ran = spread.tarry("shards")
    assert ran.status == 1
    assert "away for 0 s" in ran.out
    assert "does not exist; create it first" in ran.out
    ran = spread.tarry("check")
    assert ran.status == 1
    assert "b/tarry.db" in ran.out
    assert "away for 0 s" in ran.out
    ran = spread.tarry("queues")
    assert ran.status == 0
    assert "b is away" in ran.err.replace("/tarry.db", "")
    assert ran.err.endswith("what follows is without it\n")
    assert f" {there} " in ran.out
    assert spread.tarry("jobs").status == 0
    assert "does not exist" in spread.tarry("shards", "move").out


def test_workers_start_and_run_with_one_away_and_it_joins(spread: Project) -> None:
    there = counts(spread)["a"][1] or 0
    hidden = hide(spread, "b")
    spread.serve()
    until(lambda: spread.tarry("--json", "shards").out.count(f'"done":{there}'))
    status = spread.tarry("status")
    assert status.status == 0
    assert "away for " in status.out
    assert spread.facts("status")["shards"][0]["state"] == "up"
    hidden.rename(spread.directory / "b")
    until(lambda: sum(row["done"] or 0 for row in spread.facts("shards")["shards"]) == 60)
    assert spread.said("stop") == "stopped"


def test_one_store_has_nothing_to_move(project: Project) -> None:
    assert project.refused("shards", "move").startswith("there is one store only")
    assert counts(project)[project.directory.name] == ("up", 0)


def test_check_says_what_lies_in_the_outbox(project: Project) -> None:
    outbox = '[client]\noutbox = "out.db"\n'
    project.settings(outbox)
    assert "out.db: 0 jobs, 0 bytes" in project.said("check")
    project.settings(f'store = "sqlite:///later/tarry.db"\n{outbox}')
    project.enqueue("app.add", "1")
    ran = project.tarry("check")
    assert ran.status == 1
    assert "out.db: 1 job, " in ran.out
    assert "it empties once the store is back" in ran.out


def test_enqueue_keeps_it_there_while_the_store_is_away(project: Project) -> None:
    project.settings('store = "sqlite:///later/tarry.db"\n[client]\noutbox = "out.db"\n')
    id = project.said("enqueue", "app.add", "1")
    outbox = Outbox(project.directory / "out.db")
    assert outbox.content().jobs == 1
    (project.directory / "later").mkdir()
    project.serve()
    until(lambda: '"done"' in project.tarry("--json", "jobs", "show", id).out)
    assert outbox.content().jobs == 0
    outbox.close()


def test_a_password_in_the_url_of_a_store_is_kept_nowhere_but_in_the_list(spread: Project) -> None:
    answers = [
        spread.refused("shards", action, url)
        for action in ("add", "drain", "remove")
        for url in ("redis://:s3cret@127.0.0.1:1", "nosuch://:s3cret@b")
    ]
    assert "cannot connect" in answers[0]
    assert "no store of the list is named redis://@127.0.0.1:1" in answers[2]
    assert not [line for line in (*answers, spread.said("audit")) if "s3cret" in line]
    assert "letters, digits and signs" in spread.refused("shards", "add", "sqlite:///c/tarry.db#name=a%0Ab")


def test_a_store_that_holds_an_http_task_but_no_job_is_removed_and_the_task_stays(project: Project) -> None:
    stores(project, "a", "b")
    with (project.directory / "tarry.toml").open("a") as settings:
        settings.write('[push]\nallow = ["127.0.0.1"]\n')
    for number in range(8):
        project.tarry("tasks", "add", f"hook{number}", "url=http://127.0.0.1:1/")
    project.said("shards", "drain", "sqlite:///b/tarry.db")
    until(lambda: counts(project)["b"][0] == "draining")
    until(lambda: project.tarry("shards", "remove", "sqlite:///b/tarry.db").status == 0)
    until(lambda: "b" not in counts(project))
    shutil.rmtree(project.directory / "b")
    shown = project.said("tasks")
    assert all(f"hook{number}" in shown for number in range(8))
