"""Places under limits that programs take outside of jobs: `app.limits.take`."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, LimitTimeout, UnknownLimit
from tarry.client.limits import permit as permits
from tarry.errors import StoreUnavailable
from tarry.model.limit import Limit
from tarry.store.rules import kept_places, owner
from tests.worker.bench import until


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    yield app
    app.close()


def limited(app: App, limit: Limit, name: str = "queue:openai") -> App:
    app.client.store.limit(name, limit)
    return app


def running(app: App, name: str = "queue:openai") -> int:
    return app.client.store.limits()[name][1].running


def kept(app: App) -> list[str]:
    return list(app.client.store.kv_list(kept_places.PREFIX))


def test_a_place_is_taken_and_given_back(app: App) -> None:
    limited(app, Limit(1))
    with app.limits.take("openai") as permit:
        assert (running(app), permit.is_held) == (1, True)
        assert app.limits.try_take("queue:openai") is None
        with (
            pytest.raises(LimitTimeout, match=r"no place under queue:openai within 0\.02 s"),
            app.limits.take("openai", timeout=0.02),
        ):
            pass
    assert (running(app), permit.is_held, kept(app)) == (0, False, [])
    permit.release()
    assert running(app) == 0


def test_whoever_waits_gets_the_next_one(app: App) -> None:
    limited(app, Limit(2))
    inside: list[int] = []
    most: list[int] = []

    def visit() -> None:
        for _ in range(5):
            with app.limits.take("openai", timeout=60):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), running(app), kept(app)) == (20, 0, [])
    assert max(most) <= 2


def test_it_counts_with_the_jobs_of_a_task(app: App) -> None:
    """Also if no keeper has told the store of the limit yet."""

    @app.task(name="ask", limit_by=lambda who: who, limit=1, limit_all=2)
    def ask(who: str) -> None:
        """Says who."""

    jobs = [ask.enqueue("ann"), ask.enqueue("bob")]
    with app.limits.take("task:ask", key="ann"):
        app.drain()
        assert [job.state for job in jobs] == ["ready", "done"]
        assert app.limits.try_take("task:ask", key="ann") is None
        with app.limits.take("task:ask", key="bob"):
            assert app.limits.try_take("task:ask", key="cid") is None, "two in all"
    app.drain()
    assert jobs[0].state == "done"


def test_an_error_inside_gives_it_back(app: App) -> None:
    limited(app, Limit(1))
    with pytest.raises(ZeroDivisionError), app.limits.take("openai"):
        1 / 0  # noqa: B018
    assert running(app) == 0


def test_a_rate_counts_the_cost(app: App) -> None:
    limited(app, Limit(None, 100, 60_000_000))
    permit = app.limits.try_take("openai", cost=5)
    assert permit is not None
    permit.release()
    assert app.limits.try_take("openai") is None, "what a rate has counted is not given back"
    with pytest.raises(ValueError, match="cost=6: the rate of queue:openai allows at most 5 starts at once"):
        app.limits.try_take("openai", cost=6)


def test_who_waits_for_a_rate_asks_when_it_allows_a_start(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(app, Limit(None, 1, 1_000_000))
    store, asked = app.client.store, list[float]()
    take_place = store.take_place

    def take(*args: Any) -> Any:
        asked.append(time.monotonic())
        return take_place(*args)

    monkeypatch.setattr(store, "take_place", take)
    for _ in range(2):
        with app.limits.take("openai"):
            pass
    # With pauses of 5 ms to 0.25 s it would ask for the second place eight times.
    assert len(asked) <= 1 + 3
    with pytest.raises(LimitTimeout), app.limits.take("openai", timeout=0.1):
        pass


@pytest.mark.parametrize(
    ("name", "options", "error", "said"),
    [
        ("nobody", {}, UnknownLimit, "no limit queue:nobody is set; see: tarry limits list"),
        ("task:nobody", {"key": 7}, UnknownLimit, "no limit each:nobody or task:nobody is set"),
        ("", {}, ValueError, "limit '': a queue"),
        ("task:", {}, ValueError, "limit 'task:': a queue"),
        ("host:a", {}, ValueError, "limit 'host:a': a queue"),
        ("queue:a\x1fb", {}, ValueError, "a queue"),
        ("a\0", {}, ValueError, "no store can hold a NUL"),
        ("openai", {"key": "ann"}, ValueError, "key=: only the limits of tasks have keys"),
        ("task:a", {"key": 1.5}, TypeError, "key= gave 1.5: the key must be text or a whole number"),
        ("openai", {"cost": 0}, ValueError, "cost=0: how many starts a rate counts, 1 or more"),
        ("openai", {"cost": True}, ValueError, "cost=True"),
    ],
)
def test_what_cannot_be_taken(app: App, name: str, options: dict[str, Any], error: type[Exception], said: str) -> None:
    limited(app, Limit(1))
    with pytest.raises(error, match=said):
        app.limits.try_take(name, **options)
    with pytest.raises(error, match=said), app.limits.take(name, timeout=1, **options):
        pass
    assert kept(app) == []


def test_it_is_still_a_mapping_of_limits(app: App) -> None:
    @app.task(name="ask", limit=3)
    def ask() -> None:
        """Nothing."""

    assert dict(app.limits) == {"task:ask": Limit(3)}
    assert (len(app.limits), app.limits["task:ask"]) == (1, Limit(3))


def test_coroutines_wait_without_blocking_their_loop(app: App) -> None:
    limited(app, Limit(1))
    order: list[str] = []

    async def visit(name: str) -> None:
        async with app.limits.take("openai", timeout=60) as permit:
            assert permit.is_held
            order.append(f"{name} in")
            await asyncio.sleep(0.005)
            order.append(f"{name} out")

    async def story() -> None:
        await asyncio.gather(*(visit(name) for name in "abc"))
        with app.limits.take("openai"), pytest.raises(LimitTimeout):
            async with app.limits.take("openai", timeout=0.01):
                pass

    asyncio.run(story())
    assert [line.split()[1] for line in order] == ["in", "out"] * 3
    assert (running(app), kept(app)) == (0, [])


def test_who_is_cancelled_while_taking_leaves_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that takes the place cannot be stopped: what it gets is given back."""
    limited(app, Limit(1))
    begun, go_on, taken = threading.Event(), threading.Event(), threading.Event()
    take_place = app.client.store.take_place

    def slow(*args: Any) -> Any:
        begun.set()
        go_on.wait(60)
        answer = take_place(*args)
        assert answer.is_taken
        taken.set()
        return answer

    monkeypatch.setattr(app.client.store, "take_place", slow)

    async def story() -> None:
        async def visit() -> None:
            async with app.limits.take("openai"):
                pass

        visiting = asyncio.ensure_future(visit())
        await asyncio.to_thread(begun.wait, 60)
        visiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visiting
        go_on.set()
        # Not by looking for the place: it may be given back before anybody looks.
        assert await asyncio.to_thread(taken.wait, 60)
        while kept(app):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(story(), 60))
    assert running(app) == 0


