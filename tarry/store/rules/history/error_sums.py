"""Adds errors to the groups that a history keeps, bounds their number, and finds those that are too old."""

from collections.abc import Iterable, Mapping

from tarry.model.duration import SECOND
from tarry.store.rules.history.error_groups import ErrorGroup, decode_group, encode_group, group_place
from tarry.store.rules.history.journal import ErrorsSeen
from tarry.store.rules.history.sums import DAYS, HOURS, LENGTH, OTHERS, Place

MOST_GROUPS = 1000
"""So many groups are kept; of the others only how many errors they had, in the place of no queue."""
KEPT_FOR = 31 * 86400
"""For so many seconds after its last error a group is kept."""


def groups_of(errors: Iterable[tuple[ErrorsSeen, int]], now: int) -> dict[Place, ErrorGroup]:
    """The groups of these errors, each with how many there were. now: microseconds; what a wrong clock put later counts
    as now."""
    found: dict[Place, ErrorGroup] = {}
    for seen, count in errors:
        at = max(0, min(seen.at, now))
        hour, day = (at // SECOND // LENGTH[of] * LENGTH[of] for of in (HOURS, DAYS))
        kind, times = (seen.type, seen.message, seen.place), (at, at)
        tasks = {seen.task: count}
        group = ErrorGroup(*kind, count, *times, seen.owner, seen.job, tasks, {hour: count}, {day: count})
        if not seen.fingerprint:
            group = _nameless(group)
        found.setdefault(group_place(seen.queue, seen.fingerprint), ErrorGroup(*kind)).add(group)
    return found


def merge_groups(added: Mapping[Place, ErrorGroup], there: Mapping[Place, bytes]) -> dict[Place, bytes]:
    """The cells that change if these groups are added to those that are there; empty: that one goes."""
    groups = {place: decode_group(cell) for place, cell in there.items()}
    muted = {place.task for place, group in groups.items() if group.is_muted_in_all}
    changed = set(added)
    for place, group in added.items():
        if place in groups:
            groups[place].add(group)
        else:
            group.is_muted = group.is_muted_in_all = place.task in muted
            groups[place] = group
    gone = _over(groups)
    for place in gone:
        groups.setdefault(group_place(OTHERS, OTHERS), ErrorGroup()).add(_nameless(groups.pop(place)))
        changed.add(group_place(OTHERS, OTHERS))
    kept = {place: encode_group(groups[place]) for place in changed if place in groups}
    return kept | {place: b"" for place in gone if place in there}


def _nameless(group: ErrorGroup) -> ErrorGroup:
    return ErrorGroup(count=group.count, last=group.last, hours=group.hours, days=group.days)


def _over(groups: Mapping[Place, ErrorGroup]) -> list[Place]:
    """Which groups are too many. A task whose messages are all different drives out its own ones."""
    named = [place for place in groups if place.task]
    if len(named) <= MOST_GROUPS:
        return []
    of_task: dict[str, list[Place]] = {}
    for place in sorted(named, key=lambda place: groups[place].last, reverse=True):
        of_task.setdefault(min(groups[place].tasks, default=""), []).append(place)
    # Each task keeps its newest ones, as many as any other if it has so many: first that of each, then the next.
    ranked = sorted((rank, -groups[place].last, place) for its in of_task.values() for rank, place in enumerate(its))
    return [place for _, _, place in ranked[MOST_GROUPS:]]


def old_groups(there: Mapping[Place, bytes], now: int) -> list[Place]:
    """Groups without an error for so long that they go."""
    return [place for place, cell in there.items() if decode_group(cell).last < now - KEPT_FOR * SECOND]
