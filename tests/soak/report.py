"""What a soak prints at its end."""

from collections.abc import Iterable, Iterator

from tests.soak.running import SHORTEST, WARM_UP, Outcome, Plan
from tests.soak.series import Series, SeriesSet
from tests.soak.slopes import Slope

MOST_VIOLATIONS = 50
HEAD = ("| series | level | per hour | 95 % | material | minutes | |", "|---|---|---|---|---|---|---|")
Judged = tuple[Series, Slope, bool]
"""A series, its slope after the warm-up, and whether it rises."""


def report(plan: Plan, outcome: Outcome) -> tuple[list[str], int]:
    """The lines, and the exit status."""
    judged = list(_judged(outcome.series, plan.seconds))
    rising = [series.name for series, _, is_rising in judged if is_rising]
    violations = [f"VIOLATION {one}" for one in outcome.violations]
    excused = [f"excused {one}" for one in outcome.excused]
    lines = [*violations[:MOST_VIOLATIONS], *excused[:MOST_VIOLATIONS], *outcome.notes, "", *_table(judged), ""]
    lines += [*_facts(plan, outcome), "", *_table(steepest(judged)), "", *(f"RISING {name}" for name in rising)]
    ok = not rising and not violations
    counts = f"{len(violations)} violations, {len(excused)} excused, {len(rising)} rising"
    lines.append(f"{plan.store}: {'passed' if ok else 'FAILED'}: {counts}")
    return lines, int(not ok)


def _facts(plan: Plan, outcome: Outcome) -> Iterator[str]:
    struck = ", ".join(f"{name} {count}" for name, count in sorted(outcome.struck.items()))
    yield f"{outcome.jobs} puts acknowledged in {plan.seconds / 60:.0f} minutes, seed {plan.seed}"
    yield f"troubles: {sum(outcome.struck.values())}: {struck}"
    yield (
        f"in the calm part tarry and the producer used {outcome.busy:.1%} of a core, the store's server"
        f" {outcome.busy_of_server:.1%}; the store did not answer to {outcome.unanswered} samples"
    )


def _judged(series: SeriesSet, seconds: float) -> Iterator[Judged]:
    """Those that last for long enough. Of a shorter soak they are shown and not judged."""
    part, shortest = SHORTEST
    for one in series:
        slope = one.slope(WARM_UP * seconds)
        if slope is not None and slope.span >= part * seconds:
            yield one, slope, one.is_rising(WARM_UP * seconds, shortest)


def steepest(judged: Iterable[Judged]) -> list[Judged]:
    """Of the series of each kind the one that rises most, by what is material: a table that is short."""
    found: dict[str, Judged] = {}
    for one in judged:
        kind = kind_of(one[0].name)
        if kind not in found or _steepness(one) > _steepness(found[kind]):
            found[kind] = one
    return [found[kind] for kind in sorted(found)]


def kind_of(name: str) -> str:
    """What a series is of: `memory of worker`, but all tables, and the descriptors and threads of all processes, are
    one kind."""
    words = name.rstrip("0123456789").split()
    return words[0] if words[0] in ("rows", "descriptors", "threads") else " ".join(words)


def _steepness(one: Judged) -> float:
    series, slope, _ = one
    return slope.per_hour / series.material(slope)


def _table(judged: list[Judged]) -> Iterator[str]:
    yield from HEAD
    for series, slope, is_rising in judged:
        unit, name = series.bounds.unit, series.bounds.unit_name
        level, per_hour, low, high = (value / unit for value in (slope.level, slope.per_hour, slope.low, slope.high))
        material = series.material(slope) / unit
        verdict = "rises" if is_rising else "" if slope.span >= SHORTEST[1] else "short"
        yield (
            f"| {series.name} | {level:.1f}{name} | {per_hour:+.2f} | {low:+.2f} to {high:+.2f} | {material:.2f}"
            f" | {slope.span / 60:.0f} | {verdict} |"
        )
