"""What the PostgreSQL store owes beyond the promises: to last through its server's troubles, to say what is wrong."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, NoReturn

import psycopg
import pytest
from msgspec.structs import replace

from tarry import errors
from tarry.client.clock import Clock
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.opening import open_store
from tarry.store.postgres import pausing, scan_start, sql
from tarry.store.postgres.scan_start import EARLIEST
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import BANDS, NORMAL, PROMOTED_AT_ONCE, Query, Store, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import WORK
from tests.servers.postgres import PostgresServer
from tests.worker.bench import LIMIT, until

LEASE = 30_000_000
WANTS = [Want("default", band, 1000) for band in BANDS]


@pytest.fixture
def store(mortal_postgres: PostgresServer) -> Iterator[PostgresStore]:
    mortal_postgres.call("DROP SCHEMA IF EXISTS tarry CASCADE")
    with closing(PostgresStore(mortal_postgres.url)) as store:
        yield store


def job(store: Store, **more: object) -> Job:
    now = store.time()
    return Job(uuid7(), "t", b"[]", due=now, state_since=now, **more)  # type: ignore[arg-type]


def one(body: bytes = b"[]") -> Job:
    return Job(uuid7(), "t", body, due=1, state_since=1)


def took(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


# Troubles


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(
    mortal_postgres: PostgresServer, store: PostgresStore
) -> None:
    """Producers go on through it, each sending again what failed; and what was claimed before is claimed still."""
    stop, acknowledged, failed = threading.Event(), list[bytes](), list[errors.StoreUnavailable]()

    def produce() -> None:
        while not stop.is_set():
            batch = [one() for _ in range(10)]
            while True:
                try:
                    acknowledged.extend(store.insert(batch))
                    break
                except errors.StoreUnavailable as error:
                    failed.append(error)
                    stop.wait(0.02)

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        enough = len(acknowledged) + 200
        until(lambda: len(acknowledged) > enough)  # noqa: B023
        troubles = len(failed)
        mortal_postgres.kill()
        until(lambda: len(failed) > troubles + 4)  # noqa: B023
        mortal_postgres.start()
    enough = len(acknowledged) + 200
    until(lambda: len(acknowledged) > enough)
    stop.set()
    for thread in threads:
        thread.join()
    assert None not in store.get(acknowledged)
    assert sum(tally.count for tally in store.counts()) == len(set(acknowledged)) == len(acknowledged)


def test_an_outcome_lost_with_the_server_is_only_a_rerun(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    jobs = [one() for _ in range(100)]
    store.insert(jobs)
    with closing(PostgresStore(mortal_postgres.url, durable=False)) as worker:
        claimed = worker.claim(WANTS, 100, "ann", LEASE, worker.time())
        now = worker.time()
        worker.apply([lifecycle.after(one, Returned(), DEFAULT, now) for one in claimed], now)
        mortal_postgres.kill()
        mortal_postgres.start()
        states = {found.state for found in worker.get([one.id for one in jobs]) if found}
        assert len(claimed) == 100
        assert states <= {"ready", "running", "done"}
        assert None not in store.get([one.id for one in jobs])


def test_while_the_server_is_away(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    mortal_postgres.kill()
    try:
        with pytest.raises(errors.StoreUnavailable):
            store.insert([one()])
        with pytest.raises(errors.StoreUnavailable, match=r"nobody listens there"):
            store.get([uuid7()])
    finally:
        mortal_postgres.start()
    assert store.insert([one()])


def test_while_the_server_is_halted(mortal_postgres: PostgresServer) -> None:
    mortal_postgres.call("DROP SCHEMA IF EXISTS tarry CASCADE")
    with closing(open_store(f"{mortal_postgres.url}?timeout=1s")) as store:
        store.insert([one()])
        mortal_postgres.halt()
        try:
            for _ in range(2):
                with pytest.raises(errors.StoreUnavailable, match=r"no answer within 1 s"):
                    assert took(lambda: store.insert([one()])) < LIMIT
        finally:
            mortal_postgres.resume()

        def works() -> bool:
            try:
                return bool(store.insert([one()]))
            except errors.StoreUnavailable:
                return False

        until(works)


def test_a_command_that_waits_too_long_is_broken_off(mortal_postgres: PostgresServer) -> None:
    mortal_postgres.call("DROP SCHEMA IF EXISTS tarry CASCADE")
    with (
        closing(open_store(f"{mortal_postgres.url}?timeout=1s")) as store,
        psycopg.connect(mortal_postgres.url) as theirs,
    ):
        theirs.execute("LOCK TABLE tarry.job")
        with pytest.raises(errors.StoreUnavailable, match=r"took too long|too long"):
            store.insert([one()])
        theirs.rollback()
        assert store.insert([one()])


def test_all_connections_are_ended(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    end = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    with closing(store.wakeup()) as sleeper:
        sleeper.listen(WORK)
        store.insert([one()])
        assert int(mortal_postgres.call(end)) >= 2
        # They end a moment after they were told to, so that the first call may still be under way on one of them.
        until(lambda: _inserted(store))
        sleeper.listen(WORK)
        until(lambda: len(listeners(mortal_postgres)) == 1)
        with closing(PostgresStore(mortal_postgres.url)) as other:
            sleeper.wait(0)
            sleeper.listen(WORK)
            other.insert([one()])
            assert took(lambda: sleeper.wait(LIMIT)) < LIMIT / 2


def _inserted(store: PostgresStore) -> bool:
    with suppress(errors.StoreUnavailable):
        return bool(store.insert([one()]))
    return False


def listeners(server: PostgresServer) -> Sequence[str]:
    return server.call("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").split()


def test_a_command_under_way_whose_connection_is_ended(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(mortal_postgres.url) as theirs, ThreadPoolExecutor(1) as pool:
        theirs.execute("LOCK TABLE tarry.job")
        inserting: Future[list[bytes]] = pool.submit(store.insert, [one()])
        until(lambda: mortal_postgres.call(waiting))
        mortal_postgres.call(f"SELECT pg_terminate_backend({mortal_postgres.call(waiting)})")
        with pytest.raises(errors.StoreUnavailable, match="ended the connection"):
            inserting.result(LIMIT)
        theirs.rollback()
    assert store.insert([one()])


def test_too_many_connections(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    # Its rights are those of the owner of the tables, but it gets none of the connections kept for superusers.
    mortal_postgres.call("CREATE USER plain; GRANT postgres TO plain")
    url = mortal_postgres.url.replace("postgres@", "plain@")
    with ExitStack() as theirs:
        # A connection that somebody has closed is free for the next only when the server has noticed.
        with pytest.raises(errors.StoreUnavailable, match=r"no connection left: raise max_connections, or .*notify=no"):
            open_until_refused(url, theirs)
        assert store.insert([one()])
    mortal_postgres.call("DROP USER plain")


def test_a_database_that_is_read_only(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    (kept,) = store.insert([one()])
    read_only = f"{mortal_postgres.url}?options=-c%20default_transaction_read_only=on"
    with closing(PostgresStore(read_only)) as standby:
        assert standby.get([kept]) != [None]
        for write in (lambda: standby.insert([one()]), lambda: standby.pause("default", True)):
            with pytest.raises(errors.StoreReadOnly, match="takes no writes now"):
                write()


def test_a_standby_without_tables(mortal_postgres: PostgresServer) -> None:
    read_only = f"{mortal_postgres.url}?schema=nowhere&options=-c%20default_transaction_read_only=on"
    with pytest.raises(errors.StoreReadOnly):
        PostgresStore(read_only)


def test_a_deadlock_is_tried_again(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    store.insert([one(), one()])
    first, second = store.claim(WANTS, 2, "ann", LEASE, store.time())
    now = store.time()
    changes = [lifecycle.after(job, Returned(), DEFAULT, now) for job in (first, second)]
    touch = "UPDATE tarry.job SET progress = '' WHERE id = %s::uuid"
    with psycopg.connect(mortal_postgres.url) as theirs, ThreadPoolExecutor(1) as pool:
        theirs.execute("SET deadlock_timeout = '1h'")
        theirs.execute(touch, (second.id.hex(),))
        applying: Future[list[bool]] = pool.submit(store.apply, changes, now)
        until(lambda: mortal_postgres.call("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        theirs.execute(touch, (first.id.hex(),))
        theirs.commit()
        assert applying.result(LIMIT) == [True, True]


def test_many_threads_share_a_few_connections(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    with ThreadPoolExecutor(30) as pool:
        lives = list(pool.map(lambda _: store.insert([one()])[0], range(300)))
    assert None not in store.get(lives)
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tarry'"
    # Sessions of the test before this one may still be ending.
    until(lambda: 1 <= int(mortal_postgres.call(ours)) <= 8)


def test_a_forked_child_leaves_its_parents_connections_alone(store: PostgresStore) -> None:
    (kept,) = store.insert([one()])
    with closing(store.wakeup()) as sleeper:
        sleeper.listen(WORK)
        child = os.fork()
        if not child:
            try:
                store.close()
                del store
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert store.get([kept]) != [None]


# Waking up


def test_notices_are_few_and_the_last_is_heard(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    """However many jobs are put, at most 100 NOTIFY a second are sent; who began to listen last hears of the last."""
    with (
        closing(PostgresStore(mortal_postgres.url)) as other,
        psycopg.connect(mortal_postgres.url, autocommit=True) as theirs,
    ):
        theirs.execute("LISTEN tarry_w")
        start = time.monotonic()
        for _ in range(300):
            store.insert([one()])
        with closing(other.wakeup()) as sleeper:
            sleeper.listen(WORK)
            store.insert([one()])
            assert took(lambda: sleeper.wait(LIMIT)) < LIMIT / 2
        notices = list(theirs.notifies(timeout=0.2))
        assert 1 <= len(notices) <= 6 + 100 * (time.monotonic() - start)


def test_closing_sends_what_is_still_to_be_sent(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    with closing(PostgresStore(mortal_postgres.url)) as other, closing(other.wakeup()) as sleeper:
        store.insert([one()])
        sleeper.listen(WORK)
        store.insert([one()])
        store.close()
        assert took(lambda: sleeper.wait(LIMIT)) < LIMIT / 2


def test_a_sleeper_without_a_server(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    """Nothing is heard then but what comes from this process; and once the server is back, everybody looks."""
    with closing(store.wakeup()) as sleeper:
        mortal_postgres.kill()
        sleeper.listen(WORK)
        sleeper.wake()
        assert took(lambda: sleeper.wait(LIMIT)) < LIMIT / 2
        sleeper.listen(WORK)
        mortal_postgres.start()
        assert took(lambda: sleeper.wait(LIMIT)) < LIMIT - 1


def test_due_jobs_that_were_stored_late_become_ready_in_their_turn(store: PostgresStore) -> None:
    """They are in a line of their own; where both have more than one claim makes ready, the earliest of both are."""
    count, soon = PROMOTED_AT_ONCE + 100, store.time() + 1_500_000
    lines = [[replace(one(), due=soon + 2 * n + late, state=State.SCHEDULED) for n in range(count)] for late in (0, 1)]
    store.insert(lines[0])
    until(lambda: store.time() > soon + 3_000_000)
    store.insert(lines[1])
    assert store.claim([Want("other", NORMAL, 1)], 1, "ann", 60_000_000, store.time()) == []
    ready = {job.id for job in store.find(Query(states=(State.READY,), limit=10**6))}
    earliest = sorted((job.due, job.id) for line in lines for job in line)[:PROMOTED_AT_ONCE]
    assert ready == {id for _, id in earliest}


# Where a claim begins to look


def claim_reads(link: psycopg.Connection, statement: str) -> int:
    """How many entries of the index of ready jobs are read to do it."""
    read = "SELECT pg_stat_get_xact_tuples_returned('tarry.job_ready'::regclass)"
    with link.transaction():
        before, _, after = (link.execute(text).fetchone() for text in (read, statement, read))
        assert before
        assert after
        return int(after[0] - before[0])


def exchange_call(now: int, room: int, starts: tuple[int, int]) -> str:
    """A claim, as SQL."""
    changes = ", ".join(["'{}'"] * 18)
    on_time, late = starts
    return (
        f"SELECT * FROM tarry.exchange_v1(false, {changes}, false, {now}, '{{default}}', '{{0}}', '{{{room}}}',"
        f" '{{{on_time}}}', '{{{late}}}', 0, {room}, 1000, 'bob', 30000000, '')"
    )


@pytest.mark.parametrize("late", [0, 1])
def test_what_is_gone_costs_a_claim_nothing(mortal_postgres: PostgresServer, store: PostgresStore, late: int) -> None:
    """Also while a snapshot is held open, so that nothing can be cleared away: the second claim of a process begins
    where the first found the first job. So in both lines."""
    store.insert([one() for _ in range(5000)])
    hour_ago = "(extract(epoch FROM now()) * 1000000)::bigint - 3600000000"
    old = f"""UPDATE tarry.job j
        SET out_of_order = false, due = o.n + {hour_ago}, state_since = o.n + {hour_ago} + {late}
        FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM tarry.job) AS o WHERE o.id = j.id"""
    with (
        psycopg.connect(mortal_postgres.url) as snapshot,
        psycopg.connect(mortal_postgres.url, autocommit=True) as theirs,
    ):
        theirs.execute(old)
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT 1 FROM tarry.job LIMIT 1")
        worker = Want("default", NORMAL, 1000)
        for _ in range(5):
            assert len(store.claim([worker], 1000, "ann", LEASE, store.time())) == 1000
        new = [job(store) for _ in range(10)]
        store.insert([replace(job, state_since=job.due + late) for job in new])
        assert len(store.claim([worker], 1, "ann", LEASE, store.time())) == 1
        seen = store._scan_starts._ready["default", NORMAL]
        from_the_beginning, from_the_start = (
            claim_reads(theirs, exchange_call(store.time(), 5, starts)) for starts in ((EARLIEST, EARLIEST), seen)
        )
        assert from_the_beginning > 5000
        assert from_the_start < 100


def test_however_many_wait_in_one_line_a_claim_reads_few(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    """Of those late and those on time, in order and out of order: also where it looks at limits."""
    now = store.time()
    out_of_order = [
        Job(uuid7(), "t", b"[]", due=1 + n, state_since=1 + n + late) for n in range(2000) for late in (0, 1)
    ]
    store.insert(out_of_order)
    store.insert(
        [replace(job, id=uuid7(), due=now + job.due, state_since=now + job.state_since) for job in out_of_order]
    )
    values = ["'default'", "0", "10"]
    open_lines = sql.for_schema(sql.OPEN_LINES, "tarry")
    for number, value in enumerate(values, 1):
        open_lines = open_lines.replace(f"${number}", value)
    with psycopg.connect(mortal_postgres.url, autocommit=True) as theirs:
        theirs.execute("SET enable_seqscan = off")
        assert claim_reads(theirs, open_lines) <= 40
        assert claim_reads(theirs, exchange_call(now, 10, (EARLIEST, EARLIEST))) < 60


def test_what_comes_late_is_found_before_the_scan_start(store: PostgresStore) -> None:
    """A job that is due long before it is stored, or given back long after it was due, is not behind those claimed
    since."""
    early, on_time = job(store), job(store)
    store.insert([early, on_time])
    (first,) = store.claim(WANTS, 1, "ann", LEASE, store.time())
    store.insert([one()])
    now = store.time() + 10_000_000
    (late,) = store.claim(WANTS, 1, "ann", LEASE, now)
    assert late.due == 1
    hour = 3_600_000_000
    returned = lifecycle.move(back(store, late, now), now, due=now - hour)
    assert store.apply([returned], now) == [True]
    assert [claimed.id for claimed in store.claim(WANTS, 2, "ann", LEASE, now)] == [late.id, on_time.id]
    assert first.id == early.id


def back(store: Store, running: Job, now: int) -> Job:
    """The job, back from its attempt."""
    store.apply([Change(running.id, running.state, running.epoch, State.READY, now, owner=running.owner)], now)
    (found,) = store.get([running.id])
    assert found is not None
    return found


def test_what_took_long_to_store_is_set_aside(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_start, "STORED_WITHIN", 0)
    new = job(store)
    store.insert([new])
    with store._pool.lend_one() as link:
        assert link.rows("SELECT out_of_order FROM tarry.job") == [(True,)]
    assert [claimed.id for claimed in store.claim(WANTS, 1, "ann", LEASE, store.time())] == [new.id]


def test_due_jobs_of_both_lines_become_ready_in_their_order(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """Those in order and those out of order, also where each of the two has more than one claim makes ready."""
    now = store.time()
    jobs = [Job(uuid7(), "t", b"[]", due=now + n, state_since=now, state=State.SCHEDULED) for n in range(1, 2401)]
    store.insert(jobs[::2])
    with psycopg.connect(mortal_postgres.url) as theirs:
        store.insert_within(theirs, jobs[1::2])
    claims = [store.claim(WANTS, 2400, "ann", LEASE, now + 9999) for _ in range(3)]
    assert [len(found) for found in claims] == [1000, 1000, 400]
    assert [job.id for found in claims for job in found] == [job.id for job in jobs]


def test_a_pause_waits_for_claims_that_found_the_queue_open(
    mortal_postgres: PostgresServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "WITHIN", 60.0)
    with psycopg.connect(mortal_postgres.url) as claim:
        claim.execute("SELECT EXISTS (SELECT FROM tarry.paused)")
        pausing_it = threading.Thread(target=store.pause, args=("default", True))
        pausing_it.start()
        until(lambda: store.queues() == {"default": True})
        pausing_it.join(0.2)
        assert pausing_it.is_alive()
        claim.commit()
        pausing_it.join(LIMIT)
        assert not pausing_it.is_alive()


def test_a_pause_waits_for_no_backup(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    with psycopg.connect(mortal_postgres.url) as backup:
        backup.execute("LOCK TABLE tarry.paused IN ACCESS SHARE MODE")
        assert took(lambda: store.pause("default", True)) < LIMIT
        assert took(lambda: store.pause("default", False)) < LIMIT
    assert store.queues() == {}


def test_its_time_is_never_ahead(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the way there takes long and the way back takes none: else a job would start before it is due."""
    rows = store._rows

    def slowly(*args: Any) -> Any:
        time.sleep(0.02)
        return rows(*args)

    monkeypatch.setattr(store, "_rows", slowly)
    clock = Clock(store.time)
    told = clock.now()
    ((server,),) = rows(sql.TIME)
    assert server - 10_000_000 < told <= server


def open_until_refused(url: str, theirs: ExitStack) -> NoReturn:
    while True:
        theirs.enter_context(closing(PostgresStore(url)))


def refused(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return True
    return False


@contextmanager
def asks_for_a_password(server: PostgresServer, user: str, method: str, host: str = "127.0.0.1") -> Iterator[str]:
    """The server asks a new user, who has a database, for the password, by that method; a URL with it."""
    server.call(f"CREATE USER {user} PASSWORD 's3cret'")
    server.call(f"CREATE DATABASE hers OWNER {user}")
    hba = server.directory / "pg_hba.conf"
    before = hba.read_text()
    hba.write_text(f"host all {user} 127.0.0.1/32 {method}\n{before}")
    server.call("SELECT pg_reload_conf()")
    url = f"postgresql://{user}:s3cret@{host}:{server.port}/hers"
    until(lambda: refused(url.replace("s3cret", "other")))
    yield url
    hba.write_text(before)
    server.call("SELECT pg_reload_conf()")
    server.call("DROP DATABASE hers WITH (FORCE)")
    server.call(f"DROP USER {user}")
