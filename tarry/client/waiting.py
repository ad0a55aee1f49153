"""Waits for jobs to finish, and watches them, without polling each: all waiters of a process share one wake-up."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tarry.errors import StoreError
from tarry.model.job import Job
from tarry.store.queries.unfinished import why_unfinished
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result
from tarry.store.rules.sleeper import FOLLOW, RESULT, Wakeup
from tarry.store.shared.backoff import Backoff, TurnGuard
from tarry.tasks import progress, shield
from tarry.tasks.lazy_asyncio import asyncio

_log = logging.getLogger("tarry.client")

HINT_AFTER = 5.0
"""Seconds after which a wait without end logs what the job waits for, if that is known."""
# Wake-ups may get lost.
POLL_INTERVAL = 1.0
"""Seconds between two reads of the jobs if no wake-up comes."""
FOLLOW_INTERVAL = 0.05
"""Seconds between two reads for waiters that follow a job, however many wake-ups come."""

Notify = Callable[[Job | None], None]


class Waiter:
    """Waits for one job.

    notify: called with the job when it has finished, or with None if there is none. follows: also called for each
    change that is seen.
    """

    __slots__ = ("_seen", "follows", "notify")

    def __init__(self, notify: Notify, follows: bool = False) -> None:
        self.notify = notify
        self.follows = follows
        self._seen: Any = None

    def wants(self, job: Job) -> bool:
        """Whether it follows the job, and the job has changed since the last call."""
        if not self.follows:
            return False
        # Only what an event shows: an extended lease is no change.
        now = (job.state, job.epoch, job.failures, progress.decode_progress(job.progress), job.note)
        seen, self._seen = self._seen, now
        return bool(seen != now)


class Waiting:
    """Notifies waiters when their jobs finish. Its thread runs as long as there are waiters.

    fetch: reads jobs by id; `Store.get` unless given.
    """

    def __init__(self, store: Store, fetch: Callable[[Sequence[bytes]], list[Job | None]] | None = None) -> None:
        self.trouble = ""
        """Why the last read of the store failed; empty: it succeeded."""
        self._store = store
        self._fetch = fetch or store.get
        self._backoff = Backoff(_log, "waiting for jobs: the store is back")
        self._lock = threading.Lock()
        self._waiters: dict[bytes, list[Waiter]] = {}
        self._wakeup: Wakeup | None = None
        self._thread: threading.Thread | None = None
        self._new = False

    def wait(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """Waits up to `timeout` seconds: (True, the finished job or None if there is none), or (False, None)."""
        ended = shield.Flag()
        found: list[Job | None] = []

        def notify(job: Job | None) -> None:
            found.append(job)
            ended.set()

        waiter = Waiter(notify)
        try:
            self.add(id, waiter)
            if timeout is not None or not shield.wait(ended.wait, HINT_AFTER):
                if timeout is None:
                    self._log_hint(id)
                shield.wait(ended.wait, timeout)
        finally:
            self.remove(id, waiter)
        return (True, found[0]) if found else (False, None)

    async def await_finished(self, id: bytes, timeout: float | None) -> tuple[bool, Job | None]:
        """The same, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job | None] = loop.create_future()

        def notify(job: Job | None) -> None:
            # RuntimeError: the loop was closed in the meantime, and nobody waits there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future, job)

        waiter = Waiter(notify)
        self.add(id, waiter)
        # In a thread: it asks the store.
        hint = loop.call_later(HINT_AFTER, loop.run_in_executor, None, self._log_hint, id) if timeout is None else None
        try:
            return True, await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False, None
        finally:
            if hint is not None:
                hint.cancel()
            self.remove(id, waiter)

    def timeout_text(self, id: bytes, timeout: float) -> str:
        """What to tell whoever has waited so long in vain. Reads the store."""
        why = f"the store cannot be asked: {self.trouble}" if self.trouble else why_unfinished(self._store, id)
        return f"job {ids.text(id)} has not finished after {timeout:g} s" + (f"; {why}" if why else "")

    def _log_hint(self, id: bytes) -> None:
        if why := "" if self.trouble else why_unfinished(self._store, id):
            _log.warning("job %s waits: %s", ids.text(id), why)

    def add(self, id: bytes, waiter: Waiter) -> None:
        """Notifies this waiter from now on, in the thread that reads the jobs. One that follows is notified at once."""
        with self._lock:
            self._waiters.setdefault(id, []).append(waiter)
            # A new waiter must be read for at once, so it ends the pause of `_watch`.
            self._new = True
            if self._wakeup is None:
                wakeup = self._open_wakeup()
                watch = threading.Thread(target=self._watch, args=(wakeup,), name="tarry-waiting", daemon=True)
                watch.start()
                self._wakeup, self._thread = wakeup, watch
            else:
                self._wakeup.wake()

    def remove(self, id: bytes, waiter: Waiter) -> None:
        """Stops notifying this waiter, if it still waits."""
        with self._lock:
            waiters = self._waiters.get(id, [])
            if waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[id]
            if self._wakeup is not None and not self._waiters:
                # The last waiter has gone: the thread must see that and end.
                self._wakeup.wake()

    def close(self) -> None:
        """Call before the store is closed: waits for the end of the thread, unless there are still waiters."""
        thread = self._thread
        # A waiter's `notify` may close the client, and a thread cannot join itself.
        if thread is not None and not self._waiters and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _watch(self, wakeup: Wakeup) -> None:
        guard = TurnGuard(_log, "waiting for jobs", wakeup.wait)
        while self._has_waiters(wakeup):
            with guard:
                self._watch_once(wakeup)

    def _watch_once(self, wakeup: Wakeup) -> None:
        has_results, has_followers = self._kinds()
        read_at = time.monotonic()
        # Before the read: a change that comes during the read causes a wake-up.
        wakeup.listen(FOLLOW if has_followers else RESULT)
        if not self._notify():
            self._wait_for_store(wakeup)
            return
        wakeup.wait(POLL_INTERVAL)
        if has_followers and self._waiters and not self._new:
            self._pause(wakeup, read_at + FOLLOW_INTERVAL - time.monotonic(), has_results)

    def _notify(self) -> bool:
        """Reads the jobs and notifies the waiters; False if the store could not be read."""
        try:
            self._notify_waiters()
        except StoreError as error:
            self.trouble = str(error)
            if self._backoff.fail(time.monotonic()):
                _log.warning("waiting for jobs: %s", error)
            return False
        self.trouble = ""
        self._backoff.succeed()
        return True

    def _wait_for_store(self, wakeup: Wakeup) -> None:
        """Waits until the next read is due, or until there are no more waiters."""
        # A wake-up does not end the pause: a broken connection causes wake-ups too, and so does each new waiter.
        while self._waiters and (left := self._backoff.left(time.monotonic())):
            wakeup.wait(left)

    def _open_wakeup(self) -> Wakeup:
        try:
            return self._store.wakeup()
        except StoreError:
            # Polling finds the jobs once the store is back, only later.
            return _PollingOnly()

    def _pause(self, wakeup: Wakeup, seconds: float, has_results: bool) -> None:
        """Waits before the next read for waiters that follow. has_results: a finished job ends the pause."""
        # Progress may cause a thousand wake-ups a second.
        if seconds > 0:
            if has_results:
                wakeup.listen(RESULT)
            wakeup.wait(seconds)

    def _has_waiters(self, wakeup: Wakeup) -> bool:
        """False once there are no waiters; the wake-up is closed then."""
        with self._lock:
            self._new = False
            if not self._waiters:
                # Under the lock, so that `add` starts a new thread instead of relying on this one.
                self._wakeup = None
                wakeup.close()
            return bool(self._waiters)

    def _kinds(self) -> tuple[bool, bool]:
        """Whether there are waiters for an end, and whether there are some that follow."""
        with self._lock:
            kinds = {waiter.follows for waiters in self._waiters.values() for waiter in waiters}
        return False in kinds, True in kinds

    def _notify_waiters(self) -> None:
        with self._lock:
            wanted = list(self._waiters)
        found, away = partial_result(lambda: self._fetch(wanted))
        for at, (id, job) in enumerate(zip(wanted, found, strict=True)):
            # None for a job on a shard that is away does not mean that the job is gone.
            if away is not None and at in away.missing:
                continue
            with self._lock:
                if job is None or job.state.finished:
                    waiters = self._waiters.pop(id, [])
                else:
                    waiters = [waiter for waiter in self._waiters.get(id, ()) if waiter.wants(job)]
            # Outside the lock: a waiter may call `remove`, which takes it.
            for waiter in waiters:
                waiter.notify(job)
        if away is not None:
            raise away


class _PollingOnly(Wakeup):
    """Stands in while the store has no wake-up: the jobs are read every `POLL_INTERVAL`."""

    def listen(self, topic: str) -> None:
        """Does nothing."""

    def ignore(self) -> None:
        """Does nothing."""


def _resolve(future: "asyncio.Future[Job | None]", job: Job | None) -> None:
    if not future.done():
        future.set_result(job)
