"""Asking sentinels where the master is."""

import threading
import time
from collections.abc import Sequence

from tarry.errors import ConfigError, StoreError
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_refusal import Refusal, Unreached, error_of
from tarry.store.redis.link_wire import Wire

PATIENCE = 1.0
"""Seconds that one sentinel may take before the next is asked."""


class Sentinels:
    """Where the service's master is: asked once, and again when it was not there. See `redis.link_server.Finder`."""

    moves = True

    def __init__(self, places: Sequence[Place], service: str, access: Access) -> None:
        self._places = list(places)
        self._service, self._access = service, access
        self._lock = threading.Lock()
        self._master: Place | None = None

    def find(self, deadline: float) -> Place:
        """ConfigError: those who answer know no such service."""
        master = self._master
        if master is None:
            with self._lock:
                master = self._master = self._master or self._ask(deadline)
        return master

    def doubt(self, place: Place) -> None:
        if place == self._master:
            self._master = None

    def _ask(self, deadline: float) -> Place:
        troubles: list[StoreError] = []
        strangers = []
        for place in list(self._places):
            try:
                answer = self._answer(place, min(deadline, time.monotonic() + PATIENCE))
            except StoreError as error:
                troubles.append(error)
                continue
            if answer:
                self._places.remove(place)
                self._places.insert(0, place)
                return Place(answer[0].decode(), int(answer[1]))
            strangers.append(place)
        if strangers:
            raise ConfigError(
                f"sentinel {strangers[0]} watches no service {self._service!r}: SENTINEL MASTERS lists them"
            )
        raise Unreached(f"no sentinel answers: {'; '.join(map(str, troubles))}")

    def _answer(self, place: Place, deadline: float) -> list[bytes] | None:
        wire = Wire(place, self._access, deadline)
        try:
            (answer,) = wire.ask([("SENTINEL", "get-master-addr-by-name", self._service)], deadline)
        finally:
            wire.close()
        if isinstance(answer, Refusal):
            raise error_of(answer, f"sentinel {place}")
        return answer  # type: ignore[no-any-return]
