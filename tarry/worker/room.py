"""How much room there is for more jobs, of which kind of task, and for how many that are not here yet."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import Running
from tarry.worker.appetite import Appetite
from tarry.worker.gather import Gather
from tarry.worker.run.base import Runner

CLAIMED_AT_ONCE = 1000
PROBED_AT_ONCE = 8
PROBE_EVERY = 0.25
_SMOOTH = 0.3


class Room:
    """Counts what the two runners of a worker hold. The kinds: False, a `def`; True, an `async def`.

    A call of a batch task counts as one, however many jobs it is for, and so does one that is not full yet in part.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        runners: Mapping[bool, Runner],
        gather: Gather | None = None,
    ) -> None:
        self._tasks = tasks
        self._runners = runners
        self._gather = gather or Gather()
        self._part: dict[bool, float] = {}
        self._appetites = {kind: Appetite(runner.slots) for kind, runner in runners.items()}
        self._count = dict.fromkeys(runners, 0)
        self._async_share: float | None = None
        self._probe_at = 0.0
        self._tasks_seen = -1
        self._kinds: frozenset[bool] = frozenset()

    def left(self) -> int:
        """How many jobs to claim, so that neither kind of task gets many more than its runner can take: which kind
        they are is known only once they are here, so it goes by the mix of late."""
        self._look_at_tasks()
        free = {kind: self._in_jobs(kind, self._appetites[kind].target() - self._count[kind]) for kind in self._count}
        limits = [free[kind] / part for kind, part in self._mix().items() if part > 0.02]
        room = max(0, min(CLAIMED_AT_ONCE, int(min(limits, default=0))))
        return room or self._probe(free)

    def takes(self, kind: bool, further: int) -> bool:
        """There is room for one more, after so many further ones."""
        return self._count[kind] + further < self._appetites[kind].target()

    def fill(self) -> float:
        """What part of what can be run at once is in use, 0 to 1; of two kinds, of the one of which more is."""
        runners = self._runners.items()
        return min(1.0, max((self._count[kind] / runner.slots for kind, runner in runners if runner.slots), default=0))

    def put(self, kind: bool, batch: Sequence[Running], now: float) -> None:
        """Brings jobs to the runner of their kind."""
        appetite, runner = self._appetites[kind], self._runners[kind]
        if not self._count[kind]:
            appetite.idle(now)
        self._count[kind] += len(batch)
        if self._count[kind] > appetite.target():
            self._probe_at = now + PROBE_EVERY
        runner.low = appetite.ahead() // 2
        runner.put(batch)

    def mixed(self, batches: Mapping[bool, Sequence[Running]], gathered: Sequence[Running] = ()) -> None:
        """What a claim brought, by kind, and what of batch tasks: the next ones are held to be alike."""
        counts = {kind: len(batch) for kind, batch in batches.items()}
        if self._part:
            self._weigh(counts, gathered)
        known = sum(counts.values())
        if known:
            share = counts[True] / known
            past = share if self._async_share is None else self._async_share
            self._async_share = past + _SMOOTH * (share - past)

    def ended(self, counts: Mapping[bool, int], now: float) -> None:
        """So many ended, by kind."""
        for kind, count in counts.items():
            self._count[kind] -= count
            if count:
                self._appetites[kind].ended(count, now)

    def nothing_came(self, now: float) -> None:
        """A claim found no job."""
        for kind, appetite in self._appetites.items():
            if not self._count[kind]:
                appetite.idle(now)

    def withdraw(self, kind: bool) -> list[Running]:
        """Takes back what has not begun."""
        back = self._runners[kind].withdraw()
        self._count[kind] -= len(back)
        return back

    def stalled(self, now: float) -> list[bool]:
        """The kinds whose line has not moved for so long that it would be better off elsewhere. Where there are no more
        jobs than slots, those in line are about to begin: taken back, they would come again and again, and never run.
        """
        queued = [kind for kind, runner in self._runners.items() if self._count[kind] > runner.slots]
        found = [kind for kind in queued if self._runners[kind].waiting() and self._appetites[kind].stalled(now)]
        for kind in found:
            self._appetites[kind].forget()
        return found

    def pause(self) -> float | None:
        """Seconds until the next probe; None: none is due."""
        left = self._probe_at - time.monotonic()
        return left if left > 0 else None

    def _probe(self, free: Mapping[bool, int]) -> int:
        """One kind of task is full and the other is not: now and then take a few, to see whether they are of the
        other kind. What is of the full one goes back at once."""
        most = max(free[kind] for kind in self._kinds)
        return min(most, PROBED_AT_ONCE) if most > 0 and time.monotonic() >= self._probe_at else 0

    def _in_jobs(self, kind: bool, slots: int) -> int:
        """How many jobs it takes to fill so many slots: ordinary ones each one, of a batch task what a call lacks."""
        if slots <= 0 or not self._part:
            return slots
        needed = (slots - self._gather.filled(kind)) / self._part[kind]
        return max(int(needed + 1e-6), self._gather.lacking(kind))

    def _weigh(self, counts: dict[bool, int], gathered: Sequence[Running]) -> None:
        """Counts what came for batch tasks too, and notes what part of a slot a job of each kind took of late."""
        slots: dict[bool, float] = {kind: float(count) for kind, count in counts.items()}
        for running in gathered:
            counts[running.task.is_async] += 1
            slots[running.task.is_async] += 1 if running.job.losses else 1 / running.task.batch
        for kind, count in counts.items():
            if count:
                self._part[kind] += _SMOOTH * (slots[kind] / count - self._part[kind])

    def _look_at_tasks(self) -> None:
        """Which kinds of task the app has; a notebook adds to them while it works."""
        if len(self._tasks) == self._tasks_seen:
            return
        self._tasks_seen = len(self._tasks)
        tasks = list(self._tasks.values())
        self._kinds = frozenset(task.is_async for task in tasks) or frozenset({False})
        if any(task.batch for task in tasks):
            for kind in self._runners:
                # The least that a job takes; with ordinary ones among them, a slot each until they are seen to be few.
                alike = [task.batch for task in tasks if task.is_async is kind]
                self._part.setdefault(kind, 1 / max(min(alike, default=1), 1))

    def _mix(self) -> dict[bool, float]:
        if self._async_share is None:
            kinds = self._kinds
            share = 0.5 if len(kinds) != 1 else float(True in kinds)
        else:
            share = self._async_share
        slots = {kind: runner.slots for kind, runner in self._runners.items()}
        if not slots[True] or not slots[False]:
            return {True: float(bool(slots[True])), False: float(bool(slots[False]))}
        return {True: share, False: 1 - share}
