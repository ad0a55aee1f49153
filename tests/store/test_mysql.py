"""What is particular to MySQL and MariaDB: URLs, tables, plans, locks, several hosts."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from msgspec.structs import replace

from tarry.errors import ConfigError, StoreBusy, StoreError, StoreForeign, StoreNewer
from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, NotPossible, Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Lost, Outcome, Released, Returned
from tarry.model.retry import Retry
from tarry.store import migrating
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FAILED,
    LEASE,
    NOW,
    ids,
    made,
    put,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.conformance.cases.sleepers import wakes
from tarry.store.mysql import claim as mysql_claim
from tarry.store.mysql import exchange as mysql_exchange
from tarry.store.mysql import lane_reader, retrying
from tarry.store.mysql import schema as mysql_schema
from tarry.store.mysql.claim import Reader
from tarry.store.mysql.distinct_scan import DistinctScan
from tarry.store.mysql.link import guard as mysql_guard
from tarry.store.mysql.link.address import parse
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import raw
from tarry.store.mysql.link.mysql_errors import DuplicateKey, NotAsSeen, StaleSettings
from tarry.store.mysql.open_lanes import exists
from tarry.store.mysql.schema import STEPS
from tarry.store.mysql.settings import NUMBER, RAISE, StoreSettings
from tarry.store.mysql.sql import digest
from tarry.store.mysql.store import MysqlStore
from tarry.store.opening import open_store
from tarry.store.rules.base import NORMAL, Query, Store, Want
from tarry.store.rules.sleeper import RESULT, WORK
from tarry.store.shared.schema_steps import SchemaStep

LONG = 60.0


@pytest.fixture
def store(new_mariadb_url: str) -> Iterator[MysqlStore]:
    store = MysqlStore(new_mariadb_url)
    yield store
    store.close()


@pytest.fixture
def other(new_mariadb_url: str, store: MysqlStore) -> Iterator[MysqlStore]:
    """The same database, from another process, as it were."""
    other = MysqlStore(new_mariadb_url)
    yield other
    other.close()


def connected(url: str) -> Any:
    where = parse(url)
    return pymysql.connect(host=where.host, port=where.port, user=where.user, database=where.database)


@pytest.fixture
def client(new_mariadb_url: str) -> Iterator[Any]:
    """A connection of one's own, with autocommit off."""
    connection = connected(new_mariadb_url)
    asked(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    asked(connection, "SET SESSION in_predicate_conversion_threshold = 0")
    yield connection
    connection.close()


def asked(client: Any, statement: str) -> list[tuple[Any, ...]]:
    with client.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def until(look: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


# URLs


def test_a_url_says_everything() -> None:
    found = parse("mysql://me:p%40ss@db.example:3307/jobs?timeout=2&tls=yes&connections=9&skip_locked=no&guard=no")
    assert (found.host, found.port, found.user, found.password, found.database) == (
        "db.example", 3307, "me", "p@ss", "jobs",
    )  # fmt: skip
    assert (found.timeout, found.tls, found.connections, found.skip_locked, found.guard) == (
        2.0,
        "yes",
        9,
        False,
        False,
    )
    assert found.shown == "mysql://me@db.example:3307/jobs"
    assert (
        parse("mariadb://u@localhost/d?socket=/run/my.sock").shown == "mariadb://u@localhost:3306/d?socket=/run/my.sock"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://localhost", "name a server and a database"),
        ("mysql:///jobs", "name a server and a database"),
        ("mysql://h:port/jobs", r"mysql://\*\*\*: no host, or no host:port; the form is mysql://user"),
        ("mysql://h/jobs?colour=red", "no option 'colour' here; there are timeout, tls"),
        ("mysql://h/jobs?timeout=soon", "timeout='soon': a duration as 5s or 500ms"),
        ("mysql://h/jobs?tls=perhaps", "tls='perhaps': one of preferred, no, yes, verify"),
        ("mysql://h/jobs?tls=yes&tls_ca=/no/such/file", "No such file"),
    ],
)
def test_what_a_url_cannot_say(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_store(url.replace("://", "://me:geheim@", 1) if "///" not in url else url)
    assert "geheim" not in str(caught.value)


# Tables


def test_several_hosts_may_start_at_once(new_mariadb_url: str) -> None:
    """One makes the tables, the others wait."""
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(MysqlStore, [new_mariadb_url] * 6))
    put(stores[0])
    assert len(taken(stores[5])) == 1
    for store in stores:
        store.close()


def test_a_process_that_starts_while_another_makes_the_tables_waits(
    new_mariadb_url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never sees the version of an earlier step, which it would take for tables that nobody has migrated."""
    monkeypatch.setattr(mysql_schema, "STEPS", (*STEPS, SchemaStep("waits", ["DO SLEEP(0.5)"])))
    tables = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"

    def is_versioned() -> bool:
        client.commit()
        there = asked(client, f"{tables} AND TABLE_NAME = 'tarry_about'")[0][0]
        return bool(there and asked(client, "SELECT value FROM tarry_about WHERE name = 'schema'"))

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(MysqlStore, new_mariadb_url)
        until(lambda: first.done() or is_versioned())
        MysqlStore(new_mariadb_url).close()
        first.result(LONG).close()


def test_a_newer_schema_is_refused_before_anything_is_written(
    store: MysqlStore, new_mariadb_url: str, client: Any
) -> None:
    asked(client, f"UPDATE tarry_about SET value = {len(STEPS) + 1} WHERE name IN ('schema', 'oldest')")
    client.commit()
    with pytest.raises(StoreNewer, match="upgrade tarry on this host"):
        MysqlStore(new_mariadb_url)
    with pytest.raises(StoreNewer):
        migrating.migrate(new_mariadb_url)


def test_another_program_with_tables_of_that_name(new_mariadb_url: str, client: Any) -> None:
    asked(client, "CREATE TABLE tarry_job (a INT)")
    with pytest.raises(StoreForeign, match="use another database"):
        MysqlStore(new_mariadb_url)


def test_an_older_schema_is_brought_up_to_date_when_told_so(
    store: MysqlStore, new_mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of the version before goes on meanwhile."""
    step = SchemaStep("adds the column colour", ["ALTER TABLE tarry_job ADD COLUMN colour INT NOT NULL DEFAULT 0"])
    monkeypatch.setattr(mysql_schema, "STEPS", (*STEPS, step))
    with pytest.raises(StoreError, match="run `tarry migrate`"):
        MysqlStore(new_mariadb_url)
    assert migrating.pending(new_mariadb_url) == ["adds the column colour"]
    assert migrating.migrate(new_mariadb_url) == ["adds the column colour"]
    assert migrating.pending(new_mariadb_url) == []
    MysqlStore(new_mariadb_url).close()
    put(store)
    assert len(taken(store)) == 1


def test_tables_left_half_made_are_made_to_the_end(new_mariadb_url: str, client: Any) -> None:
    """By one who died in the middle."""
    asked(client, "CREATE TABLE tarry_about (name VARBINARY(32) NOT NULL PRIMARY KEY, value BIGINT NOT NULL)")
    assert len(migrating.pending(new_mariadb_url)) == len(STEPS)
    store = MysqlStore(new_mariadb_url)
    put(store)
    store.close()
    # Another died just before the end.
    asked(client, "DELETE FROM tarry_about WHERE name = 'schema'")
    client.commit()
    store = MysqlStore(new_mariadb_url)
    assert len(taken(store)) == 1
    store.close()


def test_what_an_operator_is_told(store: MysqlStore, mariadb_server: Any) -> None:
    facts = {fact.name: fact for fact in store.diagnostics()}
    assert facts["mariadb"].value.startswith("1")
    assert "innodb_flush_log_at_trx_commit" in facts["durability"].value
    assert "SET GLOBAL" in facts["durability"].advice
    assert facts["schema"].value == str(len(STEPS))
    assert {"clock offset", "round trip", "oldest transaction", "binary log", "isolation", "size"} <= facts.keys()


# Names and sizes


def test_names_are_compared_as_they_are(store: MysqlStore) -> None:
    """Trailing spaces, upper and lower case, accents, and what no index could hold."""
    keys = ["k", "k ", "K", "ḱ", "k\0", "x" * 5000, "x" * 4999 + "y"]
    jobs = [made(store, key=key)[0] for key in keys]
    assert store.insert(jobs) == ids(jobs)
    again = [made(store, key=key)[0] for key in keys]
    assert store.insert(again) == ids(jobs)
    assert [job.key for job in store.find(Query(key="k "))] == ["k "]
    store.pause("Q", True)
    put(store, queue="q")
    assert {name: state for name, state in store.queues().items() if name in "Qq"} == {"Q": True, "q": False}


def test_a_name_that_is_too_long(store: MysqlStore) -> None:
    with pytest.raises(StoreError, match="may take 500 bytes"):
        put(store, queue="q" * 501)
    put(store, queue="q" * 500, lane="l" * 700, task="t" * 500)


def test_a_batch_that_is_larger_than_a_packet(store: MysqlStore) -> None:
    """It goes in several; what one job alone exceeds is refused with the way out."""
    bodies = [bytes([n]) * 2**20 for n in range(20)]
    jobs = [replace(made(store)[0], body=body) for body in bodies]
    store.insert(jobs)
    assert [job and job.body for job in store.get(ids(jobs))] == bodies
    claimed = taken(store)
    changes = [lifecycle.after(job, Returned(job.body), DEFAULT, NOW) for job in claimed]
    assert store.apply(changes, NOW) == [True] * 20
    with pytest.raises(StoreError, match="raise max_allowed_packet"):
        put(store, body=b"x" * 2**23)
    put(store)


# Plans


@pytest.fixture
def full(store: MysqlStore) -> MysqlStore:
    """With enough in it that the planner has to choose."""
    for queue in ("a", "b"):
        put(store, 3000, queue=queue)
        put(store, 2000, queue=queue, due=NOW + HOUR)
        put(store, 2000, queue=queue, lane="x")
        put(store, 300, queue=queue, lane="y")
    claimed = store.claim([Want("a", NORMAL, 1500)], 1500, "ann", LEASE, NOW)
    store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW) for job in claimed[:500]], NOW)
    return store


