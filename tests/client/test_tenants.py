"""`task.tenant(key)`: the numbers of one customer, set by a program while everything runs."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.client.tasks.task import Task
from tarry.model.limit import KeyLimit, Limit
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE
from tarry.store.rules import key_limits


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    yield app
    app.close()


@pytest.fixture
def bill(app: App) -> "Task[Any, int]":
    @app.task(name="bill", limit_by=lambda account: account, limit=1)
    def bill(account: str, n: int) -> int:
        return n

    app.declare_limits(app.client.store)
    return bill


def started(app: App) -> Counter[str | None]:
    """How many jobs of each key a claim starts now."""
    return Counter(job.lane for job in app.client.store.claim(EVERYTHING, 100, "w-1", LEASE, app.client.store.time()))


def test_a_tenant_has_its_own_numbers_until_it_is_reset(app: App, bill: "Task[Any, int]") -> None:
    bill.enqueue_many((account, n) for account in ("whale", "minnow") for n in range(5))
    whale = bill.tenant("whale")
    assert not whale.facts().has_own
    whale.set(limit=3, rate="1000/s")
    began = time.time()
    assert started(app) == {"whale": 3, "minnow": 1}
    facts = whale.facts()
    assert (facts.limit, facts.rate, facts.is_paused, facts.has_own) == (3, "1000 in 1 s", False, True)
    assert (facts.running, facts.waiting, facts.waits_at_least) == (3, 2, False)
    assert facts.oldest is not None
    assert began - 60 < facts.oldest <= time.time()
    # What is left out is as for each key.
    whale.set(rate="2000/s")
    assert (whale.facts().limit, whale.facts().rate) == (1, "2000 in 1 s")
    whale.reset()
    facts = whale.facts()
    assert (facts.limit, facts.rate, facts.has_own, facts.running) == (1, None, False, 3)
    assert key_limits.read_key_limits(app.client.store, "bill") == {}


def test_a_pause_keeps_the_numbers(app: App, bill: "Task[Any, int]") -> None:
    bill.enqueue_many((account, n) for account in ("whale", "minnow") for n in range(5))
    whale, minnow = bill.tenant("whale"), bill.tenant("minnow")
    whale.set(limit=3)
    for tenant in (whale, minnow):
        tenant.pause()
        tenant.pause()
        assert tenant.facts().is_paused
    assert (whale.facts().limit, minnow.facts().limit) == (3, 1)
    assert started(app) == {}
    whale.set(limit=2)
    assert whale.facts().is_paused
    for tenant in (whale, minnow):
        tenant.resume()
        tenant.resume()
    # What says nothing any more is gone.
    assert key_limits.read_key_limits(app.client.store, "bill") == {"whale": KeyLimit(2)}
    assert started(app) == {"whale": 2, "minnow": 1}


def test_starts_are_shared_by_weight(app: App) -> None:
    """The task says the weight of keys that have none of their own."""

    @app.task(name="index", limit_by=lambda account: account, weight=2)
    def index(account: str) -> str:
        return account

    app.declare_limits(app.client.store)
    index.enqueue_many((account,) for account in ("whale", "minnow", "cod") for _ in range(40))
    whale = index.tenant("whale")
    whale.set(weight=6)
    assert (whale.facts().weight, index.tenant("minnow").facts().weight) == (6, 2)
    app.declare_limits(app.client.store)
    store = app.client.store
    assert Counter(job.lane for job in store.claim(EVERYTHING, 50, "w-1", LEASE, store.time())) == {
        "whale": 30,
        "minnow": 10,
        "cod": 10,
    }
    whale.reset()
    assert whale.facts().weight == 2
    assert store.limits()["each:index"][0] == Limit(weight=2)


def test_so_many_keys_may_have_weights(app: App, bill: "Task[Any, int]", monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, and changes nothing; those that have one may change it."""
    monkeypatch.setattr(key_limits, "MOST_WEIGHTS", 3)
    for key in ("ann", "bob", "cid"):
        bill.tenant(key).set(weight=2)
    with pytest.raises(ValueError, match="bill: 3 keys have weights of their own, and no more may"):
        bill.tenant("dan").set(limit=1, weight=2)
    bill.tenant("cid").set(weight=3)
    bill.tenant("dan").set(limit=1)
    assert key_limits.read_key_limits(app.client.store, "bill")["dan"] == KeyLimit(1)


