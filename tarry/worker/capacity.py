"""How many jobs a worker claims: what its slots take now, and a few more for the time until the next claim."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import Running
from tarry.worker.batch_buffer import BatchBuffer
from tarry.worker.run.runner import Runner

CLAIMED_AT_ONCE = 1000
PROBED_AT_ONCE = 8
PROBE_EVERY = 0.25
HORIZON = 0.025
"""Seconds of work to prefetch."""
MOST_AHEAD = 1000
SHARED, SHARED_AGAIN = 0.9, 8
"""The part of its prefetched jobs that a worker keeps where a limit is reached, and how many more it may have after
each claim under which none is."""
SHARED_FROM = 128
"""So many prefetched jobs a worker keeps: of fewer, each exchange would cost more than it is for."""
STALLED_AFTER = 0.25
"""Seconds without an ended job after which prefetched jobs are given back."""
MEASURED_OVER = 0.2
"""Seconds over which `SettleDelay` measures the rate."""
MIN_DELAY, MAX_DELAY = 0.001, 0.02
"""Seconds."""
MIN_ENDS = 10
"""A delay is worth it if at least so many jobs end in it."""
GATHER = 0.002
"""Seconds that jobs and ends gather before an exchange, while jobs come faster than exchanges."""
REMEMBERED = 16
"""For so many exchanges after one that overlapped with new jobs, more are expected."""
_SMOOTH = 0.3


class Capacity:
    """Counts the jobs that the two runners of a worker hold, by kind: False for `def`, True for `async def`.

    One call of a batch task counts as one, for however many jobs it is. A call that is not full yet counts in part.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        runners: Mapping[bool, Runner],
        buffer: BatchBuffer | None = None,
    ) -> None:
        self._tasks = tasks
        self._runners = runners
        self._buffer = buffer or BatchBuffer()
        self._slots_per_job: dict[bool, float] = {}
        """Empty if the app has no batch tasks: then each job takes one slot."""
        self._prefetch = {kind: Prefetch(runner.slots) for kind, runner in runners.items()}
        self._count = dict.fromkeys(runners, 0)
        self._async_share: float | None = None
        """The part of the jobs claimed lately that were `async def`; None before the first claim."""
        self._probe_at = 0.0
        self._tasks_seen = -1
        self._kinds: frozenset[bool] = frozenset()

    def free(self) -> int:
        """How many jobs to claim so that no runner gets many more than it can take."""
        # The kind of a job is known only after the claim, so the limit assumes that the mix stays as it was lately.
        self._refresh_kinds()
        free = {kind: self._jobs_for(kind, self._prefetch[kind].target() - self._count[kind]) for kind in self._count}
        # A kind that hardly occurs must not hold up the other one when its own runner is full.
        limits = [free[kind] / part for kind, part in self._mix().items() if part > 0.02]
        count = max(0, min(CLAIMED_AT_ONCE, int(min(limits, default=0))))
        return count or self._probe(free)

    def has_room_for(self, kind: bool, further: int) -> bool:
        """Whether the runner takes one more job after `further` others."""
        return self._count[kind] + further < self._prefetch[kind].target()

    def is_ahead(self) -> bool:
        """Whether a runner holds more jobs than it runs at once."""
        return any(self._count[kind] > runner.slots for kind, runner in self._runners.items())

    def load(self) -> float:
        """The part of the slots in use, 0 to 1: that of the busier runner."""
        runners = self._runners.items()
        return min(1.0, max((self._count[kind] / runner.slots for kind, runner in runners if runner.slots), default=0))

    def put(self, kind: bool, batch: Sequence[Running], now: float) -> None:
        """Passes jobs to the runner of their kind."""
        prefetch, runner = self._prefetch[kind], self._runners[kind]
        # The runner was idle, so the time since its last job says nothing about its rate.
        if not self._count[kind]:
            prefetch.record_idle(now)
        self._count[kind] += len(batch)
        if self._count[kind] > prefetch.target():
            self._probe_at = now + PROBE_EVERY
        # Half: the pump has the time of the other half for its next claim.
        runner.refill_at = prefetch.ahead() // 2
        runner.put(batch)

    def record_mix(self, batches: Mapping[bool, Sequence[Running]], gathered: Sequence[Running] = ()) -> None:
        """Records what a claim brought, by kind. gathered: the jobs of batch tasks, which are not in `batches`."""
        counts = {kind: len(batch) for kind, batch in batches.items()}
        if self._slots_per_job:
            self._record_slots_per_job(counts, gathered)
        known = sum(counts.values())
        if known:
            share = counts[True] / known
            # Smoothed, so that one unusual claim changes the next one only a little.
            past = share if self._async_share is None else self._async_share
            self._async_share = past + _SMOOTH * (share - past)

    def record_claim(self, is_held_back: bool) -> None:
        """Records a claim whose jobs were put. is_held_back: as of `Exchange`."""
        for kind, prefetch in self._prefetch.items():
            prefetch.share(self._count[kind], is_held_back)

    def is_shared(self) -> bool:
        """Whether limits bound what a runner holds ahead."""
        return any(prefetch.is_shared and self._count[kind] for kind, prefetch in self._prefetch.items())

    def record_ends(self, counts: Mapping[bool, int], now: float) -> None:
        """Records how many calls have ended, by kind."""
        for kind, count in counts.items():
            self._count[kind] -= count
            if count:
                self._prefetch[kind].record_ends(count, now)

    def record_empty_claim(self, now: float) -> None:
        """Records that a claim found no job."""
        for kind, prefetch in self._prefetch.items():
            if not self._count[kind]:
                prefetch.record_idle(now)

    def withdraw(self, kind: bool) -> list[Running]:
        """Takes back the jobs of a runner that have not begun."""
        back = self._runners[kind].withdraw()
        self._count[kind] -= len(back)
        return back

    def stalled_kinds(self, now: float) -> list[bool]:
        """The kinds whose prefetched jobs wait for so long that other workers should have them."""
        # With no more jobs than slots, the waiting ones are about to begin. Taken back, they would be claimed again and
        # again, and never run.
        queued = [kind for kind, runner in self._runners.items() if self._count[kind] > runner.slots]
        found = [kind for kind in queued if self._runners[kind].waiting() and self._prefetch[kind].is_stalled(now)]
        for kind in found:
            # Else the next claim would take the same jobs back.
            self._prefetch[kind].reset()
        return found

    def probe_pause(self) -> float | None:
        """Seconds until the next probe; None: none is due."""
        left = self._probe_at - time.monotonic()
        return left if left > 0 else None

    def _probe(self, free: Mapping[bool, int]) -> int:
        """While one runner is full and the other is not: now and then a few jobs, else 0."""
        # They may be of the other kind. Those of the full kind are given back at once.
        most = max(free[kind] for kind in self._kinds)
        return min(most, PROBED_AT_ONCE) if most > 0 and time.monotonic() >= self._probe_at else 0

    def _jobs_for(self, kind: bool, slots: int) -> int:
        """How many jobs fill so many slots; for a batch task at least what the emptiest call lacks."""
        if slots <= 0 or not self._slots_per_job:
            return slots
        needed = (slots - self._buffer.slots_needed(kind)) / self._slots_per_job[kind]
        # A little more, since sums of fractions may end just below a whole number.
        return max(int(needed + 1e-6), self._buffer.missing_jobs(kind))

    def _record_slots_per_job(self, counts: dict[bool, int], gathered: Sequence[Running]) -> None:
        """Adds the jobs of batch tasks to `counts`, and records how many slots a job takes, by kind."""
        slots: dict[bool, float] = {kind: float(count) for kind, count in counts.items()}
        for running in gathered:
            counts[running.task.is_async] += 1
            # A job that was in a crash is called alone, so it takes a whole slot.
            slots[running.task.is_async] += 1 if running.job.crashes else 1 / running.task.batch
        for kind, count in counts.items():
            if count:
                self._slots_per_job[kind] += _SMOOTH * (slots[kind] / count - self._slots_per_job[kind])

    def _refresh_kinds(self) -> None:
        """Finds out which kinds of task the app has."""
        # Tasks may be added while the worker works, as in a notebook.
        if len(self._tasks) == self._tasks_seen:
            return
        self._tasks_seen = len(self._tasks)
        tasks = list(self._tasks.values())
        self._kinds = frozenset(task.is_async for task in tasks) or frozenset({False})
        if any(task.batch for task in tasks):
            for kind in self._runners:
                # Begin with the least that a job may take. If there are ordinary tasks, that is one slot each, until
                # their share is known.
                sizes = [task.batch for task in tasks if task.is_async is kind]
                self._slots_per_job.setdefault(kind, 1 / max(min(sizes, default=1), 1))

    def _mix(self) -> dict[bool, float]:
        """The part of the next claim that is expected of each kind."""
        if self._async_share is None:
            kinds = self._kinds
            share = 0.5 if len(kinds) != 1 else float(True in kinds)
        else:
            share = self._async_share
        slots = {kind: runner.slots for kind, runner in self._runners.items()}
        if not slots[True] or not slots[False]:
            return {True: float(bool(slots[True])), False: float(bool(slots[False]))}
        return {True: share, False: 1 - share}


