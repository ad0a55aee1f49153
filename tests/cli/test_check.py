import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.store.sqlite.schema import SCHEMA_VERSION
from tests.cli.disk import Disk
from tests.cli.project import Place, until


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Place]:
    """A place with nothing in it."""
    place = Place(tmp_path)
    (tmp_path / "tarry.toml").unlink()
    (tmp_path / "app.py").unlink()
    yield place
    place.close()


def troubles(place: Place) -> dict[str, str]:
    """What `check` wants changed, by name; it says the same to people and to programs."""
    ran = place.tarry("check", "--json")
    assert (ran.status, ran.err) == (1, "")
    told: dict[str, Any] = msgspec.json.decode(ran.out)
    assert told["ok"] is False
    found = {fact["name"]: fact["advice"] for fact in told["facts"] if fact["advice"]}
    spoken = place.tarry("check")
    assert (spoken.status, spoken.err) == (1, "")
    assert spoken.out.endswith(f"{len(found)} to change.\n")
    assert all(advice in spoken.out for advice in found.values())
    return found


def test_init_writes_what_works_end_to_end(empty: Place) -> None:
    said = empty.said("init")
    assert "tarry start" in said
    assert "All is well." in empty.said("check")
    empty.serve()
    id = empty.enqueue("app.hello", '["Ann"]')
    until(lambda: empty.job(id).state == "done")
    assert '"Hello, Ann!"' in str(empty.job(id).note)
    assert empty.said("stop") == "stopped"


@pytest.mark.parametrize("name", ["app.py", "tarry.toml"])
def test_init_overwrites_nothing(empty: Place, name: str) -> None:
    empty.write(name, "# mine\n")
    before = set(empty.directory.iterdir())
    assert empty.refused("init") == f"already there: {name}; nothing was written"
    assert set(empty.directory.iterdir()) == before
    assert (empty.directory / name).read_text() == "# mine\n"


def test_init_speaks_json(empty: Place) -> None:
    assert empty.facts("init") == {"written": ["tarry.toml", "app.py"]}


def test_check_tells_the_facts(place: Place) -> None:
    facts = {fact["name"]: fact["value"] for fact in place.facts("check")["facts"]}
    assert facts["configuration"] == str(place.directory / "tarry.toml")
    assert facts["app"] == "app:app: 3 tasks"
    assert facts["store"] == f"sqlite:///{place.database}"
    assert facts["durability"] == "journal wal, synchronous FULL"
    assert "All is well." in place.said("check")


def test_check_without_an_app(empty: Place) -> None:
    assert troubles(empty) == {"app": "give -a module:app, or set app in tarry.toml"}


def test_check_of_wrong_settings(place: Place) -> None:
    place.settings("[pools.default]\nworkers = 0\n")
    assert troubles(place) == {
        "configuration": "tarry.toml:3: pools.default.workers: expected a whole number of 1 or more, or bounds such as"
        " { min = 1, max = 8 }, got 0"
    }


def test_check_of_an_app_that_cannot_be_imported(place: Place) -> None:
    path = place.write("app.py", "from tarry import App\napp = App()\n1 / 0\n")
    assert troubles(place) == {"app": f"app app:app cannot be imported: ZeroDivisionError: division by zero ({path}:3)"}


def test_check_tells_of_jobs_that_no_task_is_for(place: Place) -> None:
    place.said("enqueue", "app.removed", "1", "--force")
    assert list(troubles(place)) == ["unknown task"]
    assert "app.removed: 1 job waits" in place.tarry("check").out


def test_check_of_a_database_of_another_program(place: Place) -> None:
    with sqlite3.connect(place.database) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = place.database.read_bytes()
    assert troubles(place) == {
        "store": f"{place.database} is a database of another program; give tarry a file of its own, or share this one:"
        f" sqlite:///{place.database}?shared=yes"
    }
    assert place.database.read_bytes() == before


def test_check_of_what_is_no_database(place: Place) -> None:
    place.database.write_bytes(b"no database at all, " * 500)
    (advice,) = troubles(place).values()
    assert advice.startswith(f"{place.database} is damaged or no database")
    assert "restore it, or move it away" in advice


def test_check_of_a_damaged_database(place: Place) -> None:
    place.write("many", "".join(f"[{n}]\n" for n in range(2000)))
    place.said("enqueue", "app.add", "--batch", "many")
    whole = place.database.read_bytes()
    place.database.write_bytes(whole[:4096] + b"\x5a" * (len(whole) - 4096))
    (advice,) = troubles(place).values()
    assert "is damaged" in advice