@pytest.mark.parametrize("weight", [0, -1, 1001, True, 1.5, "2"])
def test_what_is_no_weight_is_refused(app: App, bill: "Task[Any, int]", weight: Any) -> None:
    with pytest.raises(ValueError, match=r"weight=.*: how many starts beside those of other keys, from 1 to 1000"):
        bill.tenant("ann").set(weight=weight)
    with pytest.raises(ValueError, match="from 1 to 1000"):
        app.task(name="index", limit_by=lambda account: account, weight=weight)(lambda account: None)
    with pytest.raises(ValueError, match="tidy: weight= stands beside limit_by="):
        app.task(name="tidy", weight=2)(lambda: None)


def test_a_worker_that_starts_leaves_them_alone(app: App, bill: "Task[Any, int]") -> None:
    """It declares the limits of the code, where there may be none for each key."""

    @app.task(name="index", limit_by=lambda account: account)
    def index(account: str) -> str:
        return account

    bill.tenant("whale").set(limit=3)
    index.tenant("whale").set(limit=2)
    before = app.client.store.limits()
    app.declare_limits(app.client.store)
    assert app.client.store.limits() == before
    for account in ("whale", "minnow"):
        bill.enqueue_many((account, n) for n in range(5))
        index.enqueue_many((account,) for _ in range(5))
    assert started(app) == {"whale": 5, "minnow": 6}
    index.tenant("whale").reset()
    assert set(app.client.store.limits()) == {"each:bill"}


def test_keys_are_those_of_the_jobs(app: App) -> None:
    """A whole number, and a key that is too long for an index."""

    @app.task(name="by_number", limit_by=lambda account: account)
    def by_number(account: int | str) -> None: ...

    long = "customer " * 50
    for key in (7, long, "", "a/b=c"):
        by_number.tenant(key).set(limit=1)
        by_number.enqueue_many([(key,), (key,)])
    assert sorted(started(app).values()) == [1, 1, 1, 1]
    assert by_number.tenant("7").facts().running == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "set to what"),
        ({"limit": -1}, "limit=-1"),
        ({"limit": True}, "limit=True"),
        ({"limit": 1, "rate": "often"}, "rate 'often'"),
        ({"limit": 2**31 + 1}, "limit=2147483649: how many at once, from 0 to 2147483648"),
        ({"rate": "2147483649/s"}, "rate '2147483649/s'"),
    ],
)
def test_what_is_no_number_changes_nothing(
    app: App, bill: "Task[Any, int]", settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        bill.tenant("whale").set(**settings)
    assert key_limits.read_key_limits(app.client.store, "bill") == {}


def test_only_tasks_with_keys_have_tenants(app: App, bill: "Task[Any, int]") -> None:
    @app.task(name="plain", limit=3)
    def plain() -> None: ...

    with pytest.raises(ValueError, match="plain has no tenants: give it limit_by="):
        plain.tenant("whale")
    with pytest.raises(TypeError, match="the key must be text or a whole number"):
        bill.tenant(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NUL"):
        bill.tenant("a\0b")


def test_every_method_has_an_awaited_twin(app: App, bill: "Task[Any, int]") -> None:
    async def steps() -> None:
        whale = bill.tenant("whale")
        await whale.aset(limit=3, rate="1000/s", weight=7)
        await whale.apause()
        facts = await whale.afacts()
        assert (facts.limit, facts.rate, facts.weight, facts.is_paused) == (3, "1000 in 1 s", 7, True)
        await whale.aresume()
        assert not (await whale.afacts()).is_paused
        await whale.areset()
        assert (await whale.afacts()) == whale.facts()
        with pytest.raises(ValueError, match="set to what"):
            await whale.aset()

    asyncio.run(steps())
    assert key_limits.read_key_limits(app.client.store, "bill") == {}
