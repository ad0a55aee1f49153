"""What rates count more, or less, once attempts have said what they used."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tarry.model.limit import Level, Limit
from tarry.store.rules.lanes import EndedAttempt, count_by_level, limit_of


def count_corrections(ended: Iterable[EndedAttempt], limits: Mapping[str, Limit]) -> Counter[str]:
    """How many starts more, below 0: fewer, each level is to count after these changes, which ended attempts."""
    corrections: Counter[str] = Counter()
    for change, key in ended:
        if change.rate_correction:
            for name in count_by_level([key], limits):
                corrections[name] += change.rate_correction
    return corrections


def correct_levels(
    corrections: Mapping[str, int],
    limits: Mapping[str, Limit],
    key_limits: Mapping[str, Limit],
    levels: Mapping[str, Level],
    now: int,
) -> dict[str, Level]:
    """The levels after these corrections of `count_corrections`. key_limits: of `limit_of`. levels: as they are; one
    that is not there is unused."""
    return {
        name: levels.get(name, Level()).with_correction(limit, by, now)
        for name, by in corrections.items()
        if (limit := limit_of(name, limits, key_limits)) is not None
    }
