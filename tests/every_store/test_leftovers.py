"""Nothing of any job is left in a store that has done and forgotten all, and what is left is found."""

from tarry import App, wait_for
from tarry.model.duration import DAY, HOUR
from tarry.model.limit import Limit
from tarry.store.rules.base import Query, Store, Want
from tarry.store.rules.kept_places import PREFIX, KeptPlace
from tarry.testing.leftovers import leftovers
from tests.cli.project import until


def forget_all(store: Store) -> None:
    """All that is kept for a time goes."""
    later = store.time() + 1000 * DAY
    while store.flows.tend(later):
        pass
    while store.prune(later, 0):
        pass


def run_all(app: App) -> None:
    """Runs one of everything to its end."""

    def lane_of(n: int) -> str:
        # On several stores a flow is of one key.
        return str(n // 10)

    @app.task(name="plain", limit=2, limit_by=lane_of)
    def plain(n: int) -> int:
        return n

    @app.task(name="waits")
    def waits() -> int:
        return int(wait_for("go", key="1"))

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    plain.enqueue_many([(10 * n,) for n in range(5)])
    plain.using(key="k").enqueue(1)
    waits.enqueue()
    app.chord([plain.call(n) for n in range(3)], total.call())
    app.drain()
    app.signal("go", key="1", value=1)
    until(lambda: app.drain() >= 0 and all(one.state.finished for one in app.client.store.find(Query())))


def test_nothing_is_left(app: App) -> None:
    run_all(app)
    store = app.client.store
    assert leftovers(store) == []
    forget_all(store)
    assert leftovers(store, is_empty=True) == []


def test_what_is_left_is_found(app: App) -> None:
    run_all(app)
    store = app.client.store
    assert leftovers(store, is_empty=True) != []


def test_who_died_leaves_its_places(app: App) -> None:
    @app.task(name="limited", limit=2)
    def limited() -> None:
        pass

    app.client.store.limit("task:limited", Limit(most=2))
    limited.enqueue()
    store = app.client.store
    now = store.time()
    (job,) = store.claim([Want("default", 0, 1)], 1, "nobody", HOUR, now)
    place = KeptPlace(now + HOUR, "default", "limited", None)
    store.kv_cas(f"{PREFIX}one", place.encode(), None)
    assert {left.what for left in leftovers(store)} >= {"owner", "kept place", "places under a limit"}
    assert job.owner in {left.name for left in leftovers(store)}
