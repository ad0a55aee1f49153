"""Stores that go away and come back when told."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tarry.errors import StoreError, StoreUnavailable
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tarry.store.shards import shard
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared import backoff as waits

LIMIT = 30.0


class Switched(FlakyStore):
    """While `error` is set every call raises it: before anything is done, or, with `after`, once it is done."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 0, after=False)
        self.error: StoreError | None = None
        self.after = False
        self.only = ""
        """If it says a verb, the others go on."""
        self.inner = store

    def _call(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        error, after = self.error, self.after
        if self.only not in ("", verb.__name__):
            error = None
        if error is not None and not after:
            raise error
        answer = verb(*args, **kwargs)
        if error is not None:
            raise error
        return answer

    def down(self, after: bool = False, only: str = "") -> None:
        self.after, self.only = after, only
        self.error = StoreUnavailable(f"{self.url}: no answer")

    def up(self) -> None:
        self.error = None


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT:g} s"
        time.sleep(0.002)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every store of several that the test makes is closed after it: one whose parts are away goes on trying."""
    made: list[ShardedStore] = []
    initial = ShardedStore.__init__

    def init(self: ShardedStore, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        initial(self, *args, **kwargs)

    monkeypatch.setattr(ShardedStore, "__init__", init)
    yield
    for store in made:
        store.close()


def memories(names: str) -> tuple[ShardedStore, list[Switched]]:
    parts = [Switched(MemoryStore(name=name)) for name in names]
    return ShardedStore(parts), parts


def quick(monkeypatch: pytest.MonkeyPatch, patience: float = 0.0) -> None:
    """Shards that are away are tried all the time."""
    monkeypatch.setattr(waits, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(waits, "LONGEST_PAUSE", 0.005)
    monkeypatch.setattr(shard, "LEASE_GRACE", patience)


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is away stays away for the test."""
    monkeypatch.setattr(waits, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(waits, "LONGEST_PAUSE", 3600)
