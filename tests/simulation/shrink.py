"""The shortest run that still fails: choices of a failing run are left out as long as it fails."""

import time

from tests.simulation.run import Outcome, run

MOST_SECONDS = 120.0
"""Of CPU time."""


def shrink(failed: Outcome, seconds: float = MOST_SECONDS) -> tuple[Outcome, frozenset[str]]:
    """The run with the fewest choices that was found, and what was left out of it."""
    end = time.process_time() + seconds
    best, without = failed, frozenset[str]()
    size = len(best.chosen)
    while size >= 1:
        size = min(size, len(best.chosen))
        found = _leave_out(best, without, size, end)
        if found is not None:
            best, without = found
        elif time.process_time() >= end:
            break
        else:
            size //= 2
    return best, without


def _leave_out(best: Outcome, without: frozenset[str], size: int, end: float) -> tuple[Outcome, frozenset[str]] | None:
    """The first run without a further part of that size that fails, too."""
    chosen = sorted(set(best.chosen))
    for start in range(0, len(chosen), size):
        if time.process_time() >= end:
            return None
        fewer = without.union(chosen[start : start + size])
        outcome = run(best.seed, fewer)
        if outcome.failure:
            return outcome, fewer
    return None
