"""`tarry migrate`: a store whose schema is a step behind, and an outbox."""

from collections.abc import Iterator
from contextlib import closing

import apsw
import pytest

from tarry.model.job import Job
from tarry.store import migrating
from tarry.store.outbox import Outbox
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import uuid7
from tests.cli.project import Project
from tests.servers.postgres import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer, project: Project) -> Iterator[str]:
    url = f"{postgres_server.url}?schema=migrated"
    project.settings(f'store = "{url}"\n')
    yield url
    postgres_server.call("DROP SCHEMA IF EXISTS migrated CASCADE")


def test_it_says_what_it_would_do_and_does_it_when_told(project: Project, url: str) -> None:
    steps = migrating.pending(url)
    assert project.said("migrate", "--dry-run").splitlines() == [f"{url}:", *(f"  {step}" for step in steps)]
    assert steps[0].startswith("schema 1: makes the tables")
    refused = project.tarry("migrate")
    assert (refused.status, "add --yes" in refused.err) == (1, True)
    assert migrating.pending(url) == steps
    assert project.said("migrate", "--yes").splitlines()[-1] == f"{url}: {len(steps)} done"
    assert project.said("migrate").splitlines() == [f"{url}: up to date"]
    assert project.said("enqueue", "app.add", "[1]")
    assert migrating.migrate(url) == []


def test_as_json(project: Project, url: str) -> None:
    assert project.facts("migrate", "--dry-run") == {
        "stores": {url: migrating.pending(url)}, "outbox": [], "done": False,
    }  # fmt: skip


def test_files(project: Project) -> None:
    """A store and an outbox in files, the store as one of several."""
    outbox_file = project.directory / "outbox.db"
    project.settings('store = ["sqlite:///tarry.db#name=east"]\n[client]\noutbox = "outbox.db"\n')
    store = f"sqlite:///{project.database}#name=east"
    assert project.said("migrate", "--dry-run").splitlines() == [
        f"{store}:", "  makes the tables and indexes", f"outbox {outbox_file}: up to date",
    ]  # fmt: skip
    assert not project.database.exists()
    assert project.said("migrate", "--yes").splitlines()[-1] == f"{store}: 1 done"
    with closing(Outbox(outbox_file)) as outbox:
        outbox.keep([Entry(Job(uuid7(), "mail", b""), "replace", "x")])
    with closing(apsw.Connection(str(outbox_file))) as database:
        database.execute("UPDATE about SET value = 0 WHERE name = 'schema'")
    assert project.facts("migrate", "--dry-run") == {
        "stores": {store: []}, "outbox": ["makes the tables"], "done": False,
    }  # fmt: skip


def test_a_password_is_not_shown(project: Project) -> None:
    project.settings('store = "postgresql://ann:secret@127.0.0.1:1/postgres"\n')
    ran = project.tarry("migrate")
    assert ran.status == 1
    assert "secret" not in ran.out + ran.err
    assert len(ran.err.splitlines()) == 1