class Prefetch:
    """How many jobs to hold for one runner: as many as it has slots, and those that it will end within `HORIZON`.

    Times are those of time.monotonic().
    """

    # By the rate: a worker of short jobs prefetches hundreds. One of long jobs prefetches none, so that no job waits
    # behind a long one while another worker is idle.

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._rate = 0.0
        self._idle_at = 0.0
        self._last_end = 0.0
        self._most = MOST_AHEAD

    def share(self, held: int, is_held_back: bool) -> None:
        """Leaves a part of the places under limits to other workers. held: how many jobs it holds after a claim.
        is_held_back: limits left less to the claim than it asked for."""
        # A held job has its place before it runs. Each worker gives up a part where limits are reached, and asks for
        # one more after the other where they are not: so all come to hold as many, as senders come to share a line.
        if is_held_back:
            self._most = min(self._most, max(SHARED_FROM, int((held - self._slots) * SHARED)))
        else:
            self._most = min(self._most + SHARED_AGAIN, MOST_AHEAD)

    @property
    def is_shared(self) -> bool:
        """Whether it holds less than it would, since limits were reached lately."""
        return self._most < min(MOST_AHEAD, int(self._rate * HORIZON))

    def record_ends(self, count: int, now: float) -> None:
        """Records how many jobs ended since the last call."""
        # At least 0.1 ms: two calls in a row would otherwise look like a huge rate.
        spell = max(now - max(self._idle_at, self._last_end), 1e-4)
        self._rate += _SMOOTH * (count / spell - self._rate)
        self._last_end = now

    def record_idle(self, now: float) -> None:
        """Records that there was nothing to run: the time before `now` says nothing about the rate."""
        self._idle_at = now

    def ahead(self) -> int:
        """How many jobs to prefetch."""
        return min(self._most, int(self._rate * HORIZON))

    def target(self) -> int:
        """How many jobs to hold, running and prefetched."""
        return self._slots + self.ahead() if self._slots else 0

    def is_stalled(self, now: float) -> bool:
        """Whether no job has ended for long."""
        return now - max(self._last_end, self._idle_at) > STALLED_AFTER

    def reset(self) -> None:
        """Prefetches nothing until the rate is known again."""
        self._rate = 0.0


