"""What of a limit's level a claim writes on PostgreSQL, while attempts end beside it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tarry.model import lifecycle
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import NOW, put, taken
from tarry.store.postgres.lane_reader import PostgresLaneReader
from tarry.store.postgres.store import PostgresStore
from tarry.store.sql.lane_reader import LaneUse
from tests.servers.postgres import PostgresServer


@pytest.fixture
def store(mortal_postgres: PostgresServer) -> Iterator[PostgresStore]:
    mortal_postgres.call("DROP SCHEMA IF EXISTS tarry CASCADE")
    with closing(PostgresStore(mortal_postgres.url)) as store:
        yield store


def test_an_end_between_a_claims_look_and_its_end_counts(
    store: PostgresStore, mortal_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that wrote back the level that it had read would take back what the end gave, for ever."""
    store.limit("each:mail", Limit(3))
    put(store, lane="a")
    (first,) = taken(store)
    put(store, lane="a")
    save, valid = PostgresLaneReader.save, list[bool]()

    def late(reader: PostgresLaneReader, use: LaneUse) -> None:
        with closing(PostgresStore(mortal_postgres.url)) as other:
            valid.extend(other.apply([lifecycle.after(first, Returned(), DEFAULT, NOW)], NOW))
        save(reader, use)

    monkeypatch.setattr(PostgresLaneReader, "save", late)
    assert len(taken(store)) == 1
    assert valid == [True]
    assert store.recount(NOW) == 0, "the level counted an attempt that had ended"
