"""Who waits for jobs, and who gets which: those that asked first come first."""

import itertools
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from tarry.model.job import Job
from tarry.store.rules.base import BANDS, Want
from tarry.tasks.lazy_asyncio import asyncio
from tarry.worker.claim_plan import WeightedQueues

MOST_AT_ONCE = 200
"""The most jobs that one claim takes for several who wait."""
MOST_CLAIMS = 16
"""The most claims of one round, so that those who settle jobs do not wait for all that want some."""
_PLANS = 1000

ClaimResult = list[Job] | Exception


class ClaimTicket:
    """One who waits for up to `limit` jobs of these queues.

    lease: microseconds; None: the server process holds the jobs. reply: called once on the event loop's thread, with
    the jobs, none of them after the wait, or an error; not after `cancel`. forget: called by `cancel`.
    """

    __slots__ = ("_forget", "_reply", "_timer", "is_over", "lease", "limit", "queues", "sees_last", "strict")

    def __init__(
        self,
        queues: Sequence[str],
        limit: int,
        lease: int | None,
        reply: Callable[[ClaimResult], None],
        forget: "Callable[[ClaimTicket], None]",
    ) -> None:
        self.queues, self.limit, self.lease = tuple(dict.fromkeys(queues)), limit, lease
        self.strict = lease is None
        """The most urgent band first; else the bands take their shares."""
        self.sees_last = False
        """It is answered after the next look, whether there is a job or not."""
        self.is_over = False
        """It is answered or cancelled."""
        self._reply, self._forget = reply, forget
        self._timer: asyncio.TimerHandle | None = None

    def limit_wait(self, timer: "asyncio.TimerHandle") -> None:
        """Its wait has a limit: this timer is cancelled if it ends before."""
        self._timer = timer

    def answer(self, answer: ClaimResult) -> bool:
        """Replies; False if it was cancelled. On the event loop's thread."""
        if self.is_over:
            return False
        self._end()
        self._reply(answer)
        return True

    def cancel(self) -> None:
        """It waits no longer. Jobs that are on their way to it are given back. On the event loop's thread."""
        if not self.is_over:
            self._end()
            self._forget(self)

    def _end(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()


class TicketClaim(Struct):
    """One claim of the store, for these tickets in this order. lease: None: the server process holds the jobs."""

    group: "ClaimGroup"
    tickets: list[ClaimTicket]
    wants: Sequence[Want]
    limit: int
    lease: int | None


class ClaimGroup:
    """The tickets that want the same queues in the same way: when a claim finds nothing for one, there is nothing for
    the others either."""

    def __init__(self, queues: tuple[str, ...], strict: bool, plan: "UrgentFirst | WeightedQueues") -> None:
        self.queues, self.strict = queues, strict
        self.tickets: dict[ClaimTicket, None] = {}
        self.plan = plan

    def next_claim(self) -> TicketClaim | None:
        """The next claim for those who have waited longest; None: nobody waits."""
        first = next(iter(self.tickets), None)
        if first is None:
            return None
        if first.lease is not None:
            # Each has its own lease, and so its own owner.
            return TicketClaim(self, [first], self.plan.plan(first.limit), first.limit, first.lease)
        tickets = list(itertools.islice(self.tickets, MOST_AT_ONCE))
        limit = min(sum(ticket.limit for ticket in tickets), MOST_AT_ONCE)
        return TicketClaim(self, tickets, self.plan.plan(limit), limit, None)

    def last_lookers(self) -> list[ClaimTicket]:
        """The tickets that are answered after a look, whether there are jobs or not."""
        return [ticket for ticket in self.tickets if ticket.sees_last]


class WaitingClaims:
    """All who wait in this process. Not thread-safe."""

    def __init__(self) -> None:
        self.count = 0
        """How many wait."""
        self._groups: dict[tuple[tuple[str, ...], bool], ClaimGroup] = {}
        self._due: dict[ClaimGroup, None] = {}
        """Those for which there may be jobs, in the order of their turns."""
        self._plans: dict[tuple[str, ...], WeightedQueues] = {}

    def add(self, ticket: ClaimTicket) -> None:
        """It waits from now on, behind those that wait already."""
        key = ticket.queues, ticket.strict
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ClaimGroup(*key, UrgentFirst(ticket.queues) if key[1] else self._plan(key[0]))
        self._due[group] = None
        group.tickets[ticket] = None
        self.count += 1

    def remove(self, ticket: ClaimTicket) -> bool:
        """It waits no longer; False if it did not wait."""
        key = ticket.queues, ticket.strict
        group = self._groups.get(key)
        if group is None or ticket not in group.tickets:
            return False
        del group.tickets[ticket]
        self.count -= 1
        if not group.tickets:
            del self._groups[key]
            self._due.pop(group, None)
        return True

    def remove_all(self) -> list[ClaimTicket]:
        """Nobody waits any longer; returns who did."""
        tickets = [ticket for group in self._groups.values() for ticket in group.tickets]
        self._groups.clear()
        self._due.clear()
        self.count = 0
        return tickets

    def cannot_wait(self) -> list[ClaimTicket]:
        """Those who are answered after a look, whether there are jobs or not."""
        return [ticket for group in self._groups.values() for ticket in group.last_lookers()]

    def look(self, ticket: ClaimTicket) -> None:
        """There may be jobs for this one."""
        if (group := self._groups.get((ticket.queues, ticket.strict))) is not None:
            self._due[group] = None

    def look_all(self) -> None:
        """There may be jobs for all."""
        self._due.update(dict.fromkeys(self._groups.values()))

    def end_look(self, group: ClaimGroup) -> None:
        """There are no jobs for these now."""
        self._due.pop(group, None)

    def due(self) -> list[ClaimGroup]:
        """The groups for which there may be jobs, in the order of their turns."""
        return list(self._due)

    def put_last(self, group: ClaimGroup) -> None:
        """The other groups come before this one at the next round."""
        if group in self._due:
            del self._due[group]
            self._due[group] = None

    def _plan(self, queues: tuple[str, ...]) -> WeightedQueues:
        # Kept when nobody waits: each call of a taker begins a new wait, and the shares have to hold over many.
        plan = self._plans.get(queues)
        if plan is None:
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            plan = self._plans[queues] = WeightedQueues()
            plan.set_queues(dict.fromkeys(queues, 1))
        return plan


class UrgentFirst:
    """The most urgent band of all queues first; within a band, another queue is the first each time."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)

    def plan(self, limit: int) -> list[Want]:
        """The wants of a claim of `limit` jobs."""
        self._queues.append(self._queues.pop(0))
        return [Want(queue, band, limit) for band in BANDS for queue in self._queues]

    def record(self, wants: Sequence[Want], jobs: Sequence[Job]) -> None:
        """What a claim brought changes nothing."""


def share_out(tickets: Iterable[ClaimTicket], jobs: Iterable[Job]) -> dict[ClaimTicket, list[Job]]:
    """Gives the jobs to the tickets, each as many as it wants before the next gets one."""
    left = iter(jobs)
    given = ((ticket, list(itertools.islice(left, ticket.limit))) for ticket in tickets)
    return {ticket: got for ticket, got in given if got}