class SettleDelay:
    """How long to collect ended jobs before they are settled together, by how many end per second."""

    def __init__(self) -> None:
        self._rate, self._count, self._measured_at = 0.0, 0, 0.0
        self._overlaps = 0

    def record_exchange(self, settled: bool, claimed: bool) -> None:
        """Records an exchange. claimed: it brought jobs, and fewer than asked for."""
        # One that does both shows that jobs come while others run.
        self._overlaps = REMEMBERED if settled and claimed else max(self._overlaps - 1, 0)

    def record_ends(self, count: int, now: float) -> None:
        """Records how many jobs ended since the last call."""
        self._count += count
        if now - self._measured_at >= MEASURED_OVER:
            self._rate = self._count / (now - self._measured_at)
            self._count, self._measured_at = 0, now

    def seconds(self, held: int, ended: int) -> float:
        """Seconds until a quarter of the held jobs has ended; 0.0: settle at once, since too few would end."""
        # A quarter: so no job waits for longer than a quarter of the time that a job takes here.
        delay = min((held / 4 - ended) / self._rate, MAX_DELAY) if self._rate else 0.0
        if delay >= MIN_DELAY and self._rate * delay >= MIN_ENDS:
            return delay
        return GATHER if self._overlaps and self._rate * GATHER >= 1 else 0.0
