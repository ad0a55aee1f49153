"""The shortest run that still fails: choices of a failing run are left out as long as it fails."""

from collections.abc import Iterator

from tests.simulation.run import Outcome, run

MOST_RUNS = 400
"""A run takes some tenths of a second."""


def shrink(failed: Outcome, runs: int = MOST_RUNS) -> tuple[Outcome, frozenset[str]]:
    """The run with the fewest choices that was found by so many runs, and what was left out of it."""
    best, without = failed, frozenset[str]()
    left, size = iter(range(runs)), len(best.chosen)
    while size >= 1:
        size = min(size, len(best.chosen))
        found = _leave_out(best, without, size, left)
        if found is not None:
            best, without = found
        else:
            size //= 2
    return best, without


def _leave_out(
    best: Outcome, without: frozenset[str], size: int, left: Iterator[int]
) -> tuple[Outcome, frozenset[str]] | None:
    """The first run without a further part of that size that fails, too, and has fewer choices. None also when no run
    is left."""
    chosen = sorted(set(best.chosen))
    for start, _ in zip(range(0, len(chosen), size), left, strict=False):
        fewer = without.union(chosen[start : start + size])
        outcome = run(best.seed, fewer)
        if outcome.failure and len(outcome.chosen) < len(best.chosen):
            return outcome, fewer
    return None
