"""`tarry store repair` and the integrity in `tarry check`, as commands."""

import apsw

from tests.cli.project import Project, until


def damage(project: Project, tree: str) -> None:
    with apsw.Connection(str(project.database)) as database:
        at = database.execute("SELECT rootpage - 1 FROM sqlite_schema WHERE name = ?", (tree,)).get
    database.close()
    with project.database.open("r+b") as file:
        file.seek(at * 4096)
        file.write(b"\xff" * 4096)


def test_a_damaged_index_is_found_by_check_and_repaired(project: Project) -> None:
    stored = [project.said("enqueue", "app.add", "[1, 2]") for _ in range(3)]
    damage(project, "tarry_scheduled")
    told = project.tarry("check")
    assert told.status == 1
    assert "damaged: tarry_scheduled" in told.out
    assert "only indexes, so no job is lost: stop all that use the file; then `tarry store repair`" in told.out
    ran = project.tarry("store", "repair")
    assert ran.status == 0, ran
    assert ran.out.splitlines()[0] == f"{project.database}: damaged were tarry_scheduled"
    assert f"{project.database} is a new file: nothing is lost. The old one is kept: " in ran.out
    assert "\ntarry_job " in ran.out
    listed = project.said("jobs", "list", "--json")
    assert all(id.strip() in listed for id in stored)
    assert "repair_store" in project.said("audit")
    assert project.said("store", "repair") == f"{project.database} is whole."


def test_a_file_that_a_master_uses_is_not_repaired(project: Project) -> None:
    project.said("start", "-d")
    try:
        ran = project.tarry("store", "repair")
        assert ran.status == 1
        assert f"{project.database} is in use: stop all that use it first (`tarry quit`" in ran.err
    finally:
        project.tarry("quit")
    until(lambda: project.tarry("store", "repair").out == f"{project.database} is whole.\n")


def test_other_stores_are_repaired_by_their_servers(project: Project) -> None:
    project.settings('store = "redis://127.0.0.1:1/0"\n')
    ran = project.tarry("store", "repair")
    assert (ran.status, ran.out) == (2, "")
    assert "no store of the settings is a SQLite file" in ran.err
    assert not project.database.exists()


def test_a_store_that_is_older_than_it_was_is_told_until_it_is_accepted(project: Project) -> None:
    project.said("enqueue", "app.add", "[1, 2]")
    memory = project.pid_file.with_name("tarry.pid.stores")
    project.said("start", "-d")
    until(memory.exists)
    project.tarry("quit")
    with apsw.Connection(str(project.database)) as database:
        older = "UPDATE tarry_cell SET value = CAST(json_set(CAST(value AS TEXT), '$.seen', 0) AS BLOB) WHERE name = ?"
        database.execute(older, ("store:identity",))
    database.close()
    told = project.tarry("check")
    assert told.status == 1
    assert "it is as it was at 1970-01-01 00:00:00 UTC; it was last seen at" in told.out
    assert "tarry store accept" in told.out
    assert project.said("store", "accept") == f"sqlite:///{project.database} is accepted as it is."
    assert "it was last seen at" not in project.tarry("check").out
    assert "accept_store" in project.said("audit")
