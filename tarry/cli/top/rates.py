"""How much a second, from counts that are looked at now and then."""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from tarry.model.job import Job, State
from tarry.store.base import Tally

WINDOW = 10.0
"""Seconds over which a rate is taken, or two looks, if they are further apart."""
_MOST = 60
"""Looks that are kept."""
_WAITS = 64


class QueueRates(Struct, frozen=True):
    """Jobs a second that came into a queue, that left it, and that died there. None: not known yet."""

    came: float | None = None
    left: float | None = None
    died: float | None = None
    least: bool = False
    """Records were forgotten meanwhile, so it may have been more."""


class _Step(Struct, frozen=True):
    """What changed from one look to the next."""

    at: float
    seconds: float
    came: int
    left: int
    died: int
    exact: bool


class RateTracker:
    """The flow of each queue, from tallies. No number is ever below zero, whatever is pruned or purged."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: dict[str, dict[tuple[str, State], int]] | None = None
        self._steps: dict[str, deque[_Step]] = {}

    def update(self, tallies: Sequence[Tally], at: float) -> dict[str, QueueRates]:
        """The flow of every queue. at: when they were counted, in seconds of the monotonic clock."""
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


def _step(before: Mapping[tuple[str, State], int], now: Mapping[tuple[str, State], int], at: float, s: float) -> _Step:
    """What finished was in the queue before; so what came is what is unfinished more, and what left meanwhile.

    A group of finished jobs that shrank was pruned: then only a least is known of what joined it.
    """
    more = {group: now.get(group, 0) - before.get(group, 0) for group in now.keys() | before.keys()}
    waiting = sum(n for (_, state), n in more.items() if not state.finished)
    finished = {group: n for group, n in more.items() if group[1].finished}
    left = max(sum(max(n, 0) for n in finished.values()), -waiting, 0)
    died = sum(max(n, 0) for (_, state), n in finished.items() if state is State.DEAD)
    return _Step(at, s, max(waiting + left, 0), left, died, all(n >= 0 for n in finished.values()))


def _flow(steps: Sequence[_Step], at: float) -> QueueRates:
    recent = [step for step in steps if at - step.at < WINDOW] or [steps[-1]]
    exact = [step for step in recent if step.exact]
    used = exact or recent
    seconds = sum(step.seconds for step in used)
    came, left, died = (sum(getattr(step, name) for step in used) / seconds for name in ("came", "left", "died"))
    return QueueRates(came, left, died, not exact)


class CounterRates:
    """How much a second counters grow that each begin anew at zero."""

    def __init__(self) -> None:
        self._history: dict[str, deque[tuple[float, int]]] = {}

    def update(self, counters: Mapping[str, int], at: float) -> dict[str, float]:
        """By name; of one that is new, nothing is told yet."""
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
    """How long jobs waited from when they were due to their start, as far as they were seen running."""

    def __init__(self) -> None:
        self._waits: dict[str, dict[tuple[bytes, int], float]] = {}

    def update(self, running: Sequence[Job]) -> dict[str, float]:
        """The median of the last that were seen, in seconds, by queue."""
        for job in running:
            waits = self._waits.setdefault(job.queue, {})
            waits[job.id, job.epoch] = max(0, job.since - job.due) / 1e6
            while len(waits) > _WAITS:
                del waits[next(iter(waits))]
        return {queue: median(waits.values()) for queue, waits in self._waits.items()}
