"""One sleeper that hears the bells of several stores, of those that are there."""

import contextlib
from collections.abc import Sequence

from tarry.errors import StoreError
from tarry.store.shards.shard import Shard
from tarry.store.shared.bell import Bell


class Chime(Bell):
    """A bell of each shard, had when the shard is first there. While one is away its bell is left alone: what is
    broken would ring all the time."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__()
        self._shards = shards
        self._bells: dict[int, Bell] = {}
        self._heard: list[Bell] = []
        self._hang()

    def arm(self, topic: str) -> None:
        self._hang()
        for bell in self._heard:
            with contextlib.suppress(StoreError):
                bell.arm(topic)

    def disarm(self) -> None:
        for bell in self._heard:
            with contextlib.suppress(StoreError):
                bell.disarm()

    def filenos(self) -> list[int]:
        return [*super().filenos(), *(fd for bell in self._heard for fd in bell.filenos())]

    def clear(self) -> bytes:
        for bell in self._heard:
            with contextlib.suppress(StoreError):
                bell.clear()
        return super().clear()

    def close(self) -> None:
        super().close()
        for bell in self._bells.values():
            with contextlib.suppress(StoreError):
                bell.close()

    def _hang(self) -> None:
        """Bells of shards that have come are heard from now on, those of shards that are away no longer."""
        there = [number for number, shard in enumerate(self._shards) if not shard.away]
        for number in there:
            if number not in self._bells:
                with contextlib.suppress(StoreError):
                    self._bells[number] = self._shards[number].ask(lambda store: store.bell())
        self._heard = [self._bells[number] for number in there if number in self._bells]
