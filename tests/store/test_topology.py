"""Stores are added, drained and removed while all runs."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tarry.alert.stores import StoreChecks, all_shards
from tarry.config.config import Alerts
from tarry.errors import ConfigError, StoreBusy, TarryError
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job
from tarry.model.limit import KeyLimit, Limit
from tarry.store.opening import open_store
from tarry.store.rules.base import BANDS, Query, Want
from tarry.store.rules.key_limits import read_key_limit
from tarry.store.shards import topology, topology_follower
from tarry.store.shards.joining import check_new, prepare
from tarry.store.shards.mover import Mover
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shards.topology import ListedShard, Topology, with_added, with_state
from tarry.store.shards.topology_follower import TopologyFollower
from tests.worker.bench import until

NOW = 1_000_000 * SECOND
WANTS = [Want("default", band, 1000) for band in BANDS]


def listed(*names: str) -> list[ListedShard]:
    """`b draining` is one that is draining."""
    return [ListedShard(f"memory://{name.split()[0]}", *name.split()) for name in names]  # type: ignore[arg-type]


# The list


def test_a_change_holds_from_a_moment_on() -> None:
    old = Topology(3, 0, listed("a", "b"))
    new = with_added(old, listed("c")[0], NOW)
    assert (new.version, new.at) == (4, NOW + topology.HOLDS_AFTER)
    assert new.at_time(new.at - 1) == listed("a", "b", "c joining")
    assert new.at_time(new.at) == listed("a", "b", "c")
    drained = with_state(new, "a", "draining", new.at)
    assert drained.at_time(drained.at - 1) == listed("a", "b", "c")
    assert drained.at_time(drained.at) == listed("a draining", "b", "c")


def test_one_change_after_the_other() -> None:
    new = with_added(Topology(3, 0, listed("a", "b")), listed("c")[0], NOW)
    with pytest.raises(ConfigError, match="holds in 10 s"):
        with_state(new, "a", "draining", NOW + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda old: with_added(old, listed("a")[0], NOW), "a is in the list already: up"),
        (lambda old: with_added(old, ListedShard("memory://a", "c"), NOW), "memory://a is in the list already, as a"),
        (lambda old: with_state(old, "c", "draining", NOW), "no store of the list is named c: a, b"),
        (lambda old: with_state(old, "a", "removed", NOW), "last store that takes new jobs"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        change(Topology(3, 0, listed("a", "b draining")))  # type: ignore[operator]


def test_one_that_was_removed_can_be_added_again() -> None:
    new = with_added(Topology(3, 0, listed("a", "b removed")), listed("b")[0], NOW)
    assert new.shards == listed("a", "b")
    assert new.at_time(new.at - 1) == listed("a", "b joining")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("east", "east"),
        ("redis://:secret@b", "redis://b"),
        ("redis://ann:secret@c?timeout=3#name=other", "east"),
        ("redis://ann:secret@d", "redis://ann@d"),
    ],
)
def test_one_is_named_by_its_name_or_url(given: str, name: str) -> None:
    shards = [ListedShard("redis://:other@b", "redis://b"), ListedShard("redis://c", "east")]
    assert topology.name_in_list(Topology(1, 0, shards), given) == name


# Processes


class Processes:
    """Processes that have the same settings; each is a store of its own here."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.stores = directory, list[ShardedStore]()

    def url(self, name: str) -> str:
        return f"sqlite:///{self.directory}/{name}.db"

    def start(self, *names: str) -> ShardedStore:
        store = open_store([self.url(name) for name in names])
        assert isinstance(store, ShardedStore)
        self.stores.append(store)
        return store

    def change(self, store: ShardedStore, name: str, state: str) -> Topology:
        now = store.time()
        listing = topology_follower.current(store)
        one = topology.list_entry(self.url(name))
        if state == "up":
            changed = with_added(listing, one, now)
            with closing(store.make_shard(one)) as shard:
                check_new(store, shard, listing)
                prepare(store, shard)
                topology_follower.publish(store, changed, [shard])
        else:
            changed = with_state(listing, one.name, state, now)  # type: ignore[arg-type]
            topology_follower.publish(store, changed)
        return changed

    def states(self, store: ShardedStore) -> dict[str, str]:
        return {Path(shard.url).stem: shard.describe() for shard in store.shards if not shard.is_removed}

    def await_states(self, **states: str) -> None:
        for store in self.stores:
            until(lambda: self.states(store) == states)  # noqa: B023


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(topology_follower, "READ_EVERY", 0.05)
    monkeypatch.setattr(topology, "HOLDS_AFTER", SECOND // 2)
    found = Processes(tmp_path)
    yield found
    for store in found.stores:
        store.close()


def jobs(store: ShardedStore, count: int, **fields: object) -> list[Job]:
    now = store.time()
    return [Job(store.new_id("mail"), "mail", b"[]", due=now, state_since=now, **fields) for _ in range(count)]  # type: ignore[arg-type]


def test_all_processes_follow_and_change_places_at_the_same_time(processes: Processes) -> None:
    first, second = processes.start("a", "b"), processes.start("a", "b")
    changed = processes.change(first, "c", "up")
    before = [store.new_id("mail") for store in processes.stores for _ in range(30)]
    made_at = first.time()
    if made_at < changed.at:
        assert {first.shard(id) for id in before} <= {0, 1}
    processes.await_states(a="up", b="up", c="up")
    assert first.time() >= changed.at
    assert {store.home("mail", f"key {n}") for n in range(50) for store in processes.stores} == {0, 1, 2}
    assert all(first.home("mail", f"key {n}") == second.home("mail", f"key {n}") for n in range(50))
    # One that begins later knows it, too.
    processes.start("a", "b")
    processes.await_states(a="up", b="up", c="up")


def test_jobs_are_claimed_from_one_that_came_while_a_worker_ran(processes: Processes) -> None:
    producer, worker = processes.start("a", "b"), processes.start("a", "b")
    processes.change(producer, "c", "up")
    processes.await_states(a="up", b="up", c="up")
    put = jobs(producer, 60)
    producer.insert(put)
    assert {producer.shard(job.id) for job in put} == {0, 1, 2}
    claimed = worker.claim(WANTS, 100, "ann", 15 * SECOND, worker.time())
    assert {job.id for job in claimed} == {job.id for job in put}


def test_one_is_drained_and_removed_and_nothing_is_sent_to_it(processes: Processes) -> None:
    store, other = processes.start("a", "b"), processes.start("a", "b")
    put = jobs(store, 60)
    store.insert(put)
    processes.change(store, "b", "draining")
    processes.await_states(a="up", b="draining")
    assert {store.shard(job.id) for job in jobs(store, 60)} == {0}
    assert Mover(store, "ann").run().moved > 0
    assert {job.id for job in store.shards[0].store.find(Query())} == {job.id for job in put}
    processes.change(other, "b", "removed")
    processes.await_states(a="up")
    (processes.directory / "b.db").unlink()
    store.insert(jobs(store, 10))
    assert sum(tally.count for tally in other.counts()) == 70
    assert len(other.claim(WANTS, 100, "ann", 15 * SECOND, other.time())) == 70
    # The settings still name it.
    late = processes.start("a", "b")
    assert processes.states(late) == {"a": "up"}


def test_who_dies_while_he_changes_the_list_leaves_one_that_all_come_to(processes: Processes) -> None:
    first, second = processes.start("a", "b"), processes.start("a", "b")
    changed = with_added(
        Topology(0, 0, topology_follower.seeds(first)), topology.list_entry(processes.url("c")), first.time()
    )
    # To the first alone.
    assert topology.write(topology_follower.shards_in_order(first)[0].store, changed)
    processes.await_states(a="up", b="up", c="up")
    first.shards[0].mark_away(StoreBusy("it stands still"))
    until(lambda: (topology.read(second.shards[1].store) or Topology(0, 0, [])).version == 1)


def test_of_two_who_change_it_one_is_told(processes: Processes) -> None:
    first = processes.start("a", "b")
    seeds = Topology(0, 0, topology_follower.seeds(first))
    one, other = (with_added(seeds, topology.list_entry(processes.url(name)), first.time()) for name in "cd")
    topology_follower.publish(first, one)
    with pytest.raises(StoreBusy, match="another process changed the list"):
        topology_follower.publish(first, other)
    assert topology.read(first.shards[0].store) == one


def test_garbage_in_the_list_changes_nothing(processes: Processes) -> None:
    store = processes.start("a", "b")
    drained = b'{"version": 9, "at": 0, "shards": [{"url": "memory://", "name": "a", "state": "draining"}]}'
    twice = b'{"version": 9, "at": 0, "shards": [{"url": "memory://", "name": "a"}, {"url": "memory://", "name": "a"}]}'
    for garbage in (
        b"{",
        b"[]",
        b'{"version": -1, "at": 0, "shards": []}',
        drained,
        twice,
    ):
        part = store.shards[0].store
        assert part.kv_cas(topology.CELL, garbage, part.kv_get(topology.CELL))
        follower = TopologyFollower(store)
        follower.look()
        follower.stop()
        assert processes.states(store) == {"a": "up", "b": "up"}


def test_jobs_come_in_while_the_list_changes_and_none_is_lost(processes: Processes) -> None:
    store, worker = processes.start("a", "b"), processes.start("a", "b")
    put: list[bytes] = []
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.is_set():
            some = jobs(store, 5)
            store.insert(some)
            put.extend(job.id for job in some)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        processes.change(worker, "c", "up")
        processes.await_states(a="up", b="up", c="up")
        processes.change(worker, "a", "draining")
        processes.await_states(a="draining", b="up", c="up")
    finally:
        is_over.set()
        thread.join()
    Mover(worker, "ann").run()
    assert worker.shards[0].store.find(Query()) == []
    assert {job.id for job in worker.find(Query(limit=100_000))} == set(put)


def test_what_a_lost_store_held_is_told(processes: Processes) -> None:
    store = processes.start("a", "b")
    assert topology_follower.describe_loss(store, store.shards[1].name) == "what it held is not known"
    put = jobs(store, 40)
    store.insert(put)
    topology_follower.ShardNotes(store).note_held()
    there = sum(store.shard(job.id) == 1 for job in put)
    store.shards[1].mark_away(StoreBusy("it is gone"))
    assert topology_follower.describe_loss(store, store.shards[1].name).endswith(f"it held {there} unfinished jobs")


def test_one_that_was_removed_is_used_again(processes: Processes) -> None:
    store, worker = processes.start("a", "b"), processes.start("a", "b")
    for state in ("draining", "removed", "up"):
        processes.change(store, "a", state)
        processes.await_states(**({"b": "up"} if state == "removed" else {"a": state, "b": "up"}))
    put = jobs(store, 60)
    store.insert(put)
    assert {Path(store.shards[store.shard(job.id)].url).stem for job in put} == {"a", "b"}
    assert len(worker.claim(WANTS, 100, "ann", 15 * SECOND, worker.time())) == 60


def test_after_the_first_one_is_removed_nothing_asks_it(processes: Processes) -> None:
    store = processes.start("a", "b")
    put = jobs(store, 20)
    store.insert(put)
    assert len(store.find(Query())) == 20  # so it remembers where each is
    processes.change(store, "a", "draining")
    processes.await_states(a="draining", b="up")
    other = processes.start("a", "b")
    Mover(other, "ann").run()
    processes.change(store, "a", "removed")
    processes.await_states(b="up")
    assert all(store.get([job.id for job in put]))
    cancelled = [lifecycle.cancel(job, lifecycle.Rules(keep_done=1), store.time()) for job in put]
    assert all(store.apply(cancelled, store.time()))
    assert store.prune(store.time() + SECOND, 1_000_000) == 20


def test_a_store_with_an_old_list_misleads_nobody_who_begins(processes: Processes) -> None:
    store = processes.start("a", "b")
    processes.change(store, "c", "up")
    processes.await_states(a="up", b="up", c="up")
    old = topology.read(store.shards[0].store)
    processes.change(store, "a", "draining")
    processes.await_states(a="draining", b="up", c="up")
    # As if it had been away all the time, and was forgotten.
    processes.change(store, "a", "removed")
    processes.await_states(b="up", c="up")
    with closing(open_store(processes.url("a"))) as lost:
        assert lost.kv_cas(topology.CELL, msgspec.json.encode(old), lost.kv_get(topology.CELL))
    assert processes.states(processes.start("a", "b")) == {"b": "up", "c": "up"}


def test_one_that_only_this_process_cannot_open_keeps_no_other_change_from_it(processes: Processes) -> None:
    store = processes.start("a", "b")
    bad = ListedShard("nosuch://c", "c")
    changed = with_added(Topology(0, 0, topology_follower.seeds(store)), bad, store.time())
    topology_follower.publish(
        store, replace(changed, shards=[replace(changed.shards[0], state="draining"), *changed.shards[1:]])
    )
    until(lambda: [shard.draining for shard in store.shards] == [True, False, False])
    assert "begin with one of" in store.shards[2].away


def test_of_two_lists_that_were_made_at_once_all_take_the_same(processes: Processes) -> None:
    first, second = processes.start("a", "b"), processes.start("a", "b")
    for store in processes.stores:
        store.shards[0].ask(lambda one: one.time())
    seeds = Topology(0, 0, topology_follower.seeds(first))
    for number, name in enumerate("cd"):
        one = with_added(seeds, topology.list_entry(processes.url(name)), 0)
        assert topology.write(first.shards[number].store, one)
    until(lambda: len({str(processes.states(store)) for store in processes.stores}) == 1 and len(first.shards) > 2)
    until(lambda: topology.read(first.shards[0].store) == topology.read(second.shards[1].store))
    known = topology.read(first.shards[0].store)
    assert known is not None
    assert topology.write(first.shards[1].store, known), "it was brought there already"


def test_one_that_is_added_gets_what_holds_on_all(processes: Processes) -> None:
    store = processes.start("a", "b")
    for queue in ("still", "soon"):
        store.pause(queue, True)
    store.limit("task:mail", Limit(5))
    store.limit("each:mail", Limit(2))
    store.limit_key("mail", "whale", KeyLimit(1))
    processes.change(store, "c", "up")
    processes.await_states(a="up", b="up", c="up")
    added = store.shards[2].store
    assert added.queues() == {"still": True, "soon": True}
    assert store.limits()["task:mail"][0] == Limit(5)
    assert sum(shard.store.limits()["task:mail"][0].most or 0 for shard in store.shards) == 5
    assert added.limits()["each:mail"] == store.shards[0].store.limits()["each:mail"]
    assert read_key_limit(added, "mail", "whale") == KeyLimit(1)
    for state in ("draining", "removed"):
        processes.change(store, "c", state)
        processes.await_states(a="up", b="up", **({"c": state} if state == "draining" else {}))
    # What is changed while it is out is changed in it, too, once it is back.
    store.pause("soon", False)
    store.limit("task:mail", None)
    store.limit_key("mail", "whale", None)
    processes.change(store, "c", "up")
    processes.await_states(a="up", b="up", c="up")
    assert store.queues() == {"still": True}
    assert "task:mail" not in store.limits()
    assert read_key_limit(store.shards[-1].store, "mail", "whale") is None


def test_a_store_is_not_added_under_a_second_name_or_address(processes: Processes, tmp_path: Path) -> None:
    store = processes.start("a", "b")
    (tmp_path / "c.db").symlink_to(tmp_path / "b.db")
    with pytest.raises(TarryError, match=r"c\.db is in the list already, as .*b\.db"):
        processes.change(store, "c", "up")
    (tmp_path / "c.db").unlink()
    processes.change(store, "c", "up")
    (tmp_path / "d.db").symlink_to(tmp_path / "c.db")
    processes.await_states(a="up", b="up", c="up")
    with pytest.raises(TarryError, match="its own, or this one's under another name"):
        processes.change(store, "d", "up")
    assert processes.states(store) == {"a": "up", "b": "up", "c": "up"}


def test_the_stores_that_are_watched_change_with_the_list(processes: Processes) -> None:
    store = processes.start("a", "b")
    checks = StoreChecks(all_shards(store), Alerts())
    for state in ("draining", "removed", "up"):
        processes.change(store, "a", state)
        processes.await_states(**({"b": "up"} if state == "removed" else {"a": state, "b": "up"}))
        checks.check()
        assert (checks.local_conditions, checks.is_complete) == ([], True)
    store.shards[-1].mark_away(StoreBusy("it stands still"))
    checks.check()
    assert [condition.what for condition in checks.local_conditions] == [f"{store.shards[-1].url} is away"]
    checks.close(own=False)


def test_a_job_whose_id_was_drawn_before_a_change_goes_where_its_key_lives_now(processes: Processes) -> None:
    store = processes.start("a", "b")

    def keyed() -> list[Job]:
        new = jobs(store, 30, key_held_until=HELD)
        keys = [f"key {number}" for number in range(30)]
        return [replace(job, id=store.new_id("mail", key), key=key) for key, job in zip(keys, new, strict=True)]

    old = keyed()
    processes.change(store, "c", "up")
    processes.await_states(a="up", b="up", c="up")
    assert store.insert(old) == [job.id for job in old]
    assert all(store.get([job.id for job in old]))
    # Each holds its key.
    assert store.insert(keyed()) == [job.id for job in old]


def test_what_came_to_a_store_too_late_is_told_and_is_there_when_it_is_added_again(
    processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    store = processes.start("a", "b")
    late = [job for job in jobs(store, 40) if store.shard(job.id) == 0]
    processes.change(store, "a", "draining")
    processes.await_states(a="draining", b="up")
    # As a process does that stood still since before the drain.
    store.shards[0].store.insert(late)
    processes.change(store, "a", "removed")
    processes.await_states(b="up")
    assert f"{store.shards[0].name} was removed and has {len(late)} unfinished jobs, which nobody runs" in caplog.text
    processes.change(store, "a", "up")
    processes.await_states(a="up", b="up")
    assert {job.id for job in store.claim(WANTS, 100, "ann", 15 * SECOND, store.time())} == {job.id for job in late}
