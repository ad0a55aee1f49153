"""What is the Redis store's own: its memory, its keys, its server, and what it refuses."""

from typing import Any

import pytest
from msgspec.structs import replace

from tarry.errors import StoreError, StoreFull, StoreNewer, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Released, Returned
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FINISHED,
    LEASE,
    NOW,
    PLENTY,
    WAITING,
    ids,
    in_state,
    made,
    put,
    running,
    seen,
    settle,
    taken,
)
from tarry.store.opening import open_store
from tarry.store.redis.link.base import Script, Word
from tarry.store.redis.store import RedisStore
from tarry.store.rules import key_limits
from tarry.store.rules.base import BANDS, Query, Store, Want
from tests.servers.redis import RedisServer


@pytest.fixture
def store(redis_store: RedisStore) -> RedisStore:
    return redis_store


def told(server: RedisServer, section: str, name: str) -> int:
    """A number of INFO."""
    (line,) = [line for line in server.call("INFO", section).splitlines() if line.startswith(f"{name}:")]
    return int(line.partition(":")[2])


def test_a_waiting_job_takes_little_memory(store: Store, redis_server: RedisServer) -> None:
    before = told(redis_server, "memory", "used_memory")
    count = 50_000
    for _ in range(count // 1000):
        store.insert(made(store, 1000, body=b"x" * 64, task="shop.mail.send"))
    assert (told(redis_server, "memory", "used_memory") - before) / count < 250


def test_jobs_that_come_one_by_one_take_little_more(store: Store) -> None:
    assert isinstance(store, RedisStore)
    for job in made(store, 500):
        store.insert([job])
    # Members of a sorted set, each of which costs memory of its own.
    pages = [store._link.command("ZCARD", f"{{tarry}}:{line}") for line in ("ids", "n:default")]
    assert all(count < 500 / 16 + 17 for count in pages), pages
    assert len(taken(store, limit=500)) == 500


def test_a_busy_worker_needs_few_round_trips(store: Store, redis_server: RedisServer) -> None:
    put(store, 2000)
    wants = [Want("default", band, 300) for band in BANDS]
    jobs = store.claim(wants, 1000, "ann", LEASE, NOW)
    before = told(redis_server, "stats", "total_commands_processed")
    changes = [lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in jobs]
    answer = store.exchange(changes, wants, 1000, "ann", LEASE, NOW)
    assert (len(answer.jobs), all(answer.valid)) == (1000, True)
    # All that the script itself does is counted too.
    assert told(redis_server, "stats", "total_commands_processed") - before < 60


def test_hundreds_of_running_jobs_are_found_by_their_names(store: Store) -> None:
    """Else each look goes through a list of them."""
    assert isinstance(store, RedisStore)
    store.limit("each:mail", Limit(1))
    jobs = [replace(job, lane=str(number)) for number, job in enumerate(made(store, 100))]
    store.insert(jobs)
    assert len(taken(store, limit=100)) == 100
    for name, fields in (
        ("run", sorted(ids(jobs))),
        ("levels", sorted(f"each:mail\x1f{n}".encode() for n in range(100))),
    ):
        assert store._link.command("OBJECT", "ENCODING", f"{{tarry}}:{name}") == b"hashtable"
        assert sorted(store._link.command("HKEYS", f"{{tarry}}:{name}")) == fields


def test_a_larger_claim_is_several_scripts(store: Store) -> None:
    put(store, 1500)
    put(store, 1500, queue="slow")
    wants = [Want("default", 0, 100), Want("slow", 0, 1200)]
    got = store.claim(wants, 2800, "ann", LEASE, NOW)
    assert [sum(job.queue == queue for job in got) for queue in ("default", "slow")] == [1500, 1300]
    assert len(taken(store)) == 0
    assert len(store.claim(wants, 2800, "ann", LEASE, NOW)) == 200


def test_thousands_of_queues(store: Store) -> None:
    wants = [Want(f"queue {number}", band, 1) for number in range(3000) for band in BANDS]
    assert store.claim(wants, 10, "ann", LEASE, NOW) == []
    jobs = put(store, queue="queue 7") + put(store, queue="queue 2999", priority=-1)
    assert ids(store.claim(wants, 10, "ann", LEASE, NOW)) == ids(jobs)


def test_changes_of_one_job_are_made_in_their_order(store: Store) -> None:
    (job,) = put(store)
    first = lifecycle.move(job, NOW, due=NOW + HOUR)
    second = replace(first, was=State.SCHEDULED, due=NOW + 2 * HOUR)
    assert store.apply([first, first, second], NOW) == [True, False, True]
    assert seen(store, job).due == NOW + 2 * HOUR


def test_nothing_is_left_of_what_is_forgotten(store: Store, redis_server: RedisServer) -> None:
    for number, state in enumerate((*FINISHED, State.RUNNING, *WAITING)):
        in_state(store, state, key=str(number), lane="a", priority=number - 2)
        in_state(store, state)
    store.limit("each:mail", Limit(3, 100, HOUR))
    taken(store)
    now = NOW + 2 * HOUR
    for job in store.find(Query()):
        if job.state is State.RUNNING:
            settle(store, job, Returned(), now=now)
    for job in store.find(Query()):
        assert store.apply([lifecycle.forget(job)], now) == [True]
    store.limit("each:mail", None)
    assert (store.counts(), store.queues(), store.prune(now, 0)) == ([], {}, 0)
    left = {key.removeprefix("{tarry}:") for key in redis_server.call("KEYS", "*").splitlines()}
    assert left <= {"schema", "leases", "turns", "kinds", "wake:0", "journal"}


def test_stores_of_two_prefixes_do_not_meet(store: Store, redis_server: RedisServer) -> None:
    other = open_store(f"{redis_server.url}?prefix=other")
    try:
        jobs = put(store, 3)
        assert other.get(ids(jobs)) == [None] * 3
        assert (taken(other), other.counts(), other.queues()) == ([], [], {})
    finally:
        other.close()


@pytest.mark.parametrize("size", [1, 254, 255, 256, 800])
def test_long_names_survive(store: Store, size: int) -> None:
    queue, task = "ü" * (size // 2) + "q" * (size % 2), "t" * size
    first, second = put(store, 2, queue=queue, task=task)
    claimed = store.claim([Want(queue, 0, 1)], 1, "ann", LEASE, NOW)
    assert claimed == [replace(first, state=State.RUNNING, epoch=1, owner="ann")]
    settle(store, claimed[0], Returned(b"1"))
    assert {(t.queue, t.task, t.state, t.count) for t in store.counts()} == {
        (queue, task, State.DONE, 1),
        (queue, task, State.READY, 1),
    }
    assert store.find(Query(queue=queue, states=(State.READY,))) == [second]


def test_times_beyond_what_lua_can_count(store: Store) -> None:
    """The year 9999 in microseconds is no exact double."""
    late = 253_402_300_799_999_999
    jobs = [put(store, due=late - number)[0] for number in range(3)]
    assert store.get(ids(jobs)) == jobs
    assert store.next_due() == late - 2
    assert store.apply([lifecycle.move(jobs[0], NOW, due=NOW)], NOW) == [True]
    assert ids(taken(store)) == [jobs[0].id]


def test_lateness_beyond_what_lua_can_count(store: Store) -> None:
    """A job leaves the line that it was put in, also where a double tells its two times not apart."""
    due = 253_402_300_799_999_998
    jobs = [
        replace(made(store)[0], due=due, state_since=due + late, lane=lane) for late in (0, 1) for lane in (None, "a")
    ]
    store.insert(jobs)
    assert store.backlog(None, NOW, 9).count == 4
    assert store.apply([lifecycle.forget(job) for job in jobs], NOW) == [True] * 4
    assert store.queues() == {}


def test_many_late_jobs_cost_a_claim_nothing(store: Store, redis_server: RedisServer) -> None:
    """It takes half of what it takes from those on time, and asks the server no more than beside a few."""
    on_time = put(store, 500)
    cost = []
    for many in (500, 20_000):
        late = [replace(job, state_since=NOW + 1) for job in made(store, many)]
        for start in range(0, many, 1000):
            store.insert(late[start : start + 1000])
        before = told(redis_server, "stats", "total_commands_processed")
        jobs = taken(store, limit=100)
        cost.append(told(redis_server, "stats", "total_commands_processed") - before)
        assert len(set(ids(jobs)) & set(ids(on_time))) == 50
    assert cost[1] < cost[0] + 5, cost


def test_a_job_that_was_unusual_while_it_ran(store: Store) -> None:
    """Progress and a limit may come to it after it was claimed."""
    one, two = running(store, 2)
    store.save_progress("ann", [(one.id, one.epoch, b"[0.5]")])
    store.limit("task:mail", Limit(5))
    for job in (one, two):
        done = settle(store, seen(store, job), Returned(b"12"))
        assert (done.note, done.lane, done.body) == (b"12", "", job.body)
    assert store.limits()["task:mail"][1].running == 0
    (tally,) = store.counts()
    assert (tally.count, tally.bytes) == (2, 2 * 4 + 5)


def test_a_finished_job_kicked_and_finished_again(store: Store) -> None:
    (job,) = running(store, priority=7, body=b"[1]")
    done = settle(store, job, Returned(b"1"))
    assert store.apply([lifecycle.run_now(done, NOW + 1)], NOW + 1) == [True]
    (again,) = taken(store, now=NOW + 1)
    assert (again.priority, again.body, again.note, again.epoch) == (7, b"[1]", b"1", 2)
    assert settle(store, again, Returned(b"22"), now=NOW + 2).note == b"22"
    (tally,) = store.counts()
    assert (tally.count, tally.bytes) == (1, 5)
    assert store.prune(NOW + 2 + HOUR, PLENTY) == 1
    assert store.find(Query()) == []


def test_an_eviction_policy_is_refused(redis_server: RedisServer) -> None:
    redis_server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StoreError, match=r"CONFIG SET maxmemory-policy noeviction, and .* in redis\.conf"):
            open_store(redis_server.url)
    finally:
        redis_server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_a_newer_schema_is_refused_and_left_alone(redis_server: RedisServer) -> None:
    redis_server.empty()
    redis_server.call("HSET", "{tarry}:schema", "version", "7", "oldest", "6")
    with pytest.raises(StoreNewer, match="has schema 7, for programs that know 6 or later; this tarry knows 1:"):
        open_store(redis_server.url)
    assert redis_server.call("KEYS", "*") == "{tarry}:schema"
    redis_server.empty()


def test_when_memory_is_full_work_goes_on(store: Store, redis_server: RedisServer) -> None:
    first, second = put(store, 2)
    (job,) = taken(store, limit=1)
    redis_server.call("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(StoreFull, match="maxmemory reached"):
            store.insert(made(store))
        assert settle(store, job, Released()).state is State.READY
        claimed = taken(store)
        assert {job.id for job in claimed} == {first.id, second.id}
        assert store.apply([lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in claimed], NOW) == [True, True]
        assert store.prune(NOW + HOUR, PLENTY) == 2
    finally:
        redis_server.call("CONFIG", "SET", "maxmemory", "0")
    put(store)


@pytest.mark.parametrize(
    ("settings", "says", "advises"),
    [
        ({"appendonly": "no", "save": ""}, "none", "CONFIG SET appendonly yes"),
        ({"appendonly": "no", "save": "60 1"}, "snapshots", "CONFIG SET appendonly yes"),
        ({"appendonly": "yes", "appendfsync": "everysec", "save": ""}, "the last second", ""),
        ({"appendonly": "yes", "appendfsync": "always", "save": ""}, "on disk when it is answered", ""),
        ({"appendonly": "yes", "appendfsync": "no", "save": ""}, "up to 30 s", "appendfsync everysec"),
    ],
)
def test_durability_is_told(
    store: Store, redis_server: RedisServer, settings: dict[str, str], says: str, advises: str
) -> None:
    for name, value in settings.items():
        redis_server.call("CONFIG", "SET", name, value)
    try:
        (fact,) = [fact for fact in store.diagnostics() if fact.name == "durability"]
        assert says in fact.value
        assert advises in fact.advice
        assert bool(advises) == bool(fact.advice)
        assert bool(advises) == bool(fact.advice)
    finally:
        for name, value in {"appendonly": "no", "appendfsync": "everysec", "save": ""}.items():
            redis_server.call("CONFIG", "SET", name, value)


def test_large_bodies_go_in_parts(store: Store) -> None:
    jobs: list[Job] = made(store, 6, body=b"x" * 2_000_000)
    assert store.insert(jobs) == ids(jobs)
    assert store.get(ids(jobs)) == jobs


def test_a_limit_holds_from_the_first_moment(store: Store) -> None:
    """Also where jobs wait that have no lane yet, and whoever was to give them theirs has died on the way."""
    assert isinstance(store, RedisStore)
    waiting = [replace(job, id=store.new_id("mail", None, "")) for job in made(store, 5000)]
    store.insert([replace(job, state_since=job.state_since + number % 2) for number, job in enumerate(waiting)])
    others = put(store, 3, task="other")
    run, left = store._run, 2

    def dying(script: Script, *args: Word) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable("gone")
        return run(script, *args)

    store._run = dying  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        store.limit("task:mail", Limit(2))
    store._run = run  # type: ignore[method-assign]
    jobs: list[Job] = []
    for _ in range(10):
        jobs += taken(store, limit=1000)
    assert sorted(job.task for job in jobs) == ["mail"] * 2 + ["other"] * len(others)
    store.limit("task:mail", Limit(3))
    assert {job.lane for job in store.find(Query(task="mail", limit=6000))} == {""}
    assert [job.task for job in taken(store)] == ["mail"]


@pytest.mark.parametrize(("limit", "asked", "waits"), [(2, 10, True), (3, 10, False), (2, 1, False)])
def test_a_claim_says_whether_jobs_wait_for_the_ends_of_others(
    store: Store, limit: int, asked: int, waits: bool
) -> None:
    """What is left since nobody asked for it comes with the next claim."""
    store.limit("task:mail", Limit(limit))
    put(store, 3, lane="")
    assert store.exchange([], EVERYTHING, asked, "ann", LEASE, NOW).is_held_back is waits


class TestErrorsHalfWay:
    """An error in the middle of a script: Redis takes back nothing of what the script wrote before it."""

    def broken(self, store: RedisStore) -> None:
        """From now on whoever looks for lanes of the queue `broken` gets an error."""
        store.insert([replace(job, queue="broken", lane="a") for job in made(store, 1)])
        store._link.command("DEL", *self.keys)
        for key in self.keys:
            store._link.command("SET", key, "of another kind")

    keys = ("{tarry}:on6:broken:mail", "{tarry}:wn6:broken:mail")

    def test_changes_of_the_same_call_are_made_whole(self, store: RedisStore) -> None:
        store.limit("each:mail", Limit(1))
        (job,) = running(store, lane="a")
        put(store, lane="a")
        self.broken(store)
        change = lifecycle.after(job, Returned(), DEFAULT, NOW)
        with pytest.raises(StoreError):
            store.exchange([change], [Want("broken", 0, 10)], 10, "ann", LEASE, NOW)
        assert seen(store, job).state is State.DONE
        assert store.recount(NOW) == 0
        assert len(taken(store)) == 1

    def test_what_was_taken_before_it_runs_and_can_be_found(self, store: RedisStore) -> None:
        """As whatever a call claimed whose answer was lost."""
        store.limit("each:mail", Limit(1))
        (job,) = put(store, lane="b")
        self.broken(store)
        with pytest.raises(StoreError):
            store.claim([Want("default", 0, 10), Want("broken", 0, 10)], 10, "ann", LEASE, NOW)
        assert ids(store.reclaim(NOW, "ann")) == [job.id]
        assert store.recount(NOW) == 0
        assert sum(tally.count for tally in store.counts()) == 2


@pytest.mark.parametrize(
    "value",
    [
        b'{"a":1,"b":12,"quoted \\"a\\":1":7}',
        b'{ "a" : 1, "b": 12 }',
        b'{"quoted \\"a":3,"\\u0061":1,"b":12}',
        b'{"b":12,"a":1}',
        b'{"a":"1"}',
        b'{"a":[1]}',
        b"garbage",
        b"{}",
        None,
    ],
)
@pytest.mark.parametrize("weight", [1, 12, 345, None])
def test_one_weight_changes_and_the_others_stay(store: Store, value: bytes | None, weight: int | None) -> None:
    name = key_limits.WEIGHTS + "mail"
    assert store.kv_cas(name, value, None)
    store.limit_key("mail", "a", None if weight is None else KeyLimit(weight=weight))
    others = {lane: n for lane, n in key_limits.decode_weights(value).items() if lane != "a"}
    found = key_limits.decode_weights(store.kv_get(name))
    assert found == others | ({} if weight is None else {"a": weight})


def test_weights_of_many_keys_are_set_one_by_one(store: Store) -> None:
    expected: dict[str, int] = {}
    for number in range(300):
        lane, weight = f'{number * 7 % 40}/"{number % 3}', 1 + number * 31 % 1000
        store.limit_key("mail", lane, KeyLimit(weight=weight))
        expected[lane] = weight
    assert key_limits.decode_weights(store.kv_get(key_limits.WEIGHTS + "mail")) == expected
