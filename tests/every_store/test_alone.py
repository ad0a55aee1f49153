"""Exceptions that come from elsewhere, as from a signal handler that raises: stores withstand them by themselves."""

import gc
import sys
import time
from collections.abc import Iterator

import pytest

from tarry import App
from tests.every_store.struck import StruckThread, is_with_safe, needs_safe_with
from tests.every_store.throwing import assert_nothing_is_held
from tests.seeds import seeded_random

TIMES = 200
"""Exceptions that are thrown at each store, at other moments in each round of `make test-deep`; fewer where a busy
machine takes longer than SECONDS for them."""
SECONDS = 20.0
EXPECTED = (
    # The others of a batch, when whoever flushed for them was hit.
    "the call was interrupted before its answer came",
    # Python's own sqlite3, when a function that it calls was hit.
    "user-defined function raised exception",
)


@pytest.fixture
def _quiet_collections() -> Iterator[None]:
    """What is thrown amid what hypothesis does at each collection would be swallowed."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there it is not")
def test_a_lock_is_released_where_something_is_thrown() -> None:
    assert is_with_safe()


@needs_safe_with
@pytest.mark.usefixtures("_quiet_collections")
def test_what_is_thrown_at_any_moment_leaves_nothing_held(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is thrown may come amid a finalizer, and amid pytest's own hook for that, which fails then.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)

    @app.task(name="target")
    def target(number: int) -> None: ...

    chance = seeded_random()

    def use() -> None:
        target.enqueue(1).cancel()
        target.using(key=str(chance.randrange(9)), on_duplicate="replace").enqueue(2)

    app.client.fetch([])
    with StruckThread(use) as a, StruckThread(use) as b, StruckThread(use) as c:
        threads, end = (a, b, c), time.monotonic() + SECONDS
        for n in range(TIMES):
            if n >= len(threads) and time.monotonic() > end:
                break
            time.sleep(chance.uniform(0, 0.001))
            threads[n % 3].throw()
    assert [error for each in threads for error in each.errors if not str(error).endswith(EXPECTED)] == []
    gc.collect()
    assert_nothing_is_held(app)
