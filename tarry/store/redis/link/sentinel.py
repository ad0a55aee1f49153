"""Asks sentinels where the master is."""

import threading
import time
from collections.abc import Sequence

from tarry.errors import ConfigError, StoreAway, StoreError
from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import ErrorReply, error_of

SENTINEL_TIMEOUT = 1.0
"""Seconds for one sentinel to answer; then the next is asked."""


class Sentinels:
    """Finds the service's master: asks once, and again after the master was not there. See `ServerFinder`."""

    moves = True

    def __init__(self, addresses: Sequence[ServerAddress], service: str, access: Access) -> None:
        self._addresses = list(addresses)
        self._service, self._access = service, access
        self._lock = threading.Lock()
        self._master: ServerAddress | None = None

    def find(self, deadline: float) -> ServerAddress:
        """Where the master is. ConfigError: the sentinels that answer watch no such service."""
        master = self._master
        if master is None:
            # One thread asks for all: it may take seconds, and the others need the same answer.
            with self._lock:
                master = self._master = self._master or self._find_master(deadline)
        return master

    def doubt(self, address: ServerAddress) -> None:
        # Another thread may have asked already and know a newer master.
        if address == self._master:
            self._master = None

    def _find_master(self, deadline: float) -> ServerAddress:
        errors: list[StoreError] = []
        without_service = []
        for address in list(self._addresses):
            try:
                answer = self._ask_sentinel(address, min(deadline, time.monotonic() + SENTINEL_TIMEOUT))
            except StoreError as error:
                errors.append(error)
                continue
            if answer:
                # First the next time: sentinels that are down take a whole time limit each.
                self._addresses.remove(address)
                self._addresses.insert(0, address)
                return ServerAddress(answer[0].decode(), int(answer[1]))
            without_service.append(address)
        # Only after all were asked: one sentinel may lack the service while another knows it.
        if without_service:
            raise ConfigError(
                f"sentinel {without_service[0]} watches no service {self._service!r}: SENTINEL MASTERS lists them"
            )
        raise StoreAway(f"no sentinel answers: {'; '.join(map(str, errors))}")

    def _ask_sentinel(self, address: ServerAddress, deadline: float) -> list[bytes] | None:
        connection = RedisConnection(address, self._access, deadline)
        try:
            (answer,) = connection.ask([("SENTINEL", "get-master-addr-by-name", self._service)], deadline)
        finally:
            connection.close()
        if isinstance(answer, ErrorReply):
            raise error_of(answer, f"sentinel {address}")
        return answer  # type: ignore[no-any-return]
