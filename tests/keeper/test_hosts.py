"""The entries of hosts in the store: written, read, lost, replaced, forgotten; on one store and on several as one."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tarry.client.clock import FakeClock
from tarry.errors import StoreUnavailable
from tarry.keeper.hosts import HEARTBEAT_EVERY, HostEntry
from tarry.keeper.lease_renewer import LeaseRenewer
from tarry.model import lifecycle
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import Job
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.opening import open_store
from tarry.store.queries.hosts import FORGOTTEN_AFTER, LOST_AFTER, Host, PoolFigures, WorkerFigures, list_hosts
from tarry.store.rules import owner
from tarry.store.rules.base import Store, Want
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.store.switched import Switched, memories, slow

POOLS = [PoolFigures("default", workers=2, busy=1, processed=10, failed=3, memory=2**20)]


def elsewhere(name: str = "web-1", pid: int = 7) -> Host:
    """A master of another machine, as it sees itself."""
    return Host(f"{name}|00000000.1:{pid}:99:0", name, pid, "/srv/run/tarry.pid", "0.1.0", pools=POOLS)


def local_host(pid: int, started: str | None = None) -> Host:
    """A master of this machine, with the pid of some process and, if given, another time of birth."""
    place, _, real = owner.process_owner(pid).rpartition(":")
    instance = f"{place}:{started or real}:0"
    return replace(elsewhere(), instance=instance, name=instance.partition("|")[0], pid=pid)


@pytest.fixture(params=["sqlite", "memory", "shards"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    made: dict[str, Store] = {"memory": MemoryStore(clock.now), "shards": memories("abc")[0]}
    store = made.get(request.param) or SqliteStore(tmp_path / "tarry.db")
    yield store
    store.close()


class HostSource:
    """What a register is told of its host; None: nothing."""

    def __init__(self, host: Host | None) -> None:
        self.host = host

    def __call__(self) -> Host | None:
        return self.host


def register(store: Store, host: Host, clock: FakeClock) -> HostEntry:
    entry = HostEntry(store, HostSource(host), clock)
    entry.register_host()
    return entry


def states(store: Store, clock: FakeClock) -> dict[str, str]:
    return {host.name: host.state for host in list_hosts(store, clock.now())}


def test_a_host_is_seen_as_it_told(store: Store, clock: FakeClock) -> None:
    assert list_hosts(store, clock.now()) == []
    register(store, elsewhere(), clock)
    assert list_hosts(store, clock.now()) == [replace(elsewhere(), seen=clock.now())]
    (host,) = list_hosts(store, clock.now())
    assert (host.is_alive, host.is_local) == (True, False)


def test_without_a_time_the_store_is_asked(store: Store) -> None:
    clock = FakeClock(store.time())
    register(store, elsewhere(), clock)
    assert [host.is_alive for host in list_hosts(store)] == [True]


def test_several_masters_are_told_apart_and_stand_in_order(store: Store, clock: FakeClock) -> None:
    for host in (elsewhere("web-2"), elsewhere(), elsewhere(pid=8)):
        register(store, host, clock)
    assert [(host.name, host.pid) for host in list_hosts(store, clock.now())] == [
        ("web-1", 7),
        ("web-1", 8),
        ("web-2", 7),
    ]


def test_a_new_worker_is_known_at_once(store: Store, clock: FakeClock) -> None:
    """Also one that takes the place of another: what it runs can be looked at and ended."""
    told = HostSource(replace(elsewhere(), workers=[WorkerFigures("default", 1, "web-1|1.1:8:1")]))
    entry = HostEntry(store, told, clock)
    entry.register_host()
    told.host = replace(elsewhere(), workers=[WorkerFigures("default", 1, "web-1|1.1:9:1")])
    entry.register_host()
    assert [worker.owner for worker in list_hosts(store, clock.now())[0].workers] == ["web-1|1.1:9:1"]


def test_it_beats_every_few_seconds_and_at_news(store: Store, clock: FakeClock) -> None:
    told = HostSource(elsewhere())
    entry = HostEntry(store, told, clock)
    entry.register_host()
    first = clock.now()
    clock.advance(HEARTBEAT_EVERY / SECOND - 1)
    told.host = replace(elsewhere(), pools=[replace(POOLS[0], processed=11)])
    entry.register_host()
    assert list_hosts(store, clock.now())[0].seen == first, "figures alone are no news"
    told.host = replace(elsewhere(), state="stopping")
    entry.register_host()
    assert states(store, clock) == {"web-1": "stopping"}
    clock.advance(HEARTBEAT_EVERY / SECOND)
    entry.register_host()
    assert list_hosts(store, clock.now())[0].seen == clock.now()


def test_it_beats_again_when_the_clock_is_set_back(store: Store, clock: FakeClock) -> None:
    entry = register(store, elsewhere(), clock)
    clock.advance(-3600)
    entry.register_host()
    assert states(store, clock) == {"web-1": "serving"}


def test_what_cannot_be_seen_gives_no_sign_of_life(store: Store, clock: FakeClock) -> None:
    HostEntry(store, HostSource(None), clock).register_host()
    assert list_hosts(store, clock.now()) == []


def test_a_host_that_vanished_is_lost_and_forgotten_after_a_day(store: Store, clock: FakeClock) -> None:
    register(store, elsewhere(), clock)
    gone = clock.now()
    clock.advance(LOST_AFTER / SECOND - 1)
    assert states(store, clock) == {"web-1": "serving"}
    clock.advance(1)
    (host,) = list_hosts(store, clock.now())
    assert (host.state, host.is_alive, host.seen) == ("lost", False, gone)
    clock.advance(FORGOTTEN_AFTER / SECOND - LOST_AFTER / SECOND - 1)
    register(store, elsewhere("web-2"), clock)
    assert states(store, clock) == {"web-1": "lost", "web-2": "serving"}
    clock.advance(1)
    assert states(store, clock) == {"web-2": "serving"}


def test_the_others_sweep_away_who_is_forgotten(store: Store, clock: FakeClock) -> None:
    register(store, elsewhere(), clock)
    other = register(store, elsewhere("web-2"), clock)
    clock.advance(FORGOTTEN_AFTER / SECOND)
    other.register_host()
    assert list(store.kv_list("host:")) == ["host:web-2|00000000.1:7:99:0"]


def test_one_that_stopped_removes_itself(store: Store, clock: FakeClock) -> None:
    entry, other = register(store, elsewhere(), clock), register(store, elsewhere("web-2"), clock)
    entry.remove()
    assert states(store, clock) == {"web-2": "serving"}
    entry.remove()
    other.remove()
    assert store.kv_list("host:") == {}


def test_the_next_keeper_of_a_master_goes_on_with_its_entry(store: Store, clock: FakeClock) -> None:
    first, second = register(store, elsewhere(), clock), register(store, elsewhere(), clock)
    for entry in (first, second, first):
        clock.advance(HEARTBEAT_EVERY / SECOND)
        entry.register_host()
        assert [host.seen for host in list_hosts(store, clock.now())] == [clock.now()]
    second.remove()
    assert store.kv_list("host:") == {}


def test_on_its_own_host_a_dead_master_is_lost_at_once_and_replaced_by_the_next(store: Store, clock: FakeClock) -> None:
    dead, alive = local_host(os.getpid(), started="1"), local_host(os.getpid())
    register(store, dead, clock)
    (host,) = list_hosts(store, clock.now())
    assert (host.state, host.is_local) == ("lost", True)
    register(store, replace(alive, pid_file="/other.pid"), clock)
    assert len(list_hosts(store, clock.now())) == 2, "another master of this host"
    register(store, replace(alive, pid_file=dead.pid_file), clock)
    assert [host.state for host in list_hosts(store, clock.now())] == ["serving"]


def test_after_a_reboot_the_next_master_replaces_what_was_lost(store: Store, clock: FakeClock) -> None:
    register(store, elsewhere(), clock)
    rebooted = replace(elsewhere(), instance="web-1|11111111.1:7:50:0")
    entry = register(store, rebooted, clock)
    assert len(list_hosts(store, clock.now())) == 2, "it may be another container of the same name"
    clock.advance(max(LOST_AFTER, MINUTE) / SECOND)
    entry.register_host()
    assert [host.instance for host in list_hosts(store, clock.now())] == [rebooted.instance]


def test_a_master_of_the_future_is_lost(store: Store, clock: FakeClock) -> None:
    register(store, elsewhere(), FakeClock(clock.now() + LOST_AFTER))
    assert states(store, clock) == {"web-1": "lost"}


SEEN = round(FakeClock().now())
JOB_ID = b'"01a20f47-6566-754e-8daf-90e431b1e7a3"'
GARBAGE = [
    b"", b"\xff\xfe", b"{", b"[]", b"null", b'"web"', b"{}", b'{"instance":1,"name":"x"}', b'{"instance":"x"}',
    b'{"instance":"x","name":"x","started":1e300}', b'{"instance":"x","name":"x","seen":-1}',
    b'{"instance":"x","name":"x","pools":[{"name":"a","workers":-1}]}', b'{"instance":"\\ud800","name":"x"}',
    *(
        b'{"instance":"x","name":"x","seen":%d,%s}' % (SEEN, wrong)
        for wrong in (
            b'"reloaded":1e300', b'"reloaded":-1', b'"workers":[{"pool":"a","number":1,"started":1e18}]',
            b'"workers":[{"pool":"a","number":1,"jobs":["no id"]}]',
            # What is left out is looked through by recursion, and Python 3.14 has the whole stack for that.
            b'"deep":' + b"[" * 1_000_000 + b"]" * 1_000_000,
            b'"workers":[{"pool":"a","number":1,"jobs":[' + b",".join([JOB_ID] * 101) + b"]}]",
            b'"workers":[' + b",".join([b'{"pool":"a","number":1}'] * 1001) + b"]",
            b'"pools":[{"name":"a","weights":{"b":-1}}]',
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_is_no_entry_is_passed_over_and_left_alone(garbage: bytes, clock: FakeClock) -> None:
    store = MemoryStore(clock.now)
    store.kv_cas("host:strange", garbage, None)
    entry = register(store, elsewhere(), clock)
    assert states(store, clock) == {"web-1": "serving"}
    entry.remove()
    assert store.kv_list("host:") == {"host:strange": garbage}


def test_garbage_in_our_own_cell_is_written_over(store: Store, clock: FakeClock) -> None:
    store.kv_cas(f"host:{elsewhere().instance}", b"\xff", None)
    register(store, elsewhere(), clock)
    assert states(store, clock) == {"web-1": "serving"}


def test_entries_of_other_releases_are_read_as_far_as_they_go(clock: FakeClock) -> None:
    store = MemoryStore(clock.now)
    older = {"instance": "old|0.1:1:1:0", "name": "old", "seen": clock.now()}
    newer = older | {"instance": "new|0.1:1:1:0", "name": "new", "colour": "red", "pools": [{"name": "a", "gpu": 3}]}
    for facts in (older, newer):
        store.kv_cas(f"host:{facts['name']}", msgspec.json.encode(facts), None)
    assert [(host.name, host.pools) for host in list_hosts(store, clock.now())] == [
        ("new", [PoolFigures("a")]),
        ("old", []),
    ]


def test_an_answer_that_was_lost_is_made_up_for(clock: FakeClock) -> None:
    store = Switched(MemoryStore(clock.now))
    entry = HostEntry(store, HostSource(elsewhere()), clock)
    store.down(after=True, only="kv_cas")
    with pytest.raises(StoreUnavailable):
        entry.register_host()
    store.up()
    entry.register_host()
    assert states(store, clock) == {"web-1": "serving"}
    store.down()
    clock.advance(HEARTBEAT_EVERY / SECOND)
    with pytest.raises(StoreUnavailable):
        entry.register_host()


@pytest.mark.usefixtures("closing")
def test_where_one_of_several_stores_is_away_another_takes_its_part(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    store, parts = memories("ab")
    masters = [elsewhere(f"web-{number}") for number in range(6)]
    registers = [register(store, master, clock) for master in masters]
    assert all(part.inner.kv_list("host:") for part in parts), "each has some"
    parts[0].down()
    clock.advance(HEARTBEAT_EVERY / SECOND)
    for entry in registers:
        entry.register_host()
    assert states(store, clock) == {host.name: "serving" for host in masters}
    clock.advance(LOST_AFTER / SECOND)
    for entry in registers:
        entry.register_host()
    parts[0].up()
    whole = ShardedStore([part.inner for part in parts])
    assert states(whole, clock) == {host.name: "serving" for host in masters}, "old entries of it hide nothing"
    for host in masters:
        HostEntry(whole, HostSource(host), clock).remove()
    assert whole.kv_list("host:") == {}


@pytest.fixture(params=["redis_server", "postgres_server", "mariadb_server"])
def far_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """On a server, where others may have left things."""
    store = open_store(request.getfixturevalue(request.param).url)
    _forget(store)
    yield store
    _forget(store)
    store.close()


def _forget(store: Store) -> None:
    for name, cell in store.kv_list("host:").items():
        store.kv_cas(name, None, cell)


def test_hosts_on_servers(far_store: Store) -> None:
    clock = FakeClock(far_store.time())
    entry, other = (register(far_store, elsewhere(name), clock) for name in ("wéb-1", "web-2"))
    assert states(far_store, clock) == {"web-2": "serving", "wéb-1": "serving"}
    clock.advance(LOST_AFTER / SECOND)
    other.register_host()
    assert states(far_store, clock) == {"web-2": "serving", "wéb-1": "lost"}
    entry.remove()
    other.remove()
    assert list_hosts(far_store) == []


def test_leases_are_prolonged_by_another_on_servers(far_store: Store) -> None:
    name, lease = owner.new_name(), 10 * SECOND
    now = far_store.time()
    (job,) = far_store.get(
        far_store.insert([Job(far_store.new_id("t"), "t", b"[]", queue=name, due=now, state_since=now)])
    )
    assert job is not None
    wants = [Want(name, 0, 1)]
    assert len(far_store.claim(wants, 1, name, lease, now)) == 1
    clock = FakeClock(now + 8 * SECOND)
    keepers = open_store(far_store.opened_by)
    LeaseRenewer(keepers, lambda: {name: lease}, clock).renew_leases()
    assert far_store.reclaim(now + 12 * SECOND) == []
    assert far_store.extend(name, [(job.id, 1)], lease, now + 9 * SECOND) == [], "it goes on by itself"
    keepers.close()
    (held,) = far_store.reclaim(now, name)
    assert far_store.apply([lifecycle.after(held, Returned(), lifecycle.DEFAULT, now)], now) == [True]