def plan(client: Any, statement: str) -> list[dict[str, Any]]:
    with client.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return list(cursor.fetchall())


@pytest.mark.parametrize("band", [1, 0, -1])
@pytest.mark.parametrize("skip", [True, False])
def test_a_claim_reads_in_the_order_of_the_key(full: MysqlStore, client: Any, band: int, skip: bool) -> None:
    """No sorting, and only as far as it has to."""
    for last, late in itertools.product((None, (b"0" * 16, -band, NOW)), (True, False)):
        for statement in Reader(skip, 7).front(("a", band, late), 100, last):
            (step,) = plan(client, statement)
            assert step["key"] == "PRIMARY", step
            assert step["type"] in ("range", "ref"), step
            assert "filesort" not in (step["Extra"] or "")


@pytest.mark.parametrize("late", [True, False])
def test_whether_a_line_has_jobs_is_one_look(full: MysqlStore, client: Any, late: bool) -> None:
    """Also in a band that has none, beside one that has thousands."""
    bands = [("a", band, late) for band in (1, 0, -1)]
    for group in ([bands[0]], [bands[1]], [bands[2]], bands):
        before = handled(client)
        ((there,),) = asked(client, f"SELECT {exists(group)}")
        assert bool(there) == (not late and bands[1] in group)
        assert handled(client) - before <= 3


