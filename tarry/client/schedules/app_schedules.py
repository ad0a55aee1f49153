"""`app.schedules`: the schedules that are kept in the store, which can be changed while everything runs."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

from tarry.client.client import Client
from tarry.client.schedules import storing
from tarry.client.schedules.facts import ScheduleFacts, schedule_facts
from tarry.client.transaction import is_async, resolve_registry
from tarry.model.duration import Duration
from tarry.model.schedules.definition import ScheduleDefinition, check_name
from tarry.model.schedules.given import check_catch_up, expression_of, jitter_of, moment
from tarry.model.schedules.schedule import Missed
from tarry.store.queries import stored_schedules
from tarry.tasks.call import Call
from tarry.tasks.lazy_asyncio import asyncio

_PAGE = 500


class AppSchedules:
    """Schedules that are kept in the store: `app.schedules.put("report:7", report.call(7), cron="0 7 * * 1-5")`. They
    hold on all hosts, over restarts and deployments, until they are deleted. Those of `@app.task(cron=...)` are not
    among them. Every method may raise a StoreError, and has a twin for async code: `await app.schedules.aput(...)`."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client

    def put(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | float | None = None,
        zone: str = "UTC",
        until: datetime | float | None = None,
        jitter: Duration | None = None,
        catch_up: Missed = "last",
        connection: Any = None,
    ) -> ScheduleFacts:
        """Stores a schedule of this call, in place of one with the same name; what it has already, is not stored again.
        A paused one stays paused, and the same times go on where they were.

        cron: an expression as in `Cron`. every: a period, counted from the epoch. at: one time. zone: of `cron`. until:
        no tick comes after it. jitter: each job is due up to so much later. catch_up: as `missed` of `Cron`.
        connection: of a database that keeps the jobs, too: the schedule is there if, and only if, you commit. The call
        may have options (`report.using(queue=..., priority=...).call(7)`): queue, priority, expires, timeout, labels,
        cost.

        ValueError, ArgumentError, BodyTooLarge: over 64 KB of arguments. TooManySchedules: the store keeps as many as
        `max_schedules` allows. ConfigError: code has a schedule of that name. OtherDatabase: of connection=.
        """
        definition = _definition(call, cron, every, at, zone, until, jitter, catch_up)
        connection = resolve_registry(connection)
        if is_async(connection):
            raise TypeError(f"connection={connection!r} is asynchronous: await aput(...)")
        return self._put(name, definition, connection)

    def get(self, name: str) -> ScheduleFacts | None:
        """The schedule of that name; None: there is none in the store."""
        client = self._client()
        found = stored_schedules.get(client.store, check_name(name))
        return None if found is None else schedule_facts(name, found, client.clock.now())

    def list(self, prefix: str = "") -> Iterator[ScheduleFacts]:
        """All of them whose names begin so, by name."""
        client, after = self._client(), ""
        while found := stored_schedules.page(client.store, prefix, after, _PAGE):
            now = client.clock.now()
            yield from (schedule_facts(name, one, now) for name, one in found.items())
            after = max(found)

    def pause(self, name: str) -> ScheduleFacts:
        """Pauses it on all hosts; ScheduleNotFound."""
        return self._facts(name, storing.pause(self._client(), name))

    def resume(self, name: str) -> ScheduleFacts:
        """It ticks from now on, and what fell into the pause is skipped; ScheduleNotFound."""
        return self._facts(name, storing.resume(self._client(), name))

    def delete(self, name: str, *, connection: Any = None) -> bool:
        """Whether it was there. Jobs that it has made stay. connection: as of `put`."""
        return storing.delete(self._client(), name, resolve_registry(connection))

    async def aput(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | float | None = None,
        zone: str = "UTC",
        until: datetime | float | None = None,
        jitter: Duration | None = None,
        catch_up: Missed = "last",
        connection: Any = None,
    ) -> ScheduleFacts:
        """`put`, awaited."""
        definition = _definition(call, cron, every, at, zone, until, jitter, catch_up)
        connection = resolve_registry(connection)
        if is_async(connection):
            facts: ScheduleFacts = await connection.run_sync(lambda inner: self._put(name, definition, inner))
            return facts
        if connection is not None:
            # A connection belongs to the thread that made it.
            return self._put(name, definition, connection)
        return await asyncio.to_thread(self._put, name, definition, None)

    async def aget(self, name: str) -> ScheduleFacts | None:
        """`get`, awaited."""
        return await asyncio.to_thread(self.get, name)

    async def alist(self, prefix: str = "") -> AsyncIterator[ScheduleFacts]:
        """`list`, awaited: `async for one in app.schedules.alist()`."""
        found = self.list(prefix)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def apause(self, name: str) -> ScheduleFacts:
        """`pause`, awaited."""
        return await asyncio.to_thread(self.pause, name)

    async def aresume(self, name: str) -> ScheduleFacts:
        """`resume`, awaited."""
        return await asyncio.to_thread(self.resume, name)

    async def adelete(self, name: str) -> bool:
        """`delete`, awaited."""
        return await asyncio.to_thread(self.delete, name)

    def _put(self, name: str, definition: ScheduleDefinition, connection: Any) -> ScheduleFacts:
        return self._facts(name, storing.put(self._client(), name, definition, connection))

    def _facts(self, name: str, stored: Any) -> ScheduleFacts:
        return schedule_facts(name, stored, self._client().clock.now())


def _definition(
    call: Call[Any],
    cron: str | None,
    every: Duration | None,
    at: datetime | float | None,
    zone: str,
    until: datetime | float | None,
    jitter: Duration | None,
    catch_up: Missed,
) -> ScheduleDefinition:
    if not isinstance(call, Call):
        raise ValueError(f"{call!r} is no call: give task.call(...), such as report.call(7)")
    check_catch_up(catch_up)
    return ScheduleDefinition(
        call.task.name,
        call.task.codec.encode(call.args, call.kwargs),
        expression_of(cron, every, at),
        zone,
        catch_up,
        jitter_of(jitter),
        0 if until is None else moment("until", until),
        storing.call_options(call.options),
    )
