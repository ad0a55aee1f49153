"""Jobs on their way from one shard to another: none is lost, none can be claimed in two places."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry.errors import StoreBusy, StoreError
from tarry.model import lifecycle, moving
from tarry.model.change import Change
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.limit import Limit
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.model.retry import Retry
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import kept_places
from tarry.store.rules.base import BANDS, Query, Store, Want
from tarry.store.shards.mover import HOLD, Mover
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.store.switched import slow

NOW = 1_800_000_000 * SECOND
WANTS = [Want("default", band, 10**6) for band in BANDS]
Opened = Callable[[str], Store]
pytestmark = pytest.mark.usefixtures("closing")


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "memory":
        return lambda name: MemoryStore(lambda: NOW, name)
    return lambda name: SqliteStore(tmp_path / f"{name}.db", durable=False)


def job(store: Store, number: int) -> Job:
    """Of every kind there is: waiting, scheduled, with a key, with a lane."""
    key, lane = (f"k{number}" if number % 3 == 0 else None), ("l" if number % 5 == 0 else None)
    due = NOW + HOUR if number % 4 == 0 else NOW
    made = Job(
        store.new_id("mail", key, lane),
        "mail",
        b"%d" % number,
        priority=number % 3 - 1,
        due=due,
        state_since=NOW,
        key=key,
    )
    return replace(
        made,
        key_held_until=0 if key is None else HELD,
        lane=lane,
        state=lifecycle.initial_state(due, NOW),
        headers=b'{"a":"b"}',
    )


def filled(store: Store, number: int = 40) -> list[Job]:
    """Jobs in every state but running; how they are in the store, by id."""
    store.insert([job(store, n) for n in range(number)])
    claimed = store.claim(WANTS, number // 2, "ann", HOUR, NOW)
    ends: list[Outcome] = [
        Returned(b"1"),
        Raised(b'{"type":"E","message":"no"}'),
        Raised(b'{"type":"E","message":"m"}', after=HOUR),
    ]
    rules = lifecycle.Rules(retry=Retry(2))
    changes = [lifecycle.after(each, ends[n % 3], rules, NOW) for n, each in enumerate(claimed)]
    assert all(store.apply(changes, NOW))
    return store.find(Query(limit=10**6))


def drained(parts: Sequence[Store], number: int) -> ShardedStore:
    """The same, with one of them draining."""
    shards = [Shard.from_store(part) for part in parts]
    shards[number].draining = True
    return ShardedStore(shards)


def everywhere(parts: Sequence[Store]) -> list[Job]:
    return sorted((job for part in parts for job in part.find(Query(limit=10**6))), key=lambda job: job.id)


def check_home(store: ShardedStore, parts: Sequence[Store], before: list[Job]) -> None:
    assert everywhere(parts) == before
    for number, part in enumerate(parts):
        assert {store.shard_of(job) for job in part.find(Query(limit=10**6))} <= {number}


def test_a_shard_that_is_added_gets_its_part(opened: Opened) -> None:
    parts = [opened(name) for name in "ab"]
    before = filled(ShardedStore(parts))
    parts.append(opened("c"))
    store = ShardedStore(parts)
    moved = Mover(store, "ann").run()
    check_home(store, parts, before)
    assert moved.moved == len(parts[2].find(Query(limit=10**6))) > 0
    assert Mover(store, "ann").run().moved == 0


def test_a_shard_that_is_drained_is_empty_afterwards(opened: Opened) -> None:
    parts = [opened(name) for name in "abc"]
    before = filled(ShardedStore(parts))
    store = drained(parts, 1)
    store.kv_cas("cell:1", b"x", None)
    parts[1].kv_cas("cell:2", b"y", None)
    moved = Mover(store, "ann").run()
    check_home(store, parts, before)
    assert (parts[1].find(Query()), parts[1].kv_list("")) == ([], {})
    assert store.kv_list("cell:") == {"cell:1": b"x", "cell:2": b"y"}
    assert (moved.left, moved.away, moved.seen > moved.moved) == (0, [], True)
    assert [job and job.id for job in store.get([job.id for job in before])] == [job.id for job in before]


def test_places_stay_where_limits_count_them(opened: Opened) -> None:
    """Also where another shard is at home for the name of the value; the late outcome finds it."""
    parts = [opened(name) for name in "abc"]
    store = ShardedStore(parts)
    for part in parts:
        # Not a share: those end, and by another clock than that of these claims.
        part.limit("queue:default", Limit(30))
    store.insert([replace(job(store, n), key=None, key_held_until=0) for n in range(30)])
    running = store.claim(WANTS, 30, "ann", HOUR, NOW)
    store.apply([lifecycle.cancel(each, lifecycle.DEFAULT, NOW) for each in running], NOW)
    Mover(store, "ann").run()
    assert store.recount(NOW) == 0
    assert len(store.kv_list(kept_places.PREFIX)) == len(running) > 10
    store.apply([lifecycle.after(each, Returned(), lifecycle.DEFAULT, NOW) for each in running], NOW)
    assert store.kv_list(kept_places.PREFIX) == {}
    assert store.limits()["queue:default"][1].running == 0


def test_what_moved_can_be_claimed_and_settled(opened: Opened) -> None:
    parts = [opened(name) for name in "ab"]
    before = filled(ShardedStore(parts))
    store = drained(parts, 0)
    Mover(store, "ann").run()
    ready = {job.id for job in before if job.state is State.READY}
    claimed = store.claim(WANTS, 10**6, "bob", HOUR, NOW)
    assert {job.id for job in claimed} == ready
    assert {job.epoch for job in claimed} == {1}
    assert all(store.apply([lifecycle.after(job, Returned(b"1"), lifecycle.DEFAULT, NOW) for job in claimed], NOW))


def test_what_was_tried_before_keeps_its_epoch(opened: Opened) -> None:
    """Or a worker that lost its lease on it before could speak for it."""
    parts = [opened(name) for name in "ab"]
    store = ShardedStore(parts)
    filled(store)
    waits = [job for job in everywhere(parts) if job.failures and job.state is State.SCHEDULED]
    assert {job.epoch for job in waits} == {1}
    Mover(drained(parts, 0), "ann").run()
    claimed = {job.id: job for job in parts[1].claim(WANTS, 10**6, "bob", HOUR, NOW + 2 * HOUR)}
    assert {claimed[job.id].epoch for job in waits} == {2}
    assert {claimed[job.id].failures for job in waits} == {1}


def test_what_runs_stays_until_it_does_not(opened: Opened) -> None:
    parts = [opened(name) for name in "ab"]
    store = ShardedStore(parts)
    store.insert([job(store, n) for n in range(1, 12, 2)])
    store = drained(parts, 1)
    running = [job for job in store.claim(WANTS, 100, "ann", HOUR, NOW) if job in parts[1].find(Query())]
    moved = Mover(store, "bob").run()
    assert (moved.running, moved.moved, moved.left) == (len(running), 0, len(running))
    changes = [lifecycle.after(job, Returned(b"1"), lifecycle.DEFAULT, NOW) for job in running]
    assert all(store.apply(changes, NOW))
    assert Mover(store, "bob").run().moved == len(running)


def test_one_whose_key_is_held_by_another_stays(opened: Opened) -> None:
    parts = [opened(name) for name in "ab"]
    store = drained(parts, 1)
    old = Job(store.new_id("mail", "k"), "mail", b"", due=NOW, state_since=NOW, key="k", key_held_until=HELD)
    new = replace(old, id=store.new_id("mail", "k"))
    parts[1].insert([old])
    store.insert([new])
    moved = Mover(store, "ann").run()
    assert (moved.held, moved.moved) == (1, 0)
    assert everywhere(parts) == [old, new]


def test_one_that_is_away_is_left_out(opened: Opened) -> None:
    parts = [opened(name) for name in "abc"]
    before = filled(ShardedStore(parts), 200)
    store = drained(parts, 1)
    store.shards[2].mark_away(StoreError("gone"))
    moved = Mover(store, "ann").run()
    assert moved.away == [f"{store.shards[2].url} is away: gone"]
    assert everywhere(parts) == before
    assert {store.shard_of(job) for job in parts[1].find(Query(limit=10**6))} == {2}


def test_one_move_at_a_time(opened: Opened) -> None:
    store = ShardedStore([opened(name) for name in "ab"])
    now = store.time()
    assert store.hold(HOLD, "bob", now + HOUR, now)
    with pytest.raises(StoreBusy, match="being moved between the stores already"):
        Mover(store, "ann").run()


def test_what_changes_at_the_last_moment_stays_as_it_was_changed() -> None:
    class Slow(MemoryStore):
        """Somebody cancels a job while its copy is put here."""

        def insert(self, jobs: Sequence[Job]) -> list[bytes]:
            answer = super().insert(jobs)
            source.apply([replace(lifecycle.cancel(job, lifecycle.DEFAULT, NOW), was=job.state) for job in jobs], NOW)
            return answer

    source = MemoryStore(lambda: NOW, "a")
    store = drained([source, Slow(lambda: NOW, "b")], 0)
    old = Job(store.new_id("mail"), "mail", b"", due=NOW, state_since=NOW)
    source.insert([old])
    assert Mover(store, "ann").run().moved == 0
    (left,) = everywhere(store.stores)
    assert (left.state, source.find(Query())) == (State.CANCELLED, [left])


LATER = NOW + 5 * HOUR
GIVEN_TIMES: dict[str, Callable[[Job], Change]] = {
    "moved": lambda job: lifecycle.move(job, NOW, due=LATER),
    "postponed": lambda job: lifecycle.postpone(job, replace(job, due=LATER), NOW),
}


@pytest.mark.parametrize("given", GIVEN_TIMES)
@pytest.mark.parametrize("at", ["before it is parked", "the old place", "the new place"])
@pytest.mark.parametrize("due", [NOW, NOW + HOUR])
def test_a_time_that_is_given_at_the_last_moment_counts(given: str, at: str, due: int) -> None:
    class Racing(MemoryStore):
        """Somebody gives a job another time while its copy is put here, or before it is parked here."""

        def insert(self, jobs: Sequence[Job]) -> list[bytes]:
            answer = super().insert(jobs)
            if at != "before it is parked" and self is target:
                place = source if at == "the old place" else target
                assert all(place.apply([GIVEN_TIMES[given](job) for job in jobs], NOW))
            return answer

        def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
            if at == "before it is parked" and self is source and changes:
                super().apply([GIVEN_TIMES[given](job) for job in self.find(Query()) if job.due == due], now)
            return super().apply(changes, now)

    source, target = Racing(lambda: NOW, "a"), Racing(lambda: NOW, "b")
    store = drained([source, target], 0)
    source.insert(
        [Job(store.new_id("mail"), "mail", b"[1]", due=due, state_since=NOW, state=lifecycle.initial_state(due, NOW))]
    )
    Mover(store, "ann").run()
    (left,) = everywhere(store.stores)
    assert (left.state, left.due, left.body) == (State.SCHEDULED, LATER, b"[1]")
    Mover(store, "ann").run()
    assert [one.due for one in everywhere(store.stores)] == [LATER]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whenever_it_is_broken_off_it_goes_on_from_there(opened: Opened, after: bool, tmp_path: Path) -> None:
    for fail_at in count(1):
        (tmp_path / "files").mkdir(exist_ok=True)
        parts = [opened(f"files/{name}{fail_at}") for name in "abc"]
        before = filled(ShardedStore(parts), 12)
        flaky = FlakyStore(parts[1], fail_at, after)
        if _broken_off([parts[0], flaky, parts[2]]):
            claimable = [job.id for job in everywhere(parts) if job.state is State.READY and not moving.is_parked(job)]
            assert len(set(claimable)) == len(claimable)
            store = drained(parts, 1)
            Mover(store, "bob").run()
            check_home(store, parts, before)
        else:
            check_home(drained(parts, 1), parts, before)
        for part in parts:
            part.close()
        if flaky.calls < fail_at:
            assert fail_at > 1
            return


def _broken_off(parts: Sequence[Store]) -> bool:
    store = drained(parts, 1)
    try:
        Mover(store, "ann").run()
    except StoreError:
        # Its hold runs out, as that of one who was killed does.
        now = store.time()
        for part in (parts[0], parts[2]):
            part.hold(HOLD, "ann", now, now)
        return True
    return False


def test_a_target_that_fails_in_the_middle_is_as_good(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for fail_at in count(1):
        for after in (False, True):
            parts = [opened(f"files/{name}{fail_at}{after}") for name in "ab"]
            before = filled(ShardedStore(parts), 12)
            flaky = FlakyStore(parts[1], fail_at, after)
            store = drained([parts[0], flaky], 0)
            try:
                Mover(store, "ann").run()
            except StoreError:
                now = parts[1].time()
                parts[1].hold(HOLD, "ann", now, now)
                Mover(drained(parts, 0), "bob").run()
            check_home(drained(parts, 0), parts, before)
            for part in parts:
                part.close()
        if flaky.calls < fail_at:
            assert fail_at > 3
            return