@pytest.mark.parametrize("options", ["", "?skip_locked=no"])
def test_a_claim_reads_as_much_however_many_are_late(new_mariadb_url: str, client: Any, options: str) -> None:
    """Also where it takes of both, and in every band."""
    store = MysqlStore(new_mariadb_url + options)
    wants = [Want("default", band, 20) for band in (1, 0, -1)]
    for priority in (2, 0, -2):
        put(store, 2000, priority=priority, state_since=NOW + 1)
        put(store, 60, priority=priority)
    for _ in range(3):
        before = read_by_all(client)
        assert len(store.claim(wants, 60, "ann", LEASE, NOW)) == 60
        assert read_by_all(client) - before < 1500
    store.close()


def read_by_all(client: Any) -> int:
    """Rows that the whole server has read."""
    return sum(int(count) for _, count in asked(client, "SHOW GLOBAL STATUS LIKE 'Handler_read%'"))


def test_lanes_and_due_jobs_are_read_in_the_order_of_the_key(full: MysqlStore, client: Any) -> None:
    lane = lane_reader._LANE.format("'a'", 0, "'mail'", "'x'", 10, " SKIP LOCKED")
    for statement in (lane, Reader(True, 7).promotable(NOW + HOUR)):
        (step,) = plan(client, statement)
        assert step["key"] == "PRIMARY", step
        assert "filesort" not in (step["Extra"] or "")


def test_lanes_and_queues_are_found_without_reading_their_jobs(full: MysqlStore, client: Any) -> None:
    """By steps, each of which is one look into the key."""
    for walk in (
        DistinctScan("tarry_ready", "queue", "1", 9),
        DistinctScan("tarry_laned", "task", "queue = 'a' AND band = 0", 9),
        DistinctScan("tarry_laned", "lane", "queue = 'a' AND band = 0 AND task = 'mail'", 9, "'a'"),
    ):
        asked(client, "SET @tarry7 = 'a'")
        for step in (walk.steps(0, 1, [])[0], walk.steps(7, 2, [])[1]):
            before = handled(client)
            asked(client, f"SELECT {step.partition('= ')[2]}")
            assert handled(client) - before <= 3


