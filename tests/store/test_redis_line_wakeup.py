"""A worker that waits in Redis' line for work, with its next claim behind it."""

import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry.errors import StoreError
from tarry.model.job import Job, State
from tarry.store.conformance.cases.jobs import LEASE, ids, made
from tarry.store.opening import open_store
from tarry.store.redis.link import line_wakeup
from tarry.store.redis.link.line_wakeup import LineWakeup
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import BANDS, Exchange, NextClaim, Want
from tarry.store.rules.sleeper import FULL, WORK
from tests.servers.redis import RedisServer, until

SOON = 15.0
CLAIM = NextClaim([Want("default", band, 5) for band in BANDS], 5, "ann", LEASE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    store = opened(server)
    yield store
    store.close()


@pytest.fixture
def sleeper(store: RedisStore) -> Iterator[LineWakeup]:
    sleeper = listening(store)
    yield sleeper
    sleeper.close()


def opened(server: RedisServer) -> RedisStore:
    store = open_store(f"{server.url}?timeout=15s")
    assert isinstance(store, RedisStore)
    return store


def listening(store: RedisStore, topic: str = WORK) -> LineWakeup:
    sleeper = store.worker_wakeup()
    assert isinstance(sleeper, LineWakeup)
    sleeper.listen(topic)
    return sleeper


def put(store: RedisStore, after: float = 0.0) -> Job:
    """A job that is due so many seconds from now."""
    now = store.time()
    (job,) = made(store, due=now + round(after * 1e6), state_since=now)
    job = replace(job, state=State.SCHEDULED if after else State.READY)
    store.insert([job])
    return job


def claimed(store: RedisStore, sleeper: LineWakeup, seconds: float = SOON) -> list[Job]:
    answer = store.sleep_and_claim(sleeper, seconds, (), CLAIM)
    assert isinstance(answer, Exchange)
    return answer.jobs


class WhileItWaits:
    """In a thread, does something once this many stand in line."""

    def __init__(self, server: RedisServer, what: Callable[[], object], waiting: int = 1) -> None:
        self._server, self._what, self._waiting = server, what, waiting
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        until(lambda: in_line(self._server) == self._waiting, "the sleeper to stand in line")
        self._what()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def in_line(server: RedisServer) -> int:
    return sum(" cmd=blpop " in line for line in server.call("CLIENT", "LIST").splitlines())


def functions_called(server: RedisServer) -> int:
    line = next(line for line in server.call("INFO", "commandstats").splitlines() if "cmdstat_fcall:" in line)
    return int(line.split("calls=")[1].split(",")[0])


def test_the_claim_is_made_as_soon_as_work_comes(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    put(store)
    claimed(store, sleeper)
    sleeper.listen(WORK)
    before = functions_called(server)
    began = store.time()
    with WhileItWaits(server, lambda: put(store)):
        (job,) = claimed(store, sleeper)
    assert functions_called(server) - before == 2, "the insert and the claim"
    assert (job.owner, job.epoch, job.state) == ("ann", 1, State.RUNNING)
    assert began <= job.state_since <= store.time()
    assert store.get([job.id]) == [job]
    assert not sleeper.is_listening()


def test_what_came_before_the_sleep_ends_it_at_once(store: RedisStore, sleeper: LineWakeup) -> None:
    job = put(store)
    assert ids(claimed(store, sleeper)) == [job.id]


def test_a_sleep_that_is_ended_from_inside_claims_too(
    server: RedisServer, store: RedisStore, sleeper: LineWakeup
) -> None:
    """It is a look, as any other, and it does not end the listening."""
    began = time.monotonic()
    with WhileItWaits(server, sleeper.wake):
        assert claimed(store, sleeper) == []
    assert time.monotonic() - began < SOON / 2, "the server was told that the wait is over"
    assert sleeper.is_listening()
    assert in_line(server) == 0
    job = put(store)
    assert ids(claimed(store, sleeper)) == [job.id]


def test_nobody_waits_in_line_if_it_was_woken_before(store: RedisStore, sleeper: LineWakeup) -> None:
    sleeper.wake()
    assert store.sleep_and_claim(sleeper, SOON, (), CLAIM) is None


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_a_sleep_ends_by_itself_and_has_looked(store: RedisStore, sleeper: LineWakeup, seconds: float) -> None:
    began = time.monotonic()
    assert claimed(store, sleeper, seconds) == []
    assert time.monotonic() - began >= seconds


def test_a_job_that_falls_due_meanwhile_is_claimed_and_not_early(store: RedisStore, sleeper: LineWakeup) -> None:
    job = put(store, after=0.3)
    # The insert has left a token.
    assert claimed(store, sleeper) == []
    sleeper.listen(WORK)
    left = (job.due - store.time()) / 1e6
    found = claimed(store, sleeper, left) or claimed(store, sleeper, 0.05)
    assert ids(found) == [job.id]
    assert found[0].state_since >= job.due


def test_one_of_each_kind_is_woken(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    other = opened(server)
    second, found = listening(other), list[list[Job]]()
    sleepers = [
        threading.Thread(target=lambda: found.append(claimed(store, sleeper))),
        threading.Thread(target=lambda: found.append(claimed(other, second))),
    ]
    for thread in sleepers:
        thread.start()
    until(lambda: in_line(server) == 2, "both to stand in line")
    first = put(store)
    until(lambda: len(found) == 1, "one to wake")
    assert in_line(server) == 1
    last = put(store)
    for thread in sleepers:
        thread.join()
    assert [ids(jobs) for jobs in found] == [[first.id], [last.id]]
    second.close()
    other.close()


def test_work_that_comes_to_one_that_wakes_for_another_reason_is_passed_on(
    server: RedisServer, store: RedisStore, sleeper: LineWakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it made no claim: it may be about to stop."""
    ready = sleeper._ready

    def both_come(seconds: float, also: tuple[int, ...], own: bool = True) -> set[int]:
        if sleeper._connection is not None and sleeper._connection.fileno() in also:
            put(store)
            sleeper.wake()
            select.select([sleeper._connection.fileno()], [], [], SOON)
        return ready(seconds, also, own)

    monkeypatch.setattr(sleeper, "_ready", both_come)
    assert sleeper.sleep(SOON)
    assert server.call("LLEN", "{tarry}:wake:") == "1"


def test_a_worker_without_room_stands_in_no_line(server: RedisServer, store: RedisStore) -> None:
    sleeper = listening(store, FULL)
    with WhileItWaits(server, store.wake_for_recall, waiting=0):
        assert sleeper.wait(SOON)
    sleeper.close()


def test_a_recall_wakes_one_that_stands_in_line(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    with WhileItWaits(server, store.wake_for_recall):
        assert claimed(store, sleeper) == []


def test_a_connection_that_breaks_meanwhile(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    """The caller learns that the claim may have been made; the next sleep is right again."""
    kill = lambda: server.call("CLIENT", "KILL", "ID", str(sleeper._number))  # noqa: E731
    with WhileItWaits(server, kill), pytest.raises(StoreError):
        store.sleep_and_claim(sleeper, SOON, (), CLAIM)
    assert not sleeper.is_receiving()
    until(lambda: hears_again(sleeper), "it to be connected again")
    job = put(store)
    assert ids(claimed(store, sleeper)) == [job.id]


def hears_again(sleeper: LineWakeup) -> bool:
    sleeper.clear()
    sleeper.listen(WORK)
    return sleeper.is_receiving()


def test_a_plain_sleep_ends_when_the_connection_breaks(
    server: RedisServer, store: RedisStore, sleeper: LineWakeup
) -> None:
    with WhileItWaits(server, lambda: server.call("CLIENT", "KILL", "ID", str(sleeper._number))):
        began = time.monotonic()
        sleeper.sleep(SOON)
    assert time.monotonic() - began < SOON


def test_a_server_that_was_restarted_between_two_sleeps(
    server: RedisServer, store: RedisStore, sleeper: LineWakeup
) -> None:
    server.kill()
    server.start()
    job = put(store)
    answers: list[Exchange] = []

    def sleeps() -> bool:
        # While its hub is not connected again, it may be woken at once.
        answer = store.sleep_and_claim(sleeper, SOON, (), CLAIM)
        answers.extend([answer] if answer and answer.jobs else [])
        return bool(answers)

    until(sleeps, "the job to be claimed")
    assert ids(answers[0].jobs) == [job.id]


def test_no_server(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    """Sleeps are short, and claim nothing."""
    server.kill()
    began = time.monotonic()
    for _ in range(4):
        assert store.sleep_and_claim(sleeper, SOON, (), CLAIM) is None
    assert time.monotonic() - began < SOON


def test_functions_that_are_gone_claim_nothing(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    server.call("FUNCTION", "FLUSH")
    server.call("RPUSH", "{tarry}:wake:", "1")
    assert store.sleep_and_claim(sleeper, SOON, (), CLAIM) is None
    assert not sleeper.is_listening()


def test_where_functions_are_refused_it_only_sleeps(
    server: RedisServer, store: RedisStore, sleeper: LineWakeup
) -> None:
    assert sleeper._connection is not None
    sleeper._connection.calls_functions = False
    job = put(store)
    assert store.sleep_and_claim(sleeper, SOON, (), CLAIM) is None
    assert store.get([job.id]) == [job]


def test_who_may_not_wait_claims_all_the_same(server: RedisServer) -> None:
    server.call("ACL", "SETUSER", "ann", "on", ">secret", "~{tarry*}*", "&{tarry*}*", "+@all", "-blpop")
    store = open_store(server.url.replace("//", "//ann:secret@"))
    assert isinstance(store, RedisStore)
    sleeper = listening(store)
    job = put(store)
    assert ids(claimed(store, sleeper)) == [job.id]
    sleeper.close()
    store.close()


def test_a_forked_child_leaves_the_connection_alone(
    store: RedisStore, sleeper: LineWakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(line_wakeup, "_inherited", kept)
    parents, sleeper._pid = sleeper._connection, 0
    sleeper.listen(WORK)
    assert kept == [parents]
    assert sleeper._connection is not parents
    job = put(store)
    assert ids(claimed(store, sleeper)) == [job.id]


def test_closing_closes_the_connection(server: RedisServer, store: RedisStore, sleeper: LineWakeup) -> None:
    number = str(sleeper._number)
    assert f"id={number} " in server.call("CLIENT", "LIST")
    sleeper.close()
    until(lambda: f"id={number} " not in server.call("CLIENT", "LIST"), "the connection to be closed")
