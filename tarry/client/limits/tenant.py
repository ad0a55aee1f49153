"""A tenant: one key of a task with `limit_by`, and the numbers that hold for it alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tarry.client.limits.key_numbers import change_key_limit, reset_key, set_numbers
from tarry.client.limits.tenant_facts import TenantFacts, tenant_facts
from tarry.model.limit import KeyLimit, parse_limit
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.task_limits import check_number_of_key

if TYPE_CHECKING:
    from tarry.client.client import Client


class Tenant:
    """One key of a task: `bill.tenant("whale").set(limit=20, rate="100/s")`. What is set holds at once on all hosts,
    and over restarts and deployments, until it is reset. Every method may raise a StoreError, and has a twin for async
    code: `await bill.tenant("whale").aset(limit=20)`."""

    def __init__(self, client: "Callable[[], Client]", task: str, lane: str, keeps_order: bool) -> None:
        self._client, self._task, self._lane, self._keeps_order = client, task, lane, keeps_order

    def set(
        self,
        *,
        limit: int | None = None,
        rate: str | None = None,
        weight: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """Sets how many of its jobs run at once, how many start in a period ("100/s"), its weight: how many starts it
        has while other keys have as many as their own weights say (1 to 1,000); and how many of its jobs may wait: an
        enqueue of one more raises TenantFull, and 0 takes none. They hold in place of earlier numbers of its own; what
        is left out is as for each key. ValueError."""
        numbers = parse_limit(limit, rate, weight)
        if numbers is None and max_waiting is None:
            raise ValueError("set to what? Give limit=, rate=, weight=, max_waiting=, or some; reset() removes them")
        check_number_of_key(self._task, limit, keeps_order=self._keeps_order)
        client = self._client()
        set_numbers(
            client.store,
            self._task,
            self._lane,
            numbers,
            has_rate=rate is not None,
            weight=weight,
            max_waiting=max_waiting,
        )
        client.queues.read_again()

    def pause(self) -> None:
        """Holds its jobs back until `resume`; those that run go on."""
        self._change(lambda was: replace(was, is_paused=True))

    def resume(self) -> None:
        """Its jobs start again, with the numbers that it had."""
        self._change(lambda was: replace(was, is_paused=False))

    def reset(self) -> None:
        """Removes all that it has of its own: the limit for each key holds."""
        client = self._client()
        reset_key(client.store, self._task, self._lane)
        client.queues.read_again()

    def facts(self) -> TenantFacts:
        """What holds for it, what runs, and what waits."""
        return tenant_facts(self._client().store, self._task, self._lane)

    async def aset(
        self,
        *,
        limit: int | None = None,
        rate: str | None = None,
        weight: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """`set`, awaited."""
        await asyncio.to_thread(self.set, limit=limit, rate=rate, weight=weight, max_waiting=max_waiting)

    async def apause(self) -> None:
        """`pause`, awaited."""
        await asyncio.to_thread(self.pause)

    async def aresume(self) -> None:
        """`resume`, awaited."""
        await asyncio.to_thread(self.resume)

    async def areset(self) -> None:
        """`reset`, awaited."""
        await asyncio.to_thread(self.reset)

    async def afacts(self) -> TenantFacts:
        """`facts`, awaited."""
        return await asyncio.to_thread(self.facts)

    def _change(self, change: Callable[[KeyLimit], KeyLimit]) -> None:
        change_key_limit(self._client().store, self._task, self._lane, change)