def handled(client: Any) -> int:
    """Rows that this connection has read, by key or onwards from there."""
    return sum(int(count) for _, count in asked(client, "SHOW SESSION STATUS LIKE 'Handler_read%'"))


@pytest.mark.parametrize("count", [2, 6, 40, 1000])
@pytest.mark.parametrize("options", ["?timeout=20", "?timeout=20&skip_locked=no"])
def test_nobody_waits_for_changes_of_other_jobs(new_mariadb_url: str, client: Any, options: str, count: int) -> None:
    """However few or many there are: every other job, with all its rows, is locked by somebody, and each call that is
    about the rest goes through. A planner that preferred to read a small table as a whole would wait."""
    store = MysqlStore(new_mariadb_url + options)
    jobs = sorted(put(store, count, key=None), key=lambda job: job.id)
    keyed = [put(store, key=f"k{n}", key_ttl=HOUR)[0] for n in range(6)]
    claimed = {job.id: job for job in taken(store)}
    mine = [claimed[job.id] for job in (*jobs[::2], *keyed[::2])]
    theirs = [claimed[job.id] for job in (*jobs[1::2], *keyed[1::2])]
    locked = "SELECT id FROM {0} FORCE INDEX (PRIMARY) WHERE id = {1} FOR UPDATE"
    for job in theirs:
        for table in ("tarry_running", "tarry_job"):
            asked(client, locked.format(table, raw(job.id)))
    for job in keyed[1::2]:
        asked(client, f"SELECT * FROM tarry_key WHERE digest = {raw(digest(job.task, job.key or ''))} FOR UPDATE")
    back = [lifecycle.after(job, Released(), DEFAULT, NOW) for job in mine[::2]]
    done = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in mine[1::2]]
    assert store.apply([*back, *done], NOW) == [True] * len(mine)
    again = taken(store)
    assert len(again) == len(back)
    assert store.apply([lifecycle.after(job, Returned(), Rules(keep_done=0), NOW) for job in again], NOW)
    assert len(store.extend("ann", {(job.id, job.epoch) for job in mine}, LEASE, NOW)) == len(mine)
    store.save_progress("ann", [(job.id, job.epoch, b"1") for job in mine])
    assert store.insert(made(store, key="k0")) != []
    assert store.prune(NOW + 9 * HOUR, 0) > 0
    client.rollback()
    assert len(store.find(Query(states=(State.RUNNING,), limit=2000))) == len(theirs)
    store.close()


# Several at once


def test_a_claim_passes_by_what_others_have_locked(store: MysqlStore, client: Any) -> None:
    """Jobs that a transaction of the program's own has locked, or not committed, hold up nobody."""
    jobs = put(store, 10)
    asked(client, "SELECT * FROM tarry_ready ORDER BY queue, late, claim_order, due, id LIMIT 4 FOR UPDATE")
    jobs.sort(key=lambda job: job.id)
    start = time.monotonic()
    assert {*ids(taken(store))} == {*ids(jobs[4:])}
    assert time.monotonic() - start < 2
    client.rollback()
    assert {*ids(taken(store))} == {*ids(jobs[:4])}


def test_what_one_host_sets_holds_for_all_at_once(store: MysqlStore, other: MysqlStore) -> None:
    """Although each keeps in memory what it knows of it."""
    put(store, 6, lane="")
    assert len(taken(other, 1)) == 1
    store.pause("default", True)
    assert taken(other) == []
    store.pause("default", False)
    store.limit("task:mail", Limit(2))
    assert len(taken(other)) == 1
    store.limit("task:mail", None)
    assert len(taken(other)) == 4


def test_a_job_that_came_into_the_open_line_of_a_limited_task(store: MysqlStore, other: MysqlStore) -> None:
    """From a host that had not heard of the limit: the claim that meets it puts it right."""
    put(other)
    assert len(taken(other)) == 1
    store.limit("task:mail", Limit(3))
    jobs = [replace(made(other)[0], lane=None) for _ in range(5)]
    other.insert(jobs)
    while len(store.find(Query(states=(State.RUNNING,)))) < 3:
        taken(store)
    assert taken(store) == []
    assert {seen(store, job).lane for job in jobs} == {""}


