import os
import pwd
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from tarry.cli import check
from tarry.cli.check import open_door_advice, other_users
from tarry.config.config import Config, MetricsConfig
from tarry.config.server_settings import ServerConfig
from tarry.model.duration import SECOND
from tarry.model.outcome import Released, Snoozed
from tarry.model.slept import FREE_CALLS
from tarry.model.values.listen_address import listen_address
from tarry.store.conformance.cases.jobs import NOW, running, settle, taken
from tarry.store.memory.store import MemoryStore
from tarry.store.sqlite.schema import STEPS
from tests.cli.disk import Disk
from tests.cli.project import Project


def troubles(project: Project) -> dict[str, str]:
    """What `check` wants changed, by name; it says the same to people and to programs."""
    ran = project.tarry("check", "--json")
    assert (ran.status, ran.err) == (1, "")
    told: dict[str, Any] = msgspec.json.decode(ran.out)
    assert told["ok"] is False
    found = {fact["name"]: fact["advice"] for fact in told["facts"] if fact["advice"]}
    spoken = project.tarry("check")
    assert (spoken.status, spoken.err) == (1, "")
    assert spoken.out.endswith(f"{len(found)} to change.\n")
    assert all(advice in spoken.out for advice in found.values())
    return found


def test_check_tells_the_facts(project: Project) -> None:
    with project.store():
        pass
    facts = {fact["name"]: fact["value"] for fact in project.facts("check")["facts"]}
    assert facts["configuration"] == str(project.directory / "tarry.toml")
    assert facts["app"] == "app:app: 3 tasks"
    assert facts["store"] == f"sqlite:///{project.database}"
    assert facts["durability"] == "journal wal, synchronous FULL"
    assert "All is well." in project.said("check")


def test_check_of_a_server(project: Project) -> None:
    project.settings('[server]\nhttp = "127.0.0.1:7800"\nbeanstalk = "unix:b.sock"\n')
    # Where other people may log in to this host, the open door is told of.
    told = msgspec.json.decode(project.tarry("check", "--json").out)["facts"]
    facts = {fact["name"]: fact["value"] for fact in told}
    assert (facts["http"], facts["beanstalk"]) == ("127.0.0.1:7800", f"unix:{project.directory}/b.sock")
    project.settings('[server]\nhttp = ":7800"\ntokens = "none.toml"\n')
    checked = project.tarry("check")
    assert checked.status == 1
    assert "none.toml does not exist: `tarry tokens add" in checked.out


def test_check_without_an_app(empty: Project) -> None:
    assert troubles(empty) == {"app": "give -a module:app, or set app in tarry.toml"}


def test_check_of_wrong_settings(project: Project) -> None:
    project.settings("[pools.default]\nworkers = 0\n")
    assert troubles(project) == {
        "configuration": "tarry.toml:3: pools.default.workers: expected a whole number of 1 or more, or bounds such as"
        " { min = 1, max = 8 }, got 0"
    }


def test_check_of_an_app_that_cannot_be_imported(project: Project) -> None:
    path = project.write("app.py", "from tarry import App\napp = App()\n1 / 0\n")
    assert troubles(project) == {
        "app": f"app app:app cannot be imported: ZeroDivisionError: division by zero ({path}:3)"
    }


ON_DAYS = """
from tarry import App, Cron

app = App()

@app.task(cron=[Cron("@daily", calendar="quarters", name="report"), "@daily"])
def report() -> None: ...
"""


def test_check_of_a_calendar_that_is_over_or_missing(project: Project) -> None:
    project.write("app.py", ON_DAYS)
    project.settings("[calendars.quarters]\nonly = [2026-03-31]\n")
    assert troubles(project) == {"schedule report": "give its calendar further dates, or remove it"}
    project.settings("[calendars.quarter]\n")
    why = "schedule report: the settings have no [calendars.quarters]; did you mean quarter?"
    assert troubles(project) == {"schedules": why}


def test_check_tells_of_jobs_that_no_task_is_for(project: Project) -> None:
    project.said("enqueue", "app.removed", "1", "--force")
    assert list(troubles(project)) == ["unknown task"]
    assert "app.removed: 1 job waits" in project.tarry("check").out


