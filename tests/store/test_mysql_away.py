"""A server that goes away, halts, refuses, and comes back."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tarry.errors import ConfigError, StoreError, StoreReadOnly, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, made, put, taken
from tarry.store.mysql.link.address import parse
from tarry.store.mysql.store import MysqlStore
from tarry.store.rules.base import Query, Store
from tests.servers.kept_tables import remove_board
from tests.servers.mariadb import MariadbServer
from tests.servers.server import Missing, free_port

LONG = 60.0


@pytest.fixture
def server(servers_directory: Path, request: pytest.FixtureRequest) -> Iterator[MariadbServer]:
    """One of the test's own, durable as servers are unless they are told otherwise."""
    server = MariadbServer(servers_directory / f"own-{request.node.name[:40].replace('[', '-').strip(']')}")
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.resume()
    server.kill()
    remove_board(server.url)


@pytest.fixture
def store(server: MariadbServer) -> Iterator[MysqlStore]:
    store = MysqlStore(f"{server.url}?timeout=1.5")
    yield store
    store.close()


def until(look: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


def fails_within(seconds: float, call: Callable[[], object]) -> str:
    start = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        call()
    assert time.monotonic() - start < seconds
    message = str(caught.value)
    assert "\n" not in message
    return message


class Load:
    """A producer and two workers that go on whatever happens, and know what they were told."""

    def __init__(self, url: str) -> None:
        self._stores = [MysqlStore(url) for _ in range(3)]
        self.acknowledged: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.failures = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(self._stores[0],)),
            *(threading.Thread(target=self._work, args=(s, f"w{n}")) for n, s in enumerate(self._stores[1:])),
        ]
        for thread in self._threads:
            thread.start()

    def _produce(self, store: Store) -> None:
        while not self._stop.is_set():
            jobs = made(store, 5)
            while not self._stop.is_set():
                try:
                    self.acknowledged |= set(store.insert(jobs))
                    break
                except StoreUnavailable:
                    self._failed()

    def _work(self, store: Store, owner: str) -> None:
        held: list[Job] = []
        while not self._stop.is_set():
            changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in held]
            try:
                answer = store.exchange(changes, EVERYTHING, 20, owner, LEASE, NOW)
            except StoreUnavailable:
                self._failed()
                continue
            self.settled |= {job.id for job in held}
            held = answer.jobs

    def _failed(self) -> None:
        self.failures += 1
        time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG)
        for store in self._stores:
            store.close()


@pytest.mark.timeout(300)
def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed(server: MariadbServer) -> None:
    """Jobs in, jobs done: what was told is so, after each of three kills under load."""
    MysqlStore(server.url).close()
    load = Load(f"{server.url}?timeout=2")
    try:
        for _ in range(3):
            before = len(load.acknowledged), len(load.settled)
            until(lambda: len(load.acknowledged) > before[0] + 100 and len(load.settled) > before[1] + 100)  # noqa: B023
            server.kill()
            failures = load.failures
            until(lambda: load.failures > failures)  # noqa: B023
            server.start()
    finally:
        load.stop()
    store = MysqlStore(server.url)
    try:
        jobs = {job.id: job for job in store.find(Query(limit=10**6))}
    finally:
        store.close()
    assert not load.acknowledged - jobs.keys()
    assert all(jobs[id].state is State.DONE for id in load.settled)


def test_calls_fail_at_once_while_it_is_down_and_work_again_after(server: MariadbServer, store: MysqlStore) -> None:
    put(store, 3)
    server.kill()
    for call in (lambda: put(store), lambda: taken(store), store.time, store.counts, store.owners):
        assert "is the server up" in fails_within(3, call)
    server.start()
    until(lambda: put_again(store))
    assert len(taken(store)) == 4


def put_again(store: Store) -> bool:
    try:
        put(store)
    except StoreUnavailable:
        return False
    return True


def test_calls_fail_within_their_limit_while_it_is_halted(server: MariadbServer, store: MysqlStore) -> None:
    put(store)
    server.halt()
    for call in (lambda: put(store), lambda: taken(store), store.counts):
        fails_within(8, call)
    server.resume()
    until(lambda: put_again(store))


def test_it_goes_on_after_all_connections_were_cut(server: MariadbServer, store: MysqlStore) -> None:
    """Nobody notices: what had not been asked to be committed is asked once more."""
    put(store, 3)
    for _ in range(3):
        for number in server.call("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = 'tarry'").split():
            server.call(f"KILL {number}")
        put(store)
    assert len(taken(store)) == 6