def test_settings_come_before_those_who_go_by_them(store: MysqlStore, other: MysqlStore) -> None:
    """While one claims and finishes, another sets limits: no more run than they say, and the count stays right."""
    put(store, 400, lane="")
    ends: list[Exception] = []

    def work() -> None:
        try:
            while jobs := taken(other, 20):
                changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
                assert other.apply(changes, NOW) == [True] * len(jobs)
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for most in (5, 50, 3, 100) * 3:
        store.limit("task:mail", Limit(most))
    thread.join(LONG)
    assert not ends
    assert store.limits()["task:mail"][1].running == 0


def consistent(client: Any) -> None:
    """Every job is in the one place that its row says."""
    client.rollback()
    for table in ("ready", "laned"):
        place = "p.queue = j.queue AND p.late = (j.state_since > j.due) AND p.claim_order = j.claim_order"
        place += " AND p.due = j.due"
        rows = asked(client, f"SELECT {place} FROM tarry_{table} p LEFT JOIN tarry_job j ON j.id = p.id")
        assert {right for (right,) in rows} <= {1}
    counts = dict(asked(client, "SELECT state, COUNT(*) FROM tarry_job GROUP BY state"))
    ready = asked(client, "SELECT (SELECT COUNT(*) FROM tarry_ready) + (SELECT COUNT(*) FROM tarry_laned)")[0][0]
    assert ready == counts.get(1, 0)
    places = {"scheduled": (0,), "running": (2,), "finished": (3, 4, 5)}
    for place, states in places.items():
        rows = asked(client, f"SELECT j.state FROM tarry_{place} p LEFT JOIN tarry_job j ON j.id = p.id")
        assert {state for (state,) in rows} <= {*states}
        assert len(rows) == sum(counts.get(state, 0) for state in states)
    keys = asked(
        client, "SELECT k.key_held_until, j.key_held_until FROM tarry_key k LEFT JOIN tarry_job j ON j.id = k.id"
    )
    assert all(holds == there for holds, there in keys)
    assert len(keys) == asked(client, "SELECT COUNT(*) FROM tarry_job WHERE key_held_until > 0")[0][0]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", ["", "?skip_locked=no"])
def test_people_and_workers_at_once(new_mariadb_url: str, client: Any, options: str) -> None:
    """Claims, ends, retries, cancels, kicks, moves and forgets of the same jobs, by six at once: nobody sees an error,
    each change is made once, and everything is where it belongs."""
    stores = [MysqlStore(new_mariadb_url + options) for _ in range(3)]
    jobs = put(stores[0], 120) + [put(stores[0], key=f"k{n}")[0] for n in range(40)]
    made_changes: list[tuple[bytes, State, int]] = []

    def work(number: int) -> None:
        store = stores[number % 3]
        for turn in range(25):
            claimed = taken(store, 15, owner=f"w{number}")
            outcomes: list[Outcome] = [Returned(), Released(), Lost()]
            settle_all(
                store, [lifecycle.after(j, outcomes[(turn + n) % 3], DEFAULT, NOW) for n, j in enumerate(claimed)]
            )

    def meddle(number: int) -> None:
        store = stores[number % 3]
        for turn in range(40):
            now = [job for job in store.get(ids(jobs[turn::7])) if job is not None]
            settle_all(store, [c for n, job in enumerate(now) if (c := decided(job, turn + n))])

    def settle_all(store: Store, changes: list[Any]) -> None:
        valid = store.apply(changes, NOW)
        made_changes.extend((c.id, c.was, c.epoch) for c, good in zip(changes, valid, strict=True) if good)

    with ThreadPoolExecutor(6) as pool:
        ends = [pool.submit(work if n < 4 else meddle, n) for n in range(6)]
        for end in ends:
            end.result(LONG * 2)
    consistent(client)
    ended = [each for each in made_changes if each[1] is State.RUNNING]
    assert len(ended) == len(set(ended))
    for store in stores:
        store.close()


def decided(job: Job, number: int) -> Any:
    decisions = [
        lambda: lifecycle.cancel(job, DEFAULT, NOW),
        lambda: lifecycle.run_now(job, NOW),
        lambda: lifecycle.move(job, NOW, due=NOW + HOUR),
        lambda: lifecycle.move(job, NOW, due=NOW - HOUR, priority=3),
        lambda: lifecycle.forget(job) if number % 11 == 0 else lifecycle.run_now(job, NOW),
    ]
    try:
        return decisions[number % 5]()
    except NotPossible:
        return None


