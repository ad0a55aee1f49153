"""What is the SQLite store's own: files that are not ours, locks, a full disk, a crash, wake-up between processes."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from tarry import errors
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.model.outcome import Returned
from tarry.store.rules.base import BANDS, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import RESULT, Wakeup
from tarry.store.sqlite import file as sqlite_file
from tarry.store.sqlite import schema as sqlite_schema
from tarry.store.sqlite.store import SqliteStore

LEASE = 30_000_000
WANTS = [Want("default", band, 0) for band in BANDS]


def job(body: bytes = b"[]") -> Job:
    return Job(uuid7(), "t", body, due=1)


@pytest.fixture
def close() -> Iterator[ExitStack]:
    """Closes what was opened, whatever happens."""
    with ExitStack() as stack:
        yield stack


def opened(close: ExitStack, path: Path, durable: bool = True) -> SqliteStore:
    store = SqliteStore(path, durable)
    close.callback(store.close)
    return store


def sleeper_on(close: ExitStack, store: SqliteStore) -> Wakeup:
    sleeper = store.wakeup()
    close.callback(sleeper.close)
    return sleeper


def test_no_database_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"this is a text that is no database " * 100)
    with pytest.raises(errors.StoreCorrupt, match=r"x\.db is damaged or no database"):
        SqliteStore(tmp_path / "x.db")
    assert (tmp_path / "x.db").read_bytes().startswith(b"this is a text")


def test_another_programs_database(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "x.db"))
    other.execute("CREATE TABLE theirs (a)")
    with pytest.raises(errors.StoreForeign, match="another program"):
        SqliteStore(tmp_path / "x.db")
    assert other.pragma("journal_mode") == "delete"


def test_a_newer_schema(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "x.db").close()
    newer = apsw.Connection(str(tmp_path / "x.db"))
    newer.execute(f"UPDATE tarry_about SET value = {len(sqlite_schema.STEPS) + 1}")
    newer.close()
    with pytest.raises(errors.StoreNewer, match="upgrade tarry on this host"):
        SqliteStore(tmp_path / "x.db")


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable, match="create it first"):
        SqliteStore(tmp_path / "no" / "x.db")


def test_a_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_locked_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_LIMIT", 0.05)
    store = SqliteStore(tmp_path / "x.db")
    other = apsw.Connection(str(tmp_path / "x.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.StoreBusy, match="locked by another program"):
        store.insert([job()])
    other.execute("ROLLBACK")
    store.insert([job()])
    assert store.counts()[0].count == 1


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_who_comes_while_the_tables_are_made_waits_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_LIMIT", 0.01)
    other = apsw.Connection(str(tmp_path / "x.db"))
    other.execute(f"PRAGMA journal_mode={journal}")
    other.execute("BEGIN EXCLUSIVE")
    ends = threading.Timer(0.2, other.execute, ["ROLLBACK"])
    ends.start()
    SqliteStore(tmp_path / "x.db").close()
    ends.join()
    monkeypatch.setattr(sqlite_file, "FIRST_LIMIT", 0.05)
    other = apsw.Connection(str(tmp_path / "y.db"))
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(errors.StoreBusy, match=r"over 0\.05 s: see `fuser"):
        SqliteStore(tmp_path / "y.db")


def test_damaged_while_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    store.insert([job(b"x" * 3000) for _ in range(200)])
    store.close()
    with (tmp_path / "x.db").open("r+b") as file:
        # Behind the pages that say which tables there are: those are read when the file is opened.
        file.seek(4096 * 40)
        file.write(os.urandom(4096 * 40))
    store = SqliteStore(tmp_path / "x.db")
    with pytest.raises(errors.StoreCorrupt, match="restore it"):
        store.exchange((), WANTS, 500, "me", LEASE, store.time())


def test_first_openers_at_the_same_moment(tmp_path: Path) -> None:
    code = "import sys; from tarry.store.sqlite.store import SqliteStore; SqliteStore(sys.argv[1]).insert([])"
    openers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x.db")]) for _ in range(6)]
    assert [opener.wait(30) for opener in openers] == [0] * 6


WRITER = """
import sys, time
from tarry.model.job import Job
from tarry.store.rules.ids import uuid7
from tarry.store.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
while True:
    jobs = [Job(uuid7(), "t", b"x" * 300, due=1) for _ in range(20)]
    store.insert(jobs)
    sys.stdout.buffer.write(b"".join(job.id for job in jobs))
    sys.stdout.buffer.flush()
