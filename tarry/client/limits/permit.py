"""Permits: places under limits that a program takes outside of jobs.

A permit counts for its limits as a running job does. The store keeps it with a lease, which this process prolongs; the
lease of a process that is gone runs out, and a keeper, or whoever waits for a place, gives the place back.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tarry.client.client import Client
from tarry.client.clock import elapsed
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.store.rules import kept_places, owner
from tarry.store.rules.base import PlaceAnswer
from tarry.store.rules.lanes import JobKey
from tarry.tasks.shield import shielded

log = logging.getLogger("tarry.client")

LEASE = kept_places.TAKEN_FOR
PROLONG_EVERY = 2.0
"""Seconds."""
FREED_EVERY = 2.0
"""Seconds between two looks of one who waits for places whose lease has run out."""


class Permit:
    """A place under a limit, until `release` or the end of its `with`. Made by `app.limits`."""

    def __init__(self, permits: "Permits", id: bytes, name: str, until: int) -> None:
        self._permits, self._id, self._name = permits, id, name
        self._until = until
        """By `elapsed`: until then its lease surely runs."""

    @property
    def is_held(self) -> bool:
        """Whether its lease surely runs still. False after `release`, and once the store could not be reached, or this
        process stood still, for so long that another may have the place."""
        return self._permits.has(self._id) and elapsed() < self._until

    @property
    def is_due(self) -> bool:
        """Whether its lease has to be prolonged soon."""
        return self._until - elapsed() < LEASE // 2 + 2 * PROLONG_EVERY * SECOND

    def prolong(self, until: int) -> None:
        """Its lease surely runs until then."""
        self._until = until

    def release(self) -> None:
        """Gives the place back. Does nothing if it is given back already, or was taken before a fork. If the store is
        away, its lease ends it."""
        self._permits.release(self._id, self._name)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Permits:
    """The permits of one app in this process. client: the app's client at that moment."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._begin()

    def _begin(self) -> None:
        self._pid, self._owner = os.getpid(), owner.new_name()
        self._lock = threading.Lock()
        self._held: dict[bytes, Permit] = {}
        self._thread: threading.Thread | None = None
        self._freed_at = 0.0

    def _begin_after_fork(self) -> None:
        # Those of the parent are the parent's.
        if self._pid != os.getpid():
            self._begin()

    def has(self, id: bytes) -> bool:
        """Whether the permit is not released."""
        return self._pid == os.getpid() and id in self._held

    def take(self, key: JobKey, cost: int) -> Permit | PlaceAnswer:
        """A permit for what limits count as a job with this key, or why there is none now. StoreError."""
        client = self._client()
        _, task, lane = key
        with shielded:
            self._begin_after_fork()
            id = client.store.new_id(task, None, lane)
            name = kept_places.name_of(self._owner, id, 1)
            now, until = client.clock.now(), elapsed() + LEASE
            try:
                answer = client.store.take_place(name, key, now + LEASE, cost, now)
            except StoreError:
                # It may be taken although no answer came; else its lease ends it.
                self._give_back(name)
                raise
            return self._hold(Permit(self, id, name, until), id) if answer.is_taken else answer

    def _hold(self, permit: Permit, id: bytes) -> Permit:
        with self._lock:
            self._held[id] = permit
            if self._thread is None:
                self._thread = threading.Thread(target=self._prolong_all, name="tarry-permits", daemon=True)
                self._thread.start()
        return permit

    def release(self, id: bytes, name: str) -> None:
        """Gives a place of this process back, unless that was done; the store may be away."""
        if self._pid != os.getpid():
            return
        with shielded:
            with self._lock:
                permit = self._held.pop(id, None)
            if permit is not None:
                self._give_back(name)

    def _give_back(self, name: str) -> None:
        with suppress(StoreError):
            client = self._client()
            kept_places.give_back(client.store, [name], client.clock.now())

    def seconds_until(self, moment: int | None) -> float:
        """Seconds until then; 0.0 if it is not known. moment: microseconds, by the store's clock."""
        return 0.0 if moment is None else max(0, moment - self._client().clock.now()) / SECOND

    def free_lost(self) -> None:
        """Gives back what processes that are gone have left; once in a while. Without a keeper nobody else does."""
        if time.monotonic() - self._freed_at >= FREED_EVERY:
            self._freed_at = time.monotonic()
            client = self._client()
            with suppress(StoreError):
                kept_places.free_over(client.store, client.clock.now(), owner.is_dead)

    def _prolong_all(self) -> None:
        while self._has_any():
            time.sleep(PROLONG_EVERY)
            try:
                self._prolong()
            except Exception as error:
                # Not only StoreError: a thread that ends would let all leases run out.
                log.warning("permits are not prolonged: %s", error)

    def _has_any(self) -> bool:
        with self._lock:
            # Under the lock: `_hold` sees either this thread at its next round, or none.
            if not self._held:
                self._thread = None
            return bool(self._held)

    def _prolong(self) -> None:
        with self._lock:
            # Most are held for an instant, and cost nothing here.
            due = {id: permit for id, permit in self._held.items() if permit.is_due}
        if not due:
            return
        client, began = self._client(), elapsed()
        attempts = [(id, 1) for id in due]
        good = set(kept_places.prolong(client.store, self._owner, attempts, LEASE, client.clock.now()))
        for id, permit in due.items():
            if kept_places.name_of(self._owner, id, 1) in good:
                permit.prolong(began + LEASE // 2)