def test_one_key_from_many_at_once(new_mariadb_url: str, store: MysqlStore, client: Any) -> None:
    """One is stored, and all are told which."""
    stores = [MysqlStore(new_mariadb_url) for _ in range(4)]

    def insert(number: int) -> bytes:
        (job,) = made(store, key=f"k{number // 8}")
        return stores[number % 4].insert([job])[0]

    with ThreadPoolExecutor(8) as pool:
        lives = list(pool.map(insert, range(80)))
    assert [len(set(lives[start : start + 8])) for start in range(0, 80, 8)] == [1] * 10
    consistent(client)
    for each in stores:
        each.close()


def test_taking_turns_over_many_lanes(store: MysqlStore) -> None:
    """A thousand keys with a limit each, in few round trips and with nobody left out."""
    store.limit("each:mail", Limit(1))
    jobs = [replace(made(store)[0], lane=f"lane {n % 1200}") for n in range(2400)]
    store.insert(jobs)
    lanes: list[str | None] = []
    while batch := taken(store, 400):
        lanes += [job.lane for job in batch]
        store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW) for job in batch], NOW)
    assert sorted(map(str, lanes)) == sorted(str(job.lane) for job in jobs)
    assert len(set(lanes[:1200])) == 1200


# Other hosts


@pytest.fixture
def elsewhere(
    new_mariadb_url: str, store: MysqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MysqlStore]:
    """The same database from another host: one whose board is not ours."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    there = MysqlStore(new_mariadb_url)
    yield there
    there.close()


def test_work_from_another_host_wakes(store: MysqlStore, elsewhere: MysqlStore, client: Any) -> None:
    """Once it is known there that somebody sleeps here; and so do results, and calls back."""
    sleeper = store.wakeup()
    sleeper.listen(WORK)
    until(lambda: client.rollback() or asked(client, "SELECT 1 FROM tarry_board"))
    elsewhere._known.forget()  # who only inserts goes for a second by what it read
    put(elsewhere)
    assert wakes(sleeper)
    (job,) = taken(store)
    sleeper.listen(RESULT)
    settle(elsewhere, job, Returned())
    assert wakes(sleeper)
    sleeper.listen(WORK)
    elsewhere.wake_for_recall()
    assert wakes(sleeper)
    sleeper.close()


def test_on_one_host_the_server_is_not_told(store: MysqlStore, other: MysqlStore, client: Any) -> None:
    """Its board reaches everybody, so a write is saved."""
    sleeper = store.wakeup()
    sleeper.listen(WORK)
    until(lambda: client.rollback() or asked(client, "SELECT 1 FROM tarry_board"))
    put(other)
    assert wakes(sleeper)
    settle(store, taken(store)[0], Returned())
    client.rollback()
    assert asked(client, "SELECT * FROM tarry_news") == []
    sleeper.close()


def test_without_a_directory_for_the_board_it_works_all_the_same(
    new_mariadb_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has it: then only the server tells."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    store = MysqlStore(new_mariadb_url)
    sleeper = store.wakeup()
    sleeper.listen(WORK)
    put(store)
    assert sleeper.wait(5) != b"", "the server told nothing"
    sleeper.close()
    store.close()


# Who is gone


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_whose_connection_has_ended_is_known_to_be_gone(
    store: MysqlStore, other: MysqlStore, client: Any
) -> None:
    """Before its lease runs out; not at once, since a connection may end while its worker lives."""
    clock = Hands()
    other._missing = mysql_guard.LostOwners(clock)
    jobs = running(store, 3)
    held = [(job.id, job.epoch) for job in jobs]
    assert store.extend("ann", held, LEASE, NOW) == []
    for clock.now in (0.0, 100.0):
        assert other.reclaim(NOW) == []
    store._guard.close()
    until(lambda: not guards(client))
    assert other.reclaim(NOW) == []
    clock.now += mysql_guard.GRACE - 0.1
    assert other.reclaim(NOW) == []
    clock.now += 0.2
    assert sorted(ids(other.reclaim(NOW))) == sorted(ids(jobs))


def test_a_worker_that_merely_reconnects_is_not_gone(store: MysqlStore, other: MysqlStore, client: Any) -> None:
    """It writes its new number the next time it prolongs its lease, which is every second."""
    clock = Hands()
    other._missing = mysql_guard.LostOwners(clock)
    (job,) = running(store)
    store.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    (number,) = guards(client)
    asked(client, f"KILL {number}")
    until(lambda: not guards(client))
    assert other.reclaim(NOW) == []
    clock.now += mysql_guard.GRACE - 1
    store.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    assert guards(client) not in ([], [number])
    clock.now += 100
    assert other.reclaim(NOW) == []
    clock.now += 100
    assert other.reclaim(NOW) == []


def test_who_prolongs_the_lease_of_another_leaves_its_guard_in_place(
    store: MysqlStore, other: MysqlStore, client: Any
) -> None:
    (job,) = running(store)
    store.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    own = guards(client)
    other.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    assert guards(client) == own != []
    store._guard.close()
    until(lambda: not guards(client))
    other.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    assert guards(client) not in ([], own)


def test_a_guard_of_another_start_of_the_server_says_nothing(store: MysqlStore, other: MysqlStore, client: Any) -> None:
    """Nor one of another user, whose connections we may not see."""
    clock = Hands()
    other._missing = mysql_guard.LostOwners(clock)
    (job,) = running(store)
    store.extend("ann", [(job.id, job.epoch)], LEASE, NOW)
    for change in ("started = started - 60", "started = started + 60, server = CONCAT(server, 'x')"):
        asked(client, f"UPDATE tarry_owner SET guard = 4000000000, {change}")
        client.commit()
        for _ in range(2):
            clock.now += 100
            assert other.reclaim(NOW) == []


def guards(client: Any) -> list[int]:
    client.rollback()
    return [number for (number,) in asked(
        client, "SELECT guard FROM tarry_owner JOIN information_schema.PROCESSLIST ON ID = guard"
    )]  # fmt: skip


def test_due_jobs_are_promoted_under_their_locks(store: MysqlStore, client: Any) -> None:
    """What another claim is about to make ready is passed by, not made ready a second time."""
    theirs, mine = put(store, due=NOW + 1)[0], put(store, due=NOW + 2)[0]
    where = f"due = {theirs.due} AND id = {raw(theirs.id)}"
    assert asked(client, f"SELECT id FROM tarry_scheduled FORCE INDEX (PRIMARY) WHERE {where} FOR UPDATE")
    assert ids(taken(store, now=NOW + 5)) == [mine.id]
    client.rollback()
    assert ids(taken(store, now=NOW + 5)) == [theirs.id]


def test_due_jobs_that_one_claim_makes_ready_are_no_other_claims(
    store: MysqlStore, other: MysqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the other comes between its look and its change, and has settled all by then."""
    jobs, given, promote = put(store, 5, due=NOW + 1), list[Job](), mysql_claim.promote

    def after_the_other(link: MysqlConnection, places: Sequence[tuple[bytes, int]], now: int) -> None:
        monkeypatch.undo()
        given.extend(taken(other, owner="bob", now=NOW + 1))
        other.apply([lifecycle.after(job, Returned(), DEFAULT, NOW + 1) for job in given], NOW + 1)
        promote(link, places, now)

    monkeypatch.setattr(mysql_exchange, "promote", after_the_other)
    given += taken(store, now=NOW + 1)
    assert sorted(ids(given)) == sorted(ids(jobs))
    assert {job.epoch for job in given} == {1}


