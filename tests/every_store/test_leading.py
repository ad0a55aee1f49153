"""`leading=True`: the first call of a quiet key is due at once, and those after it are one job at the end."""

import asyncio
from typing import Any

import pytest

from tarry import App, State
from tarry.client.clock import FakeClock
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import LEADING, Job
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import FORGETS, side_by_side
from tarry.store.rules.base import NORMAL, Query, Want
from tarry.store.rules.ids import parse
from tests.seeds import seeded_random
from tests.server.http.calling import api


@pytest.fixture
def clock(app: App) -> FakeClock:
    app._clock = clock = FakeClock()
    app.task(name="add")(lambda number: None)
    return clock


def leading(app: App, **options: Any) -> Any:
    given: dict[str, Any] = {"key": "k", "delay": 10, "on_duplicate": "replace", "leading": True}
    return app.tasks["add"].using(**given | options)


def work(app: App, clock: FakeClock) -> list[bytes]:
    """Runs what is due now; the arguments of each, in the order of their starts."""
    store, now = app.client.store, clock.now()
    jobs = store.claim([Want("default", NORMAL, 9)], 9, "ann", 30 * SECOND, now)
    changes = [lifecycle.after(job, Returned(), FORGETS, now) for job in jobs]
    assert store.apply(changes, now) == [True] * len(jobs)
    return [job.body for job in jobs]


def waiting(app: App) -> list[Job]:
    return app.client.store.find(Query(states=(State.READY, State.SCHEDULED)))


def test_the_first_runs_at_once_and_the_newest_at_the_end(app: App, clock: FakeClock) -> None:
    first = leading(app).enqueue(1)
    assert (first.is_new, first.state, work(app, clock)) == (True, State.READY, [b"[1]"])
    clock.advance(3)
    second = leading(app).enqueue(2)
    assert (second.is_new, second.state, second.record().due) == (True, State.SCHEDULED, clock.now() + 10 * SECOND)
    clock.advance(3)
    third = leading(app).enqueue(3)
    assert (third.is_new, third.id) == (False, second.id)
    clock.advance(9.9)
    assert work(app, clock) == []
    clock.advance(0.2)
    assert work(app, clock) == [b"[3]"]
    assert leading(app).enqueue(4).state is State.READY, "the key was quiet for its ten seconds"
    assert waiting(app)[0].body == b"[4]"


def test_a_long_burst_has_one_first(app: App, clock: FakeClock) -> None:
    """Though the first job has ended long ago, and is not kept for itself."""
    leading(app).enqueue(0)
    assert work(app, clock) == [b"[0]"]
    for number in range(1, 9):
        clock.advance(6)
        app.client.store.prune(clock.now(), 10)
        assert leading(app).enqueue(number).state is State.SCHEDULED
        assert work(app, clock) == []
    clock.advance(10)
    assert work(app, clock) == [b"[8]"]


def test_with_a_bound_a_burst_runs_amid_and_has_no_other_first(app: App, clock: FakeClock) -> None:
    bounded = leading(app, max_delay=25)
    bounded.enqueue(0)
    ran = [(0, work(app, clock))]
    for number in range(1, 13):
        clock.advance(6)
        bounded.enqueue(number)
        ran += [(number * 6, done)] if (done := work(app, clock)) else []
    assert ran == [(0, [b"[0]"]), (36, [b"[6]"]), (72, [b"[12]"])], "25 s after the calls at 6 and at 42"


def test_of_a_throttle_the_first_that_is_put_off_counts(app: App, clock: FakeClock) -> None:
    throttled = leading(app, on_duplicate="postpone", expires=60)
    throttled.enqueue(1)
    work(app, clock)
    second = throttled.enqueue(2)
    clock.advance(5)
    assert throttled.enqueue(3).id == second.id
    (job,) = waiting(app)
    assert (job.body, job.due - clock.now(), job.expires - job.due) == (b"[2]", 10 * SECOND, 60 * SECOND)


def test_as_long_as_the_first_waits_or_runs_calls_are_put_off(app: App, clock: FakeClock) -> None:
    first = leading(app).enqueue(1)
    clock.advance(60)
    second = leading(app).enqueue(2)
    (ran,) = app.client.store.claim([Want("default", NORMAL, 9)], 9, "ann", 30 * SECOND, clock.now())
    assert (ran.body, first.state, second.state) == (b"[1]", State.RUNNING, State.SCHEDULED)
    clock.advance(60)
    third = leading(app).enqueue(3)
    assert (third.id, third.record().due) == (second.id, clock.now() + 10 * SECOND)


