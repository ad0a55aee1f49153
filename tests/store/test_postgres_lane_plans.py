"""However many jobs and lanes wait, what a claim reads of a few lanes goes to their rows by an index on PostgreSQL."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest

from tarry.model.limit import Limit
from tarry.store.conformance.cases.jobs import put
from tarry.store.postgres import limits, sql
from tarry.store.postgres import packing as pack
from tarry.store.postgres.link.connection import ADAPTERS
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.lanes import UNTIL_AN_END

LANES, IN_EACH, READ = 60, 50, 5
PLACE = ("default", 0, "mail")
FEW = [f"{lane:03}" for lane in range(READ)]
LIMIT = Limit(10)
STATEMENTS: dict[str, tuple[str, Sequence[Any]]] = {
    "tasks of lines": (sql.TASKS, (pack.texts(["default", "other"]), pack.big_ints([0, 0]))),
    "the first open lanes": (sql.OPEN_FROM, (*PLACE, "", READ)),
    "open lanes after one": (sql.OPEN_AFTER, (*PLACE, "020", READ)),
    "the first lanes": (sql.LANES_FROM, (*PLACE, "", READ)),
    "lanes after one": (sql.LANES_AFTER, (*PLACE, "020", READ)),
    "jobs of lanes": (sql.LINES, (*PLACE, pack.texts(FEW), pack.big_ints([1] * READ))),
    "closing lanes": (
        limits._CLOSE,
        (*PLACE, pack.texts(FEW), pack.big_ints([UNTIL_AN_END] * READ), msgspec.json.encode(LIMIT)),
    ),
    "removing lanes": (limits._REMOVE, (*PLACE, pack.texts(FEW))),
}


@pytest.fixture(params=[False, True], ids=["", "analysed"])
def url(new_postgres_url: str, request: pytest.FixtureRequest) -> str:
    """A store where jobs wait in lanes of which many are open and as many are closed."""
    with closing(PostgresStore(new_postgres_url)) as store:
        store.limit("each:mail", LIMIT)
        for lane in range(LANES):
            put(store, IN_EACH, lane=f"{lane:03}")
    schema = new_postgres_url.partition("schema=")[2]
    with connected(new_postgres_url) as link:
        link.execute(
            f"INSERT INTO {schema}.lane SELECT 'default', 0, 'mail', 'x' || n, 1 FROM generate_series(1, 3000) n"
        )
        if request.param:
            link.execute(f"ANALYZE {schema}.job, {schema}.lane")
    return new_postgres_url


def connected(url: str) -> "psycopg.Connection[Any]":
    return psycopg.connect(url.partition("?")[0], autocommit=True, context=ADAPTERS)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_few_rows_are_read_for_a_few_lanes(url: str, name: str) -> None:
    statement, values = STATEMENTS[name]
    schema = url.partition("schema=")[2]
    with connected(url) as link, link.transaction(force_rollback=True):
        link.execute("SET LOCAL enable_seqscan = off")
        text = sql.for_schema(statement, schema)
        asked = psycopg.RawCursor(link).execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
        ((found,),) = asked.fetchall()
    assert sum(rows_read(found[0]["Plan"])) <= 2 * IN_EACH * READ + 10 * READ


def rows_read(plan: dict[str, Any]) -> Iterator[float]:
    """Of each scan of a table in this plan."""
    if "Relation Name" in plan:
        yield (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    for part in plan.get("Plans", ()):
        yield from rows_read(part)
