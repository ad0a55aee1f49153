"""What single keys of a task have of their own, alike on several stores."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.limit import KeyLimit
from tarry.store.rules import key_limits
from tarry.store.rules.owner import new_name
from tarry.store.shards.answers import ask_shards, present
from tarry.store.shards.shard import Shard
from tarry.store.shared.backoff import jitter

_LONGEST_TURN = 10
"""Seconds that a change may take on all stores."""


class KeyLimitSetting:
    """For these stores. hold: takes or prolongs a named lease. now: their time. place: where a name belongs."""

    def __init__(
        self,
        shards: Sequence[Shard],
        hold: Callable[[str, str, int, int], bool],
        now: Callable[[], int],
        place: Callable[[bytes], int],
    ) -> None:
        self._shards, self._hold, self._now, self._place = shards, hold, now, place

    def set_one(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        """Sets it on all; StoreError."""
        with self._turn(task):
            ask_shards(self._shards, present(self._shards), lambda _, store: store.limit_key(task, lane, limit)).result(
                None
            )

    def spread(self, task: str) -> None:
        """Gives all stores the same: one was added, or was away when a key was changed."""
        # Mostly they are alike. If not, somebody may just be changing one: read once more in turn.
        if self._find_gaps(task):
            with self._turn(task):
                for number, lane, limit in self._find_gaps(task):
                    self._shards[number].ask(lambda store: store.limit_key(task, lane, limit))  # noqa: B023

    def _find_gaps(self, task: str) -> list[tuple[int, str, KeyLimit]]:
        """Which store lacks what: its number, the lane and the limit."""
        numbers = present(self._shards)
        answers = ask_shards(self._shards, numbers, lambda _, store: key_limits.read_key_limits(store, task))
        every = {lane: limit for part in answers.values() for lane, limit in part.items()}
        # As in `kv_list`, the shard of its name says what a key has, if that one has anything.
        every |= {
            lane: limit
            for number, part in answers.items()
            for lane, limit in part.items()
            if self._place(key_limits.value_name(task, lane).encode()) == number
        }
        return [
            (number, lane, limit)
            for number, part in answers.items()
            for lane, limit in every.items()
            if part.get(lane) != limit
        ]

    @contextmanager
    def _turn(self, task: str) -> Iterator[None]:
        """Meanwhile no other process changes what keys of the task have: else stores could differ for good. It goes on
        all the same if another one has the turn for so long that it surely died."""
        name, owner = f"key-limits:{task}", new_name()
        end = time.monotonic() + _LONGEST_TURN
        while not self._hold(name, owner, self._now() + _LONGEST_TURN * SECOND, self._now()) and time.monotonic() < end:
            time.sleep(jitter(0.02))
        try:
            yield
        finally:
            # Over at once, so that nobody waits for its end.
            with suppress(StoreError):
                self._hold(name, owner, self._now(), self._now())