def test_keys_are_apart(app: App, clock: FakeClock) -> None:
    jobs = [leading(app, key=key).enqueue(number) for number, key in enumerate("abcdef")]
    assert {job.state for job in jobs} == {State.READY}
    again = [leading(app, key=key).enqueue(number) for number, key in enumerate("abcdef", 6)]
    assert ({job.state for job in again}, len(waiting(app))) == ({State.SCHEDULED}, 12)


def test_calls_without_it_meet_the_job_at_the_end(app: App, clock: FakeClock) -> None:
    leading(app).enqueue(1)
    last = leading(app).enqueue(2)
    plain = app.tasks["add"].using(key="k", delay=30, on_duplicate="replace").enqueue(3)
    assert (plain.id, last.record().body) == (last.id, b"[3]")


def test_many_at_once(app: App, clock: FakeClock) -> None:
    """One of them is the first, and all others are one job."""
    new: list[bool] = []

    def enqueue(number: int) -> None:
        for each in range(number, 40, 4):
            new.append(leading(app).enqueue(each).is_new)

    side_by_side(4, enqueue)
    assert sorted(job.state for job in waiting(app)) == [State.READY, State.SCHEDULED]
    assert (len(new), sum(new)) == (40, 2)


def test_every_way_to_enqueue(app: App, clock: FakeClock) -> None:
    async def by_http(number: int) -> int:
        body = {"key": "k", "delay": "10s", "on_duplicate": "replace", "leading": True, "args": [number], "task": "add"}
        async with api(app) as client:
            return (await client.post("/v1/jobs", json=body)).status_code

    first, last = leading(app).enqueue_many([(1,), (2,)])
    assert (first.state, last.state) == (State.READY, State.SCHEDULED)
    assert asyncio.run(leading(app).aenqueue(3)).id == last.id
    assert asyncio.run(by_http(4)) == 200
    assert last.record().body == b"[4]"
    clock.advance(10)
    assert work(app, clock) == [b"[1]", b"[4]"]
    clock.advance(10)
    assert [asyncio.run(by_http(number)) for number in (5, 6, 7)] == [201, 201, 200]


def test_sent_again_it_is_the_same_job(app: App, clock: FakeClock) -> None:
    """Where the answer was lost, to the first call or to one that is put off."""
    for expected in (State.READY, State.SCHEDULED):
        job = app.client.make_job("add", b"[1]", (options := leading(app)._options))
        for is_new in (True, False):
            (handle,) = app.client.insert_jobs([job], options)
            assert (parse(handle.id), handle.state) == (job.id, expected), is_new
    assert len(waiting(app)) == 2


def test_any_order_of_calls_and_runs(app: App, clock: FakeClock) -> None:
    """A call starts at once if, and only if, the key is quiet; and what was called last has run once all is quiet."""
    random = seeded_random()
    bounded = leading(app, max_delay=25)
    quiet_from, ran, running, at_once = 0, [b""], list[Job](), 0
    for number in range(60):
        clock.advance(random.choice((0.5, 3, 9, 11, 40)))
        store, now = app.client.store, clock.now()
        jobs = store.claim([Want("default", NORMAL, 9)], 9, "ann", 3600 * SECOND, now)
        running += jobs
        ran += [job.body for job in jobs]
        if random.random() < 0.7:
            assert all(store.apply([lifecycle.after(job, Returned(), FORGETS, now) for job in running], now))
            if any((job.key or "").startswith(LEADING) for job in running):
                quiet_from = max(quiet_from, now + 10 * SECOND)
            running = []
        is_first = any((job.key or "").startswith(LEADING) for job in [*running, *waiting(app)])
        expected = State.READY if now >= quiet_from and not is_first else State.SCHEDULED
        assert bounded.enqueue(number).state is expected, number
        quiet_from = max(quiet_from, now + 10 * SECOND)
        at_once += expected is State.READY
        assert sorted(job.key or "" for job in waiting(app)) in (["k"], ["k", "leading:k"], ["leading:k"])
    assert 2 < at_once < 50
    while waiting(app):
        clock.advance(30)
        ran += [job.body for job in store.claim([Want("default", NORMAL, 9)], 9, "ann", 3600 * SECOND, clock.now())]
    assert ran[-1] == b"[59]"
