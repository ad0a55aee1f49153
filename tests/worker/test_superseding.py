"""A newer job of a key cancels the one that runs, and starts once its code has ended."""

import asyncio
import threading
import time
from typing import Any

import pytest
from msgspec.structs import replace

from tarry import State
from tarry.errors import StoreUnavailable
from tarry.model import lifecycle
from tarry.model.job import HELD, Job
from tarry.model.overrides import with_followed
from tarry.store.rules import ids, kept_places
from tests.worker.bench import LIMIT, Bench, finished, until, wait_for
from tests.worker.manual_pump import MakePump, ManualPump
from tests.worker.test_kept_places import hears_nothing


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_the_newest_runs_once_the_one_before_has_ended(any_bench: Bench, kind: str) -> None:
    gate, began, heard = any_bench.gate(), threading.Event(), threading.Event()
    app, order = any_bench.app, list[str]()

    def index(revision: int) -> None:
        order.append(f"{revision} begins")
        if revision == 1:
            began.set()
            hears_nothing(gate, heard)
        order.append(f"{revision} ends")

    async def aindex(revision: int) -> None:
        order.append(f"{revision} begins")
        if revision == 1:
            began.set()
            try:
                await asyncio.sleep(LIMIT)
            finally:
                heard.set()
                end = time.monotonic() + LIMIT
                while not gate.is_set() and time.monotonic() < end:
                    await asyncio.sleep(0.01)
                order.append("1 ends")
        order.append(f"{revision} ends")

    page: Any = app.task(name="page")(index if kind == "sync" else aindex).using(key="/home", running="cancel")

    @app.task
    def other() -> None: ...

    first = page.enqueue(1)
    # Longer than the test takes: it is not given up meanwhile.
    any_bench.work(threads=2, kill_after=5.0)
    wait_for(began)
    second = page.enqueue(2)
    assert (second.is_new, second.id == first.id, first.state) == (True, False, State.CANCELLED)
    wait_for(heard)
    until(lambda: second.record().epoch > 1)
    # It replaces the second, or supersedes it just while it is claimed and held back.
    third = page.enqueue(3)
    other.enqueue().result(LIMIT)
    until(lambda: third.record().epoch > 2)
    assert order == ["1 begins"]
    gate.set()
    assert finished(third) is State.DONE
    assert order[-3:] == ["1 ends", "3 begins", "3 ends"]
    assert (third.record().failures, third.record().attempts) == (0, b"")
    assert app.client.store.kv_list(kept_places.PREFIX) == {}


def raised(error: Exception) -> None:
    raise error


def supersede(manual: ManualPump, old: Job) -> Job:
    """A newer job of its key, which follows its attempt."""
    now = manual.clock.now()
    change = lifecycle.make_way(manual.record(old), manual.rules, now)
    headers = with_followed(b"", kept_places.places_to_follow(manual.store, old, change, now))
    new = replace(old, id=ids.uuid7(), state_since=now, due=now, headers=headers)
    assert manual.store.supersede(change, new, now)
    return new


def keyed(manual: ManualPump) -> Job:
    """A job with a key, which runs."""
    (job,) = manual.insert(key="doc", key_held_until=HELD)
    manual.turns()
    assert manual.states([job]) == [State.RUNNING]
    return job


def test_it_is_held_back_for_as_long_as_the_code_runs(make: MakePump) -> None:
    manual = make(threads=2)
    new = supersede(manual, keyed(manual))
    for _ in range(60):
        manual.turns()
        assert manual.states([new]) == [State.SCHEDULED], "no attempt of it runs, and it takes no slot"
        manual.pass_time(1)
        assert kept_places.free_over(manual.store, manual.clock.now(), lambda name: False) == 0
    assert manual.record(new).attempts == b""
    manual.sync.end_all()
    manual.turns()
    manual.pass_time(0.2)
    manual.turns()
    assert manual.states([new]) == [State.RUNNING]


def test_it_does_not_wait_for_a_worker_that_is_dead(make: MakePump) -> None:
    manual = make(threads=2)
    new = supersede(manual, keyed(manual))
    manual.turns()
    assert manual.states([new]) == [State.SCHEDULED]
    assert kept_places.free_over(manual.store, manual.clock.now(), lambda name: True) == 1
    manual.pass_time(0.2)
    manual.turns()
    assert manual.states([new]) == [State.RUNNING]


def test_it_is_held_back_while_the_store_does_not_say(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make(threads=2)
    new = supersede(manual, keyed(manual))
    manual.sync.end_all()
    with monkeypatch.context() as patch:
        patch.setattr(manual.store, "kv_get", lambda name: raised(StoreUnavailable("away")))
        manual.turns()
        assert manual.states([new]) == [State.SCHEDULED]
    manual.pass_time(0.2)
    manual.turns()
    assert manual.states([new]) == [State.RUNNING]


def test_a_job_that_follows_nothing_asks_nobody(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = make(threads=2)
    monkeypatch.setattr(manual.store, "kv_get", lambda name: pytest.fail("asked"))
    jobs = manual.insert(2, headers=b'{"trace":"7"}')
    manual.turns()
    assert manual.states(jobs) == [State.RUNNING] * 2