def test_check_names_jobs_that_come_no_further() -> None:
    """Called again and again, each time at once; not those that are called as often, and asked for it."""
    store, now = MemoryStore(), NOW
    spins, polls = running(store, 2)
    for _ in range(2 * FREE_CALLS):
        settle(store, polls, Snoozed(3 * SECOND), now=now)
        now += 3 * SECOND
        (polls,) = taken(store, now=now)
    settle(store, polls, Snoozed(3 * SECOND), now=now)
    spins = replace(spins, state_since=now)
    settle(store, spins, Released(), now=now)
    for _ in range(FREE_CALLS):
        (spins,) = taken(store, now=now)
        settle(store, spins, Released(), now=now)
        now += SECOND // 100
    (fact,) = check.idle_facts(store)
    assert fact.value == f"{UUID(bytes=spins.id)} of {spins.task}: called {FREE_CALLS + 1} times in a row"
    assert "`tarry jobs show` tells" in fact.advice


def test_check_of_a_database_of_another_program(project: Project) -> None:
    with closing(sqlite3.connect(project.database)) as other, other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = project.database.read_bytes()
    assert troubles(project) == {
        "store": f"{project.database} is a database of another program; give tarry a file of its own, or share this"
        f" one: sqlite:///{project.database}?shared=yes"
    }
    assert project.database.read_bytes() == before


def test_check_of_what_is_no_database(project: Project) -> None:
    project.database.write_bytes(b"no database at all, " * 500)
    (advice,) = troubles(project).values()
    assert advice.startswith(f"{project.database} is damaged or no database")
    assert "restore it, or move it away" in advice


def test_check_of_a_damaged_database(project: Project) -> None:
    project.write("many", "".join(f"[{n}]\n" for n in range(2000)))
    project.said("enqueue", "app.add", "--batch", "many")
    whole = project.database.read_bytes()
    project.database.write_bytes(whole[:4096] + b"\x5a" * (len(whole) - 4096))
    found = troubles(project)
    assert found.keys() == {"store", "integrity"}
    assert "is damaged" in found["store"]
    assert "then `tarry store repair`" in found["integrity"]


def test_check_of_a_newer_schema(project: Project) -> None:
    project.enqueue("app.add", "1")
    with closing(sqlite3.connect(project.database)) as newer, newer:
        newer.execute("UPDATE tarry_about SET value = 99")
    newer.close()
    (advice,) = troubles(project).values()
    assert advice == (
        f"{project.database} has schema 99, for programs that know 99 or later; this tarry knows {len(STEPS)}: upgrade"
        " tarry on this host"
    )


def test_check_of_a_directory_that_is_not_there(project: Project) -> None:
    project.settings('store = "sqlite:///none/tarry.db"\n')
    (advice,) = troubles(project).values()
    assert advice.endswith("does not exist; create it first")


def test_check_of_a_directory_in_the_place_of_the_file(project: Project) -> None:
    project.database.mkdir()
    (advice,) = troubles(project).values()
    assert "cannot be opened: check that it is a file" in advice


def test_check_of_a_store_that_nobody_knows(project: Project) -> None:
    project.settings('store = "mongodb://here"\n')
    (advice,) = troubles(project).values()
    assert advice.startswith("store 'mongodb://here': begin with one of sqlite:///")


def test_check_of_a_database_that_may_not_be_written(project: Project, disk: Disk) -> None:
    project.settings(f'store = "sqlite:///{disk.path}/tarry.db"\n')
    project.enqueue("app.add", "1")
    disk.read_only()
    (advice,) = troubles(project).values()
    assert advice.startswith(f"{disk.path}/tarry.db is read-only: make it and its directory writable")
    assert project.refused("enqueue", "app.add", "1") == advice


def test_check_tells_of_a_pool_that_cannot_run_what_it_takes(project: Project) -> None:
    project.settings("[pools.default]\nthreads = 0\n")
    assert troubles(project) == {
        "pool default": "they would never run: set threads to 1 or more, or let it serve other queues only"
    }
    assert "threads = 0, and takes jobs of sync tasks: app.add, app.fail" in project.tarry("check").out
    project.settings('[pools.default]\nqueues = ["mail"]\nasync = 0\n[pools.other]\nqueues = ["default"]\n')
    assert list(troubles(project)) == ["pool default"]
    project.settings('[pools.default]\nqueues = ["mail"]\nthreads = 0\n[pools.other]\nqueues = ["default"]\n')
    assert project.said("check").endswith("All is well.")


