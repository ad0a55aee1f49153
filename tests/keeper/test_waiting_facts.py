"""What is read from a store to tell why a job does not run."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry.keeper.hosts import HostEntry
from tarry.keeper.waiting_facts import read_facts
from tarry.keeper.waiting_reasons import MOST_COUNTED, EndpointState, WaitingFacts, waiting_reasons
from tarry.model import lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.limit import KeyLimit, Limit, LimitShare
from tarry.model.outcome import Returned, Unknown
from tarry.model.overrides import with_followed
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host
from tarry.store.rules import ids, kept_places
from tarry.store.rules.base import Query, ShareChange, Store, Want
from tarry.store.rules.waiting import CappedCount
from tarry.store.sqlite.store import SqliteStore
from tarry.worker.external_queues import MARKED_FOR, mark_external
from tests.store.switched import memories


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "tarry.db")


def put(store: Store, count: int = 1, **more: object) -> list[Job]:
    now = store.time()
    jobs = [Job(store.new_id("send"), "send", b"[]", due=now, state_since=now, **more) for _ in range(count)]  # type: ignore[arg-type]
    store.insert(jobs)
    return [job for job in store.get([job.id for job in jobs]) if job is not None]


def claim(store: Store, owner: str = "w-1") -> Job:
    (job,) = store.claim([Want("default", 0, 1)], 1, owner, MINUTE, store.time())
    return job


def facts(store: Store, job: Job, is_listed: bool = True) -> WaitingFacts:
    (seen,) = store.get([job.id])
    assert seen is not None
    return read_facts(store, seen, store.time(), is_listed, EndpointState())


def test_jobs_that_run_before_it_are_counted(store: Store) -> None:
    first, _, last = put(store, 3)
    put(store, 1, queue="other")
    assert (facts(store, first).before, facts(store, last).before) == (CappedCount(0), CappedCount(2))
    put(store, 4, priority=9)
    assert facts(store, last).before == CappedCount(6)
    scheduled = put(store, state=State.SCHEDULED)[0]
    later = replace(scheduled, due=store.time() + MINUTE)
    assert read_facts(store, later, store.time(), True, EndpointState()).before == CappedCount(0)


def test_jobs_before_it_are_counted_up_to_a_bound(store: Store) -> None:
    put(store, MOST_COUNTED + 50)
    (last,) = put(store, priority=-1)
    assert facts(store, last).before == CappedCount(MOST_COUNTED, at_least=True)


def test_a_paused_queue_and_one_of_other_programs(store: Store) -> None:
    (job,) = put(store)
    assert not facts(store, job).is_paused
    assert not facts(store, job).is_external
    store.pause("default", True)
    mark_external(store, "default", store.time())
    assert facts(store, job).is_paused
    assert facts(store, job).is_external
    # A mark lapses.
    assert not read_facts(store, job, store.time() + MARKED_FOR + SECOND, True, EndpointState()).is_external


@pytest.mark.parametrize("name", ["queue:default", "task:send"])
def test_the_jobs_that_hold_a_limit_are_listed_once_it_is_reached(store: Store, name: str) -> None:
    store.limit(name, Limit(2))
    *_, last = put(store, 3)
    one = claim(store)
    (use,) = facts(store, last).limits
    assert (use.level.running, use.holders) == (1, ())
    two = claim(store, "w-2")
    (use,) = facts(store, last).limits
    assert [(held.id, held.worker) for held in use.holders] == [(ids.text(one.id), "w-1"), (ids.text(two.id), "w-2")]
    assert [reason.kind for reason in waiting_reasons(facts(store, last))][-1] == "limit"


@pytest.mark.parametrize("name", ["queue:default", "each:send"])
@pytest.mark.parametrize("keep", [HOUR, 0])
def test_what_was_cancelled_and_goes_on_is_listed_too(store: Store, name: str, keep: int) -> None:
    store.limit(name, Limit(1))
    *_, last = put(store, 2, lane="ann")
    one = claim(store)
    assert store.apply([lifecycle.cancel(one, Rules(keep_done=keep), store.time())], store.time()) == [True]
    (use,) = facts(store, last).limits
    assert use.level.running == 1
    assert [(held.id, held.task, held.worker) for held in use.holders] == [(ids.text(one.id), "send", "w-1")]


def test_the_attempt_that_a_job_follows_is_known_until_it_has_ended(store: Store) -> None:
    put(store, key="doc")
    old = claim(store)
    change = lifecycle.make_way(old, lifecycle.DEFAULT, store.time())
    headers = with_followed(b"", kept_places.places_to_follow(store, old, change, store.time()))
    new = Job(
        store.new_id("send"), "send", b"[]", due=store.time(), state_since=store.time(), key="doc", headers=headers
    )
    assert store.supersede(change, new, store.time())
    found = facts(store, new)
    assert found.followed == [(old.id, old.epoch, "w-1")]
    (reason,) = (one for one in waiting_reasons(found) if one.kind == "follows")
    assert reason.values == {"job": ids.text(old.id), "worker": "w-1"}
    store.apply([lifecycle.after(old, Returned(b"1"), lifecycle.DEFAULT, store.time())], store.time())
    assert facts(store, new).followed == []


def test_a_limit_for_each_key_counts_the_jobs_of_that_key(store: Store) -> None:
    store.limit("each:send", Limit(1))
    ann, bob = put(store, lane="ann")[0], put(store, lane="bob")[0]
    waits = put(store, lane="ann")[0]
    assert {claim(store).id, claim(store).id} == {ann.id, bob.id}
    (use,) = facts(store, waits).limits
    assert [held.id for held in use.holders] == [ids.text(ann.id)]
    carol = put(store, lane="carol")[0]
    assert facts(store, carol).limits[0].level.running == 0


def test_what_a_key_has_of_its_own_is_told(store: Store) -> None:
    store.limit("each:send", Limit(9))
    store.limit_key("send", "ann", KeyLimit(1))
    ann, waits = put(store, 2, lane="ann")
    (bob,) = put(store, lane="bob")
    assert {claim(store).id, claim(store).id} == {ann.id, bob.id}
    (use,) = facts(store, waits).limits
    assert (use.name, use.limit.most, [held.id for held in use.holders]) == ("each:send=ann", 1, [ids.text(ann.id)])
    assert [one.kind for one in waiting_reasons(facts(store, waits))][-1] == "key"
    store.limit_key("send", "ann", KeyLimit(is_paused=True))
    reasons = waiting_reasons(facts(store, waits))
    assert "each:send=ann is paused: no job of this key starts." in [one.text for one in reasons]
    assert "stopped" not in [one.kind for one in reasons]


def test_the_rate_of_a_key_says_when_it_goes_on(store: Store) -> None:
    store.limit("each:send", Limit(None, 1, 100 * SECOND))
    *_, waits = put(store, 2, lane="ann")
    claim(store)
    (reason,) = [one for one in waiting_reasons(facts(store, waits)) if one.kind == "rate"]
    assert reason.until is not None
    assert store.time() < reason.until * SECOND <= store.time() + 100 * SECOND


def test_a_job_whose_task_its_worker_did_not_know(store: Store) -> None:
    (job,) = put(store)
    assert not facts(store, job).was_unknown
    seen = claim(store)
    store.apply([lifecycle.after(seen, Unknown(), lifecycle.DEFAULT, store.time())], store.time())
    assert facts(store, job).was_unknown


def test_nothing_is_asked_about_a_job_that_runs_or_has_ended(store: Store) -> None:
    (job,) = put(store)
    seen = claim(store)
    store.pause("default", True)
    found = facts(store, job)
    assert found == WaitingFacts(seen, found.now)


def test_hosts_are_known(store: Store) -> None:
    (job,) = put(store)
    HostEntry(store, lambda: Host("h|1.1:1:1", "web-1")).register_host()
    assert [host.name for host in facts(store, job).hosts] == ["web-1"]


def test_a_share_of_a_limit_is_that_of_the_shard_where_the_job_is() -> None:
    store, _ = memories("ab")
    store.limit("task:send", Limit(1))
    with_share, without = store.stores
    jobs = put(store, 20)

    def held_back(kind: str) -> set[bytes]:
        return {job.id for job in jobs if kind in [one.kind for one in waiting_reasons(facts(store, job))]}

    assert held_back("no_share") == {job.id for job in without.find(Query(limit=20))}
    was = store.limits()["task:send"][0]
    ended = replace(was, share=LimitShare(1, until=store.time()))
    assert with_share.change_shares([ShareChange("task:send", with_share.limits()["task:send"][0], ended)], 0) == [True]
    assert held_back("share_ended") == {job.id for job in with_share.find(Query(limit=20))}
    store.move_shares("ann", store.time(), MINUTE)
    claim(store)
    assert len(held_back("limit")) == 19, "as a whole: also where its share is 0"
    assert held_back("no_share") == set()
    store.close()


def test_a_store_that_is_away_is_told_of() -> None:
    store, (first, second) = memories("ab")
    jobs = put(store, 20)
    there = next(job for job in jobs if first.get([job.id])[0] is not None)
    assert facts(store, there).away == ""
    second.down()
    found = facts(store, there)
    assert found.away
    assert [reason.kind for reason in waiting_reasons(found)][-1] == "away"
    store.close()
