"""`tarry shards`, and what other commands say of several stores."""

from pathlib import Path

import pytest

from tarry.store.outbox import Outbox
from tests.cli.project import Place, until


def stores(place: Place, *names: str) -> None:
    """Sets the shards, each a directory, with what follows a # at the end of its URL."""
    urls = []
    for name, mark, words in (name.partition("#") for name in names):
        (place.directory / name).mkdir(exist_ok=True)
        urls.append(f"sqlite:///{name}/tarry.db{mark}{words}")
    place.settings(f"store = {urls}\n".replace("'", '"'))


def hide(place: Place, name: str) -> Path:
    """Takes a shard away: its directory is elsewhere."""
    return (place.directory / name).rename(place.directory / f"{name}.hidden")


def counts(place: Place) -> dict[str, tuple[str, int | None]]:
    shards = place.facts("shards")["shards"]
    return {Path(row["shard"]).parent.name: (row["state"], row["ready"]) for row in shards}


@pytest.fixture
def spread(place: Place) -> Place:
    """Sixty jobs on two shards."""
    stores(place, "a", "b")
    place.write("many", "".join(f"[{n}]\n" for n in range(60)))
    place.said("enqueue", "app.add", "--batch", "many")
    return place


def test_shards_are_listed(spread: Place) -> None:
    found = counts(spread)
    assert {state for state, _ in found.values()} == {"up"}
    assert sum(ready or 0 for _, ready in found.values()) == 60
    assert "a/tarry.db  up" in spread.said("shards")


def test_one_is_added_and_one_is_drained(spread: Place) -> None:
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


def test_one_that_is_away_is_told_everywhere(spread: Place) -> None:
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


def test_workers_start_and_run_with_one_away_and_it_joins(spread: Place) -> None:
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


def test_one_store_has_nothing_to_move(place: Place) -> None:
    assert place.refused("shards", "move").startswith("there is one store only")
    assert counts(place)[place.directory.name] == ("up", 0)


def test_check_says_what_lies_in_the_outbox(place: Place) -> None:
    outbox = '[client]\noutbox = "out.db"\n'
    place.settings(outbox)
    assert "out.db: 0 jobs, 0 bytes" in place.said("check")
    place.settings(f'store = "sqlite:///later/tarry.db"\n{outbox}')
    place.enqueue("app.add", "1")
    ran = place.tarry("check")
    assert ran.status == 1
    assert "out.db: 1 job, " in ran.out
    assert "it empties once the store is back" in ran.out


def test_enqueue_keeps_it_there_while_the_store_is_away(place: Place) -> None:
    place.settings('store = "sqlite:///later/tarry.db"\n[client]\noutbox = "out.db"\n')
    id = place.said("enqueue", "app.add", "1")
    outbox = Outbox(place.directory / "out.db")
    assert outbox.content().jobs == 1
    (place.directory / "later").mkdir()
    place.serve()
    until(lambda: '"done"' in place.tarry("--json", "jobs", "show", id).out)
    assert outbox.content().jobs == 0
    outbox.close()
