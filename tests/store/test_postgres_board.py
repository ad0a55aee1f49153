"""Wake-up by the board of a host: one sleeper of each kind, and those of other hosts as well."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from tarry.model.job import Job
from tarry.model.wake import WakeReason
from tarry.store.postgres.notify import channel
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import WORK, Wakeup
from tests.servers.postgres import PostgresServer
from tests.worker.bench import LIMIT, until


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sleeper(opened: ExitStack, url: str) -> Wakeup:
    """Listens for work, as in a process of its own."""
    store = opened.enter_context(closing(PostgresStore(url)))
    sleeper = opened.enter_context(closing(store.wakeup()))
    sleeper.listen(WORK)
    return sleeper


def job() -> Job:
    return Job(uuid7(), "t", b"", due=1, state_since=1)


def test_one_worker_of_this_host_wakes(postgres_server: PostgresServer, postgres_url: str, opened: ExitStack) -> None:
    workers = [sleeper(opened, postgres_url) for _ in range(2)]
    producer = opened.enter_context(closing(PostgresStore(postgres_url)))
    theirs = opened.enter_context(psycopg.connect(postgres_server.url, autocommit=True))
    theirs.execute(f"LISTEN {channel(producer._schema, WakeReason.WORK)}".encode())
    producer.insert([job()])
    # Other hosts are told as well; who listens here ignores that.
    assert len(list(theirs.notifies(timeout=LIMIT, stop_after=1))) == 1
    assert sum(bool(worker.clear()) for worker in workers) == 1


def test_those_of_another_host_wake_too(
    postgres_url: str, opened: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sleeper(opened, postgres_url)
    producer = opened.enter_context(closing(PostgresStore(postgres_url)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = sleeper(opened, postgres_url)
    producer.insert([job()])
    assert elsewhere.wait(LIMIT)
    assert here.wait(LIMIT)


def test_who_was_woken_by_the_board_is_woken_by_nothing_else(postgres_url: str, opened: ExitStack) -> None:
    worker = sleeper(opened, postgres_url)
    producer = opened.enter_context(closing(PostgresStore(postgres_url)))
    producer.insert([job()])
    until(lambda: bool(worker.clear()))
    assert not producer._hub._board.has_sleepers(WakeReason.WORK)


def test_without_a_directory_for_the_board(
    postgres_url: str, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no")
    worker = sleeper(opened, postgres_url)
    producer = opened.enter_context(closing(PostgresStore(postgres_url)))
    producer.insert([job()])
    assert worker.wait(LIMIT)
