"""Rates per second, from counts that are read once in a while."""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from tarry.model.job import Job, State
from tarry.store.rules.base import Tally

WINDOW = 10.0
"""Seconds over which a rate is measured; at least two readings."""
_MOST = 60  # Readings that are kept.
_WAITS = 64


class QueueRates(Struct, frozen=True):
    """Jobs per second that came into a queue, left it, and died in it. None: not known yet."""

    came: float | None = None
    left: float | None = None
    died: float | None = None
    least: bool = False
    """The rates are lower bounds: records were deleted meanwhile."""


class _RateStep(Struct, frozen=True):
    """The changes between two readings."""

    at: float
    seconds: float
    came: int
    left: int
    died: int
    exact: bool


class RateTracker:
    """Measures the rates of each queue from tallies. No rate is negative, even after a prune or purge."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: dict[str, dict[tuple[str, State], int]] | None = None
        self._steps: dict[str, deque[_RateStep]] = {}

    def update(self, tallies: Sequence[Tally], at: float) -> dict[str, QueueRates]:
        """Adds a reading and returns the rates of every queue. at: when it was made, by time.monotonic()."""
        now: dict[str, dict[tuple[str, State], int]] = {}
        for tally in tallies:
            now.setdefault(tally.queue, {})[tally.task, tally.state] = tally.count
        before, seconds = self._before, at - self._at
        self._before, self._at = now, at
        if before is None or seconds <= 0:
            return {queue: QueueRates() for queue in now}
        names = now.keys() | before.keys()
        self._steps = {name: self._steps.get(name) or deque(maxlen=_MOST) for name in names}
        for name, steps in self._steps.items():
            steps.append(_step(before.get(name, {}), now.get(name, {}), at, seconds))
        return {name: _flow(steps, at) for name, steps in self._steps.items()}


def _step(
    before: Mapping[tuple[str, State], int], now: Mapping[tuple[str, State], int], at: float, s: float
) -> _RateStep:
    """The changes of one queue: the jobs that came are the growth of the unfinished ones plus those that left.

    If a group of finished jobs became smaller, it was pruned: then its growth is only known as a lower bound.
    """
    more = {group: now.get(group, 0) - before.get(group, 0) for group in now.keys() | before.keys()}
    waiting = sum(n for (_, state), n in more.items() if not state.finished)
    finished = {group: n for group, n in more.items() if group[1].finished}
    # -waiting: jobs that were deleted before they ended left, too.
    left = max(sum(max(n, 0) for n in finished.values()), -waiting, 0)
    died = sum(max(n, 0) for (_, state), n in finished.items() if state is State.DEAD)
    return _RateStep(at, s, max(waiting + left, 0), left, died, all(n >= 0 for n in finished.values()))


def _flow(steps: Sequence[_RateStep], at: float) -> QueueRates:
    recent = [step for step in steps if at - step.at < WINDOW] or [steps[-1]]
    exact = [step for step in recent if step.exact]
    # Steps in which records were deleted give lower bounds only, so they count if there are no others.
    used = exact or recent
    seconds = sum(step.seconds for step in used)
    came, left, died = (sum(getattr(step, name) for step in used) / seconds for name in ("came", "left", "died"))
    return QueueRates(came, left, died, not exact)


class CounterRates:
    """Measures how fast counters grow, in units per second. A counter may start again at zero."""

    def __init__(self) -> None:
        self._history: dict[str, deque[tuple[float, int]]] = {}

    def update(self, counters: Mapping[str, int], at: float) -> dict[str, float]:
        """Adds a reading and returns the rates by name; a new counter has none yet."""
        self._history = {name: self._history.get(name) or deque(maxlen=_MOST) for name in counters}
        rates = {}
        for name, count in counters.items():
            steps = self._history[name]
            if steps and count < steps[-1][1]:
                steps.clear()
            steps.append((at, count))
            while len(steps) > 2 and at - steps[1][0] >= WINDOW:
                steps.popleft()
            if steps[-1][0] > steps[0][0]:
                rates[name] = (count - steps[0][1]) / (at - steps[0][0])
        return rates


class WaitTracker:
    """Measures how long jobs waited between due and start, from jobs that were seen running."""

    def __init__(self) -> None:
        self._waits: dict[str, dict[tuple[bytes, int], float]] = {}

    def update(self, running: Sequence[Job]) -> dict[str, float]:
        """Adds running jobs and returns the median wait by queue, in seconds."""
        for job in running:
            waits = self._waits.setdefault(job.queue, {})
            # By attempt: a long job is seen in many polls, and counts once.
            waits[job.id, job.epoch] = max(0, job.state_since - job.due) / 1e6
            while len(waits) > _WAITS:
                # The first one added, which is the oldest.
                del waits[next(iter(waits))]
        return {queue: median(waits.values()) for queue, waits in self._waits.items()}
