"""Whatever stands in the file, a statement about flows goes to its rows by an index."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Suspended
from tarry.store.conformance.cases.flows import BAD, end, run, stored, tend_all
from tarry.store.conformance.cases.jobs import NOW, taken
from tarry.store.rules.flows import FlowQuery
from tarry.store.sqlite.store import SqliteStore
from tests.store.test_sqlite_plans import scans

DIAMOND = [[], [1], [1], [2, 3]]


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("analysed", [False, True])
def test_every_statement_searches(tmp_path: Path, limited: bool, analysed: bool) -> None:
    """Also where the file had statistics of a few flows when it was opened."""
    store = SqliteStore(tmp_path / "plans.db", durable=False)
    if limited:
        store.limit("each:mail", Limit(10**6))
    if analysed:
        way(store, "first")
        store._db.execute("ANALYZE")
        store.close()
        store = SqliteStore(tmp_path / "plans.db", durable=False)
    statements = dict[str, Any]()

    def note(cursor: object, statement: str, values: Any) -> bool:
        statements[statement] = values
        return True

    database = store._db
    assert isinstance(database, apsw.Connection)
    database.exec_trace = note
    way(store, "second")
    database.exec_trace = None
    with closing(store):
        about = {text: values for text, values in statements.items() if "tarry_" in text and "tarry_lane" not in text}
        assert len(about) > 40
        plans = {text: scans(database, text, values) for text, values in about.items()}
    assert {text: steps for text, steps in plans.items() if steps} == {}


def way(store: SqliteStore, name: str) -> None:
    """Every verb, with flows that end well, fail, are cancelled and are deleted."""
    good, bad, cancelled = (stored(store, DIAMOND, key=key, name=name) for key in ("a", "b", None))
    wide = stored(store, [[], *([1] for _ in range(1100))])
    jobs = {job.id[:12]: job for job in taken(store)}
    end(store, [jobs[good[:12]], jobs[wide[:12]]])
    end(store, [jobs[bad[:12]]], BAD)
    run(store, good, 2, 3)
    store.flows.grow(good, 3)
    store.flows.nodes(good, 0, 10), store.flows.nodes(good, 1, 10, ())
    store.flows.find(FlowQuery(limit=1))
    store.flows.change(FlowChange(cancelled, Phase.RUNNING, Phase.CANCELLING), NOW)
    asleep(store)
    tend_all(store)
    tend_all(store, NOW + 9 * DAY)


def asleep(store: SqliteStore) -> None:
    """Jobs that wait for signals, of which one comes."""
    for job in taken(store)[:3]:
        waits = lifecycle.after(job, Suspended(NOW + HOUR, Awaited("paid", job.id.hex())), DEFAULT, NOW)
        assert store.apply([waits], NOW) == [True]
        signal = Signal("paid", job.id.hex(), job.id, b"1", NOW + HOUR)
        assert store.flows.signal(signal, NOW) == 1
        assert store.flows.signal(replace(signal, id=job.id[::-1]), NOW) == 0
        store.flows.signals(job.id, "paid", job.id.hex(), 0)
    store.flows.awaiting("pa", 10)
