"""From a host's name to addresses that may be connected to."""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence

from tarry.push.http.daemon_thread import aside
from tarry.push.http.failure import Failed, Why
from tarry.push.http.guard import Forbidden, Guard

FRESH = 15.0
"""Seconds for which an answer is used as it is."""
USABLE = 300.0
"""Seconds for which it is used while a new one is asked for, so that a slow name server holds up nobody."""
FAILED_FOR = 1.0
"""Seconds for which a failure is told to others who ask the same."""
MOST_HOSTS = 4096
MOST_QUESTIONS = 32
"""At once, each in a thread, of those that are not hung."""
HUNG_AFTER = 2.0
"""Seconds after which a question makes room for another; its answer is used all the same when it comes."""
MOST_THREADS = 256
"""With those that are hung, for as long as the system's own patience with name servers."""
MOST_ADDRESSES = 16

Lookup = Callable[[str], Sequence[str]]
"""Blocks; raises OSError, socket.gaierror for what is known about names."""


def system(host: str) -> Sequence[str]:
    """As every program of this machine finds it: /etc/hosts, DNS; best first."""
    found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Kept:
    """What is known of a host: addresses, or why there are none."""

    def __init__(self, addresses: Sequence[str], failed: Failed | None, now: float) -> None:
        self.addresses, self.failed = tuple(addresses[:MOST_ADDRESSES]), failed
        self.fresh_until = now + (FAILED_FOR if failed else FRESH)
        self.usable_until = now + (FAILED_FOR if failed else USABLE)


class Resolver:
    """Belongs to one event loop. Many callers who ask for the same host make one question."""

    def __init__(self, guard: Guard, lookup: Lookup = system, clock: Callable[[], float] = time.monotonic) -> None:
        self._guard, self._lookup, self._clock = guard, lookup, clock
        self._kept: dict[str, _Kept] = {}
        self._asking: dict[str, asyncio.Task[_Kept]] = {}
        self._room, self._threads = asyncio.Semaphore(MOST_QUESTIONS), asyncio.Semaphore(MOST_THREADS)

    async def find(self, host: str, port: int, limit: float) -> list[str]:
        """Addresses that the guard lets pass, best first; `limit`: seconds. Forbidden: it lets none pass. Failed: there
        are none, or nobody said in time."""
        kept, now = self._kept.get(host), self._clock()
        if kept is None or now >= kept.usable_until:
            kept = await self._answer(host, limit)
        elif now >= kept.fresh_until:
            self._ask(host)
        if kept.failed is not None:
            raise Failed(kept.failed.why, str(kept.failed))  # one exception cannot be raised in many places
        return self._allowed(kept.addresses, host, port)

    def lost(self, host: str, address: str) -> None:
        """Nobody could be reached there: it is tried last from now on, and if all are lost, asked for again."""
        kept = self._kept.get(host)
        if kept is not None and address in kept.addresses:
            kept.addresses = (*(other for other in kept.addresses if other != address), address)
            kept.usable_until = min(kept.usable_until, self._clock() + FAILED_FOR)

    def close(self) -> None:
        """Nobody waits for answers any more; the threads end by themselves."""
        for task in self._asking.values():
            task.cancel()

    async def _answer(self, host: str, limit: float) -> _Kept:
        if len(self._asking) >= MOST_HOSTS and host not in self._asking:
            raise Failed(Why.LOOKUP, f"{host} is not looked up: {MOST_HOSTS} other hosts are, and none is answered")
        task = self._ask(host)
        done, _ = await asyncio.wait([task], timeout=max(0.0, limit))
        if task.cancelled():
            raise Failed(Why.LOCAL, "the sender is closed")
        if not done:
            raise Failed(Why.LOOKUP, f"{host}: no name server answered within {limit:.3g} s")
        return task.result()

    def _ask(self, host: str) -> "asyncio.Task[_Kept]":
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.get_running_loop().create_task(self._look(host))
            task.add_done_callback(lambda _: self._asking.pop(host, None))
        return task

    async def _look(self, host: str) -> _Kept:
        """Never raises, since there may be nobody to see it."""
        try:
            addresses, failed = await self._asked(host), None
        except Exception as error:
            addresses, failed = (), _failed(host, error)
        if not addresses and failed is None:
            failed = Failed(Why.NO_HOST, f"{host} has no address")
        return self._keep(host, _Kept(addresses, failed, self._clock()))

    async def _asked(self, host: str) -> Sequence[str]:
        async with self._threads:
            async with self._room:
                asking = asyncio.ensure_future(aside(lambda: self._lookup(host)))
                try:
                    await asyncio.wait([asking], timeout=HUNG_AFTER)
                except asyncio.CancelledError:
                    asking.cancel()
                    raise
            return await asking

    def _keep(self, host: str, new: _Kept) -> _Kept:
        old = self._kept.pop(host, None)
        if new.failed is not None and old is not None and old.failed is None and old.usable_until > new.usable_until:
            old.fresh_until = new.fresh_until
            new = old
        self._kept[host] = new
        if len(self._kept) > MOST_HOSTS:
            del self._kept[next(iter(self._kept))]
        return new

    def _allowed(self, addresses: Sequence[str], host: str, port: int) -> list[str]:
        passed, refused = [], None
        for address in addresses:
            try:
                self._guard.check(address, host, port)
                passed.append(address)
            except Forbidden as error:
                refused = refused or error
        if not passed and refused is not None:
            raise refused
        return passed


def _failed(host: str, error: Exception) -> Failed:
    if isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
        return Failed(Why.NO_HOST, f"{host}: no such host")
    return Failed(Why.LOOKUP, f"{host} cannot be looked up: {getattr(error, 'strerror', None) or error}")
