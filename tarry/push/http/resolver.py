"""Resolves host names to addresses that may be reached, with a cache."""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence

from tarry.push.http.address_guard import AddressGuard, ForbiddenAddress
from tarry.push.http.daemon_thread import run_in_thread
from tarry.push.http.failure import FailureKind, RequestFailed

FRESH_FOR = 15.0
"""Seconds for which an answer is fresh."""
USABLE_FOR = 300.0
"""Seconds for which an old answer is used while a new lookup runs."""
FAILED_FOR = 1.0
"""Seconds for which a failure is cached."""
MOST_HOSTS = 4096
MOST_QUESTIONS = 32
"""Lookups at once, each in a thread, without those that hang."""
HUNG_AFTER = 2.0
"""Seconds after which a lookup counts as hung and another may start. Its answer is still used when it comes."""
MOST_THREADS = 256
"""Lookups at once, with those that hang. They end with the system's own timeout of name servers."""
MOST_ADDRESSES = 16

Lookup = Callable[[str], Sequence[str]]
"""Blocks; raises OSError, or socket.gaierror for an answer about the name."""


def system_lookup(host: str) -> Sequence[str]:
    """The system's own lookup: /etc/hosts, DNS; best first."""
    found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _CacheEntry:
    """The addresses of a host, or why there are none."""

    def __init__(self, addresses: Sequence[str], failed: RequestFailed | None, now: float) -> None:
        self.addresses, self.failed = tuple(addresses[:MOST_ADDRESSES]), failed
        self.fresh_until = now + (FAILED_FOR if failed else FRESH_FOR)
        self.usable_until = now + (FAILED_FOR if failed else USABLE_FOR)


class Resolver:
    """The resolver of one event loop. Callers that ask for the same host share one lookup."""

    def __init__(
        self, guard: AddressGuard, lookup: Lookup = system_lookup, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guard, self._lookup, self._clock = guard, lookup, clock
        self._cache: dict[str, _CacheEntry] = {}
        self._lookups: dict[str, asyncio.Task[_CacheEntry]] = {}
        self._lookup_slots, self._threads = asyncio.Semaphore(MOST_QUESTIONS), asyncio.Semaphore(MOST_THREADS)

    async def resolve(self, host: str, port: int, limit: float) -> list[str]:
        """The addresses that the guard allows, best first. limit: seconds.

        ForbiddenAddress: it allows none. RequestFailed: there are none, or the lookup failed or timed out.
        """
        kept, now = self._cache.get(host), self._clock()
        if kept is None or now >= kept.usable_until:
            kept = await self._await_lookup(host, limit)
        elif now >= kept.fresh_until:
            # Not awaited: a slow name server delays no request while there is an old answer.
            self._start_lookup(host)
        if kept.failed is not None:
            raise RequestFailed(kept.failed.kind, str(kept.failed))  # one exception cannot be raised in many places
        return self._filter_allowed(kept.addresses, host, port)

    def mark_unreachable(self, host: str, address: str) -> None:
        """Puts an unreachable address last, and lets the entry expire soon."""
        kept = self._cache.get(host)
        if kept is not None and address in kept.addresses:
            kept.addresses = (*(other for other in kept.addresses if other != address), address)
            kept.usable_until = min(kept.usable_until, self._clock() + FAILED_FOR)

    def close(self) -> None:
        """Cancels all lookups. Their threads end by themselves."""
        for task in self._lookups.values():
            task.cancel()

    async def _await_lookup(self, host: str, limit: float) -> _CacheEntry:
        if len(self._lookups) >= MOST_HOSTS and host not in self._lookups:
            raise RequestFailed(
                FailureKind.LOOKUP, f"{host} is not looked up: {MOST_HOSTS} other hosts are, and none is answered"
            )
        task = self._start_lookup(host)
        # `wait` leaves the lookup alone if this caller is cancelled: others share it.
        done, _ = await asyncio.wait([task], timeout=max(0.0, limit))
        if task.cancelled():
            raise RequestFailed(FailureKind.LOCAL, "the sender is closed")
        if not done:
            raise RequestFailed(FailureKind.LOOKUP, f"{host}: no name server answered within {limit:.3g} s")
        return task.result()

    def _start_lookup(self, host: str) -> "asyncio.Task[_CacheEntry]":
        task = self._lookups.get(host)
        if task is None:
            task = self._lookups[host] = asyncio.get_running_loop().create_task(self._run_lookup(host))
            task.add_done_callback(lambda _: self._lookups.pop(host, None))
        return task

    async def _run_lookup(self, host: str) -> _CacheEntry:
        """Looks a host up and caches the result. Never raises."""
        # There may be no caller any more that could catch it.
        try:
            addresses, failed = await self._lookup_in_thread(host), None
        except Exception as error:
            addresses, failed = (), _lookup_error(host, error)
        if not addresses and failed is None:
            failed = RequestFailed(FailureKind.NO_HOST, f"{host} has no address")
        return self._store(host, _CacheEntry(addresses, failed, self._clock()))

    async def _lookup_in_thread(self, host: str) -> Sequence[str]:
        async with self._threads:
            # A lookup that hangs gives its place to another, and keeps only its thread.
            async with self._lookup_slots:
                asking = asyncio.ensure_future(run_in_thread(lambda: self._lookup(host)))
                try:
                    await asyncio.wait([asking], timeout=HUNG_AFTER)
                except asyncio.CancelledError:
                    asking.cancel()
                    raise
            return await asking

    def _store(self, host: str, new: _CacheEntry) -> _CacheEntry:
        old = self._cache.pop(host, None)
        # A name server that fails must not stop the requests to hosts that are known.
        if new.failed is not None and old is not None and old.failed is None and old.usable_until > new.usable_until:
            old.fresh_until = new.fresh_until
            new = old
        self._cache[host] = new
        if len(self._cache) > MOST_HOSTS:
            # The one that was looked up longest ago: each new answer goes to the end.
            del self._cache[next(iter(self._cache))]
        return new

    def _filter_allowed(self, addresses: Sequence[str], host: str, port: int) -> list[str]:
        passed, refused = [], None
        for address in addresses:
            try:
                self._guard.check(address, host, port)
                passed.append(address)
            except ForbiddenAddress as error:
                refused = refused or error
        if not passed and refused is not None:
            raise refused
        return passed


def _lookup_error(host: str, error: Exception) -> RequestFailed:
    if isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
        return RequestFailed(FailureKind.NO_HOST, f"{host}: no such host")
    return RequestFailed(FailureKind.LOOKUP, f"{host} cannot be looked up: {getattr(error, 'strerror', None) or error}")