def test_check_of_a_newer_schema(place: Place) -> None:
    place.enqueue("app.add", "1")
    with sqlite3.connect(place.database) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    (advice,) = troubles(place).values()
    assert advice == f"{place.database} has schema 99, this tarry knows {SCHEMA_VERSION}: upgrade tarry on this host"


def test_check_of_a_directory_that_is_not_there(place: Place) -> None:
    place.settings('store = "sqlite:///none/tarry.db"\n')
    (advice,) = troubles(place).values()
    assert advice.endswith("does not exist; create it first")


def test_check_of_a_directory_in_the_place_of_the_file(place: Place) -> None:
    place.database.mkdir()
    (advice,) = troubles(place).values()
    assert "cannot be opened: check that it is a file" in advice


def test_check_of_a_store_that_nobody_knows(place: Place) -> None:
    place.settings('store = "mongodb://here"\n')
    (advice,) = troubles(place).values()
    assert advice.startswith("store 'mongodb://here': begin with one of sqlite:///")


def test_check_of_a_database_that_may_not_be_written(place: Place, disk: Disk) -> None:
    place.settings(f'store = "sqlite:///{disk.path}/tarry.db"\n')
    place.enqueue("app.add", "1")
    disk.read_only()
    (advice,) = troubles(place).values()
    assert advice.startswith(f"{disk.path}/tarry.db is read-only: make it and its directory writable")
    assert place.refused("enqueue", "app.add", "1") == advice


def test_check_tells_of_a_pool_that_cannot_run_what_it_takes(place: Place) -> None:
    place.settings("[pools.default]\nthreads = 0\n")
    assert troubles(place) == {
        "pool default": "they would never run: set threads to 1 or more, or let it serve other queues only"
    }
    assert "threads = 0, and takes jobs of sync tasks: app.add, app.fail" in place.tarry("check").out
    place.settings('[pools.default]\nqueues = ["mail"]\nasync = 0\n[pools.other]\nqueues = ["default"]\n')
    assert list(troubles(place)) == ["pool default"]
    place.settings('[pools.default]\nqueues = ["mail"]\nthreads = 0\n[pools.other]\nqueues = ["default"]\n')
    assert place.said("check").endswith("All is well.")


def test_check_and_queues_tell_of_those_that_no_pool_serves(place: Place) -> None:
    place.settings('[pools.default]\nqueues = ["default", "slow"]\n')
    place.said("enqueue", "app.add", "1", "--queue", "bulk")
    place.said("enqueue", "app.add", "1", "--queue", "slow")
    told = "no pool serves it: add it to the queues of one, in [pools.NAME]"
    assert troubles(place) == {"queue bulk": told, "queue mail": told}
    said = place.tarry("check").out
    assert "1 job waits" in said
    assert "jobs of app.greet go there" in said
    assert {row["queue"]: row["served"] for row in place.facts("queues")["queues"]} == {"bulk": False, "slow": True}
    assert [line.endswith("no pool here serves it") for line in place.said("queues").splitlines()[1:]] == [True, False]


def test_check_tells_of_a_pid_file_that_cannot_be_written(place: Place) -> None:
    place.settings('[master]\npid_file = "app.py/tarry.pid"\n')
    assert troubles(place)["pid file"].endswith(
        "app.py cannot be written to: set [master] pid_file to a place that can"
    )


@pytest.mark.parametrize("url", ["sqlite:///file:memdb", "sqlite:///file:memdb?mode=memory&cache=shared"])
def test_sqlites_own_uris_are_refused_and_no_file_is_made(place: Place, url: str) -> None:
    place.write("tarry.toml", f'app = "app:app"\nstore = "{url}"\n')
    (told,) = [advice for name, advice in troubles(place).items() if name == "store"]
    assert "jobs must outlive the process; name a file, as in sqlite:///tarry.db" in told
    assert not any(file.name.startswith("file:") for file in place.directory.iterdir())


def test_init_where_one_may_not_write(empty: Place) -> None:
    (empty.directory / "tarry.toml").symlink_to("/proc/tarry.toml")
    told = empty.refused("init")
    assert told.startswith(f"{empty.directory}/tarry.toml cannot be written (")
    assert told.endswith("): run it where you may write")