def test_check_and_queues_tell_of_those_that_no_pool_serves(project: Project) -> None:
    project.settings('[pools.default]\nqueues = ["default", "slow"]\n')
    project.said("enqueue", "app.add", "1", "--queue", "bulk")
    project.said("enqueue", "app.add", "1", "--queue", "slow")
    told = "no pool serves it: add it to the queues of one, in [pools.NAME]"
    assert troubles(project) == {"queue bulk": told, "queue mail": told}
    said = project.tarry("check").out
    assert "1 job waits" in said
    assert "jobs of app.greet go there" in said
    assert {row["queue"]: row["served"] for row in project.facts("queues")["queues"]} == {
        "bulk": False, "default": True, "mail": False, "slow": True,
    }  # fmt: skip
    assert [line.endswith("no pool here serves it") for line in project.said("queues").splitlines()[1:]] == [
        True, False, True, False,
    ]  # fmt: skip


def test_check_tells_of_a_pid_file_that_cannot_be_written(project: Project) -> None:
    project.settings('[master]\npid_file = "app.py/tarry.pid"\n')
    assert troubles(project)["pid file"].endswith(
        "app.py cannot be written to: set [master] pid_file to a place that can"
    )


@pytest.mark.parametrize("url", ["sqlite:///file:memdb", "sqlite:///file:memdb?mode=memory&cache=shared"])
def test_sqlites_own_uris_are_refused_and_no_file_is_made(project: Project, url: str) -> None:
    project.write("tarry.toml", f'app = "app:app"\nstore = "{url}"\n')
    (told,) = [advice for name, advice in troubles(project).items() if name == "store"]
    assert "jobs must outlive the process; name a file, as in sqlite:///tarry.db" in told
    assert not any(file.name.startswith("file:") for file in project.directory.iterdir())


def _account(name: str, uid: int, shell: str = "/bin/bash") -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", "/", shell))


def test_the_other_people_of_a_host() -> None:
    accounts = [
        _account("root", 0), _account("me", os.geteuid()), _account("daemon", 1, "/usr/sbin/nologin"),
        _account("ann", 1500), _account("service", 1600, "/bin/false"), _account("nobody", 65534),
    ]  # fmt: skip
    assert other_users(accounts) == ["ann"]


def test_a_door_that_asks_for_nothing_is_told_where_others_can_reach_it() -> None:
    tcp, unix = listen_address("127.0.0.1:7800"), listen_address("unix:/run/t.sock")
    said = open_door_advice([unix, tcp], "set server.tokens", ["ann"])
    assert said == "every user of this host (ann) can use 127.0.0.1:7800: set server.tokens"
    assert open_door_advice([unix], "", ["ann"]) == open_door_advice([tcp], "", []) == ""


@pytest.mark.parametrize("rights", [{}, {"tokens": Path("t.toml")}, {"passwords": Path("p.toml")}])
def test_check_tells_of_doors_that_ask_for_nothing(rights: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "other_users", lambda: ["ann"])
    monkeypatch.setattr(check, "check_server", lambda home, server: None)
    monkeypatch.setattr(check, "check_metrics", lambda config: None)
    tcp = (listen_address("127.0.0.1:7800"),)
    config = Config(
        server=msgspec.structs.replace(ServerConfig(http=tcp, beanstalk=tcp), **rights),
        metrics=MetricsConfig(listen=tcp),
    )
    setup: Any = SimpleNamespace(config=config, home=Path())
    found = {fact.name: fact.advice for fact in (*check._server(setup), *check._metrics(setup))}
    assert {name for name, advice in found.items() if advice} == {"beanstalk", "metrics"} | (
        set() if rights else {"http"}
    )


def test_check_tries_the_place_of_payloads(project: Project) -> None:
    with project.store():
        pass
    folder = project.directory / "large"
    project.settings(f'[payloads]\nto = "file://{folder}"\n')
    assert f"file://{folder} cannot be written" in troubles(project)["payloads"]
    folder.mkdir(mode=0o700)
    facts = {fact["name"]: fact["value"] for fact in project.facts("check")["facts"]}
    assert facts["payloads"] == f"what is over 256 kB is at file://{folder}, which works"
    assert not [path for path in folder.rglob("*") if path.is_file()]
    project.settings(f'store = "memory://"\n[payloads]\nto = "file://{folder}"\n')
    assert f"nobody deletes what its process leaves at file://{folder}" in troubles(project)["payloads"]