def test_too_many_connections(server: MariadbServer, store: MysqlStore) -> None:
    server.call("SET GLOBAL max_connections = 10")
    taken_up: list[Any] = []
    told: list[str] = []

    def is_refused() -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            while True:
                taken_up.append(connected(server))
        try:
            # One that was closed before may be released only now.
            MysqlStore(server.url).close()
        except StoreUnavailable as error:
            told.append(str(error))
        return bool(told)

    until(is_refused)
    assert "takes no more connections" in told[0]
    put(store)
    taken_up.pop().close()
    until(lambda: opened_and_closed(server.url))
    for connection in taken_up:
        connection.close()


def opened_and_closed(url: str) -> bool:
    try:
        MysqlStore(url).close()
    except StoreUnavailable:
        return False
    return True


def connected(server: MariadbServer) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="tarry")


def test_read_only(server: MariadbServer, store: MysqlStore) -> None:
    put(store)
    server.call("CREATE USER app@'%' IDENTIFIED BY 'geheim'; GRANT ALL ON tarry.* TO app@'%'")
    mine = MysqlStore(f"mysql://app:geheim@127.0.0.1:{server.port}/tarry")
    try:
        server.call("SET GLOBAL read_only = 1")
        with pytest.raises(StoreReadOnly, match="is read-only"):
            put(mine)
        assert len(mine.find(Query())) == 1
        server.call("SET GLOBAL read_only = 0")
        put(mine)
    finally:
        mine.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://root:geheim@127.0.0.1:{}/tarry", "check user and password"),
        ("mysql://nobody:geheim@127.0.0.1:{}/tarry", "check user and password"),
        ("mysql://root@127.0.0.1:{}/missing", "CREATE DATABASE"),
        ("mysql://root@127.0.0.1:{}/tarry?tls=verify", "tls"),
    ],
)
def test_what_the_server_refuses(mariadb_server: MariadbServer, url: str, said: str) -> None:
    """One line that says what to do, without the password."""
    with pytest.raises(ConfigError) as caught:
        MysqlStore(url.format(mariadb_server.port))
    message = str(caught.value)
    assert said in message
    assert "geheim" not in message
    assert "\n" not in message


def test_nobody_there() -> None:
    for host in (f"127.0.0.1:{free_port()}", f"no.such.host.invalid:{free_port()}"):
        with pytest.raises(StoreUnavailable, match="is the server up, and host and port right"):
            MysqlStore(f"mysql://root:geheim@{host}/tarry")


def test_something_else_is_there(redis_server: object) -> None:
    """A Redis server, say, that answers in another language, or not at all."""
    port = redis_server.port  # type: ignore[attr-defined]
    with pytest.raises(StoreError) as caught:
        MysqlStore(f"mysql://root:geheim@127.0.0.1:{port}/tarry?timeout=1")
    assert "geheim" not in str(caught.value)


def test_a_password_is_in_nothing_that_is_shown(server: MariadbServer) -> None:
    server.call("CREATE USER app@'%' IDENTIFIED BY 'ge:h/e@im'; GRANT ALL ON tarry.* TO app@'%'")
    store = MysqlStore(f"mysql://app:ge%3Ah%2Fe%40im@127.0.0.1:{server.port}/tarry?timeout=1")
    assert parse(f"mysql://app:ge%3Ah%2Fe%40im@127.0.0.1:{server.port}/tarry").password == "ge:h/e@im"
    try:
        shown = [store.url, *(str(fact) for fact in store.diagnostics())]
        server.kill()
        shown.append(fails_within(5, lambda: put(store)))
        shown.append(repr(store) + repr(vars(store)))
    finally:
        store.close()
    assert not [line for line in shown if "ge:h" in line or "ge%3A" in line]


BESIDE_DJANGO = """
import sys
import pymysql
pymysql.install_as_MySQLdb()
import MySQLdb.converters  # as Django's backend does
from tarry.errors import StoreUnavailable
from tarry.store.mysql.store import open_mysql
try:
    open_mysql(f"mysql://root@127.0.0.1:{sys.argv[1]}/none", True)
except StoreUnavailable as error:
    print("unavailable")
"""


def test_errors_of_the_driver_are_known_beside_a_copy_of_it() -> None:
    """`import MySQLdb.converters` executes PyMySQL's modules again, and puts the copies into the package."""
    call = [sys.executable, "-c", BESIDE_DJANGO, str(free_port())]
    done = subprocess.run(call, timeout=250, capture_output=True, text=True, check=False)
    assert done.stdout == "unavailable\n", done.stderr