LATER = Rules(retry=Retry(5, base=10))
LEFT = {
    "ready": ("queue, late, claim_order, due, id", "queue, 0, 0, due, id"),
    "laned": ("queue, band, task, lane, claim_order, due, id, late", "queue, 0, task, lane, 0, due, id, 0"),
    "scheduled": ("due, id", "due + 10000000, id"),
    "finished": ("keep_until, id, queue, size", f"{NOW + DEFAULT.keep_done}, id, queue, 1"),
    "running": ("id, owner, epoch", "id, 'bob', 7"),
}
"""Of each place its columns, and the row of a job that was left behind there."""


@pytest.mark.parametrize(
    ("table", "outcome"),
    [("ready", Released()), ("laned", Released()), ("scheduled", FAILED), ("finished", Returned()), ("running", None)],
)
def test_a_row_that_was_left_behind_is_in_nobodys_way(
    store: MysqlStore, client: Any, table: str, outcome: Outcome | None
) -> None:
    """As somebody who changes a job's row by hand may leave it: the job's own row says where the job is."""
    jobs = put(store, 3, lane="x" if table == "laned" else None)
    if outcome:
        jobs = taken(store)
    columns, values = LEFT[table]
    asked(client, f"INSERT INTO tarry_{table} ({columns}) SELECT {values} FROM tarry_job WHERE id = {raw(jobs[0].id)}")
    client.commit()
    start = time.monotonic()
    if outcome is None:
        assert ids(taken(store)) == ids(jobs)
    else:
        changes = [lifecycle.after(job, outcome, LATER, NOW) for job in jobs]
        assert store.apply(changes, NOW) == [True, True, True]
        assert [seen(store, job).state for job in jobs] == [change.to for change in changes]
    assert asked(client, f"SELECT COUNT(*) FROM tarry_{table}") == [(3,)]
    assert time.monotonic() - start < 0.6 * store.address.timeout


