"""Named values: what a list of some of them takes does not grow with the others."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tarry.store.memory.store import MemoryStore
from tarry.store.opening import open_store
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import Store
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.worker.bench import until

OTHERS = 2000
WANTED = {"hosts/a": b"1", "hosts/b": b"2", "hosts/c": b"3"}
LISTS = 20


def fill(store: Store) -> None:
    """Some that are wanted, among many others."""
    for name, value in WANTED.items():
        assert store.kv_cas(name, value, None)
    for number in range(OTHERS // 2):
        assert store.kv_cas(f"audit/{number}", b"x" * 500, None)
        assert store.kv_cas(f"schedule/{number}", b"x" * 500, None)


def read_lists(store: Store) -> None:
    """Lists that find three, and lists that find none."""
    for _ in range(LISTS):
        assert store.kv_list("hosts/") == WANTED
        assert store.kv_list("none/") == {}


class CountedName(str):
    """A name that counts how often it is looked at."""

    looks = 0

    def __lt__(self, other: str) -> bool:
        CountedName.looks += 1
        return str.__lt__(self, other)

    def startswith(self, *words: object) -> bool:
        """As of any text."""
        CountedName.looks += 1
        return str.startswith(self, *words)  # type: ignore[arg-type]


def test_memory() -> None:
    store = MemoryStore()
    for number in range(OTHERS):
        store.kv_cas(CountedName(f"audit/{number}"), b"x", None)
    for name, value in WANTED.items():
        store.kv_cas(name, value, None)
    CountedName.looks = 0
    read_lists(store)
    assert CountedName.looks < 2 * LISTS * 20


def test_redis(redis_store: RedisStore, redis_server: RedisServer) -> None:
    fill(redis_store)
    redis_store.kv_list("")
    redis_server.call("CONFIG", "RESETSTAT")
    read_lists(redis_store)
    stats = dict(line.split(":") for line in redis_server.call("INFO", "stats").splitlines() if ":" in line)
    assert int(stats["total_net_output_bytes"]) < 2 * LISTS * 200
    # What a script reads of the server is counted there, too.
    commands = redis_server.call("INFO", "commandstats")
    assert "zrangebylex" in commands
    assert "hkeys" not in commands
    assert "hgetall" not in commands


@contextmanager
def reads(read: Callable[[], int], most: int) -> Iterator[None]:
    """At most so many rows."""
    before = read()
    yield
    # A part of it is told later.
    assert read() - before < most


def test_postgres(postgres_server: PostgresServer, new_postgres_url: str) -> None:
    schema = new_postgres_url.partition("schema=")[2]
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tarry'"
    read = f"""SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
        WHERE schemaname = '{schema}' AND relname = 'cell'"""
    before = postgres_server.call(sessions)
    with closing(open_store(new_postgres_url, durable=False)) as store:
        fill(store)
    # What a session has read is told for sure only when it ends.
    until(lambda: postgres_server.call(sessions) == before)
    with reads(lambda: int(postgres_server.call(read)), 2 * LISTS * 5):
        with closing(open_store(new_postgres_url, durable=False)) as store:
            read_lists(store)
        until(lambda: postgres_server.call(sessions) == before)


def test_mariadb(mariadb_server: MariadbServer, new_mariadb_url: str) -> None:
    read = """SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN
        ('HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT', 'HANDLER_READ_PREV')"""
    with closing(open_store(new_mariadb_url, durable=False)) as store:
        fill(store)
        read_lists(store)
        with reads(lambda: int(float(mariadb_server.call(read))), OTHERS):
            read_lists(store)
