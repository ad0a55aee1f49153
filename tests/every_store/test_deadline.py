"""One deadline for an enqueue in all, and errors that say truly whether the job may be stored."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tarry import App
from tarry.config.config import ClientConfig as ClientSettings
from tarry.config.config import Config
from tarry.errors import StoreAway, StoreError, StoreUnavailable
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import Server
from tests.worker.bench import LIMIT

TIMEOUT = 1.0
GRACE = 2.0


@contextmanager
def halted(server: Server) -> Iterator[None]:
    """A server that takes connections and bytes and answers nothing."""
    server.halt()
    try:
        yield
    finally:
        server.resume()


def enqueued_by_three(app: App) -> list[tuple[float, StoreError | None]]:
    """Each a little after the other: seconds that it took, and what it was told."""
    found: list[tuple[float, StoreError | None]] = []

    def put() -> None:
        start, told = time.monotonic(), None
        try:
            app.tasks["target"].enqueue(1)
        except StoreError as error:
            told = error
        found.append((time.monotonic() - start, told))

    threads = [threading.Thread(target=put, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(TIMEOUT / 5)
    for thread in threads:
        thread.join(LIMIT)
    assert len(found) == 3
    return found


def app_at(url: str, timeout: float = TIMEOUT) -> App:
    app = App(url, closures=True)
    app.configure(Config(client=ClientSettings(timeout=timeout)))

    @app.task(name="target")
    def target(number: int) -> None: ...

    target.enqueue(0)
    return app


def assert_in_time(found: list[tuple[float, StoreError | None]], timeout: float = TIMEOUT) -> None:
    assert max(seconds for seconds, _ in found) < timeout + GRACE, found
    assert all(isinstance(told, StoreUnavailable) for _, told in found), found


def assert_stored_once(app: App, found: list[tuple[float, StoreError | None]]) -> None:
    """Sent again, each of them is there once, also where it was stored the first time."""
    handles = [told.send_again() for _, told in found if told is not None]
    assert [handle.id for handle in handles] == [told.job.id for _, told in found if told is not None]
    assert sum(tally.count for tally in app.client.store.counts()) == 1 + len(found)


def test_a_halted_redis(redis_server: RedisServer) -> None:
    redis_server.empty()
    app = app_at(redis_server.url)
    with halted(redis_server):
        found = enqueued_by_three(app)
    assert_in_time(found)
    assert_stored_once(app, found)
    app.close()


def test_a_halted_mariadb(mariadb_server: MariadbServer, mariadb_url: str) -> None:
    app = app_at(mariadb_url)
    with halted(mariadb_server):
        found = enqueued_by_three(app)
    assert_in_time(found)
    assert_stored_once(app, found)
    app.close()


def test_a_halted_postgres(postgres_server: PostgresServer, postgres_url: str) -> None:
    app = app_at(postgres_url, 5.0)  # its driver takes 2 s at least to give up a new connection
    with halted(postgres_server):
        found = enqueued_by_three(app)
    assert_in_time(found, 5.0)
    assert_stored_once(app, found)
    app.close()


def test_a_locked_postgres(postgres_server: PostgresServer, postgres_url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    app = app_at(postgres_url)
    schema = postgres_url.rpartition("schema=")[2]
    with psycopg.connect(postgres_server.url) as theirs:
        theirs.execute(f"LOCK TABLE {schema}.job IN ACCESS EXCLUSIVE MODE")
        found = enqueued_by_three(app)
        theirs.rollback()
    assert_in_time(found)
    assert_stored_once(app, found)
    app.close()


def test_a_locked_sqlite_file_and_nothing_is_stored(tmp_path: Path) -> None:
    app = app_at(f"sqlite:///{tmp_path}/jobs.db")
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    other.execute("BEGIN IMMEDIATE")
    found = enqueued_by_three(app)
    other.execute("ROLLBACK")
    assert_in_time(found)
    assert [told.stored for _, told in found if told is not None] == [False] * 3
    assert_stored_once(app, found)
    app.close()


class Lossy(MemoryStore):
    """Takes what it is given, and loses the answer, or refuses."""

    error: StoreError | None = None
    takes = False

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        answer = super().insert(jobs) if self.takes or self.error is None else []
        if self.error is not None:
            raise self.error
        return answer


@pytest.fixture
def lossy() -> Iterator[tuple[App, Lossy]]:
    store = Lossy()
    app = App(store, closures=True)

    @app.task(name="target")
    def target(number: int) -> None: ...

    yield app, store
    app.close()


def test_a_lost_answer_may_be_stored_and_the_very_same_is_sent_again(lossy: tuple[App, Lossy]) -> None:
    app, store = lossy
    store.takes, store.error = True, StoreUnavailable("the answer was lost")
    with pytest.raises(StoreUnavailable, match="the answer was lost") as caught:
        app.tasks["target"].enqueue(1)
    told = caught.value
    assert told is not store.error, "others may be told of it, too"
    assert told.stored is None
    assert any("may be stored" in note for note in told.__notes__)
    assert told.job.record().body == b"[1]"
    store.error = None
    assert told.send_again() == told.job
    assert asyncio.run(told.asend_again()) == told.job
    assert sum(tally.count for tally in store.counts()) == 1


def test_one_that_was_not_sent_is_surely_not_stored(lossy: tuple[App, Lossy]) -> None:
    app, store = lossy
    store.error = StoreAway("away")

    async def put() -> None:
        await app.tasks["target"].aenqueue(1)

    for enqueue in (lambda: app.tasks["target"].enqueue(1), lambda: asyncio.run(put())):
        with pytest.raises(StoreAway) as caught:
            enqueue()
        assert caught.value.stored is False
        assert any("Surely not stored" in note for note in caught.value.__notes__)
    store.error = None
    assert caught.value.send_again().record().body == b"[1]"


def test_many_are_sent_again_under_their_ids(lossy: tuple[App, Lossy]) -> None:
    app, store = lossy
    store.takes, store.error = True, StoreUnavailable("the answer was lost")
    with pytest.raises(StoreUnavailable) as caught:
        app.tasks["target"].enqueue_many([(1,), (2,)])
    store.error = None
    assert [handle.record().body for handle in caught.value.send_again()] == [b"[1]", b"[2]"]
    assert sum(tally.count for tally in store.counts()) == 2


def test_an_error_of_no_enqueue_has_nothing_to_send() -> None:
    with pytest.raises(TypeError, match="no enqueue"):
        StoreUnavailable("away").send_again()