@pytest.mark.parametrize("table", ["ready", "laned"])
def test_nor_is_it_in_the_way_of_a_job_that_falls_due(store: MysqlStore, client: Any, table: str) -> None:
    """All other jobs of the queue would wait with it."""
    jobs = put(store, 3, due=NOW + 1000, lane="x" if table == "laned" else None)
    columns, values = LEFT[table]
    asked(client, f"INSERT INTO tarry_{table} ({columns}) SELECT {values} FROM tarry_job WHERE id = {raw(jobs[0].id)}")
    client.commit()
    assert sorted(ids(taken(store, now=NOW + 1000))) == sorted(ids(jobs))


def test_a_place_that_was_left_behind_does_not_begin_an_ended_job_anew(store: MysqlStore, client: Any) -> None:
    """Its time comes once more; it was run again and again."""
    jobs = running(store, 2)
    settle(store, jobs[0], Returned())
    for job in jobs:
        asked(client, f"INSERT INTO tarry_scheduled (due, id) VALUES ({NOW + 7}, {raw(job.id)})")
    client.commit()
    for _ in range(2):
        assert taken(store, now=NOW + 10) == []
    assert [seen(store, job).state for job in jobs] == [State.DONE, State.RUNNING]
    assert asked(client, "SELECT COUNT(*) FROM tarry_scheduled") == [(0,)]


def test_a_row_that_stays_in_the_way_is_told_soon(store: MysqlStore) -> None:
    tries = 0

    def work(link: MysqlConnection) -> None:
        nonlocal tries
        tries += 1
        raise DuplicateKey("Duplicate entry '7' for key 'PRIMARY'")

    with pytest.raises(DuplicateKey, match="entry '7'"):
        store._calls.call(work)
    assert 2 < tries < 20


def test_a_change_of_settings_waits_for_those_who_have_looked(store: MysqlStore, client: Any) -> None:
    store.pause("q", False)
    ((number,),) = asked(client, NUMBER)
    look = StoreSettings(int(number), {}, {}, frozenset(), frozenset()).look()
    client.commit()
    assert asked(client, look)
    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(store.pause, "q", True)
        until(lambda: RAISE in [row[7] for row in asked(client, "SHOW FULL PROCESSLIST")])
        assert not pause.done()
        client.commit()
        pause.result(LONG)
    with pytest.raises(pymysql.OperationalError, match="more than 1 row"):
        asked(client, look)


@pytest.mark.parametrize("conflict", [StaleSettings, NotAsSeen])
def test_a_call_that_found_out_late_goes_the_other_way_once_more(
    store: MysqlStore, conflict: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that had to wait for a lock, and learned only then that the settings are others."""
    tries: list[MysqlConnection] = []
    # Each try takes ten seconds.
    clock = SimpleNamespace(monotonic=lambda: 10.0 * len(tries), sleep=time.sleep)
    monkeypatch.setattr(retrying, "time", clock)

    def work(link: MysqlConnection, ends_at: int = 2) -> None:
        tries.append(link)
        if len(tries) < ends_at:
            raise conflict("it is not so")

    store._calls.call(work)
    assert len(tries) == 2
    tries.clear()
    with pytest.raises(StoreBusy, match=r"in the way for 20\.0 s \(it is not so\)"):
        store._calls.call(lambda link: work(link, ends_at=9))
    assert len(tries) == 2


@pytest.mark.parametrize(("limit", "asked", "waits"), [(2, 10, True), (3, 10, False), (2, 1, False)])
def test_a_claim_says_whether_jobs_wait_for_the_ends_of_others(
    store: MysqlStore, limit: int, asked: int, waits: bool
) -> None:
    """What is left since nobody asked for it comes with the next claim."""
    store.limit("task:mail", Limit(limit))
    put(store, 3, lane="")
    assert not store.exchange([], [Want("other", NORMAL, 10)], asked, "bob", LEASE, NOW).is_held_back
    assert store.exchange([], EVERYTHING, asked, "ann", LEASE, NOW).is_held_back is waits
