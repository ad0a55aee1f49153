"""`task.tenant(key)`: the numbers of one customer, set by a program while everything runs."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.client.tasks.task import Task
from tarry.model.limit import KeyLimit
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
