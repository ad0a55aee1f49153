"""`app.limits`: the limits of an app, and permits for them outside of jobs."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from tarry.client.client import Client
from tarry.client.limits.permit import Permit, Permits
from tarry.errors import LimitTimeout, UnknownLimit
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.limit import EACH, QUEUE, TASK, Limit
from tarry.model.quantity import shorten
from tarry.store.rules.base import PlaceAnswer
from tarry.store.rules.lanes import JobKey
from tarry.store.shared.backoff import jitter
from tarry.tasks.arguments.options import refuse_unfit
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.task_limits import key_lane

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two tries to take a place: doubled each time, and jittered."""
_LONGEST_AHEAD = 2.0
"""Seconds without a try though a rate is known to allow none before: it may be changed meanwhile."""


class AppLimits(Mapping[str, Limit]):
    """The limits of tasks and configuration, by name; `take` and `try_take` take a place under one outside of a job.

    find: these limits. declare: makes the store keep them.
    """

    def __init__(
        self, find: Callable[[], Mapping[str, Limit]], client: Callable[[], Client], declare: Callable[[], None]
    ) -> None:
        self._find, self._declare = find, declare
        self._permits = Permits(client)

    def __getitem__(self, name: str) -> Limit:
        return self._find()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())

    def __len__(self) -> int:
        return len(self._find())

    def take(
        self, name: str, *, key: str | int | None = None, cost: int = 1, timeout: Duration | None = None
    ) -> "PermitRequest":
        """Waits for a place under the limit: `with app.limits.take("openai", timeout=10):`, or `async with`. It counts
        as a running job does: for the limits of a queue ("openai", "queue:openai"), or of a task ("task:shop.send"),
        there with the key of a limit for each key. A rate counts it as `cost` starts.

        timeout: how long to wait, a number of seconds or text such as "10s"; None: as long as it takes. No order is
        kept among those who wait. If this process ends without giving the place back, that is done within 15 seconds.

        LimitTimeout. UnknownLimit: no such limit is set. ValueError: a rate never allows so many starts at once.
        StoreError.
        """
        limit = None if timeout is None else microseconds(timeout, "timeout") / SECOND
        return PermitRequest(self, _job_key(name, key), _checked_cost(cost), limit)

    def try_take(self, name: str, *, key: str | int | None = None, cost: int = 1) -> Permit | None:
        """The place if it is free now: use it in a `with`, or `release` it. None: it is not. Errors as of `take`."""
        found = self.take_now(_job_key(name, key), _checked_cost(cost))
        return found if isinstance(found, Permit) else None

    def take_now(self, key: JobKey, cost: int) -> Permit | float:
        """A permit, or for how many seconds there surely is none. Errors as of `take`."""
        found = self._permits.take(key, cost)
        if isinstance(found, PlaceAnswer) and not found.is_limited and not _names(key).isdisjoint(self):
            # No keeper has run yet.
            self._declare()
            found = self._permits.take(key, cost)
        if isinstance(found, Permit):
            return found
        names = _show_names(key)
        if not found.is_limited:
            raise UnknownLimit(f"no limit {names} is set; see: tarry limits list")
        if cost > found.most:
            raise ValueError(f"cost={cost}: the rate of {names} allows at most {found.most} starts at once")
        self._permits.free_lost()
        return self._permits.seconds_until(found.again)


class PermitRequest:
    """A place under a limit that is waited for: `with` or `async with` waits for it, and gives it back at its end."""

    def __init__(self, limits: AppLimits, key: JobKey, cost: int, timeout: float | None) -> None:
        self._limits, self._key, self._cost, self._timeout = limits, key, cost, timeout
        self._permit: Permit | None = None

    def __enter__(self) -> Permit:
        self._begin()
        while not isinstance(found := self._limits.take_now(self._key, self._cost), Permit):
            time.sleep(self._pause_after(found))
        self._permit = found
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._permit is not None:
            self._permit.release()

    async def __aenter__(self) -> Permit:
        self._begin()
        while not isinstance(found := await self._take_in_thread(), Permit):
            await asyncio.sleep(self._pause_after(found))
        self._permit = found
        return found

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._permit is not None:
            await asyncio.shield(asyncio.to_thread(self._permit.release))

    async def _take_in_thread(self) -> Permit | float:
        taking = asyncio.ensure_future(asyncio.to_thread(self._limits.take_now, self._key, self._cost))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The thread goes on, and may get a place that nobody waits for any more.
            taking.add_done_callback(_release_late)
            raise

    def _begin(self) -> None:
        self._pause, self._end = _FIRST_PAUSE, math.inf if self._timeout is None else time.monotonic() + self._timeout

    def _pause_after(self, ahead: float) -> float:
        """Seconds until the next try after one that failed; the last try is at the end. ahead: for how many seconds
        there surely is no place. LimitTimeout."""
        if (left := self._end - time.monotonic()) <= 0:
            raise LimitTimeout(f"no place under {_show_names(self._key)} within {self._timeout:g} s")
        pause = min(ahead, _LONGEST_AHEAD) + jitter(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return min(left, pause)


def _release_late(taking: "asyncio.Future[Permit | float]") -> None:
    if not taking.cancelled() and taking.exception() is None:
        found = taking.result()
        if isinstance(found, Permit):
            asyncio.get_running_loop().run_in_executor(None, found.release)


def _job_key(name: str, key: str | int | None) -> JobKey:
    refuse_unfit("limit", name)
    kind, colon, which = name.partition(":") if ":" in name else ("queue", ":", name)
    if kind + colon not in (QUEUE, TASK, EACH) or not which or not which.isprintable():
        shown = shorten(name)
        raise ValueError(f"limit {shown}: a queue, as in 'openai' or 'queue:openai', or a task, as in 'task:shop.send'")
    if kind + colon != QUEUE:
        return "", which, "" if key is None else key_lane("key=", key)
    if key is not None:
        raise ValueError("key=: only the limits of tasks have keys, as in 'task:shop.send'")
    return which, "", None


def _names(key: JobKey) -> set[str]:
    """The names of the limits that may count a job with this key."""
    queue, task, _ = key
    return {TASK + task, EACH + task} if task else {QUEUE + queue}


def _show_names(key: JobKey) -> str:
    return " or ".join(sorted(_names(key)))


def _checked_cost(cost: int) -> int:
    # Not isinstance: True is an int.
    if type(cost) is not int or cost < 1:
        raise ValueError(f"cost={cost!r}: how many starts a rate counts, 1 or more")
    return cost
