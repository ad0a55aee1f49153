"""The short ways of the PostgreSQL store do what its general functions do."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.ids import uuid7
from tests.servers.postgres import PostgresServer


@pytest.fixture
def store(new_postgres_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(new_postgres_url)) as store:
        yield store


def rows(server: PostgresServer, store: PostgresStore, table: str) -> list[str]:
    return server.call(f"SELECT row_to_json(t) FROM {store._schema}.{table} t ORDER BY 1::text").splitlines()


NOW = 1_700_000_000_000_000
KINDS: list[dict[str, Any]] = [
    {},
    {"due": 2**60, "state": State.SCHEDULED},
    {"priority": 7, "queue": "mail"},
    {"priority": -7, "expires": NOW + 1, "headers": b'{"a":"b"}'},
    {"task": "limited"},
    {"task": "fair", "priority": 3},
    {"task": "fair", "state": State.SCHEDULED},
]


@pytest.mark.parametrize("fields", KINDS)
def test_one_job_is_kept_as_one_of_many(
    postgres_server: PostgresServer, store: PostgresStore, fields: dict[str, Any]
) -> None:
    store.limit("task:limited", Limit(5))
    store.limit("each:fair", Limit(1))
    job = replace(Job(uuid7(), "t", b"[1]", due=NOW, state_since=NOW), **fields)
    assert store.insert([job]) == store.insert([job]) == [job.id]
    alone = rows(postgres_server, store, "job"), rows(postgres_server, store, "lane")[:1]
    postgres_server.call(f"TRUNCATE {store._schema}.job, {store._schema}.lane")
    assert store.insert([job, job]) == [job.id, job.id]
    assert alone == (rows(postgres_server, store, "job"), rows(postgres_server, store, "lane")[:1])
    assert store.get([job.id]) == [replace(job, lane="" if job.task != "t" else None)]
