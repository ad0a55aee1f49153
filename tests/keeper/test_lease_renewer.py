"""Leases of workers that live and are silent: prolonged as long as their process could work, and no longer."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest

from tarry.client.clock import FakeClock
from tarry.errors import PartlyUnavailable, StoreUnavailable
from tarry.keeper import lease_renewer
from tarry.keeper.lease_renewer import LeaseRenewer
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import owner
from tarry.store.rules.base import BANDS, Store, Want
from tests.store.switched import Switched, memories, slow
from tests.worker.bench import until
from tests.worker.manual_pump import Monotonic

LEASE = 15 * SECOND
WANTS = [Want("default", band, 100) for band in BANDS]


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    moment = Monotonic()
    monkeypatch.setattr(lease_renewer, "time", moment)
    return moment


@pytest.fixture
def process() -> Iterator[int]:
    """One that lives and does nothing."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def named(pid: int) -> str:
    return f"{owner.process_owner(pid)}:1"


def held(store: Store, clock: FakeClock, by: str, count: int = 2) -> list[Job]:
    """Jobs in the hands of that owner, whose lease has nearly run out."""
    store.insert(
        [Job(store.new_id("pay"), "pay", b"[]", due=clock.now(), state_since=clock.now()) for _ in range(count)]
    )
    jobs = store.claim(WANTS, 100, by, LEASE, clock.now())
    clock.advance(LEASE / SECOND - 1)
    return jobs


def overdue(store: Store, clock: FakeClock) -> int:
    """How many jobs another host would bring back two seconds later."""
    return len(store.reclaim(clock.now() + 2 * SECOND))


def test_who_lives_keeps_its_jobs(store: Store, clock: FakeClock, process: int) -> None:
    name = named(process)
    held(store, clock, name)
    assert overdue(store, clock) == 2
    LeaseRenewer(store, lambda: {name: LEASE}, clock).renew_leases()
    assert overdue(store, clock) == 0
    assert len(store.reclaim(clock.now() + LEASE)) == 2, "for one lease, and not for ever"


def test_who_gives_signs_of_life_is_left_to_itself(store: Store, clock: FakeClock, process: int) -> None:
    held(store, clock, named(process))
    LeaseRenewer(store, dict, clock).renew_leases()
    assert overdue(store, clock) == 2


def test_who_is_stopped_is_not_prolonged_until_it_goes_on(store: Store, clock: FakeClock, process: int) -> None:
    name = named(process)
    held(store, clock, name)
    renewer = LeaseRenewer(store, lambda: {name: LEASE}, clock)
    os.kill(process, signal.SIGSTOP)
    until(lambda: not owner.is_running(name))
    renewer.renew_leases()
    assert overdue(store, clock) == 2
    os.kill(process, signal.SIGCONT)
    until(lambda: owner.is_running(name))
    renewer.renew_leases()
    assert overdue(store, clock) == 0


def test_who_is_dead_or_of_another_host_or_no_owner_is_not_prolonged(store: Store, clock: FakeClock) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    dead = named(child)
    os.kill(child, signal.SIGKILL)
    until(lambda: not owner.is_running(dead))
    os.waitpid(child, 0)
    other = f"elsewhere|{named(os.getpid()).partition('|')[2]}"
    recycled = ":".join([*named(os.getpid()).split(":")[:-2], "1", "1"])
    names = [dead, other, recycled, "nobody", ""]
    for name in names:
        store.insert([Job(store.new_id("pay"), "pay", b"[]", due=clock.now(), state_since=clock.now())])
        store.claim(WANTS, 1, name, LEASE, clock.now())
    clock.advance(LEASE / SECOND - 1)
    LeaseRenewer(store, lambda: dict.fromkeys(names, LEASE), clock).renew_leases()
    assert overdue(store, clock) == len(names)


def test_the_store_is_asked_four_times_a_lease(clock: FakeClock, moment: Monotonic, process: int) -> None:
    store, name = Switched(MemoryStore(clock.now)), named(process)
    held(store, clock, name)
    renewer = LeaseRenewer(store, lambda: {name: LEASE}, clock)
    renewer.renew_leases()
    asked = store.calls
    moment.now += 3.7
    renewer.renew_leases()
    assert store.calls == asked
    moment.now += 0.1
    renewer.renew_leases()
    assert store.calls == asked + 2


def test_it_is_told_once_and_not_of_a_short_silence(
    clock: FakeClock, moment: Monotonic, process: int, caplog: pytest.LogCaptureFixture
) -> None:
    store, name = MemoryStore(clock.now), named(process)
    held(store, clock, name)
    silent = {name: LEASE}
    renewer = LeaseRenewer(store, lambda: silent, clock)
    with caplog.at_level(logging.WARNING, "tarry.keeper"):
        renewer.renew_leases()
        assert not caplog.messages
        for _ in range(3):
            moment.now += 5
            renewer.renew_leases()
    assert caplog.messages == [f"{name} works and gives no sign of life; the lease on its 2 jobs is prolonged for it"]


def test_while_the_store_is_away_it_is_tried_again(clock: FakeClock, process: int) -> None:
    store, name = Switched(MemoryStore(clock.now)), named(process)
    held(store, clock, name)
    renewer = LeaseRenewer(store, lambda: {name: LEASE}, clock)
    store.down()
    with pytest.raises(StoreUnavailable):
        renewer.renew_leases()
    store.up()
    renewer.renew_leases()
    assert overdue(store, clock) == 0


@pytest.mark.usefixtures("closing")
def test_of_several_stores_those_that_are_there_are_told(
    clock: FakeClock, process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch)
    store, parts = memories("ab")
    name = named(process)
    held(store, clock, name, 40)
    whole = overdue(store, clock)
    parts[0].down()
    with pytest.raises(PartlyUnavailable):
        LeaseRenewer(store, lambda: {name: LEASE}, clock).renew_leases()
    late = [len(part.inner.reclaim(clock.now() + 2 * SECOND)) for part in parts]
    assert (whole, late[1]) == (40, 0)
    assert late[0] > 0
