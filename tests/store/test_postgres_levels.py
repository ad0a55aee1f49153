"""What of a limit's level a claim writes on PostgreSQL, while attempts end beside it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, made, put, taken
from tarry.store.postgres.lane_reader import PostgresLaneReader
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import Want
from tarry.store.sql.lane_reader import LaneUse
from tests.seeds import seeded_random
from tests.servers.postgres import PostgresServer


@pytest.fixture
def store(mortal_postgres: PostgresServer) -> Iterator[PostgresStore]:
    mortal_postgres.call("DROP SCHEMA IF EXISTS tarry CASCADE")
    with closing(PostgresStore(mortal_postgres.url)) as store:
        yield store


def test_an_end_between_a_claims_look_and_its_end_counts(
    store: PostgresStore, mortal_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that wrote back the level that it had read would take back what the end gave, for ever."""
    store.limit("each:mail", Limit(3))
    store.limit_key("mail", "b", KeyLimit(5))  # such a claim is made in several steps
    put(store, lane="a")
    (first,) = taken(store)
    put(store, lane="a")
    save, valid = PostgresLaneReader.save, list[bool]()

    def late(reader: PostgresLaneReader, use: LaneUse) -> None:
        with closing(PostgresStore(mortal_postgres.url)) as other:
            valid.extend(other.apply([lifecycle.after(first, Returned(), DEFAULT, NOW)], NOW))
        save(reader, use)

    monkeypatch.setattr(PostgresLaneReader, "save", late)
    assert len(taken(store)) == 1
    assert valid == [True]
    assert store.recount(NOW) == 0, "the level counted an attempt that had ended"


def test_claims_and_ends_of_several_tasks_wait_for_no_circle(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """What ends with a claim is of other tasks than what it claims: their levels are locked in one order."""
    for name in ("each:a", "task:b", "task:c", "queue:other"):
        store.limit(name, Limit(12))
    store.limit_key("d", "key", KeyLimit(5))
    draw = seeded_random()
    places = [(draw.choice("abcd"), draw.choice(["default", "other"]), f"{draw.randrange(9)}") for _ in range(1500)]
    store.insert([job for task, queue, lane in places for job in made(store, task=task, queue=queue, lane=lane)])
    before = deadlocks(mortal_postgres)
    with ThreadPoolExecutor(4) as workers:
        done = list(workers.map(lambda owner: work_off(mortal_postgres.url, owner), ("ann", "bob", "eve", "joe")))
    assert sum(done) == len(places)
    assert (deadlocks(mortal_postgres), store.recount(NOW)) == (before, 0)


def work_off(url: str, owner: str) -> int:
    """Claims from one queue or both, and ends a part of what it holds with each claim, until there is nothing left."""
    draw, held, done, vain = seeded_random(), list[Job](), 0, 0
    with closing(PostgresStore(url, durable=False)) as store:
        while vain < 30:
            draw.shuffle(held)
            ended = [held.pop() for _ in range(draw.randrange(len(held) + 1))]
            changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in ended]
            wants = [Want(queue, 0, 5) for queue in draw.choice([["default"], ["other"], ["other", "default"]])]
            answer = store.exchange(changes, wants, draw.randrange(1, 20), owner, LEASE, NOW)
            held += answer.jobs
            done, vain = done + sum(answer.valid), 0 if ended or held else vain + 1
    return done


def deadlocks(server: PostgresServer) -> int:
    return int(server.call("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"))
