"""What of a limit's level a claim writes on PostgreSQL, while attempts end beside it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import KeyLimit, Level, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, made, put, taken
from tarry.store.postgres.lane_reader import PostgresLaneReader
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import Want
from tarry.store.rules.lanes import lane_level, turn_name
from tarry.store.sql.lane_reader import LaneUse
from tests.seeds import seeded_random
from tests.servers.postgres import PostgresServer
from tests.worker.bench import until


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


def test_a_claim_that_a_limit_cuts_says_so(store: PostgresStore) -> None:
    store.limit("task:mail", Limit(3))
    put(store, 5)
    wants = [Want("default", 0, 9)]
    answer = store.exchange((), wants, 9, "ann", LEASE, NOW)
    assert (len(answer.jobs), answer.is_held_back) == (3, True)
    done = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in answer.jobs]
    answer = store.exchange(done, wants, 2, "ann", LEASE, NOW)
    assert (len(answer.jobs), answer.is_held_back) == (2, False)


def claim_side_by_side(server: PostgresServer, count: int) -> list[Job]:
    """What two claims of so many jobs get that have both chosen before one of them may start any."""
    owners = ("ann", "bob")
    with ThreadPoolExecutor(2) as claimers, psycopg.connect(server.url) as other:
        other.execute("INSERT INTO tarry.level VALUES ('task:mail', 0, 0) ON CONFLICT DO NOTHING")
        other.commit()
        other.execute("SELECT FROM tarry.level WHERE name = 'task:mail' FOR UPDATE")
        claims = [claimers.submit(claim_once, server.url, owner, count) for owner in owners]
        until(lambda: waiting_for_locks(server) == 2)
        other.commit()
        return [job for claim in claims for job in claim.result()]


def waiting_for_locks(server: PostgresServer) -> int:
    return int(server.call("SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"))


def claim_once(url: str, owner: str, count: int, changes: Sequence[Change] = (), queue: str = "default") -> list[Job]:
    with closing(PostgresStore(url)) as store:
        return store.exchange(changes, [Want(queue, 0, count)], count, owner, LEASE, NOW).jobs


@pytest.mark.parametrize("name", ["task:mail", "each:mail", "queue:default"])
def test_of_claims_that_choose_side_by_side_the_second_gets_what_is_left(
    store: PostgresStore, mortal_postgres: PostgresServer, name: str
) -> None:
    store.limit("each:mail", Limit(9))
    store.limit(name, Limit(5))
    put(store, 12, lane="a")
    jobs = claim_side_by_side(mortal_postgres, 3)
    assert len({job.id for job in jobs}) == len(jobs) == 5
    assert store.levels([name if name != "each:mail" else lane_level("mail", "a")]) == [Level(5)]


def test_one_at_a_time_is_in_order_also_for_claims_side_by_side(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """A claim that waits for the level of what it ends has not chosen yet: else another one would take the next job."""
    store.limit("task:a", Limit(9))
    put(store, task="a")
    ended = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in taken(store)]
    store.limit("each:mail", Limit(1))
    first, _ = put(store, 2, lane="a")
    with ThreadPoolExecutor(1) as claimer, psycopg.connect(mortal_postgres.url) as other:
        # Else the claim would make this row before it waits, and the other one wait for that.
        other.execute("INSERT INTO tarry.level VALUES ('task:mail', 0, 0)")
        other.commit()
        other.execute("SELECT FROM tarry.level WHERE name = 'task:a' FOR UPDATE")
        claim = claimer.submit(claim_once, mortal_postgres.url, "bob", 1, ended)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        assert [job.id for job in claim_once(mortal_postgres.url, "ann", 1)] == [first.id]
        other.commit()
        assert claim.result() == []


def test_a_claim_starts_no_job_of_a_task_that_came_while_it_waited_for_its_levels(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """It holds no lock of that task: another claim reads the same level, and both would start the last job."""
    store.limit("each:mail", Limit(1))
    store.limit("task:b", Limit(1))
    put(store)
    url, names = mortal_postgres.url, ("task:mail", "task:b")
    with (
        ThreadPoolExecutor(2) as claimers,
        psycopg.connect(url) as of_mail,
        psycopg.connect(url) as of_b,
    ):
        for name in names:
            of_b.execute("INSERT INTO tarry.level VALUES (%s, 0, 0) ON CONFLICT DO NOTHING", (name,))
        of_b.commit()
        for link, name in zip((of_mail, of_b), names, strict=True):
            link.execute("SELECT FROM tarry.level WHERE name = %s FOR UPDATE", (name,))
        first = claimers.submit(claim_once, url, "ann", 2)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        put(store, task="b")
        put(store, task="b", queue="other")
        second = claimers.submit(claim_once, url, "bob", 1, (), "other")
        until(lambda: waiting_for_locks(mortal_postgres) == 2)
        of_mail.commit()
        until(lambda: first.done() or waiting_for_locks(mortal_postgres) == 2)
        of_b.commit()
        jobs = [*first.result(), *second.result()]
    assert sum(job.task == "b" for job in jobs) <= 1
    assert store.levels(["task:b"]) == [Level(1)]


@pytest.mark.parametrize("steps", [False, True], ids=["at-once", "in-steps"])
@pytest.mark.parametrize("name", ["task:mail", "queue:default", "each:mail", lane_level("mail", "a")])
def test_no_claim_starts_by_the_limit_of_before_once_that_is_changed(
    store: PostgresStore, mortal_postgres: PostgresServer, name: str, steps: bool
) -> None:
    """A claim that has chosen by the old limit waits for the levels while the new one is set."""
    store.limit("each:mail", Limit(9))
    if steps:
        store.limit_key("mail", "z", KeyLimit(5))
    if name in ("task:mail", "queue:default"):
        store.limit(name, Limit(9))
    put(store, 4, lane="a")
    ended = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in taken(store)]
    put(store, 4, lane="a")
    levels = ["task:mail", "queue:default"]
    with ThreadPoolExecutor(2) as callers, psycopg.connect(mortal_postgres.url) as other:
        other.execute("INSERT INTO tarry.level SELECT unnest(%s::text[]), 0, 0 ON CONFLICT DO NOTHING", (levels,))
        other.commit()
        other.execute("SELECT FROM tarry.level WHERE name = ANY (%s) FOR UPDATE", (levels,))
        change = callers.submit(set_to_none, mortal_postgres.url, name)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        claim = callers.submit(claim_once, mortal_postgres.url, "bob", 4, ended)
        until(lambda: waiting_for_locks(mortal_postgres) == 2)
        other.commit()
        assert (change.result(), claim.result()) == (None, [])


def set_to_none(url: str, name: str) -> None:
    """Lets no more jobs start under a limit, or of a key."""
    with closing(PostgresStore(url)) as store:
        if name == lane_level("mail", "a"):
            store.limit_key("mail", "a", KeyLimit(0))
        else:
            store.limit(name, Limit(0))


def test_claims_that_choose_side_by_side_take_from_different_lanes(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """Else the second would look into many lanes whose only job the first has locked."""
    store.limit("each:mail", Limit(9))
    for lane in "abcdef":
        put(store, lane=lane)
    assert sorted(job.lane or "" for job in claim_side_by_side(mortal_postgres, 3)) == [*"abcdef"]


@pytest.mark.parametrize("limit", [None, Limit(9)], ids=["turns", "limit"])
def test_a_claim_beside_another_one_goes_backwards_by_a_turn_of_its_own(
    store: PostgresStore, mortal_postgres: PostgresServer, limit: Limit | None
) -> None:
    store.limit("each:mail", limit)
    for lane in "abcde" * 2:
        put(store, lane=lane)
    with psycopg.connect(mortal_postgres.url) as other:
        turn = f'"tarry"{turn_name("default", 0, "mail")}'
        other.execute("SELECT pg_advisory_xact_lock(hashtext('tarry'), hashtext(%s))", (turn,))
        assert [lanes(claim_once(mortal_postgres.url, "ann", 2)) for _ in range(3)] == ["de", "bc", "ae"]
    assert lanes(claim_once(mortal_postgres.url, "ann", 9)) == "abcd"


def lanes(jobs: Sequence[Job]) -> str:
    return "".join(sorted(job.lane or "" for job in jobs))


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


def test_a_claim_that_waits_for_a_level_that_another_one_makes_holds_none(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """The first claims under new limits make the rows of levels: the other one goes on to lock one that is there."""
    for task in "ab":
        store.limit(f"task:{task}", Limit(9))
        put(store, task=task)
    before = deadlocks(mortal_postgres)
    with ThreadPoolExecutor(1) as claimer, psycopg.connect(mortal_postgres.url) as other:
        other.execute("INSERT INTO tarry.level VALUES ('task:b', 0, 0)")
        other.commit()
        other.execute("INSERT INTO tarry.level VALUES ('task:a', 0, 0)")
        claim = claimer.submit(claim_once, mortal_postgres.url, "ann", 2)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        other.execute("SELECT FROM tarry.level WHERE name = 'task:b' FOR UPDATE")
        other.commit()
        assert len(claim.result()) == 2
    assert deadlocks(mortal_postgres) == before


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


def test_a_claim_comes_again_where_another_one_has_locked_jobs_that_it_may_leave(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    """A claim locks more than it takes, where it chooses from several lines. An idle worker that asks just then would
    sleep, and what the other one leaves would wait."""
    tasks = ("a", "b")
    for task in tasks:
        store.limit(f"task:{task}", Limit(9))
        put(store, 3, task=task)
    with ThreadPoolExecutor(1) as claimer, psycopg.connect(mortal_postgres.url) as other:
        names = [f"task:{task}" for task in tasks]
        other.execute("INSERT INTO tarry.level SELECT unnest(%s::text[]), 0, 0 ON CONFLICT DO NOTHING", (names,))
        other.commit()
        other.execute("SELECT FROM tarry.level WHERE name = ANY (%s) FOR UPDATE", (names,))
        claim = claimer.submit(claim_once, mortal_postgres.url, "ann", 3)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        answer = store.exchange((), [Want("default", 0, 3)], 3, "bob", LEASE, NOW)
        assert (answer.jobs, answer.next_due) == ([], 0), "it is to come again at once"
        other.commit()
        assert len(claim.result()) == 3
    answer = store.exchange((), [Want("default", 0, 4)], 4, "bob", LEASE, NOW)
    assert (len(answer.jobs), answer.next_due) == (3, None), "nobody else has locked any"


def test_a_claim_comes_again_where_another_one_looks_at_the_same_jobs_without_a_lane(
    store: PostgresStore, mortal_postgres: PostgresServer
) -> None:
    store.limit("queue:default", Limit(9))
    put(store, 2)
    put(store, 2, due=NOW - 5)
    with ThreadPoolExecutor(1) as claimer, psycopg.connect(mortal_postgres.url) as other:
        other.execute("INSERT INTO tarry.level VALUES ('queue:default', 0, 0) ON CONFLICT DO NOTHING")
        other.commit()
        other.execute("SELECT FROM tarry.level WHERE name = 'queue:default' FOR UPDATE")
        claim = claimer.submit(claim_once, mortal_postgres.url, "ann", 3)
        until(lambda: waiting_for_locks(mortal_postgres) == 1)
        answer = store.exchange((), [Want("default", 0, 3)], 3, "bob", LEASE, NOW)
        assert (answer.jobs, answer.next_due) == ([], 0)
        other.commit()
        assert len(claim.result()) == 3
    assert len(taken(store)) == 1
