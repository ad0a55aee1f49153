"""`tarry migrate`, on a PostgreSQL whose schema is a step behind."""

from collections.abc import Iterator

import pytest

from tarry.store import migrating
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
    assert project.facts("migrate", "--dry-run") == {"stores": {url: migrating.pending(url)}, "done": False}


def test_an_embedded_store_has_nothing_to_do(project: Project) -> None:
    assert project.said("migrate").endswith("tarry.db: up to date")


def test_a_password_is_not_shown(project: Project) -> None:
    project.settings('store = "postgresql://ann:secret@127.0.0.1:1/postgres"\n')
    ran = project.tarry("migrate")
    assert ran.status == 1
    assert "secret" not in ran.out + ran.err
    assert len(ran.err.splitlines()) == 1
