"""Several stores as one, some of which are away."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace

from tarry.errors import (
    ConfigError,
    PartlyUnavailable,
    StoreAway,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from tarry.keeper.limits import declare
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.opening import open_store
from tarry.store.queries.history_reading import HistoryView, Period, Totals, totals, view
from tarry.store.rules import key_limits
from tarry.store.rules.base import BANDS, Query, Store, Want
from tarry.store.rules.history.history import StoreHistory
from tarry.store.rules.history.sums import MINUTES
from tarry.store.rules.ids import uuid7
from tarry.store.rules.partial_result import partial_result
from tarry.store.rules.sleeper import WORK
from tarry.store.shards import shard
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.store.switched import Switched, memories, quick, slow, until

NOW = 1_800_000_000 * SECOND
LEASE = 30 * SECOND
WANTS = [Want("default", band, 100) for band in BANDS]
pytestmark = pytest.mark.usefixtures("closing")


@pytest.fixture(autouse=True)
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch)


def job(store: Store, key: str | None = None) -> Job:
    holds = 0 if key is None else HELD
    return Job(store.new_id("mail", key), "mail", b"", due=NOW, state_since=NOW, key=key, key_held_until=holds)


def on(store: ShardedStore, number: int) -> Job:
    """A job that belongs on that shard."""
    while store.shard((made := job(store)).id) != number:
        pass
    return made


def lose(store: ShardedStore, parts: list[Switched], number: int) -> None:
    """It goes away, and that is noticed."""
    parts[number].down()
    with pytest.raises(StoreUnavailable):
        store.find(Query())


def test_a_shard_that_is_away_stops_no_producer() -> None:
    store, parts = memories("abc")
    lose(store, parts, 1)
    jobs = [job(store) for _ in range(200)]
    assert store.insert(jobs) == [made.id for made in jobs]
    assert {store.shard(made.id) for made in jobs} == {0, 2}


def test_ids_are_drawn_for_all_again_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    store, parts = memories("abc")
    lose(store, parts, 1)
    parts[1].up()
    until(lambda: not store.shards[1].away)
    assert {store.shard(job(store).id) for _ in range(200)} == {0, 1, 2}
    assert store.topology_version == 1


def test_of_a_batch_it_is_told_which_are_not_stored_and_why() -> None:
    store, parts = memories("ab")
    jobs = [on(store, 0), on(store, 1), on(store, 0), on(store, 1)]
    parts[1].down(after=True, only="insert")
    with pytest.raises(PartlyUnavailable, match="memory://b: no answer") as caught:
        store.insert(jobs)
    assert {at: type(error) for at, error in caught.value.missing.items()} == dict.fromkeys((1, 3), StoreUnavailable)
    with pytest.raises(PartlyUnavailable) as caught:
        store.insert(jobs)
    assert {type(error) for error in caught.value.missing.values()} == {StoreAway}, "nothing was sent"
    assert len(parts[0].inner.find(Query())) == 2


def test_a_job_alone_on_a_shard_that_is_away_is_its_error() -> None:
    store, parts = memories("ab")
    made = on(store, 1)
    lose(store, parts, 1)
    with pytest.raises(StoreAway, match="memory://b is away: memory://b: no answer"):
        store.insert([made])


def test_when_all_fail_each_has_its_own_error() -> None:
    store, parts = memories("ab")
    jobs = [on(store, 0), on(store, 1)]
    lose(store, parts, 0)
    parts[1].down(after=True)
    with pytest.raises(PartlyUnavailable) as caught:
        store.insert(jobs)
    assert [type(caught.value.missing[at]) for at in (0, 1)] == [StoreAway, StoreUnavailable]


@pytest.mark.parametrize("error", [StoreFull("full"), StoreReadOnly("read-only")])
def test_one_that_is_full_gets_no_new_ids_for_a_while_but_still_gives(error: StoreError) -> None:
    store, parts = memories("ab")
    waits = on(store, 1)
    store.insert([waits])
    parts[1].error = error
    with pytest.raises(type(error)):
        store.insert([on(store, 1)])
    parts[1].error = None
    assert {store.shard(job(store).id) for _ in range(100)} == {0}
    assert [taken.id for taken in store.claim(WANTS, 5, "ann", LEASE, NOW)] == [waits.id]


def test_another_id_is_had_only_for_jobs_that_may_live_anywhere() -> None:
    store, parts = memories("ab")
    mine, keyed = on(store, 1), job(store, "k")
    lose(store, parts, 1)
    other = store.reroute(mine)
    assert other is not None
    assert store.shard(other) == 0
    assert store.reroute(keyed) is None
    lose(store, parts, 0)
    assert store.reroute(mine) is None
    assert MemoryStore().reroute(mine) is None


def test_jobs_with_a_key_wait_for_its_home() -> None:
    store, parts = memories("ab")
    key = next(f"k{n}" for n in range(100) if store.home("mail", f"k{n}") == 1)
    lose(store, parts, 1)
    with pytest.raises(StoreAway):
        store.insert([job(store, key)])


def test_workers_go_on_with_the_others_and_each_turn_costs_nothing() -> None:
    store, parts = memories("abc")
    for number in range(3):
        store.insert([on(store, number) for _ in range(10)])
    parts[1].down()
    first = store.exchange((), WANTS, 30, "ann", LEASE, NOW)
    assert (len(first.jobs), first.unanswered) == (20, True)
    assert first.away == "memory://b is away: memory://b: no answer"
    parts[1].calls = 0
    for _ in range(50):
        assert not store.exchange((), WANTS, 30, "ann", LEASE, NOW).unanswered
    assert parts[1].calls == 0


def test_changes_for_one_that_is_away_are_missing_and_the_others_made() -> None:
    store, parts = memories("ab")
    store.insert([on(store, 0), on(store, 1)])
    taken = store.claim(WANTS, 2, "ann", LEASE, NOW)
    changes = [lifecycle.after(each, Returned(b"1"), lifecycle.DEFAULT, NOW) for each in taken]
    parts[1].down()
    answer = store.exchange(changes, (), 0, "ann", LEASE, NOW)
    (there,) = (at for at, each in enumerate(taken) if store.shard(each.id) == 0)
    assert (answer.valid[there], list(answer.missing)) == (True, [1 - there])
    with pytest.raises(PartlyUnavailable) as caught:
        store.apply(changes, NOW)
    assert (caught.value.answer[there], list(caught.value.missing)) == (False, [1 - there])


def test_a_shard_that_fails_in_another_way_is_left_alone_too() -> None:
    store, parts = memories("ab")
    parts[1].error = StoreReadOnly("a replica")
    answer = store.exchange((), WANTS, 1, "ann", LEASE, NOW)
    assert answer.away == "memory://b is away: a replica"


def test_when_all_are_away_a_turn_fails() -> None:
    store, parts = memories("ab")
    for part in parts:
        part.down()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="memory://"):
            store.exchange((), WANTS, 1, "ann", LEASE, NOW)


def test_leases_are_prolonged_where_they_can_be() -> None:
    store, parts = memories("ab")
    store.insert([on(store, 0), on(store, 1)])
    held = [(taken.id, taken.epoch) for taken in store.claim(WANTS, 2, "ann", LEASE, NOW)]
    lose(store, parts, 1)
    with pytest.raises(PartlyUnavailable) as caught:
        store.extend("ann", [*held, (on(store, 0).id, 1)], LEASE, NOW + LEASE)
    assert len(caught.value.answer) == 1
    assert parts[0].inner.reclaim(NOW + LEASE) == []


def test_nothing_is_overdue_on_a_shard_that_has_just_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, patience=3600)
    store, parts = memories("ab")
    store.insert([on(store, 0), on(store, 1)])
    taken = store.claim(WANTS, 2, "ann", LEASE, NOW)
    lose(store, parts, 1)
    parts[1].up()
    until(lambda: not store.shards[1].away)
    late = NOW + 2 * LEASE
    assert [store.shard(each.id) for each in store.reclaim(late)] == [0]
    assert len(store.reclaim(late, "ann")) == len(taken), "of one that is known to be gone, all at once"
    monkeypatch.setattr(shard, "LEASE_GRACE", 0)
    assert len(store.reclaim(late)) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.find(Query()),
        lambda store: store.counts(),
        lambda store: store.owners(),
        lambda store: store.queues(),
        lambda store: store.backlog(None, NOW, 10),
        lambda store: store.limits(),
        lambda store: store.kv_list(""),
        lambda store: store.next_due(),
        lambda store: store.reclaim(NOW),
        lambda store: store.expiring(0, NOW, 10),
        lambda store: store.prune(NOW, 10**9),
    ],
)
def test_who_asks_all_is_told_what_the_others_say(ask: Callable[[Store], object]) -> None:
    whole, _ = memories("a")
    store, parts = memories("ab")
    for each in (store, whole):
        each.pause("slow", True)
        each.limit("task:x", Limit(3))
    mine = on(store, 0)
    for each in (store, whole):
        each.insert([mine])
    lose(store, parts, 1)
    with pytest.raises(PartlyUnavailable) as caught:
        ask(store)
    assert caught.value.answer == ask(whole)


@pytest.mark.parametrize("read", [lambda history: view(history, Period.last(MINUTES, 5, NOW)), totals])
def test_the_history_has_the_figures_of_the_others(read: Callable[[StoreHistory], HistoryView | Totals]) -> None:
    store, parts = memories("ab")
    store.insert([on(store, 0), on(store, 1), on(store, 1)])
    store.history.sum_up(NOW)
    assert read(store.history).total.put == 3
    lose(store, parts, 0)
    found, away = partial_result(lambda: read(store.history))
    assert away is not None
    assert found.total.put == 2
    assert [one.put for one in found.tasks] == [2]


def test_whether_there_is_a_job_is_not_known_while_it_may_be_away() -> None:
    store, parts = memories("ab")
    there, away, nowhere = on(store, 0), on(store, 1), on(store, 0)
    store.insert([there, away])
    lose(store, parts, 1)
    with pytest.raises(PartlyUnavailable) as caught:
        store.get([there.id, away.id, nowhere.id])
    assert (caught.value.answer[0], sorted(caught.value.missing)) == (there, [1, 2])


def test_time_and_holds_come_from_the_next_one() -> None:
    store, parts = memories("ab")
    name = next(f"h{n}" for n in range(100) if store.shard(f"h{n}".encode()) == 0)
    lose(store, parts, 0)
    assert store.time() > 0
    assert store.hold(name, "ann", NOW + LEASE, NOW)
    assert not store.hold(name, "bob", NOW + LEASE, NOW)


def test_facts_tell_what_is_wrong() -> None:
    store, parts = memories("ab")
    lose(store, parts, 1)
    facts = store.diagnostics()
    assert [fact.name for fact in facts] == ["memory://a durability", "memory://b"]
    assert (facts[1].value, facts[1].advice) == ("away for 0 s", "memory://b is away: memory://b: no answer")


def test_it_is_told_once_that_a_shard_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick(monkeypatch)
    store, parts = memories("ab")
    with caplog.at_level(logging.INFO, "tarry.store"):
        lose(store, parts, 1)
        until(lambda: parts[1].calls > 20)
        parts[1].up()
        until(lambda: store.topology_version)
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "memory://b is away: memory://b: no answer"
    assert len(told) == 2
    assert told[1].startswith("memory://b is back after ")


def test_a_shard_that_only_seems_to_be_back_is_tried_more_and_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    quick(monkeypatch)

    def back_off(tries: int) -> float:
        pauses.append(tries)
        return 0.001

    monkeypatch.setattr(shard, "back_off", back_off)
    store, parts = memories("ab")
    for failures in range(1, 5):
        lose(store, parts, 1)
        parts[1].up()
        until(lambda: store.topology_version == failures)  # noqa: B023
    assert max(pauses) >= 4, pauses


def test_one_that_comes_back_wakes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    store, parts = memories("ab")
    lose(store, parts, 1)
    with closing(store.wakeup()) as sleeper:
        before = len(sleeper.filenos())
        parts[1].up()
        until(lambda: not store.shards[1].away)
        sleeper.listen(WORK)
        assert len(sleeper.filenos()) == before + 1
        parts[1].insert([on(store, 1)])
        sleeper.wait(10)


# Opening


def test_one_that_cannot_be_reached_joins_when_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    urls = [f"sqlite:///{tmp_path}/{name}/tarry.db" for name in "ab"]
    (tmp_path / "a").mkdir()
    with closing(open_store(urls)) as store:
        assert isinstance(store, ShardedStore)
        assert "does not exist" in store.shards[1].away
        store.insert([job(store) for _ in range(20)])
        (tmp_path / "b").mkdir()
        until(lambda: not store.shards[1].away)
        store.insert([on(store, 1)])
        assert len(store.find(Query())) == 21


def test_if_none_can_be_reached_that_is_told_unless_it_is_waited_for(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}/tarry.db" for name in "ab"]
    with pytest.raises(StoreUnavailable, match="does not exist; create it first"):
        open_store(urls)
    for patient in (urls, urls[0]):
        with closing(open_store(patient, patient=True)) as store, pytest.raises(StoreAway):
            store.insert([job(store)])


def test_what_time_does_not_heal_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.db").write_bytes(b"no database at all, " * 500)
    with pytest.raises(StoreError, match="damaged or no database"):
        open_store([f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"])
    with pytest.raises(ConfigError, match="begin with one of"):
        open_store([f"sqlite:///{tmp_path}/a.db", "what://secret:word@b"])


def test_a_password_of_an_unknown_store_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        open_store("rediz://ann:secret@b/0?password=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://a/0", ("redis://a/0", "", False)),
        ("redis://a/0#draining", ("redis://a/0", "", True)),
        ("redis://a/0#name=east&draining", ("redis://a/0", "east", True)),
        ("redis://a/0#name=east&draining=no", ("redis://a/0", "east", False)),
        ("sqlite:////a#b.db", ("sqlite:////a#b.db", "", False)),
    ],
)
def test_what_follows_the_url_of_a_shard(url: str, told: tuple[str, str, bool]) -> None:
    assert shard.parse_shard_url(url) == told


@pytest.mark.parametrize("words", ["draining=perhaps", "name=a&drainin"])
def test_what_cannot_follow_it(words: str) -> None:
    with pytest.raises(ConfigError, match=r"store redis://ann@a/0: after the # there may be name=NAME and draining"):
        shard.parse_shard_url(f"redis://ann:secret@a/0#{words}")


@pytest.mark.parametrize(
    ("url", "identity", "shown"),
    [
        ("redis://ann:pw@a:1/0?timeout=9", "redis://a:1/0", "redis://ann@a:1/0"),
        ("redis+unix:///run/r.sock?db=1&timeout=2", "redis+unix:///run/r.sock?db=1", "redis+unix:///run/r.sock?db=1"),
        ("postgresql://u:p@h/d?schema=s&sslmode=x", "postgresql://h/d?schema=s", "postgresql://u@h/d?schema=s"),
        ("sqlite:////a@b/x?=/t.db", "sqlite:////a@b/x?=/t.db", "sqlite:////a@b/x?=/t.db"),
        ("sqlite:////t.db?shared=yes", "sqlite:////t.db", "sqlite:////t.db"),
        ("redis+cluster://:p@a:1,b:2", "redis+cluster://a:1,b:2", "redis+cluster://@a:1,b:2"),
    ],
)
def test_what_a_shard_is_called(url: str, identity: str, shown: str) -> None:
    assert (shard.url_identity(url), shard.public_url(url)) == (identity, shown)


def test_one_store_twice_or_all_draining_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(ConfigError, match="each named once"):
        open_store([url, f"{url}?shared=yes"])
    with pytest.raises(ConfigError, match="all are draining"):
        open_store([f"{url}#draining", f"sqlite:///{tmp_path}/b.db#draining"])


def test_a_relative_path_is_the_same_shard_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store(["sqlite:///a.db", "sqlite:///b.db"])) as store:
        assert isinstance(store, ShardedStore)
        assert store.shards[0].name == f"sqlite:///{tmp_path}/a.db"


def test_changing_state_of_a_job_that_runs_is_asked_where_it_was_claimed() -> None:
    store, parts = memories("ab")
    stray = on(store, 0)
    parts[1].inner.insert([stray])
    (taken,) = store.claim(WANTS, 5, "ann", LEASE, NOW)
    assert store.extend("ann", [(taken.id, taken.epoch)], LEASE, NOW) == []
    change = lifecycle.after(taken, Returned(b"1"), lifecycle.DEFAULT, NOW)
    assert store.exchange([change], (), 0, "ann", LEASE, NOW).valid == [True]
    found = parts[1].inner.get([stray.id])[0]
    assert found is not None
    assert found.state is State.DONE


def test_a_job_that_is_not_at_home_is_found_and_changed() -> None:
    store, parts = memories("abc")
    stray = on(store, 0)
    parts[2].inner.insert([stray])
    assert store.get([stray.id]) == [stray]
    fresh = ShardedStore(parts)
    assert fresh.apply([lifecycle.cancel(stray, lifecycle.DEFAULT, NOW)], NOW) == [True]
    assert fresh.apply([lifecycle.cancel(stray, lifecycle.DEFAULT, NOW)], NOW) == [False]


def test_a_named_value_is_written_where_it_is() -> None:
    store, parts = memories("ab")
    name = next(f"c{n}" for n in range(100) if store.shard(f"c{n}".encode()) == 0)
    parts[1].inner.kv_cas(name, b"old", None)
    assert store.kv_list("c") == {name: b"old"}
    assert store.kv_cas(name, b"new", b"old")
    assert (parts[0].inner.kv_list("c"), parts[1].inner.kv_list("c")) == ({}, {name: b"new"})


def test_a_limit_that_an_added_shard_does_not_know_is_none() -> None:
    store, _ = memories("ab")
    for name, limit in (("queue:mail", Limit(10)), ("task:x", Limit(3))):
        store.limit(name, limit)
        assert store.limits()[name][0] == limit
        more = ShardedStore([*store.stores, MemoryStore(name="c")])
        assert more.limits()[name][0] == Limit()
        more.limit(name, limit)
        assert more.limits()[name][0] == limit
        store.limit(name, None)


def test_a_draining_shard_gets_nothing_new_and_gives_what_it_has() -> None:
    parts = [MemoryStore(name=name) for name in "ab"]
    before = ShardedStore(parts)
    old = on(before, 1)
    before.insert([old])
    store = ShardedStore([parts[0], shard.Shard("memory://b", lambda: parts[1], draining=True)])
    store.insert([replace(job(store), id=uuid7()) for _ in range(50)])
    assert len(parts[1].find(Query())) == 1
    assert old.id in {taken.id for taken in store.claim(WANTS, 100, "ann", LEASE, NOW)}
    assert [fact.value for fact in store.diagnostics() if fact.name == "memory://b"] == ["draining"]


def test_one_that_comes_back_gets_what_single_keys_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was set while it was away, as soon as the limits are declared again, also where it has older numbers."""
    quick(monkeypatch)
    for away in range(3):
        store, parts = memories("abc")
        for declared in ({}, {"each:mail": Limit(5)}):
            for lane in "ann", "bob":
                store.limit_key("mail", lane, KeyLimit(1))
            version = store.topology_version
            parts[away].down()
            for lane in "ann", "bob", "cid":
                with pytest.raises(PartlyUnavailable):
                    store.limit_key("mail", lane, KeyLimit(2))
            parts[away].up()
            until(lambda: store.topology_version > version)  # noqa: B023
            declare(store, declared, ["mail"])
            found = [key_limits.read_key_limits(part, "mail") for part in store.stores]
            assert [part.keys() for part in found] == [{"ann", "bob", "cid"}] * 3
            assert found == [found[0]] * 3


def test_two_that_change_one_key_agree(tmp_path: Path) -> None:
    """All shards have what one of both has set: else what is shown is not what holds."""
    names = [tmp_path / f"{name}.db" for name in "abc"]
    both = [ShardedStore([SqliteStore(name, durable=False) for name in names]) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            barrier = Barrier(2)

            def change(store: ShardedStore, most: int) -> None:
                barrier.wait()  # noqa: B023
                store.limit_key("mail", "ann", KeyLimit(most))

            for changed in [pool.submit(change, store, most) for most, store in enumerate(both)]:
                changed.result()
            found = {key_limits.read_key_limit(part, "mail", "ann") for part in both[0].stores}
            assert len(found) == 1
    for store in both:
        store.close()