"""


def test_what_was_acknowledged_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    told = b""
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "x.db")], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        told += writer.stdout.read(16 * 200)
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read()
        writer.wait()
        writer.stdout.close()
    ids = [told[k : k + 16] for k in range(0, len(told) // 16 * 16, 16)]
    store = SqliteStore(tmp_path / "x.db")
    assert len(ids) >= 1000
    assert None not in store.get(ids)


def test_a_limit_of_another_process_holds_for_the_next_single_insert(tmp_path: Path, close: ExitStack) -> None:
    producer, other = opened(close, tmp_path / "x.db"), opened(close, tmp_path / "x.db")
    for limit, lane in ((Limit(1), ""), (None, None)):
        other.limit("task:t", limit)
        for one in (job(), job()):
            producer.insert([one])
            assert [found.lane for found in producer.get([one.id]) if found] == [lane]


def test_a_single_insert_sent_again_stores_nothing_new(tmp_path: Path, close: ExitStack) -> None:
    store, one = opened(close, tmp_path / "x.db"), job()
    assert store.insert([one]) == store.insert([one]) == [one.id]
    assert [tally.count for tally in store.counts()] == [1]


def test_a_single_insert_is_no_part_of_a_transaction_that_was_left_open(tmp_path: Path, close: ExitStack) -> None:
    store, one = opened(close, tmp_path / "x.db"), job()
    store._db.execute("BEGIN IMMEDIATE")
    store.insert([one])
    assert opened(close, tmp_path / "x.db").get([one.id]) != [None]


def test_a_ring_from_another_process_wakes(tmp_path: Path, close: ExitStack) -> None:
    store = opened(close, tmp_path / "x.db", durable=False)
    sleeper = sleeper_on(close, store)
    sleeper.listen("work:default")
    code = (
        "import sys; from tarry.store.sqlite.store import SqliteStore; from tarry.model.job import Job;"
        "from tarry.store.rules.ids import uuid7; SqliteStore(sys.argv[1]).insert([Job(uuid7(), 't', b'[]', due=1)])"
    )
    producer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x.db")])
    began = time.monotonic()
    sleeper.wait(30)
    assert time.monotonic() - began < 25
    assert producer.wait(30) == 0
    assert len(store.claim(WANTS, 10, "me", LEASE, store.time())) == 1


def test_one_of_each_kind_is_woken(tmp_path: Path, close: ExitStack) -> None:
    store = opened(close, tmp_path / "x.db")
    same, also_same, other, waiter = (sleeper_on(close, store) for _ in range(4))
    same.listen("work:default")
    also_same.listen("work:default")
    other.listen("work:mail")
    waiter.listen(RESULT)
    store.insert([job()])
    heard = [
        len(sleeper.filenos()) == 2 and _readable(sleeper.filenos()[1]) for sleeper in (same, also_same, other, waiter)
    ]
    assert sorted(heard[:2]) == [False, True]
    assert heard[2:] == [True, False]


@pytest.mark.parametrize(("waiting", "woken"), [(3, True), (2, False)])
def test_a_claim_that_leaves_jobs_behind_wakes_the_next_worker(
    tmp_path: Path, close: ExitStack, waiting: int, woken: bool
) -> None:
    store = opened(close, tmp_path / "x.db", durable=False)
    store.insert([job() for _ in range(waiting)])
    sleeper = sleeper_on(close, store)
    sleeper.listen("work:default")
    assert len(store.exchange([], WANTS, 2, "a", LEASE, store.time()).jobs) == 2
    assert _readable(sleeper.filenos()[1]) == woken


def test_a_dead_sleepers_place_is_taken_again(tmp_path: Path, close: ExitStack) -> None:
    store = opened(close, tmp_path / "x.db")
    first = store.wakeup()
    first.listen("work:default")
    first.close()
    again = sleeper_on(close, store)
    again.listen("work:default")
    store.insert([job()])
    assert _readable(again.filenos()[1])


def test_very_deep_directories(tmp_path: Path, close: ExitStack) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    store = opened(close, deep / "x.db")
    sleeper = sleeper_on(close, store)
    sleeper.listen("work:default")
    store.insert([job()])
    assert len(sleeper.filenos()) == 2
    assert _readable(sleeper.filenos()[1])


def _readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    disk = tmp_path / "small"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("only root may mount a small disk to fill")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_refuses_producers_and_lets_workers_finish(small_disk: Path) -> None:
    producer = SqliteStore(small_disk / "x.db")
    worker = SqliteStore(small_disk / "x.db", durable=False)
    stored = _fill(producer)
    done = 0
    changes: list[Change] = []
    while True:
        now = worker.time()
        answer = worker.exchange(changes, WANTS, 500, "me", LEASE, now)
        assert all(answer.valid)
        done += len(changes)
        if not answer.jobs:
            break
        changes = [
            lifecycle.after(one, Returned(b'"%d"' % n), lifecycle.DEFAULT, now) for n, one in enumerate(answer.jobs)
        ]
    assert done == stored > 1000
    with pytest.raises(errors.StoreFull, match="free some space"):
        producer.insert([job()])
    assert {tally.state for tally in worker.counts()} == {State.DONE}
    while worker.prune(worker.time() + 10**12, 0):
        pass
    worker.prune(worker.time(), 0)
    producer.insert([job()])
    producer.close()
    worker.close()


def _fill(store: SqliteStore) -> int:
    stored = 0
    while stored < 1_000_000:
        try:
            store.insert([job(b'"' + b"x" * 500 + b'"') for _ in range(200)])
        except errors.StoreFull:
            return stored
        stored += 200
    raise AssertionError("the disk is not small")


@pytest.mark.parametrize(("claims", "wakes"), [(0, True), (1, False)])
def test_an_end_wakes_for_work_unless_the_same_exchange_takes_its_place(
    close: ExitStack, tmp_path: Path, claims: int, wakes: bool
) -> None:
    """Others would look in vain: the limit is as full as before."""
    store = opened(close, tmp_path / "wake.db")
    store.limit("task:t", Limit(1))
    store.insert([job(), job()])
    wants = [Want("default", band, 1) for band in BANDS]
    first = store.exchange((), wants, 1, "ann", LEASE, 10).jobs[0]
    sleeper = sleeper_on(close, store)
    sleeper.listen("work:default")
    ended = lifecycle.after(first, Returned(), lifecycle.DEFAULT, 10)
    assert len(store.exchange([ended], wants, claims, "ann", LEASE, 10).jobs) == claims
    assert sleeper.is_listening() != wakes


@pytest.mark.parametrize("others", [0, 30])
def test_levels_are_right_whether_limits_are_read_at_once_or_one_by_one(
    close: ExitStack, tmp_path: Path, others: int
) -> None:
    store = opened(close, tmp_path / "levels.db")
    for name in ["task:t", *[f"task:other{number}" for number in range(others)]]:
        store.limit(name, Limit(2))
    store.insert([job() for _ in range(5)])
    wants = [Want("default", band, 5) for band in BANDS]
    running: list[Job] = []
    # What one exchange ends and what it starts are one change of the level.
    for ended, left in ((0, 2), (1, 2), (2, 2), (1, 1), (1, 0)):
        ends = [lifecycle.after(one, Returned(), lifecycle.DEFAULT, 10) for one in running[:ended]]
        answer = store.exchange(ends, wants, 5, "ann", LEASE, 10)
        running = [*running[ended:], *answer.jobs]
        assert (len(running), store.limits()["task:t"][1].running) == (left, left)
    assert store.recount(10) == 0


@pytest.mark.parametrize(
    ("limit", "asked", "waits"),
    [(Limit(2), 10, True), (Limit(3), 10, False), (Limit(2), 1, False), (Limit(None, 20, 60_000_000), 10, False)],
)
def test_a_claim_says_whether_jobs_wait_for_the_ends_of_others(
    tmp_path: Path, close: ExitStack, limit: Limit, asked: int, waits: bool
) -> None:
    """What is left since nobody asked for it, or since a rate does not allow it yet, waits for nobody."""
    store = opened(close, tmp_path / "t.db")
    store.limit("task:t", limit)
    store.insert([job() for _ in range(3)])
    elsewhere = [Want("other", band, 5) for band in BANDS]
    assert not store.exchange([], elsewhere, asked, "bob", LEASE, 10).is_held_back
    wants = [Want("default", band, 5) for band in BANDS]
    assert store.exchange([], wants, asked, "ann", LEASE, 10).is_held_back is waits


@pytest.mark.parametrize("limit", [None, Limit(20)])
def test_some_of_many_alike_come_too_late(close: ExitStack, tmp_path: Path, limit: Limit | None) -> None:
    """The others are made, and the same exchange claims, once; levels are right."""
    store = opened(close, tmp_path / "late.db")
    store.limit("task:t", limit)
    store.insert([job() for _ in range(30)])
    wants = [Want("default", band, 20) for band in BANDS]
    claimed = store.exchange((), wants, 20, "ann", LEASE, 10).jobs
    ends = [lifecycle.after(one, Returned(), lifecycle.DEFAULT, 10) for one in claimed]
    late = {3, 4, 19}
    store.apply([lifecycle.cancel(claimed[place], lifecycle.DEFAULT, 10) for place in late], 10)
    answer = store.exchange(ends, wants, 20, "ann", LEASE, 10)
    assert answer.valid == [place not in late for place in range(20)]
    assert len(answer.jobs) == 10
    counts = {tally.state: tally.count for tally in store.counts()}
    assert counts == {State.DONE: 17, State.CANCELLED: 3, State.RUNNING: 10}
    assert store.recount(10) == 0
    assert store.apply(ends, 10) == [False] * 20, "a repeated call changes nothing"
