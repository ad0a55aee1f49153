"""Each store keeps each field of a job, by the one table of columns."""

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import astuple

from tarry.model.job import WAITING, Job, State
from tarry.model.lifecycle import held_when_claimed, holds_key
from tarry.store.mysql.schema import TABLES
from tarry.store.postgres.store import PostgresStore
from tarry.store.redis.reading import parse_job
from tarry.store.redis.record import pack_job
from tarry.store.shared.columns import BLOBS, CLAIMED, FIELDS, TAIL
from tarry.store.sql.columns import COLUMN_OF, claim_reader, stored_job, stored_values
from tarry.store.sqlite.store import SqliteStore

HERE = set(COLUMN_OF.values())
JOB = Job(
    b"1" * 16, "task", b"body", "queue", 3, 4, State.READY, 6, 7, 8, "", 10, 11, 12, "key", b"note", 13, 14, "lane",
    b"{}", b"[1]", b"[0,[]]",
)  # fmt: skip


def test_there_is_a_column_for_each_field() -> None:
    assert Job.__struct_fields__ == FIELDS
    full = Job(b"", "", b"body", note=b"note", headers=b"h", progress=b"", attempts=b"a" * 9)
    assert sum(len(getattr(full, blob)) for blob in BLOBS) == full.size


def test_flags_of_redis_fit_a_byte_and_most_jobs_have_none() -> None:
    assert {column.tail for column in TAIL} <= {1 << bit for bit in range(8)}
    assert pack_job(Job(b"1" * 16, "task", b"body", priority=1)).endswith(b"\0\x07\x04defaulttaskbody")


def test_every_field_comes_back_from_redis() -> None:
    assert parse_job(JOB.id, pack_job(JOB), None) == JOB


def test_sqlite(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "jobs.db")) as store:
        found = {name for (name,) in store._rows("SELECT name FROM pragma_table_info('tarry_job')")}
    assert found == HERE | {"n"}


def test_postgres(new_postgres_url: str) -> None:
    with closing(PostgresStore(new_postgres_url)) as store:
        statement = (
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'job' AND table_schema = $1"
        )
        found = {name for (name,) in store._rows(statement, (store._schema,))}
    assert found == HERE | {"out_of_order"}


def test_mysql() -> None:
    """Who runs a job is in a table of its own."""
    found = {column.split()[0].strip("`") for column in TABLES["job"].split(",")}
    assert found == HERE - {"owner"} | {"settings"}


def test_a_row_is_a_job_and_back() -> None:
    id, task, body, queue, claim_order, *rest = stored_values(JOB)
    row = (id, task, body, queue, -claim_order, *rest[:5], "", *rest[5:])
    assert len(row) == len(FIELDS)
    assert stored_job(row) == JOB


@pytest.mark.parametrize("key_ttl", [WAITING, 0, 13])
def test_a_claimed_row_is_a_job_that_runs(key_ttl: int) -> None:
    values = dict(zip(FIELDS, astuple(JOB), strict=True))
    (job,) = claim_reader("_, ")([(1, *(values[field] for field in CLAIMED))], "ann", 99)
    assert (job.state, job.owner, job.state_since, job.keep_until) == (State.RUNNING, "ann", 99, 0)
    assert (job.key, job.progress, job.priority, job.epoch) == (JOB.key, JOB.progress, JOB.priority, JOB.epoch)
    assert held_when_claimed(key_ttl, 14) == (0 if key_ttl == WAITING else 14)


def test_a_key_is_held_up_to_its_time() -> None:
    assert (holds_key(JOB, 13), holds_key(JOB, 14)) == (True, False)
