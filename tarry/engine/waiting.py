"""Waiting for jobs to finish, without asking again and again: one bell for all who wait in a process."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from tarry.errors import StoreError
from tarry.model.job import Job
from tarry.store.base import Store
from tarry.store.bell import RESULT, Bell

LOOK_ANYWAY = 1.0
"""Seconds after which waiters look even if no bell rang."""

Told = Callable[[Job | None], None]


class Waiting:
    """Calls back when jobs finish; its thread lives while somebody waits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiters: dict[bytes, list[Told]] = {}
        self._bell: Bell | None = None

    def wait(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """(True, the finished job, or None if there is none), or (False, None) when the time is over."""
        ended = threading.Event()
        found: list[Job | None] = []

        def told(job: Job | None) -> None:
            found.append(job)
            ended.set()

        self._add(id, told)
        ended.wait(timeout)
        self._remove(id, told)
        return (True, found[0]) if found else (False, None)

    async def await_end(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job | None] = loop.create_future()

        def told(job: Job | None) -> None:
            # Closed in the meantime: who waited there is gone.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future, job)

        self._add(id, told)
        try:
            return True, await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False, None
        finally:
            self._remove(id, told)

    def _add(self, id: bytes, told: Told) -> None:
        with self._lock:
            self._waiters.setdefault(id, []).append(told)
            if self._bell is None:
                self._bell = self._store.bell()
                threading.Thread(target=self._watch, args=(self._bell,), name="tarry-waiting", daemon=True).start()
            else:
                self._bell.poke()

    def _remove(self, id: bytes, told: Told) -> None:
        with self._lock:
            waiters = self._waiters.get(id, [])
            if told in waiters:
                waiters.remove(told)
                if not waiters:
                    del self._waiters[id]
            if self._bell is not None and not self._waiters:
                self._bell.poke()

    def _watch(self, bell: Bell) -> None:
        while self._awaited(bell):
            bell.arm(RESULT)
            try:
                self._tell()
            except StoreError as error:
                logging.getLogger("tarry.client").warning("waiting for results: %s", error)
            bell.wait(LOOK_ANYWAY)

    def _awaited(self, bell: Bell) -> bool:
        """False, and the bell given back, once nobody waits."""
        with self._lock:
            if not self._waiters:
                self._bell = None
                bell.close()
            return bool(self._waiters)

    def _tell(self) -> None:
        with self._lock:
            awaited = list(self._waiters)
        for id, job in zip(awaited, self._store.get(awaited), strict=True):
            if job is None or job.state.finished:
                with self._lock:
                    told = self._waiters.pop(id, [])
                for callback in told:
                    callback(job)


def _resolve(future: "asyncio.Future[Job | None]", job: Job | None) -> None:
    if not future.done():
        future.set_result(job)
