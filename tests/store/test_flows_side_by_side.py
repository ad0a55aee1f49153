"""Workers that end nodes of the same flows at once, on the servers that lock rows."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tarry.model import lifecycle
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import Phase
from tarry.model.lifecycle import DEFAULT
from tarry.store.conformance.cases.flows import GOOD, numbers, stored
from tarry.store.conformance.cases.jobs import NOW, side_by_side
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.store import MysqlStore
from tarry.store.opening import open_store
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import BANDS, Want

THREADS = 8
# Three layers of six nodes: each node waits for all of the layer before. Then a node for each of the last ones.
LAYERS = [*([] for _ in range(6)), *([*range(1, 7)] for _ in range(6)), *([*range(7, 13)] for _ in range(6))]
SHAPE = LAYERS + [[parent] for parent in range(13, 19)]


@pytest.fixture
def conflicts(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The deadlocks that servers end. The stores try again, so nobody else sees them."""
    seen: list[Exception] = []
    for cls, name in ((PostgresConnection, "rows"), (MysqlConnection, "run")):
        real = getattr(cls, name)

        def watched(self: Any, *values: Any, real: Any = real) -> Any:
            try:
                return real(self, *values)
            except Exception as error:
                if isinstance(error, psycopg.errors.DeadlockDetected) or "deadlock" in str(error).lower():
                    seen.append(error)
                raise

        monkeypatch.setattr(cls, name, watched)
    return seen


@pytest.fixture(params=["postgres", "mariadb"])
def store(request: pytest.FixtureRequest) -> Iterator[PostgresStore | MysqlStore]:
    with closing(open_store(request.getfixturevalue(f"{request.param}_url"))) as store:
        assert isinstance(store, PostgresStore | MysqlStore)
        yield store


def test_workers_of_the_same_flows_do_not_meet_in_a_circle(
    store: PostgresStore | MysqlStore, conflicts: list[Exception]
) -> None:
    """Each call ends nodes of several flows and claims others; each node runs once."""
    flows = [stored(store, SHAPE) for _ in range(6)]
    ran: list[bytes] = []
    until = time.monotonic() + 100

    def work(number: int) -> None:
        ended: list[Any] = []
        # Until nobody has anything: a thread that finds nothing may be woken by what others release.
        while len(ran) < len(SHAPE) * len(flows) or ended:
            assert time.monotonic() < until
            answer = store.exchange(ended, [Want("default", band, 5) for band in BANDS], 5, f"w{number}", 10**8, NOW)
            assert all(answer.valid)
            ran.extend(job.id for job in answer.jobs)
            ended = [lifecycle.after(job, GOOD, DEFAULT, NOW) for job in answer.jobs]

    side_by_side(THREADS, work)
    assert len(set(ran)) == len(ran)
    assert {index_of(id) for id in ran} == set(range(1, len(SHAPE) + 1))
    assert {numbers(store, flow) for flow in flows} == {(Phase.ENDED, 0, 0, 0)}
    assert conflicts == []
