"""What a change of a node costs: how often a store asks its server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned, Suspended
from tarry.store.conformance.cases.flows import GOOD, flow_of, numbers, states, stored
from tarry.store.conformance.cases.jobs import NOW, put
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.store import MysqlStore
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import BANDS, Exchange, Want

WANTS = [Want("default", band, 10) for band in BANDS]


@pytest.fixture
def postgres(new_postgres_url: str) -> Iterator[PostgresStore]:
    # Without NOTIFY, which is sent at its own pace.
    with closing(PostgresStore(f"{new_postgres_url}&notify=no")) as store:
        yield store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent to PostgreSQL."""
    sent: list[str] = []
    for name in ("rows", "run"):
        real = getattr(PostgresConnection, name)

        def noted(self: PostgresConnection, statement: str, values: Sequence[Any] = (), real: Any = real) -> Any:
            sent.append(statement)
            return real(self, statement, values)

        monkeypatch.setattr(PostgresConnection, name, noted)
    return sent


@pytest.fixture
def packets(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The statements of each round trip to MySQL."""
    sent: list[Sequence[str]] = []
    real = MysqlConnection.run

    def noted(self: MysqlConnection, *statements: str) -> Any:
        sent.append(statements)
        return real(self, *statements)

    monkeypatch.setattr(MysqlConnection, "run", noted)
    return sent


def exchange(store: PostgresStore | MysqlStore, ended: Sequence[Job] = (), most: int = 10) -> Exchange:
    changes = [lifecycle.after(job, GOOD, DEFAULT, NOW) for job in ended]
    return store.exchange(changes, WANTS, most, "ann", 10**8, NOW)


def test_postgres_ends_releases_and_claims_in_one_round_trip(postgres: PostgresStore, asked: list[str]) -> None:
    flow = stored(postgres, [[], [1], [1], [2, 3]])
    jobs = exchange(postgres).jobs
    for released in (2, 1, 0):
        asked.clear()
        jobs = exchange(postgres, jobs).jobs
        assert (len(jobs), len(asked)) == (released, 1)
    assert numbers(postgres, flow) == (Phase.ENDED, 0, 0, 0)


def test_postgres_needs_one_for_each_verb(postgres: PostgresStore, asked: list[str]) -> None:
    new = flow_of(postgres, [[], *([1] for _ in range(998))], key="7")
    put(postgres)
    (job,) = exchange(postgres).jobs
    signal = Signal("paid", "7", bytes(16), b"1", NOW + HOUR)

    def cost(verb: Callable[[], object], answer: object) -> int:
        asked.clear()
        assert verb() == answer
        return len(asked)

    flows, id = postgres.flows, new.root.id
    waits = lifecycle.after(job, Suspended(NOW + HOUR, Awaited("paid", "7")), DEFAULT, NOW)
    costs = {
        "insert": cost(lambda: flows.insert(new, NOW), id),
        "again": cost(lambda: flows.insert(new, NOW), id),
        "grow": cost(lambda: flows.grow(id, 2), 1000),
        "change": cost(lambda: flows.change(FlowChange(id, Phase.RUNNING, Phase.CANCELLING), NOW), True),
        "fenced": cost(lambda: flows.change(FlowChange(id, Phase.RUNNING, Phase.CANCELLING), NOW), False),
        "progress": cost(lambda: postgres.save_progress("ann", [(job.id, job.epoch, b"1")]), [True]),
        "suspend": cost(lambda: postgres.apply([waits], NOW), [True]),
        "signal": cost(lambda: flows.signal(signal, NOW), 1),
        "sent twice": cost(lambda: flows.signal(signal, NOW), 0),
        "signals": cost(lambda: [one.n for one in flows.signals(job.id, "paid", "7", 0)], [1]),
    }
    assert costs == dict.fromkeys(costs, 1)


def test_postgres_releases_a_piece_in_one_round_trip(postgres: PostgresStore, asked: list[str]) -> None:
    flow = flow_of(postgres, [[]] * 1001)
    assert postgres.flows.insert(flow, NOW) == flow.root.id
    # One more where no flow is behind the one that was served last, and two to find that there is no other.
    for left, trips in ((501, 1), (1, 2), (0, 4)):
        asked.clear()
        assert postgres.flows.tend(NOW, 500)
        assert len(asked) == trips
        assert states(postgres, flow.root.id).count("b") == left
    assert not postgres.flows.tend(NOW, 500)


def test_a_change_that_is_not_valid_costs_one_more(postgres: PostgresStore, asked: list[str]) -> None:
    """The valid ones are made all the same, and only these do something to their flows."""
    flow = stored(postgres, [[], [], [1], [2], [1, 2]])
    put(postgres)
    jobs = exchange(postgres).jobs
    stale = jobs[0]
    assert postgres.apply([lifecycle.after(stale, Returned(), DEFAULT, NOW)], NOW) == [True]
    asked.clear()
    answer = exchange(postgres, [*jobs, jobs[1]])
    assert answer.valid == [False, True, True, False]
    assert len(asked) <= 3
    assert len(answer.jobs) == 3
    assert states(postgres, flow) == "ddrrr"
    assert numbers(postgres, flow) == (Phase.RUNNING, 3, 0, 0)


def test_none_is_valid(postgres: PostgresStore, asked: list[str]) -> None:
    flow = stored(postgres, [[], [1]])
    jobs = exchange(postgres).jobs
    assert len(exchange(postgres, jobs).jobs) == 1
    asked.clear()
    assert exchange(postgres, jobs).valid == [False]
    # The third frees what is kept of an attempt that others have ended.
    assert len(asked) == 3
    assert numbers(postgres, flow) == (Phase.RUNNING, 1, 0, 0)


def test_mysql_ends_and_releases_in_one_round_trip_more(new_mariadb_url: str, packets: list[Sequence[str]]) -> None:
    """Than the same exchange with a plain job."""
    with closing(MysqlStore(new_mariadb_url)) as store:
        put(store, 2)
        jobs = exchange(store, most=1).jobs
        packets.clear()
        (last,) = exchange(store, jobs, most=1).jobs
        plain = len(packets)
        flow = stored(store, [[], [1], [1], [1], [2, 3], [5]])
        jobs = exchange(store, [last]).jobs
        for released in (3, 1, 1):
            packets.clear()
            jobs = exchange(store, jobs).jobs
            assert (len(jobs), len(packets)) == (released, plain + 1)
        exchange(store, jobs)
        assert numbers(store, flow) == (Phase.ENDED, 0, 0, 0)