def hold_for_ever(url: str, told: Any) -> None:
    app = App(url)
    with app.limits.take("openai"):
        told.set()
        signal.pause()


def test_a_crash_gives_it_back(app: App) -> None:
    """No keeper runs here: whoever waits sees to it."""
    limited(app, Limit(1))
    context = multiprocessing.get_context("spawn")
    told = context.Event()
    process = context.Process(target=hold_for_ever, args=(str(app.store_url), told))
    process.start()
    assert told.wait(60)
    assert app.limits.try_take("openai") is None
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    with app.limits.take("openai", timeout=30):
        assert running(app) == 1
    assert kept(app) == []


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leases of half a second, and no owner is known to be dead: as if it were on another host. Returns what ends the
    prolonging."""
    monkeypatch.setattr(permits, "LEASE", 500_000)
    monkeypatch.setattr(permits, "PROLONG_EVERY", 0.05)
    monkeypatch.setattr(permits, "FREED_EVERY", 0.05)
    monkeypatch.setattr(owner, "is_dead", lambda name: False)

    def stand_still() -> None:
        monkeypatch.setattr(permits.Permits, "_prolong", lambda self: None)

    return stand_still


def test_it_is_prolonged_while_it_is_held(app: App, short: Callable[[], None]) -> None:
    limited(app, Limit(1))
    with app.limits.take("openai") as permit:
        with pytest.raises(LimitTimeout), app.limits.take("openai", timeout=1.5):
            pass
        assert permit.is_held


def test_a_lease_that_runs_out_gives_it_back(app: App, short: Callable[[], None]) -> None:
    limited(app, Limit(1))
    with app.limits.take("openai") as permit:
        short()
        with app.limits.take("openai", timeout=60):
            assert not permit.is_held
            permit.release()
            assert running(app) == 1, "the place is another's by now"
    assert (running(app), kept(app)) == (0, [])


def test_a_store_that_is_away(app: App, short: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is taken that is an error; at the end it is none, since the lease ends it."""
    limited(app, Limit(1))
    store, apply = app.client.store, app.client.store.apply

    def away(*args: Any) -> Any:
        raise StoreUnavailable("away")

    with app.limits.take("openai"):
        monkeypatch.setattr(store, "apply", away)
    assert running(app) == 1
    monkeypatch.setattr(store, "apply", apply)
    with app.limits.take("openai", timeout=60):
        pass
    monkeypatch.setattr(store, "take_place", away)
    with pytest.raises(StoreUnavailable), app.limits.take("openai", timeout=60):
        pass
    assert (running(app), kept(app)) == (0, [])


def leave(app: App, permit: permits.Permit, told: Any) -> None:
    permit.release()
    told.put((permit.is_held, app.limits.try_take("openai") is None))


def test_a_forked_child_gives_back_nothing_of_its_parent(app: App) -> None:
    limited(app, Limit(1))
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    with app.limits.take("openai") as permit:
        child = context.Process(target=leave, args=(app, permit, told))
        child.start()
        assert told.get(timeout=60) == (False, True)
        child.join()
        assert (permit.is_held, running(app)) == (True, 1)
    assert running(app) == 0


def test_the_thread_ends_with_the_last_permit(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permits, "PROLONG_EVERY", 0.01)
    limited(app, Limit(1))

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "tarry-permits"]

    for _ in range(3):
        with app.limits.take("openai"):
            assert threads() == ["tarry-permits"]
        until(lambda: threads() == [])
