"""Waiting for jobs to finish, and watching them, without asking again and again: one bell for all in a process."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tarry.errors import StoreError
from tarry.model.job import Job
from tarry.store.base import Store
from tarry.store.shared.bell import FOLLOW, RESULT, Bell
from tarry.store.shared.partly import partly
from tarry.store.shared.patience import Backoff
from tarry.tasks import progress, shield
from tarry.tasks.lazily import asyncio

LOOK_ANYWAY = 1.0
"""Seconds after which waiters look even if no bell rang."""
LOOK_EVERY = 0.05
"""Seconds between two looks for those who follow, however often it rings."""

Told = Callable[[Job | None], None]


class Waiter:
    """One who is told when a job has finished or is forgotten; or, if he follows, whenever it has changed."""

    __slots__ = ("follows", "seen", "told")

    def __init__(self, told: Told, follows: bool = False) -> None:
        self.told = told
        self.follows = follows
        self.seen: Any = None

    def wants(self, job: Job) -> bool:
        """The job has changed since he was told last."""
        if not self.follows:
            return False
        seen, self.seen = self.seen, (job.state, job.epoch, job.failures, progress.read(job.progress), job.note)
        return bool(self.seen != seen)


class Waiting:
    """Calls back when jobs finish; its thread lives while somebody waits."""

    def __init__(self, store: Store, get: Callable[[Sequence[bytes]], list[Job | None]] | None = None) -> None:
        self.trouble = ""
        """Why the store could not be asked when it was tried last."""
        self._store = store
        self._get = get or store.get
        self._backoff = Backoff()
        self._lock = threading.Lock()
        self._waiters: dict[bytes, list[Waiter]] = {}
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        self._new = False

    def wait(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """(True, the finished job, or None if there is none), or (False, None) when the time is over."""
        ended = threading.Event()
        found: list[Job | None] = []

        def told(job: Job | None) -> None:
            found.append(job)
            ended.set()

        waiter = Waiter(told)
        try:
            self.add(id, waiter)
            shield.wait(ended.wait, timeout)
        finally:
            self.remove(id, waiter)
        return (True, found[0]) if found else (False, None)

    async def await_end(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job | None] = loop.create_future()

        def told(job: Job | None) -> None:
            # Closed in the meantime: who waited there is gone.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future, job)

        waiter = Waiter(told)
        self.add(id, waiter)
        try:
            return True, await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False, None
        finally:
            self.remove(id, waiter)

    def add(self, id: bytes, waiter: Waiter) -> None:
        """From now on he is told, in the thread that looks; one who follows at once, and then of each change seen."""
        with self._lock:
            self._waiters.setdefault(id, []).append(waiter)
            self._new = True
            if self._bell is None:
                bell = self._hung()
                watch = threading.Thread(target=self._watch, args=(bell,), name="tarry-waiting", daemon=True)
                watch.start()
                self._bell, self._thread = bell, watch
            else:
                self._bell.poke()

    def remove(self, id: bytes, waiter: Waiter) -> None:
        """He no longer wants to know; fine also if he was told the last already."""
        with self._lock:
            waiters = self._waiters.get(id, [])
            if waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[id]
            if self._bell is not None and not self._waiters:
                self._bell.poke()

    def close(self) -> None:
        """The store is about to be closed: waits until it is not looked at any more, unless somebody still waits."""
        thread = self._thread
        if thread is not None and not self._waiters and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _watch(self, bell: Bell) -> None:
        while self._awaited(bell):
            results, followed = self._kinds()
            looked = time.monotonic()
            bell.arm(FOLLOW if followed else RESULT)
            if not self._looked():
                self._wait_for_store(bell)
                continue
            bell.wait(LOOK_ANYWAY)
            if followed and self._waiters and not self._new:
                self._rest(bell, looked + LOOK_EVERY - time.monotonic(), results)

    def _looked(self) -> bool:
        """False if the store could not be asked."""
        try:
            self._tell()
        except StoreError as error:
            self.trouble = str(error)
            if self._backoff.fail(time.monotonic()):
                logging.getLogger("tarry.client").warning("waiting for jobs: %s", error)
            return False
        self.trouble = ""
        self._backoff.succeed()
        return True

    def _wait_for_store(self, bell: Bell) -> None:
        """Until the next look is due or nobody waits any more. A ring says nothing here: what is broken rings too, and
        so does each who begins to wait."""
        while self._waiters and (left := self._backoff.left(time.monotonic())):
            bell.wait(left)

    def _hung(self) -> Bell:
        try:
            return self._store.bell()
        except StoreError:
            return _Deaf()

    def _rest(self, bell: Bell, seconds: float, results: bool) -> None:
        """Progress may ring a thousand times a second; only who waits for a result is told of it sooner."""
        if seconds > 0:
            if results:
                bell.arm(RESULT)
            bell.wait(seconds)

    def _awaited(self, bell: Bell) -> bool:
        """False, and the bell given back, once nobody waits."""
        with self._lock:
            self._new = False
            if not self._waiters:
                self._bell = None
                bell.close()
            return bool(self._waiters)

    def _kinds(self) -> tuple[bool, bool]:
        """Whether somebody waits for a result, and whether somebody follows."""
        with self._lock:
            kinds = {waiter.follows for waiters in self._waiters.values() for waiter in waiters}
        return False in kinds, True in kinds

    def _tell(self) -> None:
        with self._lock:
            awaited = list(self._waiters)
        found, away = partly(lambda: self._get(awaited))
        for at, (id, job) in enumerate(zip(awaited, found, strict=True)):
            if away is not None and at in away.missing:
                continue
            with self._lock:
                if job is None or job.state.finished:
                    waiters = self._waiters.pop(id, [])
                else:
                    waiters = [waiter for waiter in self._waiters.get(id, ()) if waiter.wants(job)]
            for waiter in waiters:
                waiter.told(job)
        if away is not None:
            raise away


class _Deaf(Bell):
    """While the store has none: looks by itself now and then."""

    def arm(self, topic: str) -> None:
        """Nobody rings it."""

    def disarm(self) -> None:
        """Nobody would."""


def _resolve(future: "asyncio.Future[Job | None]", job: Job | None) -> None:
    if not future.done():
        future.set_result(job)
