"""What the hot verbs read does not grow with what is there: jobs that wait, hold keys, are scheduled or finished."""

from collections.abc import Callable
from contextlib import closing

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.opening import open_store
from tarry.store.rules.base import BANDS, Store, Want
from tarry.store.rules.ids import uuid7
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.worker.bench import until

LEASE = 30 * SECOND
WANTS = [Want("default", band, 1000) for band in BANDS]
Number = Callable[[], int]


def check_reads(
    url: str, sessions: Number, read: Number, count: int, analyse: Callable[[], object] = lambda: None
) -> None:
    """Plans were made when the tables were empty, or when `analyse` had seen them small, and nobody analysed them
    since. What a session of PostgreSQL has read is told for sure only when it ends: so one is counted from its
    beginning, and another, at worst, with its own beginning, too."""
    before = sessions()
    start = read()
    with closing(open_store(url, durable=False)) as store:
        warmed_up(store)
    until(lambda: sessions() == before)
    alone = read() - start
    analyse()
    with closing(open_store(url, durable=False)) as store:
        warmed_up(store)
        with_it = sessions()
        with closing(open_store(url, durable=False)) as other:
            fill(other, count)
        until(lambda: sessions() == with_it)
        start = read()
        cycle(store, 100)
    until(lambda: sessions() == before)
    crowded = read() - start
    assert alone > 100
    assert crowded < 3 * alone + count / 20


@pytest.mark.parametrize("seen_small", [False, True])
def test_postgres(postgres_server: PostgresServer, new_postgres_url: str, seen_small: bool) -> None:
    schema = new_postgres_url.partition("schema=")[2]
    where = f"WHERE schemaname = '{schema}'"
    read = f"""SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables {where})
        + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes {where})"""
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tarry'"

    def number(query: str) -> Number:
        return lambda: int(postgres_server.call(query))

    analyse = f"ANALYZE {schema}.job" if seen_small else "SELECT"
    check_reads(new_postgres_url, number(sessions), number(read), 20_000, lambda: postgres_server.call(analyse))


def test_mariadb(mariadb_server: MariadbServer, new_mariadb_url: str) -> None:
    read = """SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN
        ('HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT', 'HANDLER_READ_PREV')"""
    check_reads(new_mariadb_url, lambda: 0, lambda: int(float(mariadb_server.call(read))), 5_000)


def warmed_up(store: Store) -> None:
    """Each of its statements is planned for good."""
    for _ in range(8):
        cycle(store, 3)
    cycle(store, 100)


def cycle(store: Store, count: int) -> None:
    """All hot verbs, once, and those of the keeper."""
    now = store.time()
    store.insert([Job(uuid7(), "t", b"[]", due=now, state_since=now) for _ in range(count)])
    for n in range(20):
        keyed = Job(uuid7(), "t", b"[]", due=now, state_since=now, key=f"k{n}", key_held_until=HELD, key_ttl=SECOND)
        store.insert([keyed, replace(keyed, id=uuid7(), state_since=now + HOUR)])
    jobs = store.claim(WANTS, 2 * count, "ann", LEASE, now)
    assert len(jobs) > count
    store.save_progress("ann", [(job.id, job.epoch, b"[1]") for job in jobs])
    store.extend("ann", [(job.id, job.epoch) for job in jobs], LEASE, now)
    store.get([job.id for job in jobs])
    ends = [lifecycle.after(job, Returned(), DEFAULT, now) for job in jobs]
    store.exchange(ends, WANTS, 0, "ann", LEASE, now)
    store.owners()
    store.reclaim(now)
    store.queues()
    store.backlog(["default"], now, 10)
    store.expiring(now, now + 1, 10)
    store.next_due()
    store.prune(now, 10**12)


def fill(store: Store, count: int) -> None:
    """So many jobs of each kind that are in nobody's way."""
    now = store.time()
    jobs = [Job(uuid7(), "t", b"[]", due=now, state_since=now) for _ in range(count)]
    store.insert([replace(job, queue="slow") for job in jobs])
    others = [uuid7() for _ in range(count)]
    store.insert([replace(jobs[0], id=id, queue="slow", key=f"{id.hex()}", key_held_until=HELD) for id in others])
    later = {"due": now + 3600 * 1_000_000, "state": State.SCHEDULED}
    store.insert([replace(jobs[0], id=uuid7(), **later) for _ in range(count)])
    store.insert([replace(jobs[0], id=uuid7(), state=State.DONE, keep_until=now + HOUR) for _ in range(count)])
