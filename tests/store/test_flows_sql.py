"""What the SQL stores keep of signals and for how long: no table grows without end."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Suspended
from tarry.store.conformance.cases.flows import end, stored
from tarry.store.conformance.cases.jobs import NOW, put, seen, taken
from tarry.store.mysql.store import MysqlStore
from tarry.store.opening import open_store
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules import flows
from tarry.store.sql.flows import SqlFlows
from tarry.store.sqlite.store import SqliteStore

SqlStore = SqliteStore | PostgresStore | MysqlStore
WAITS = Awaited("paid", "7")


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    kind = request.param
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    with closing(open_store(url)) as store:
        assert isinstance(store, SqliteStore | PostgresStore | MysqlStore)
        yield store


def count(store: SqlStore, table: str) -> int:
    """How many rows the table has."""
    ((rows,),) = store._rows(f"SELECT count(*) FROM {store._sql.tables}{table}")
    return int(rows)


def asleep(store: SqlStore, until: int = NOW + 2 * HOUR) -> Job:
    """A job that waits for a signal until then."""
    put(store)
    (job,) = taken(store)
    assert store.apply([lifecycle.after(job, Suspended(until, WAITS), DEFAULT, NOW)], NOW) == [True]
    return seen(store, job)


def signal(store: SqlStore, number: int, until: int = NOW + HOUR, now: int = NOW) -> int:
    return store.flows.signal(Signal("paid", "7", bytes([number] * 16), b"1", until), now)


def test_who_is_cancelled_waits_no_more(store: SqlStore) -> None:
    """Nor does who was woken by the time, or is gone. What is kept of a cancelled one goes with it: a person may run it
    once more."""
    cancelled, woken, stays = asleep(store), asleep(store, NOW + HOUR), asleep(store)
    assert count(store, "awaiting") == 3
    assert store.apply([lifecycle.cancel(cancelled, DEFAULT, NOW)], NOW) == [True]
    assert [job.id for job in taken(store, now=NOW + HOUR)] == [woken.id]
    assert not store.flows.tend(NOW + HOUR)
    assert count(store, "awaiting") == 2
    assert store.apply([lifecycle.forget(seen(store, cancelled))], NOW) == [True]
    assert not store.flows.tend(NOW + HOUR)
    assert count(store, "awaiting") == 1
    assert [one.job for one in store.flows.awaiting("", 10)] == [stays.id]
    assert signal(store, 1) == 1
    assert count(store, "awaiting") == 0


def test_numbers_go_on_after_the_last_signal_is_gone(store: SqlStore) -> None:
    """A job that took it must not miss the next one; after a year there is no such job."""
    signal(store, 1)
    assert not store.flows.tend(NOW + HOUR)
    assert (count(store, "signal"), store.flows.signals(bytes(16), "paid", "7", 0)) == (1, [])
    signal(store, 2, until=NOW + DAY)
    assert [one.n for one in store.flows.signals(bytes(16), "paid", "7", 1)] == [2]
    assert not store.flows.tend(NOW + 400 * DAY)
    assert count(store, "signal") == 0


def test_an_address_without_a_signal_goes_too(store: SqlStore) -> None:
    """Its first signal still wakes who waits for it."""
    asleep(store, NOW + 9 * DAY)
    assert count(store, "signal") == 1
    assert not store.flows.tend(NOW + 2 * DAY)
    assert count(store, "signal") == 0
    assert signal(store, 1, NOW + 3 * DAY, NOW + 2 * DAY) == 1


def test_ended_flows_are_not_summed_up_at_each_look(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 200,000; once a minute is enough. Too many go all the same."""
    flow, statements = stored(store, [[], []]), list[str]()
    end(store, taken(store))
    assert isinstance(store.flows, SqlFlows)
    rows = store.flows._rows

    def noted(text: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        statements.append(text)
        return rows(text, values)

    monkeypatch.setattr(store.flows, "_rows", noted)
    for number in range(60):
        assert not store.flows.tidy(NOW + number * SECOND)
    assert sum("sum(size)" in text for text in statements) == 1
    monkeypatch.setattr(flows, "KEPT_NODES", 1)
    while store.flows.tidy(NOW + 2 * MINUTE):
        pass
    assert store.flows.get(flow) is None
    assert sum("sum(size)" in text for text in statements) == 2
