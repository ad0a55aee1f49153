"""PostgreSQL by way of pgbouncer in transaction mode: what the conformance suite does not ask."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from tarry import App
from tarry.errors import ConfigError, StoreError
from tarry.store.opening import open_store
from tarry.store.rules.base import Query
from tarry.store.rules.ids import parse
from tests.servers.fixtures import started
from tests.servers.pgbouncer import PgbouncerServer
from tests.servers.postgres import PostgresServer
from tests.worker.bench import LIMIT, Bench, until


@pytest.fixture
def app(pgbouncer_url: str) -> Iterator[App]:
    app = App(pgbouncer_url, closures=True)
    yield app
    app.close()


@pytest.fixture
def own_pooler(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgbouncerServer]:
    """One that a test may kill."""
    directory = tmp_path_factory.mktemp("pooler")
    for each in (directory, *directory.parents[:2]):
        each.chmod(0o755)
    yield from started(PgbouncerServer(directory / "pgbouncer", postgres_server))


def test_without_the_option_it_is_told(pgbouncer_url: str) -> None:
    with pytest.raises(ConfigError, match="a pooler is between: add notify=no to the URL"):
        open_store(pgbouncer_url.replace("&notify=no", ""))


def test_several_make_the_schema_at_once(new_postgres_url: str, own_pooler: PgbouncerServer) -> None:
    url = f"{own_pooler.before(new_postgres_url)}&notify=no"
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(open_store, [url] * 4))
    for store in stores:
        with closing(store):
            assert store.counts() == []


def test_a_flow_runs_to_its_end_and_an_idle_worker_is_woken(app: App, pgbouncer_url: str) -> None:
    @app.task(name="add")
    def add(one: int, other: int) -> int:
        return one + other

    bench = Bench(app, lambda: open_store(pgbouncer_url))
    bench.work(threads=4)
    try:
        with closing(App(pgbouncer_url, closures=True)) as producer:
            twin = producer.task(name="add")(add.fn)
            for number in range(20):
                assert twin.enqueue(number, 1).result(LIMIT) == number + 1
            with producer.flow("sum") as flow:
                flow.add(twin.call(flow.add(twin.call(1, 2)).result, 3))
            until(lambda: flow.handle.state == "done")
            assert b"6" in {job.note for job in producer.client.store.find(Query(task="add"))}
    finally:
        bench.close()


def test_a_job_is_part_of_a_transaction_through_the_pooler(app: App, pgbouncer_url: str) -> None:
    task = app.task(name="add")(lambda number: None)
    with psycopg.connect(pgbouncer_url.split("?", maxsplit=1)[0], prepare_threshold=None) as connection:
        task.using(connection=connection).enqueue(1)
        connection.rollback()
        kept = task.using(connection=connection).enqueue(2)
    assert [job.id for job in app.client.store.find(Query())] == [parse(kept.id)]


def test_a_pooler_that_starts_again(new_postgres_url: str, own_pooler: PgbouncerServer) -> None:
    with closing(App(f"{own_pooler.before(new_postgres_url)}&notify=no&timeout=1", closures=True)) as app:
        task = app.task(name="add")(lambda number: None)
        task.enqueue(1)
        own_pooler.kill()
        with pytest.raises(StoreError) as caught:
            task.enqueue(2)
        own_pooler.start()
        until(lambda: caught.value.send_again().is_new is not None)
        assert sum(tally.count for tally in app.client.store.counts()) == 2
