"""What the end of a node costs a store beside the end of a plain job: commands, statements, and workers that are woken.
Counted, since times on a busy machine tell nothing."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tarry.model import lifecycle
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.wake import WakeReason
from tarry.store.conformance.cases.flows import GOOD, flow_of
from tarry.store.conformance.cases.jobs import LEASE, NOW, put, running, taken
from tarry.store.opening import open_store
from tarry.store.rules.base import BANDS, Query, Store, Want
from tarry.store.sqlite.store import SqliteStore
from tests.servers.redis import RedisServer

CHAIN = [[], [1], [2], [3]]
MORE_STATEMENTS, MORE_COMMANDS = 3, 6


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "flows.db", durable=False)) as store:
        yield store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Store]:
    with closing(open_store(server.url)) as store:
        yield store


def end_and_claim(store: Store, job: Job, *queues: str) -> list[Job]:
    """One exchange of a worker that serves these queues and takes one job at a time."""
    wants = [Want(queue, band, 2) for queue in queues or ("default",) for band in BANDS]
    return store.exchange([lifecycle.after(job, GOOD, DEFAULT, NOW)], wants, 2, "ann", LEASE, NOW).jobs


def chain(store: Store, queue: str = "default") -> Job:
    """Stores a chain whose second job waits in that queue; its first job, which runs."""
    store.flows.insert(flow_of(store, CHAIN, fields={2: {"queue": queue}}), NOW)
    (first,) = taken(store)
    return first


def cost_beside_plain(store: Store, count: Callable[[Callable[[], object]], int]) -> int:
    """How many more it takes to end a link of a chain and to release and claim the next, than to end a plain job and
    claim another. count: counts them in a call."""
    plain = running(store)[0]
    usual = []
    for _ in range(3):
        put(store, 1)
        following = list[Job]()
        usual.append(count(lambda: following.extend(end_and_claim(store, plain))))  # noqa: B023 - called at once
        (plain,) = following
    end_and_claim(store, plain)
    # The first one writes down that the queue has work.
    (second,) = end_and_claim(store, chain(store))
    return count(lambda: end_and_claim(store, second)) - usual[-1]


def test_a_link_costs_sqlite_few_statements_more(sqlite: SqliteStore) -> None:
    database = sqlite._db
    assert isinstance(database, apsw.Connection)

    def count(work: Callable[[], object]) -> int:
        statements: list[str] = []

        def note(cursor: object, text: str, values: object) -> bool:
            statements.append(text)
            return True

        database.exec_trace = note
        work()
        database.exec_trace = None
        return len(statements)

    assert cost_beside_plain(sqlite, count) == MORE_STATEMENTS


def commands(server: RedisServer, work: Callable[[], object]) -> Counter[str]:
    """How often the server does each command for that, those of its functions included."""
    server.call("CONFIG", "RESETSTAT")
    work()
    lines = [line for line in server.call("INFO", "commandstats").splitlines() if line.startswith("cmdstat_")]
    counts = Counter[str]()
    for line in lines:
        name = line.removeprefix("cmdstat_").partition(":")[0]
        # What this function sends is not of the work.
        if not name.startswith(("config", "info")):
            counts[name] = int(line.partition("calls=")[2].partition(",")[0])
    return counts


def test_a_link_costs_redis_few_commands_more(redis: Store, server: RedisServer) -> None:
    assert cost_beside_plain(redis, lambda work: commands(server, work).total()) == MORE_COMMANDS


WakesWorkers = Callable[[Callable[[], object]], bool]


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def wakes_workers(store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakesWorkers:
    """Whether a call wakes workers that sleep."""
    if isinstance(store, SqliteStore):
        reasons = list[WakeReason]()
        monkeypatch.setattr(store._board, "wake", lambda *given: reasons.extend(given))

        def is_woken(work: Callable[[], object]) -> bool:
            reasons.clear()
            work()
            return WakeReason.WORK in reasons

        return is_woken
    server: RedisServer = request.getfixturevalue("server")
    # Who waits for results is always woken. Where no worker stands in line, those who sleep hear of work as they do.
    return lambda work: commands(server, work)["publish"] > 1


def test_a_node_that_is_claimed_at_once_wakes_no_other_worker(store: Store, wakes_workers: WakesWorkers) -> None:
    first = chain(store)
    assert not wakes_workers(lambda: end_and_claim(store, first))
    (second,) = store.find(Query(states=(State.RUNNING,)))
    assert wakes_workers(lambda: store.apply([lifecycle.after(second, GOOD, DEFAULT, NOW)], NOW))


def test_a_node_of_a_queue_of_others_wakes_them(store: Store, wakes_workers: WakesWorkers) -> None:
    first = chain(store, "other")
    put(store, 1)
    assert wakes_workers(lambda: end_and_claim(store, first))
