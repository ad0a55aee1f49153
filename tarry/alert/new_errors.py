"""Errors that nobody has seen before: of each new kind there is an alert, of many at once one for all."""

from collections.abc import Iterator, Mapping

from tarry.alert.condition import MOST_DETAILS, Condition
from tarry.model.duration import format_duration
from tarry.model.values.console_paths import ERRORS, error_path
from tarry.store.rules.history.error_groups import ErrorGroup, decode_group, sum_queues
from tarry.store.rules.history.sums import Place

MOST_APART = 5
"""So many new kinds have an alert each."""


def new_error_conditions(cells: Mapping[Place, bytes], since: int, every: int) -> Iterator[Condition]:
    """What is new. cells: the groups of errors of the history. since: microseconds since the epoch, before which what
    began is not new. every: how long an alert holds, in microseconds."""
    new = _new_groups(cells, since)
    if len(new) > MOST_APART:
        yield Condition(
            "errors",
            f"{len(new):,} kinds of errors are new",
            f"fewer than {MOST_APART + 1} kinds of errors have been new for {format_duration(every)}",
            "tarry errors --order first",
            tuple(f"{id}: {_line(group)}" for id, group in list(new.items())[:MOST_DETAILS]),
            where=f"{ERRORS}?new_since=deploy",
            calm=0,
        )
        return
    for id, group in new.items():
        yield Condition(
            f"error {id}",
            f"a new error: {_line(group)}",
            f"the error {id} is not new any more: {_line(group)}",
            f"tarry errors show {id}; to hear no more of it: tarry errors mute {id}",
            tuple(f"{task or 'others'}: {count:,}" for task, count in list(group.tasks.items())[:MOST_DETAILS]),
            # What is new is so for the whole time, and no longer.
            calm=0,
            since=group.first,
            where=error_path(id),
        )


def _new_groups(cells: Mapping[Place, bytes], since: int) -> dict[str, ErrorGroup]:
    """By fingerprint, the oldest first. One that is older in another queue is not new."""
    found: dict[str, list[ErrorGroup]] = {}
    for place, cell in cells.items():
        if place.task:
            found.setdefault(place.task, []).append(decode_group(cell))
    sums = {id: sum_queues(groups) for id, groups in found.items()}
    new = [(id, group) for id, group in sums.items() if group.first > since and not group.is_muted]
    return dict(sorted(new, key=lambda one: one[1].first))


def _line(group: ErrorGroup) -> str:
    where = f" in {group.place}" if group.place else ""
    return f"{group.type}: {group.message}{where}" if group.message else f"{group.type}{where}"
