"""Jobs that came before their task was limited get its lane, in parts: what that costs, and what may happen between."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from tarry.errors import StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, RETRY, made, put, seen, taken
from tarry.store.redis import scripts
from tarry.store.redis.link.base import Script, Word
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import NORMAL, Query, Want


@pytest.fixture
def store(redis_store: RedisStore) -> RedisStore:
    return redis_store


def without_lane(store: RedisStore, count: int, **fields: Any) -> list[Job]:
    """New jobs of the task mail, which has no limit yet."""
    jobs = [replace(job, id=store.new_id("mail", None, "")) for job in made(store, count, **fields)]
    store.insert(jobs)
    return jobs


def before_each_part(store: RedisStore, act: Callable[[], object]) -> list[Script]:
    """Does the act before each part of a migration. Returns the scripts that are run, which are added to it."""
    run, ran = store._run, list[Script]()

    def watched(script: Script, *args: Word) -> Any:
        ran.append(script)
        if script is scripts.MIGRATE:
            act()
        return run(script, *args)

    store._run = watched  # type: ignore[method-assign]
    return ran


def test_a_limit_reads_no_finished_jobs(store: RedisStore) -> None:
    """A worker that starts beside a million finished jobs must not wait until all of them are read."""
    without_lane(store, 10)
    without_lane(store, 10, due=NOW + HOUR, state=State.SCHEDULED)
    ran = before_each_part(store, lambda: None)
    store.limit("task:mail", Limit(5))
    alone = len(ran)
    store.limit("task:mail", None)
    for _ in range(20):
        put(store, 1000, task="mail", queue="other")
        jobs = store.claim([Want("other", NORMAL, 1000)], 1000, "ann", LEASE, NOW)
        assert store.apply([lifecycle.after(job, Returned(b""), RETRY, NOW) for job in jobs], NOW) == [True] * 1000
    without_lane(store, 10)
    ran.clear()
    store.limit("task:mail", Limit(5))
    assert scripts.MIGRATE in ran
    assert len(ran) == alone
    assert {job.lane for job in store.find(Query(task="mail", states=(State.READY, State.SCHEDULED)))} == {""}


def test_jobs_that_move_between_two_parts_get_their_lane(store: RedisStore) -> None:
    """Those that become due or are told to run, and those that are moved into a queue where no other is."""
    due = without_lane(store, 2500, due=NOW + 1, state=State.SCHEDULED)
    told = without_lane(store, 2500, due=NOW + HOUR, state=State.SCHEDULED)
    moved = without_lane(store, 2500)
    number = 0

    def act() -> None:
        nonlocal number
        number += 1
        if number <= 5:
            part = slice(number * 100, (number + 1) * 100)
            changes = [lifecycle.run_now(seen(store, job), NOW) for job in told[part]]
            changes += [lifecycle.move(seen(store, job), NOW, queue=f"moved {number}") for job in moved[part]]
            assert store.apply(changes, NOW) == [True] * 200
            # What has become due comes out of its line.
            taken(store, limit=1, now=NOW + 2)

    ran = before_each_part(store, act)
    store.limit("task:mail", Limit(1))
    assert ran.count(scripts.MIGRATE) > 5
    lanes = {job.lane for job in store.get([job.id for job in (*due, *told, *moved)]) if job is not None}
    assert lanes == {""}


def test_a_key_limit_that_broke_off_is_ended_by_the_next(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each claim, for ever, looks for jobs of the task that have no lane yet."""
    jobs = without_lane(store, 2500)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_give_lanes", Mock(side_effect=StoreUnavailable("gone")))
        with pytest.raises(StoreUnavailable):
            store.limit_key("mail", "ann", KeyLimit(1))
    store.limit_key("mail", "ann", KeyLimit(1))
    assert {job.lane for job in store.get([job.id for job in jobs]) if job is not None} == {""}
    assert store._command("SMEMBERS", "laying") == []
